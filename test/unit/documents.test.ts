// What the documents name exists: files, scripts, settings, flags, metrics, decisions, messages.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { parse } from 'yaml';

import { createCapacityDoc } from '../../scripts/write-capacity-doc.ts';
import { figures } from '../../src/capacity/figures.ts';
import { capacityFlags, readDemand } from '../../src/capacity/flags.ts';
import { planCapacity } from '../../src/capacity/plan.ts';
import { createRegistry } from '../../src/telemetry/metrics.ts';
import { processRegistry } from '../../src/telemetry/process-metrics.ts';
import { operations } from '../../src/gateway/operations.ts';
import { callOutcomes, outcomes } from '../../src/gateway/outcomes.ts';
import { failureReplies, notFoundReplies, replies } from '../../src/gateway/replies.ts';
import { contractFlags } from '../../src/contract/flags.ts';
import { flagOf, settingNames, variableOf } from '../../src/process/settings.ts';

const root = resolve(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const documents = globSync(['*.md', 'docs/**/*.md'], { cwd: root });
const { scripts, dependencies, devDependencies } = JSON.parse(read('package.json')) as Record<
  'scripts' | 'dependencies' | 'devDependencies',
  Record<string, string>
>;
const fileNames = new Set(
  globSync(['*.*', '{src,test,scripts,docs}/**/*.*'], { cwd: root }).map((path) => path.split('/').at(-1)),
);

// Of the terminal, of Node and of the tests.
const otherVariables = [
  'NO_COLOR',
  'NODE_EXTRA_CA_CERTS',
  'NODE_OPTIONS',
  'TEST_TARGETS',
  'TEST_FASTIFY',
  'GATEWAY_NODE',
  'SHUT_WR',
  // Of examples/fastify.
  'JWT_SECRET',
  // Build arguments of the Dockerfile.
  'BUILD_IMAGE',
  'RUNTIME_IMAGE',
  // Of systemd (sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3)).
  'LISTEN_FDS',
  'LISTEN_PID',
  'LISTEN_FDNAMES',
  'NOTIFY_SOCKET',
  'WATCHDOG_USEC',
  'WATCHDOG_PID',
];
const otherFlags: string[] = [
  ...Object.keys(contractFlags),
  // Of bench/run.ts and bench/guards.ts.
  '--contenders',
  '--workloads',
  '--attack',
  '--only',
  '--rounds',
  '--rates',
  '--seconds',
  '--silent',
  '--minutes',
  '--clients',
  '--seed',
  // Of test/fleet/fleet.ts.
  '--calls',
  '--rate',
  '--publish',
  '--help',
  '--version',
  '--package',
  '--ignore-scripts',
  '--omit',
  // Of Deno.
  '--allow-net',
  '--allow-env',
  '--test',
  '--max-http-header-size',
  // Of curl.
  '--cacert',
  '--cert',
  '--key',
  // Of npm and systemctl.
  '--global',
  '--prefix',
  '--now',
  // Of docker and buildah.
  '--name',
  '--network',
  '--read-only',
  '--cap-drop',
  '--memory',
  '--secret',
  '--format',
  '--time',
  '--timestamp',
  '--env-file',
  // Of kubectl.
  '--from-literal',
  // Of npm, for a release, and of cosign.
  '--no-git-tag-version',
  '--certificate-oidc-issuer',
  '--certificate-identity',
];

/** All texts of the first group of `pattern` in `text`, each once. */
function namesIn(text: string, pattern: RegExp): string[] {
  return [...new Set([...text.matchAll(pattern)].map((match) => match[1] ?? ''))];
}

function withoutFences(text: string): string {
  return text.replace(/^```.*?^```$/gms, '');
}

test('the documents are there', () => {
  for (const name of ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md']) {
    assert.ok(documents.includes(name), name);
  }
});

for (const document of documents) {
  describe(document, () => {
    const text = read(document);
    const codes = namesIn(withoutFences(text), /`([^`\n]+)`/g);

    test('every link to a file leads to one', () => {
      for (const target of namesIn(withoutFences(text), /\]\(([^)#\s]+)[^)]*\)/g)) {
        assert.ok(
          /^https?:/.test(target) || existsSync(join(root, dirname(document), target)),
          `${target} does not exist`,
        );
      }
    });

    test('every path of the repository in backticks exists', () => {
      for (const code of codes.filter((each) =>
        /^(?:src|test|scripts|docs|bench|deploy|examples)\//.test(each),
      )) {
        assert.ok(existsSync(join(root, code)), `${code} does not exist`);
      }
    });

    test('every file name in backticks is that of a file', () => {
      for (const code of codes.filter((each) => /^[\w.-]+\.(?:ts|js|json|md)$/.test(each))) {
        assert.ok(fileNames.has(code), `no file is called ${code}`);
      }
    });

    test('every npm script exists', () => {
      const named = namesIn(text, /npm run (?:-\S+ )?([\w:-]+)/g);
      named.push(...namesIn(text, /npm (start|test)\b/g));
      for (const script of named) {
        assert.ok(Object.hasOwn(scripts, script), `there is no npm run ${script}`);
      }
    });

    test('every variable is a setting', () => {
      const known = [...settingNames.map(variableOf), ...otherVariables];
      for (const variable of namesIn(text, /(?<![\w-])([A-Z]+(?:_[A-Z]+)+)(?![\w-])/g)) {
        assert.ok(known.includes(variable), `${variable} is no setting`);
      }
    });

    test('every flag is that of a setting', () => {
      const known = [...settingNames.map(flagOf), ...Object.keys(capacityFlags), ...otherFlags];
      for (const flag of namesIn(text, /(?<![\w-])(--[a-z][a-z0-9-]*)/g)) {
        assert.ok(known.includes(flag), `${flag} is no flag`);
      }
    });
  });
}

describe('docs/operating.md', () => {
  const text = read('docs/operating.md');
  const metrics = [createRegistry([], []), processRegistry()]
    .flatMap((registry) => registry.getMetricsAsArray())
    .map(({ name }) => name);
  const named = namesIn(text, /\b((?:work_item_gateway|process|nodejs)_[a-z0-9_]+)/g);

  test('every metric that it names exists', () => {
    // Some figures of the process exist on Linux only.
    for (const name of named.filter((each) => process.platform === 'linux' || !each.startsWith('process_'))) {
      assert.ok(metrics.includes(name), `there is no metric ${name}`);
    }
  });

  test('it names every metric', () => {
    for (const name of metrics) {
      assert.ok(named.includes(name), `${name} is not documented`);
    }
  });

  test('it says of every outcome who is at fault', () => {
    for (const outcome of callOutcomes) {
      const [, fault] = new RegExp(`^\\| \`${outcome}\` +\\|[^|]+\\| (\\w+) +\\|`, 'm').exec(text) ?? [];
      assert.equal(fault, outcomes[outcome].fault, outcome);
    }
  });
});

