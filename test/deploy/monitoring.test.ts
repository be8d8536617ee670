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
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const root = resolve(import.meta.dirname, '../..');
const alertsFile = join(root, 'deploy/prometheus-alerts.yml');
const alertsText = readFileSync(alertsFile, 'utf8');
/** The text of each alert by name. */
const alerts = new Map(
  alertsText
    .split(/^ +- alert: /m)
    .slice(1)
    .map((text) => [text.split('\n', 1)[0] ?? '', text]),
);

interface GrafanaDashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly type: string;
    readonly targets?: readonly { readonly expr: string }[];
  }[];
  readonly templating: {
    readonly list: readonly { readonly definition?: string; readonly query?: string | { readonly query: string } }[];
  };
}
const dashboard = JSON.parse(readFileSync(join(root, 'deploy/grafana-dashboard.json'), 'utf8')) as GrafanaDashboard;
const panelExpressions = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

const backend = await useBackend();
const list = '/api/work-items';

/** The labels of each metric of /metrics, as `label` and `label value`. */
const published = new Map<string, Set<string>>([['up', new Set()]]);

function note(text: string): void {
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z_][a-z0-9_]*)(?:\{(.*)\})? \S+$/gm)) {
    const known = published.get(name) ?? new Set();
    published.set(name, known);
    for (const [, label = '', value = ''] of labels.matchAll(/(\w+)="([^"]*)"/g)) {
      known.add(label).add(`${label} ${value}`);
    }
  }
}

before(async () => {
  // Metrics about keys and certificates exist only if there are any.
  const pair = createPair('key', 'ES256');
  await using keys = await KeyServer.start(keySetOf(pair));
  const withToken = { headers: [['Authorization', `Bearer ${goodToken(pair)}`]] } as const;
  await using command = await startCommand({
    ...{ BACKEND_URL: backend.url, IN_FLIGHT_MAX: '1' },
    ...{ AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, AUTH_JWKS_URL: keys.url },
    // No Redis listens on port 1: the metrics about Redis exist even without its answers.
    ...{ RATE_LIMIT: '1000000/1s', RATE_LIMIT_REDIS_URL: 'redis://127.0.0.1:1' },
  });
  const tls = join(root, 'test/vectors/tls/backend-');
  const files = { TLS_CERT_FILE: `${tls}certificate.pem`, TLS_KEY_FILE: `${tls}key.pem` };
  await using secure = await startCommand({ BACKEND_URL: backend.url, ...files });
  backend.answers(answer('[]'));
  await command.call('GET', list, withToken);
  await command.call('GET', '/nowhere');
  await command.call('GET', list, { headers: [['Authorization', 'Bearer x']] });
  const gate = createGate();
  backend.answersOnce(behind(gate, answer('[]')));
  const held = command.call('GET', list, withToken);
  await backend.until(() => backend.requests.length === 2, 'the held call has reached the backend');
  assert.equal((await command.call('GET', list, withToken)).status, 503, 'a call over the limit');
  gate.open();
  await held;
  note((await secure.admin('/metrics')).text);
  // The first scrape has no sample of the event loop.
  await poll(async () => {
    note((await command.admin('/metrics')).text);
    return published.has('nodejs_eventloop_lag_p99_seconds');
  }, 'every metric is published');
});

const words = ['by', 'without', 'on', 'ignoring', 'and', 'or', 'unless', 'bool', 'offset'];
// The labels that Prometheus adds to targets.
const labelsOfTargets = ['job', 'instance'];

/** The unknown metrics and labels in an expression. */
function problemsOf(expression: string): string[] {
  const problems = new Set<string>();
  const labels = new Set(labelsOfTargets);
  const selectors = [...expression.matchAll(/([a-z_][a-z0-9_]*)\{([^}]*)\}/g)];
  const groups = [...expression.matchAll(/\b(?:by|on)\s*\(([^)]*)\)/g)];
  // In the query of a variable, the last argument is a label, not a metric.
  const rest = expression.replace(/\{[^}]*\}|\[[^\]]*\]|\b(?:by|on)\s*\([^)]*\)|(?<=^label_values\(.*), \w+\)$/g, ' ');
  for (const [name] of rest.matchAll(/(?<![\w.$])[a-z_][a-z0-9_]*\b(?!\s*\()/g)) {
    const known = published.get(name);
    if (known === undefined && !words.includes(name)) problems.add(`there is no metric ${name}`);
    for (const label of known ?? []) labels.add(label);
  }
  for (const [, name = '', matchers = ''] of selectors) {
    const known = published.get(name) ?? new Set();
    for (const [, label = '', value = ''] of matchers.matchAll(/(\w+)(?:=~|!~|!=|=)"([^"]*)"/g)) {
      if (labelsOfTargets.includes(label)) continue;
      if (!known.has(label)) problems.add(`${name} has no label ${label}`);
      // /metrics shows a label's value only after it has occurred, so values that can occur are accepted, too.
      const canOccur = (each: string) =>
        each.startsWith('$') ||
        (label === 'status' && /^20[014]$/.test(each)) ||
        (name === 'work_item_gateway_request_outcomes_total' && label === 'outcome' && each in outcomes);
      for (const each of known.has(label) ? value.split('|') : []) {
        if (!known.has(`${label} ${each}`) && !canOccur(each)) problems.add(`${name} has no ${label} ${each}`);
      }
    }
  }
  for (const label of groups.flatMap(([, group = '']) => group.split(/\s*,\s*/))) {
    if (!labels.has(label)) problems.add(`no metric here has a label ${label}`);
  }
  return [...problems];
}

