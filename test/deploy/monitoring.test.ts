// The Grafana dashboard and the alert rules: their expressions name metrics of /metrics, and promtool accepts them.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { before, describe, test } from 'node:test';
import { outcomes } from '../../packages/core/outcomes.ts';
import { troubles, type TroubleCode } from '../../packages/figures/troubles.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { answer, behind, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { useFolder } from '../helpers/suites.ts';

const root = resolve(import.meta.dirname, '../..');
const alertsFile = join(root, 'deploy/prometheus-alerts.yml');
const alertsText = readFileSync(alertsFile, 'utf8');

interface Panel {
  readonly title: string;
  readonly type: string;
  readonly targets?: readonly { readonly expr: string }[];
}
interface GrafanaDashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] };
}
const dashboard = JSON.parse(readFileSync(join(root, 'deploy/grafana-dashboard.json'), 'utf8')) as GrafanaDashboard;

const alertExpressions = [...alertsText.matchAll(/^ +expr: +(\S.*)$/gm)].map(([, expression = '']) => expression);
const panelExpressions = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
const variableQueries = dashboard.templating.list.flatMap(({ definition }) => definition ?? []);

// The labels that Prometheus adds to targets, and the metrics that it makes itself.
const labelsOfTargets = ['job', 'instance'];
const metricsOfPrometheus = ['up'];
const words = ['by', 'without', 'on', 'ignoring', 'and', 'or', 'unless', 'bool', 'offset'];

/** For each metric of /metrics, its labels with their values. */
type Published = ReadonlyMap<string, ReadonlyMap<string, ReadonlySet<string>>>;

let published: Published;
before(async () => {
  const backend = await ScriptedBackend.start();
  const gate = createGate();
  // The metrics about keys exist only if the gateway checks tokens.
  const pair = createPair('key', 'ES256');
  await using keys = await KeyServer.start(keySetOf(pair));
  const withToken = { headers: [['Authorization', `Bearer ${goodToken(pair)}`]] } as const;
  const command = await startCommand({
    BACKEND_URL: backend.url,
    IN_FLIGHT_MAX: '1',
    AUTH_ISSUER: issuerName,
    AUTH_AUDIENCE: audience,
    AUTH_JWKS_URL: keys.url,
    // No Redis listens on port 1: the metrics about Redis exist even without its answers.
    RATE_LIMIT: '1000000/1s',
    RATE_LIMIT_REDIS_URL: 'redis://127.0.0.1:1',
  });
  try {
    backend.answers(answer('[]'));
    await command.call('GET', '/api/work-items', withToken);
    await command.call('GET', '/nowhere');
    await command.call('GET', '/api/work-items', { headers: [['Authorization', 'Bearer x']] });
    backend.answersOnce(behind(gate, answer('[]')));
    const held = command.call('GET', '/api/work-items', withToken);
    await backend.nextRequest();
    await backend.until(() => backend.requests.length === 2, 'the held call has reached the backend');
    assert.equal((await command.call('GET', '/api/work-items', withToken)).status, 503, 'a call over the limit');
    gate.open();
    await held;
    // The first scrape has no sample of the event loop.
    await poll(async () => {
      published = parse((await command.admin('/metrics')).text);
      return published.has('nodejs_eventloop_lag_p99_seconds');
    }, 'every metric is published');
    published = new Map([...published, ...(await readCertificateMetrics(backend.url))]);
  } finally {
    await command.stop();
    await backend.stop();
  }
});

// The metrics about certificates exist only with TLS.
async function readCertificateMetrics(backendUrl: string): Promise<Published> {
  await using command = await startCommand({
    BACKEND_URL: backendUrl,
    TLS_CERT_FILE: join(root, 'test/vectors/tls/backend-certificate.pem'),
    TLS_KEY_FILE: join(root, 'test/vectors/tls/backend-key.pem'),
  });
  const all = parse((await command.admin('/metrics')).text);
  return new Map([...all].filter(([name]) => name.startsWith('work_item_gateway_certificate_')));
}

