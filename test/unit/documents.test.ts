// Everything that the documents name exists: files, scripts, settings, flags, metrics, decisions, messages.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, test } from 'node:test';

import { createRegistry } from '../../packages/command/metrics/metrics.ts';
import { processRegistry } from '../../packages/figures/process-metrics.ts';
import { operations } from '../../packages/core/operations.ts';
import { callOutcomes, outcomes } from '../../packages/core/outcomes.ts';
import { failureReplies, notFoundReplies, replies } from '../../packages/core/replies.ts';
import { troubles } from '../../packages/figures/troubles.ts';
import { checkFlags } from '../../packages/command/commands/check.ts';
import { flagOf, settingNames, variableOf } from '../../packages/command/settings/settings.ts';

const root = resolve(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const documents = globSync(['*.md', '{docs,packages,test,bench,examples}/**/*.md'], {
  cwd: root,
  exclude: ['**/node_modules/**'],
});
const { scripts, dependencies, devDependencies } = JSON.parse(read('package.json')) as Record<
  'scripts' | 'dependencies' | 'devDependencies',
  Record<string, string>
>;
const fileNames = new Set(
  globSync(['*.*', '{packages,test,scripts,docs,bench,examples}/**/*.*'], {
    cwd: root,
    exclude: ['**/node_modules/**'],
  }).map((path) => path.split('/').at(-1)),
);

// Variables of the terminal, Node and the tests.
const otherVariables = [
  'NO_COLOR',
  'NODE_EXTRA_CA_CERTS',
  'NODE_TLS_REJECT_UNAUTHORIZED',
  'NODE_USE_ENV_PROXY',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'TEST_TARGETS',
  'TEST_FASTIFY',
  'TEST_PICTURES',
  'TEST_TOOLS',
  'GATEWAY_NODE',
  // examples/fastify
  'JWT_SECRET',
  // Build arguments of the Dockerfile.
  'BUILD_IMAGE',
  'RUNTIME_IMAGE',
  // systemd (sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3))
  'LISTEN_FDS',
  'LISTEN_PID',
  'LISTEN_FDNAMES',
  'NOTIFY_SOCKET',
  'WATCHDOG_USEC',
  'WATCHDOG_PID',
];
const otherFlags: string[] = [
  ...Object.keys(checkFlags),
  // Node's own
  '--disable-sigusr1',
  // scripts/leave-out.ts
  '--suites',
  // test/fleet/fleet.ts
  '--before',
  '--sabotage',
  // bench/run.ts
  '--only',
  '--seconds',
  '--quick',
  '--record',
  '--minutes',
  '--clients',
  '--seed',
  // test/fleet/fleet.ts
  '--publish',
  '--help',
  '--package',
  '--ignore-scripts',
  '--omit',
  // Deno
  '--allow-net',
  '--allow-env',
  '--test',
  // curl
  '--cacert',
  '--cert',
  '--key',
  // npm and systemctl
  '--global',
  '--prefix',
  '--now',
  // docker and buildah
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
  // npm and cosign, for a release
  '--certificate-oidc-issuer',
  '--certificate-identity',
];

/** Returns the distinct texts that the first group of `pattern` matches in `text`. */
function namesIn(text: string, pattern: RegExp): string[] {
  return [...new Set([...text.matchAll(pattern)].map((match) => match[1] ?? ''))];
}

function withoutFences(text: string): string {
  return text.replace(/^```.*?^```$/gms, '');
}

/** The anchors of headings, as GitHub makes them: lower case, hyphens for spaces, `-1` after a repeated heading. */
function anchorsOf(text: string): string[] {
  const seen = new Map<string, number>();
  return [...withoutFences(text).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => {
    const slug = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-');
    const count = seen.get(slug) ?? 0;
    seen.set(slug, count + 1);
    return count === 0 ? slug : `${slug}-${count}`;
  });
}

test('the main documents exist', () => {
  for (const name of ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md']) {
    assert.ok(documents.includes(name), name);
  }
});

const variables = new Set([...settingNames.map(variableOf), ...otherVariables]);
const flags = new Set([...settingNames.map(flagOf), ...otherFlags]);

for (const document of documents) {
  describe(document, () => {
    const text = read(document);
    const folder = dirname(document);
    const prose = withoutFences(text);
    const codes = namesIn(prose, /`([^`\n]+)`/g);
    const manifest = join(folder, 'package.json');
    const own = existsSync(join(root, manifest)) ? (JSON.parse(read(manifest)) as { scripts?: object }) : {};
    const isOutside = (target: string) => /^https?:/.test(target);
    const hasHeading = (target: string): boolean => {
      const [path = '', anchor = ''] = target.split('#');
      return anchorsOf(read(path === '' ? document : join(folder, path))).includes(anchor);
    };

    for (const [what, names, isKnown] of [
      [
        'link to a file leads to an existing file',
        namesIn(prose, /\]\(([^)#\s]+)[^)]*\)/g),
        (target: string) => isOutside(target) || existsSync(join(root, folder, target)),
      ],
      [
        'link to a heading leads to an existing heading',
        namesIn(prose, /\]\(([^)\s]*#[^)\s]+)\)/g),
        (target: string) => isOutside(target) || hasHeading(target),
      ],
      [
        'path of the repository in backticks exists',
        codes.filter((each) => /^(?:packages|test|scripts|docs|bench|deploy|examples)\//.test(each)),
        (path: string) => existsSync(join(root, path)),
      ],
      [
        'file name in backticks exists',
        codes.filter((each) => /^[\w.-]+\.(?:ts|js|json|md)$/.test(each)),
        (name: string) => fileNames.has(name),
      ],
      [
        'npm script exists',
        [...namesIn(text, /npm run (?:-\S+ )?([\w:-]+)/g), ...namesIn(text, /npm (start|test)\b/g)],
        (script: string) => [scripts, own.scripts ?? {}].some((each) => Object.hasOwn(each, script)),
      ],
      [
        'variable is known',
        namesIn(text, /(?<![\w-])([A-Z]+(?:_[A-Z]+)+)(?![\w-])/g),
        (variable: string) => variables.has(variable),
      ],
      ['flag is known', namesIn(text, /(?<![\w-])(--[a-z][a-z0-9-]*)/g), (flag: string) => flags.has(flag)],
    ] as const) {
      test(`every ${what}`, () => {
        assert.deepEqual(
          names.filter((name) => !isKnown(name)),
          [],
        );
      });
    }
  });
}

describe('docs/operating.md', () => {
  const text = read('docs/operating.md');
  const metrics = [
    createRegistry({ isServing: true, living: [], ended: { figures: [], failures: [] } }, []),
    processRegistry(),
  ]
    .flatMap((registry) => registry.getMetricsAsArray())
    .map(({ name }) => name);
  const named = namesIn(text, /\b((?:work_item_gateway|process|nodejs)_[a-z0-9_]+)/g);

  test('every metric that it names exists', () => {
    // Metrics of the process are checked on Linux only, because other systems lack some of them.
    for (const name of named.filter((each) => process.platform === 'linux' || !each.startsWith('process_'))) {
      assert.ok(metrics.includes(name), `there is no metric ${name}`);
    }
  });

  test('it names every metric', () => {
    for (const name of metrics) {
      assert.ok(named.includes(name), `${name} is not documented`);
    }
  });

  test('it names the party at fault for every outcome', () => {
    for (const outcome of callOutcomes) {
      const [, fault] = new RegExp(`^\\| \`${outcome}\` +\\|[^|]+\\| (\\w+) +\\|`, 'm').exec(text) ?? [];
      assert.equal(fault, outcomes[outcome].fault, outcome);
    }
  });
});