test('what docs/decisions.md says is in a file of the source is in it', () => {
  const places = [...read('docs/decisions.md').matchAll(/`(#?\w+)` (?:in|of) `(src\/[\w/.-]+)`/g)];
  assert.ok(places.length >= 10);
  const missing = places.filter(([, name = '', file = '']) => {
    const names: readonly string[] = read(file).match(/#?\w+/g) ?? [];
    return !names.includes(name);
  });
  assert.deepEqual(
    missing.map(([place]) => place),
    [],
  );
});

test('docs/decisions.md has D1 to D35 and later ones, in order, each with its four parts', () => {
  const entries = read('docs/decisions.md').split(/^### /m).slice(1);
  const numbers = entries.map((entry) => Number(/^D(\d+) /.exec(entry)?.[1]));
  assert.deepEqual(
    numbers.slice(0, 35),
    Array.from({ length: 35 }, (_, index) => index + 1),
  );
  assert.deepEqual(
    numbers,
    [...new Set(numbers)].sort((one, other) => one - other),
  );
  for (const entry of entries) {
    assert.deepEqual(namesIn(entry, /^- (\w+): /gm), ['Context', 'Choice', 'Why', 'Change'], entry);
  }
});

describe('ARCHITECTURE.md', () => {
  test('it says of every dependency why it is there', () => {
    const rows = namesIn(read('ARCHITECTURE.md'), /^\| ([^|]+?)(?: \(dev\w*\.?\))? +\|/gm);
    const named = rows.slice(2).flatMap((row) => row.split(', '));
    const existing = Object.keys({ ...dependencies, ...devDependencies });
    assert.deepEqual(named.toSorted(), existing.toSorted());
  });

  const sources = globSync('src/**/*.ts', { cwd: root }).map((path) => ({ path, text: read(path) }));
  for (const [what, pattern, where] of [
    [
      'knows a socket',
      / from 'node:(?:net|tls|http)'/,
      /^src\/(?:wire|adapters|admin|dashboard|process|telemetry|workers|embedded-backend|guards)\//,
    ],
    ['knows prom-client', / from 'prom-client'/, /^src\/telemetry\//],
    ['knows commander', / from 'commander'/, /^src\/process\/cli\.ts$/],
    ['ends the process', /process\.exit\(/, /^src\/(?:main|workers\/worker)\.ts$/],
    ['reads the environment', /process\.env/, /^src\/(?:main|telemetry\/log)\.ts$/],
    ['reads the settings', /\/settings\.ts'/, /^src\/(?:workers|process)\/[a-z-]+\.ts$|^src\/main\.ts$/],
  ] as const) {
    test(`nothing ${what} where it must not`, () => {
      const found = sources.filter(({ text }) => pattern.test(text)).map(({ path }) => path);
      assert.ok(found.length > 0);
      assert.deepEqual(
        found.filter((path) => !where.test(path)),
        [],
      );
    });
  }
});

test('no file imports itself, however many files lie between, types included', () => {
  const imports = new Map(
    globSync('src/**/*.{ts,js}', { cwd: root }).map((path) => [
      path,
      namesIn(read(path), /(?:from|import\()\s*'(\.[^']+)'/g).map((name) => join(dirname(path), name)),
    ]),
  );
  for (const start of imports.keys()) {
    const reached = new Set<string>();
    const open = [...(imports.get(start) ?? [])];
    for (let path = open.pop(); path !== undefined; path = open.pop()) {
      assert.notEqual(path, start, `${start} imports itself`);
      if (!reached.has(path)) {
        reached.add(path);
        open.push(...(imports.get(path) ?? []));
      }
    }
  }
});

test('README.md has every operation, docs/errors.md every message', () => {
  const text = read('README.md') + read('docs/errors.md');
  for (const { name, method, on } of operations) {
    const path = on === 'item' ? '/api/work-items/{id}' : '/api/work-items';
    assert.match(text, new RegExp(`^\\| ${name} +\\| \`${method} ${path}\` +\\|`, 'm'));
  }
  for (const { status, body } of [
    ...Object.values(replies),
    ...Object.values(failureReplies),
    ...Object.values(notFoundReplies),
  ]) {
    if (status >= 400) {
      const { error } = JSON.parse(body.toString()) as { error: string };
      assert.match(text, new RegExp(`^\\| ${status} +\\| ${error} +\\|`, 'm'));
    }
  }
});

describe('docs/capacity.md', () => {
  // Where each figure of the calculator stands: in docs/performance.md, but for the last.
  const places: Record<keyof typeof figures, RegExp> = {
    readUs: /^\| read an item, 432 B +\| +([\d.]+) µs/m,
    smallBytes: /^\| read an item, (\d+) B +\|/m,
    updateUs: /^\| update, 392 B +\| +([\d.]+) µs/m,
    createUs: /^\| create, 392 B +\| +([\d.]+) µs/m,
    listBytes: /^\| list of (42 KB) /m,
    listUs: /^\| list of 42 KB +\| +([\d.]+) µs/m,
    longListBytes: /^\| list of (417 KB) /m,
    longListUs: /^\| list of 417 KB +\| +([\d.]+) µs/m,
    steadyRate: /^\| rate limit in Redis, ([\d,]+) calls\/s/m,
    steadyUs: /^\| rate limit in Redis.*\((\d+) without\)/m,
    steadyFlatOutUs: /^\| none +\| +([\d.]+) \|/m,
    tokenUs: /^\| a token that is remembered .*\| \**([\d.]+) µs\** +\| +[\d.]+ µs/m,
    rateLimitUs: /^\| rate limit, 100 clients .*\| \**([\d.]+) µs\** +\| +[\d.]+ µs/m,
    redisUs: /^\| rate limit in Redis.*\| \**([\d.]+) µs\** \(/m,
    tlsFactor: /^\| TLS, HTTP\/1\.1 .*\| \**([\d.]+) times plain/m,
    logLineShare: /A log line for each request.*cost (\d+ %) of a read/,
    twoWorkersFactor: /two workers can do ([\d.]+) times what one can/,
    busyShare: /no more than (\d+ %) of one/,
    connectionBytes: /about (\d+ KB) for each connection at rest/,
    questionOfOneUs: /^\| +1 \| +([\d.]+) \|/m,
    questionOfHundredUs: /^\| +100 \| +([\d.]+) \|/m,
    redisClientBytes: /a key of about (\d+) bytes for each client/,
  };
  const factors: Readonly<Record<string, number>> = { ' KB': 1_000, ' %': 0.01 };

  for (const [name, place] of Object.entries(places) as [keyof typeof figures, RegExp][]) {
    const document = name === 'redisClientBytes' ? 'docs/security.md' : 'docs/performance.md';
    test(`the calculator takes ${name} as it stands in ${document}`, () => {
      const [, text = ''] = place.exec(read(document)) ?? [];
      assert.notEqual(text, '', `${document} has no ${name} any more: ${String(place)}`);
      const [, number = '', unit = ''] = /^([\d.,]+)(.*)$/.exec(text) ?? [];
      const value = Number(number.replaceAll(',', '')) * (factors[unit] ?? 1);
      assert.ok(
        Math.abs(value - figures[name]) < 1e-9,
        `it is ${value} there and ${figures[name]} in src/capacity/figures.ts: change it there, then run \`npm run docs\``,
      );
    });
  }

  test('its tables are what `npm run docs` writes', async () => {
    assert.equal(read('docs/capacity.md'), await createCapacityDoc(), 'it is stale: npm run docs');
  });

  test('its plan of a small service is what deploy/kubernetes has', () => {
    const { spec } = parse(read('deploy/kubernetes/base/deployment.yaml')) as {
      spec: { template: { spec: { containers: { resources: Record<string, { memory: string }> }[] } } };
    };
    const { limits, requests } = spec.template.spec.containers[0]?.resources ?? {};
    const { pods } = planCapacity(readDemand({ '--rate': '1k' }).demand);
    assert.equal(`${pods.memoryLimitMib}Mi`, limits?.memory);
    assert.equal(`${pods.memoryRequestMib}Mi`, requests?.memory);
    const { configMapGenerator } = parse(read('deploy/kubernetes/base/kustomization.yaml')) as {
      configMapGenerator: { literals: string[] }[];
    };
    assert.ok(
      configMapGenerator[0]?.literals.includes(`BUFFERED_BYTES_MAX=${pods.settings.BUFFERED_BYTES_MAX}`),
    );
  });
});