function parse(text: string): Published {
  const metrics = new Map<string, Map<string, Set<string>>>();
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z_][a-z0-9_]*)(?:\{(.*)\})? \S+$/gm)) {
    const known = metrics.get(name) ?? new Map<string, Set<string>>();
    metrics.set(name, known);
    for (const [, label = '', value = ''] of labels.matchAll(/(\w+)="([^"]*)"/g)) {
      known.set(label, (known.get(label) ?? new Set()).add(value));
    }
  }
  return metrics;
}

/** The unknown metrics and labels in an expression. */
function problemsOf(expression: string): string[] {
  const problems: string[] = [];
  const labels = new Set(labelsOfTargets);
  // Checks and removes the metrics that have a selector; the names that remain have no selector.
  const rest = expression.replace(/([a-z_][a-z0-9_]*)\{([^}]*)\}/g, (_, name: string, matchers: string) => {
    checkName(name);
    for (const [, label = '', operator = '', value = ''] of matchers.matchAll(/(\w+)(=~|!~|!=|=)"([^"]*)"/g)) {
      const values = published.get(name)?.get(label);
      if (labelsOfTargets.includes(label) || value.startsWith('$')) {
        if (values === undefined && !labelsOfTargets.includes(label)) problems.push(`${name} has no label ${label}`);
      } else if (values === undefined) {
        problems.push(`${name} has no label ${label}`);
      } else {
        for (const each of operator.includes('~') ? value.split('|') : [value]) {
          // /metrics shows a label's value only after it has occurred, so values that can occur are accepted, too.
          const canOccur =
            (label === 'status' && /^20[014]$/.test(each)) ||
            (name === 'work_item_gateway_request_outcomes_total' && label === 'outcome' && each in outcomes);
          if (!values.has(each) && !canOccur) problems.push(`${name} has no ${label} ${each}`);
        }
      }
    }
    return ' ';
  });
  function checkName(name: string): void {
    const known = published.get(name);
    if (known === undefined && !metricsOfPrometheus.includes(name)) problems.push(`there is no metric ${name}`);
    for (const label of known?.keys() ?? []) labels.add(label);
  }
  const withoutGroups = rest.replace(/\[[^\]]*\]/g, ' ').replace(/\b(?:by|on)\s*\(([^)]*)\)/g, ' ');
  for (const [name] of withoutGroups.matchAll(/(?<![\w.$])[a-z_][a-z0-9_]*\b(?!\s*\()/g)) {
    // In the query of a variable, the last argument is a label, not a metric.
    if (!words.includes(name) && !/^label_values\(.*, \w+\)$/.test(expression)) checkName(name);
  }
  for (const [, group = ''] of expression.matchAll(/\b(?:by|on)\s*\(([^)]*)\)/g)) {
    for (const label of group.split(',').map((each) => each.trim())) {
      if (!labels.has(label)) problems.push(`no metric here has a label ${label}`);
    }
  }
  return problems;
}

describe('deploy/', () => {
  test('every alert and every panel has an expression', () => {
    assert.equal(alertExpressions.length, [...alertsText.matchAll(/^ +- alert: /gm)].length);
    assert.ok(alertExpressions.length >= 8);
    for (const { title, type, targets = [] } of dashboard.panels) {
      assert.ok(type === 'row' || targets.length > 0, title);
    }
  });

  test('unknown metrics, labels and values are detected', () => {
    for (const [wrong, problem] of [
      ['rate(work_item_gateway_request_total[5m])', 'there is no metric work_item_gateway_request_total'],
      [
        'work_item_gateway_backend_reachable{operation="list"}',
        'work_item_gateway_backend_reachable has no label operation',
      ],
      ['work_item_gateway_requests_total{status="502"}', 'work_item_gateway_requests_total has no status 502'],
      ['sum by (outcome) (work_item_gateway_requests_total)', 'no metric here has a label outcome'],
      [
        'sum(work_item_gateway_backend_outcomes_total{outcome!~"ok|missing"})',
        'work_item_gateway_backend_outcomes_total has no outcome missing',
      ],
    ] as const) {
      assert.deepEqual(problemsOf(wrong), [problem]);
    }
  });

  for (const expression of [...alertExpressions, ...panelExpressions, ...variableQueries]) {
    test(`/metrics has the metrics and labels of ${expression}`, () => assert.deepEqual(problemsOf(expression), []));
  }

  test('every alert has advice and a severity', () => {
    for (const alert of alertsText.split(/^ +- alert: /m).slice(1)) {
      const name = alert.split('\n', 1)[0] ?? '';
      assert.match(alert, /severity: (?:page|ticket)/, name);
      assert.match(alert, /summary: '.{10,}'/, name);
      assert.match(alert, /description: >-\n +\S.{40,}/, name);
    }
  });
});