test('a name that docs/decisions.md places in a source file is in that file', () => {
  const places = [...read('docs/decisions.md').matchAll(/`(#?\w+)` (?:in|of) `(packages\/[\w/.-]+)`/g)];
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

test('docs/decisions.md has D1 to D71 in order, each with its point, choice and reason', () => {
  const entries = read('docs/decisions.md').split(/^### /m).slice(1);
  const numbers = entries.map((entry) => Number(/^D(\d+) /.exec(entry)?.[1]));
  assert.deepEqual(
    numbers,
    Array.from({ length: 71 }, (_, index) => index + 1),
  );
  for (const entry of entries) {
    assert.match(
      entry,
      /^D\d+ .+\n\n(?!\*\*)[^]+?\n\n\*\*Choice:\*\* [^]+?\n\n\*\*Why:\*\* [^]+?\n(?:\n\*\*Change:\*\* |\n#|$)/,
    );
  }
});

describe('ARCHITECTURE.md', () => {
  test('it lists every dependency', () => {
    const [, list = ''] = read('ARCHITECTURE.md').split('## Dependencies\n');
    const rows = namesIn(list, /^\| ([^|]+?)(?: \(dev\w*\.?\))? +\|/gm);
    const named = rows.slice(2).flatMap((row) => row.split(', '));
    const existing = Object.keys({ ...dependencies, ...devDependencies });
    assert.deepEqual(named.toSorted(), existing.toSorted());
  });

  const sources = globSync('packages/**/*.ts', { cwd: root }).map((path) => ({ path, text: read(path) }));
  for (const [what, pattern, where] of [
    [
      'import a socket module',
      / from 'node:(?:net|tls|http)'/,
      /^packages\/(?:core\/(?:admission|http1|options|guards|hosts)|command\/(?!api-reference)|dashboard|stand-in-backend)/,
    ],
    ['import the Prometheus client', / from '@prometheus-io\/client'/, /^packages\/(?:figures|command\/metrics)\//],
    ['import commander', / from 'commander'/, /^packages\/command\/cli\/cli\.ts$/],
    ['end the process', /process\.exit\(/, /^packages\/command\/(?:main|cluster\/worker)\.ts$/],
    ['read the environment', /process\.env/, /^packages\/command\/(?:main|log\/log)\.ts$/],
    ['read the settings', /\/settings\.ts'/, /^packages\/command\/(?:cli|cluster|commands|service|settings)\//],
  ] as const) {
    test(`only the allowed files ${what}`, () => {
      const found = sources.filter(({ text }) => pattern.test(text)).map(({ path }) => path);
      assert.ok(found.length > 0);
      assert.deepEqual(
        found.filter((path) => !where.test(path)),
        [],
      );
    });
  }
});

test('README.md lists every operation, and docs/errors.md lists every error message', () => {
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

test('docs/errors.md has the title of every trouble [D51, D71]', () => {
  const [, section = ''] = /\n## Next steps\n([^]*?)\n## /.exec(read('docs/errors.md')) ?? [];
  const items = section.replaceAll(/\s+/g, ' ').split(' - ').slice(1);
  const listed = items.flatMap((item) => {
    // A list can begin with words that all of its titles have.
    const [, common = '', rest = item] = /^\*\*(.+)\*\* (.*)$/.exec(item) ?? [];
    return rest.split(';').map((title) => `${common} ${title.trim()}`.trim());
  });
  assert.deepEqual(
    listed.toSorted(),
    Object.values(troubles)
      .map(({ title }) => title)
      .toSorted(),
  );
});

test('the command in README.md that tests everything is the command in .ci/run', () => {
  const [, command = ''] = /^To run all tests: `(.+)`\.$/m.exec(read('README.md')) ?? [];
  assert.equal(command, 'npm ci && npm test');
  assert.ok(read('.ci/run').endsWith(`\n${command.replace(' && ', '\n')}\n`));
});

describe('figures are the same in a document and in the code', () => {
  const operating = 'docs/operating.md';
  const decisions = 'docs/decisions.md';
  const lifecycle = 'packages/command/service/lifecycle.ts';
  const server = 'packages/core/hosts/clients/client-listener.ts';
  const memory = 'packages/command/settings/warnings.ts';
  const places = [
    [operating, /a second signal within ([\d,]+) ms of the first/, lifecycle, /repetitionByNpmMsMax = ([\d_]+)/],
    [decisions, /The gateway checks its limits every ([\d,]+) ms/, server, /sweepMs = ([\d_]+)/],
    [decisions, /nothing has arrived for ([\d,]+) ms/, server, /drainQuietMs = ([\d_]+)/],
    [operating, /plus (\d+) KB for each connection/, memory, /plain: ([\d_]+)_000/],
    [operating, /(\d+) KB with TLS/, memory, /tls: ([\d_]+)_000/],
    [operating, /(\d+) KB with HTTP\/2/, memory, /http2: ([\d_]+)_000/],
    [operating, /(\d+) MB for each process/, memory, /processBytes = ([\d_]+)_000_000/],
  ] as const;
  for (const [document, said, source, meant] of places) {
    test(`${document} and ${source}: ${String(said)}`, () => {
      const [inDocument, inSource] = [said.exec(read(document)), meant.exec(read(source))].map((match) =>
        match?.[1]?.replaceAll(/[,_]/g, ''),
      );
      assert.notEqual(inDocument, undefined);
      assert.equal(inDocument, inSource);
    });
  }

  test('only docs/performance.md states the memory of an idle process', () => {
    for (const path of documents) {
      const text = read(path).replaceAll(/ {2,}/g, ' ');
      const found = text.match(/\d+ Mi?B (?:at rest|idle)|at rest \(\d+|(?:at rest|idle)[^.|]{0,40} \**\(?\d+[^.|]{0,11} Mi?B|idle memory, MB/g) ?? []; // prettier-ignore
      assert.equal(found.length, path === 'docs/performance.md' ? 1 : 0, `${path}: ${found.join('; ')}`);
    }
  });
});