test('every expression of the alerts and panels names existing metrics, labels and values', () => {
  const expressions = [...alertsText.matchAll(/^ +expr: +(\S.*)$/gm)].map(([, expression = '']) => expression);
  assert.equal(expressions.length, alerts.size);
  assert.ok(alerts.size >= 8);
  for (const { title, type, targets = [] } of dashboard.panels) assert.ok(type === 'row' || targets.length > 0, title);
  const queries = dashboard.templating.list.flatMap(({ definition = [], query }) =>
    [definition, typeof query === 'object' ? query.query : []].flat(),
  );
  for (const each of [...expressions, ...panelExpressions, ...queries]) assert.deepEqual(problemsOf(each), [], each);
  const [requests, outcome] = ['work_item_gateway_requests_total', 'work_item_gateway_backend_outcomes_total'];
  for (const [wrong, problem] of [
    ['rate(work_item_gateway_request_total[5m])', 'there is no metric work_item_gateway_request_total'],
    ['up{operation="list"}', 'up has no label operation'],
    [`${requests}{status="502"}`, `${requests} has no status 502`],
    [`sum by (outcome) (${requests})`, 'no metric here has a label outcome'],
    [`sum(${outcome}{outcome!~"ok|missing"})`, `${outcome} has no outcome missing`],
  ] as const)
    assert.deepEqual(problemsOf(wrong), [problem]);
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

test('every alert has a severity and advice: the next step of the dashboard, or the present trouble in /metrics [D51, D71]', async () => {
  for (const [name, alert] of alerts) {
    assert.match(alert, /severity: (?:page|ticket)/, name);
    assert.match(alert, /summary: '.{10,}'/, name);
    assert.match(alert, /description: >-\n +\S.{40,}/, name);
  }
  for (const [name, code] of Object.entries(troublesOfAlerts)) {
    assert.ok(alerts.get(name)?.replace(/\s+/g, ' ').includes(troubles[code].step), name);
  }
  for (const [name, of] of Object.entries({
    BackendUnreachable: 'backend',
    BackendFailing: 'backend',
    ClientsRefused: 'clients',
  })) {
    assert.ok(alerts.get(name)?.includes(`work_item_gateway_trouble{of='${of}'`), name);
  }
  await using command = await startCommand({ BACKEND_URL: backend.url });
  backend.answers(answer('', { status: 401 }));
  await command.call('GET', list);
  const { title, step } = troubles['wants-authentication'];
  const labels = `trouble="wants-authentication",title="${title}",step="${step}"`;
  await poll(async () => (await command.admin('/metrics')).text.includes(`_trouble{of="backend",${labels}} 1`), labels);
});

const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
const skip = hasPromtool ? false : 'promtool is missing; on Debian: apt-get install prometheus';

describe('promtool', { skip }, () => {
  const folder = useFolder();

  function promtool(...args: string[]): void {
    const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8', cwd: root });
    assert.equal(status, 0, `${stdout}\n${stderr}`);
  }

  test('finds that each alert fires when it should, and only then', () =>
    promtool('test', 'rules', 'test/deploy/alerts.promtool.yml'));

  test('accepts the alert rules and every expression of the Grafana dashboard', () => {
    const rules = panelExpressions.map((expression, index) => {
      const expr = expression.replace(/\$__(?:rate_interval|range)/g, '5m').replace(/\$\w+/g, '.*');
      return { record: `panel:${index}`, expr };
    });
    // JSON is also YAML.
    writeFileSync(join(folder, 'panels.yml'), JSON.stringify({ groups: [{ name: 'panels', rules }] }));
    promtool('check', 'rules', alertsFile, join(folder, 'panels.yml'));
  });
});