/** The alerts with fixed troubles. The others quote `work_item_gateway_trouble`, whose words come from the same table. */
const troublesOfAlerts: Readonly<Record<string, TroubleCode>> = {
  NoCallSucceeds: 'no-call-succeeds',
  BackendSlow: 'slow-backend',
  GatewaySlow: 'slow-gateway',
  GatewayTurnsCallsAway: 'overload',
  GatewayHasNoKeys: 'no-keys',
  GatewayFault: 'bug',
  WorkersDie: 'worker-died',
  GatewayShortOfProcessorTime: 'short-of-cpu',
  GatewayLogLinesDropped: 'log-lost',
};

for (const [name, code] of Object.entries(troublesOfAlerts)) {
  test(`the alert ${name} gives the same next step as the dashboard [D51]`, () => {
    const [, alert = ''] = alertsText.split(`- alert: ${name}\n`);
    const [description = ''] = (alert.split('description: >-\n')[1] ?? '').split('\n\n');
    assert.ok(description.replace(/\s+/g, ' ').includes(troubles[code].step), troubles[code].step);
  });
}

test('an alert about the backend or refused clients quotes the present trouble, which exists in /metrics [D71]', async () => {
  const backend = await ScriptedBackend.start();
  await using command = await startCommand({ BACKEND_URL: backend.url });
  backend.answers(answer('', { status: 401 }));
  await command.call('GET', '/api/work-items');
  const { title, step } = troubles['wants-authentication'];
  const labels = `trouble="wants-authentication",title="${title}",step="${step}"`;
  await poll(async () => (await command.admin('/metrics')).text.includes(`_trouble{of="backend",${labels}} 1`), labels);
  await backend.stop();
  for (const [name, of] of [['BackendUnreachable', 'backend'], ['BackendFailing', 'backend'], ['ClientsRefused', 'clients']] as const) {
    const [, alert = ''] = alertsText.split(`- alert: ${name}\n`);
    assert.match(alert.split('- alert: ')[0] ?? '', new RegExp(`work_item_gateway_trouble\\{of='${of}'`));
  }
}); // prettier-ignore

const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
const skip = hasPromtool ? false : 'promtool is missing; on Debian: apt-get install prometheus';

describe('promtool', { skip }, () => {
  const folder = useFolder();

  function promtool(...args: string[]): void {
    const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8', cwd: root });
    assert.equal(status, 0, `${stdout}\n${stderr}`);
  }

  test('accepts the alert rules', () => promtool('check', 'rules', alertsFile));

  test('finds that each alert fires when it should, and only then', () =>
    promtool('test', 'rules', 'test/deploy/alerts.promtool.yml'));

  test('accepts every expression of the Grafana dashboard', () => {
    const rules = panelExpressions.map((expression, index) => {
      const expr = expression.replace(/\$__(?:rate_interval|range)/g, '5m').replace(/\$\w+/g, '.*');
      return { record: `panel:${index}`, expr };
    });
    // JSON is also YAML.
    writeFileSync(join(folder, 'panels.yml'), JSON.stringify({ groups: [{ name: 'panels', rules }] }));
    promtool('check', 'rules', join(folder, 'panels.yml'));
  });
});
