// Everything that the documents name exists: files, scripts, settings, flags, metrics, decisions, messages.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { test } from 'node:test';
import { makeFiles } from '../../bench/figures.ts';
import { findResults, formatResults, readResults } from '../../bench/results.ts';
import { createSettingsDoc } from '../../scripts/write-settings-doc.ts';
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

const otherVariables = [
  // The terminal, Node, and systemd (sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3)).
  ...'NO_COLOR NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED NODE_USE_ENV_PROXY HTTP_PROXY HTTPS_PROXY'.split(' '),
  ...'NO_PROXY LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID'.split(' '),
  // The tests, examples/fastify, and the build arguments of the Dockerfile.
  ...'TEST_TARGETS TEST_FASTIFY TEST_PICTURES TEST_TOOLS GATEWAY_NODE JWT_SECRET BUILD_IMAGE RUNTIME_IMAGE'.split(' '),
];
const otherFlags: string[] = [
  ...Object.keys(checkFlags),
  // Node, Deno, npm, curl and systemctl.
  ...'--disable-sigusr1 --test --allow-net --allow-env --help --package --ignore-scripts --omit --global'.split(' '),
  ...'--prefix --cacert --cert --key --now'.split(' '),
  // Long tests and measurements.
  ...'--suites --before --sabotage --publish --only --seconds --quick --record --minutes --clients --seed'.split(' '),
  // docker, buildah and cosign.
  ...'--name --network --read-only --cap-drop --memory --secret --format --time --timestamp --env-file'.split(' '),
  ...'--certificate-oidc-issuer --certificate-identity'.split(' '),
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
  test(`${document}: everything that it names exists`, () => {
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
    const isThere = (path: string) => existsSync(join(root, path));
    const checks: Record<string, [names: string[], isKnown: (name: string) => boolean]> = {
      links: [namesIn(prose, /\]\(([^)#\s]+)[^)]*\)/g), (to) => isOutside(to) || isThere(join(folder, to))],
      headings: [namesIn(prose, /\]\(([^)\s]*#[^)\s]+)\)/g), (to) => isOutside(to) || hasHeading(to)],
      paths: [codes.filter((each) => /^(?:packages|test|scripts|docs|bench|deploy|examples)\//.test(each)), isThere],
      files: [codes.filter((each) => /^[\w.-]+\.(?:ts|js|json|md)$/.test(each)), (name) => fileNames.has(name)],
      scripts: [
        [...namesIn(text, /npm run (?:-\S+ )?([\w:-]+)/g), ...namesIn(text, /npm (start|test)\b/g)],
        (script) => [scripts, own.scripts ?? {}].some((each) => Object.hasOwn(each, script)),
      ],
      variables: [namesIn(text, /(?<![\w-])([A-Z]+(?:_[A-Z]+)+)(?![\w-])/g), (name) => variables.has(name)],
      flags: [namesIn(text, /(?<![\w-])(--[a-z][a-z0-9-]*)/g), (flag) => flags.has(flag)],
    };
    const unknown = Object.entries(checks).flatMap(([what, [names, isKnown]]) =>
      names.filter((name) => !isKnown(name)).map((name) => `${what}: ${name}`),
    );
    assert.deepEqual(unknown, []);
  });
}

test('docs/operating.md names every metric, no other, and the party at fault for every outcome', () => {
  const text = read('docs/operating.md');
  const reports = { isServing: true, living: [], ended: { figures: [], failures: [] } };
  const metrics = [createRegistry(reports, []), processRegistry()]
    .flatMap((registry) => registry.getMetricsAsArray())
    .map(({ name }) => name);
  const named = namesIn(text, /\b((?:work_item_gateway|process|nodejs)_[a-z0-9_]+)/g);
  // Metrics of the process are checked on Linux only, because other systems lack some of them.
  const checked = named.filter((each) => process.platform === 'linux' || !each.startsWith('process_'));
  assert.deepEqual(checked.toSorted(), metrics.toSorted());
  for (const outcome of callOutcomes) {
    const [, fault] = new RegExp(`^\\| \`${outcome}\` +\\|[^|]+\\| (\\w+) +\\|`, 'm').exec(text) ?? [];
    assert.equal(fault, outcomes[outcome].fault, outcome);
  }
});

test('a name that docs/decisions.md places in a source file is in that file', () => {
  const places = [...read('docs/decisions.md').matchAll(/`(#?\w+)` (?:in|of) `(packages\/[\w/.-]+)`/g)];
  assert.ok(places.length >= 10);
  for (const [place, name = '', file = ''] of places) {
    assert.ok(
      (read(file).match(/#?\w+/g) ?? []).some((each) => each === name),
      place,
    );
  }
});

test('docs/decisions.md has D1 to D71 in order, each with its point, choice and reason', () => {
  const entries = read('docs/decisions.md').split(/^### /m).slice(1);
  assert.equal(entries.length, 71);
  const form =
    /^D(\d+) .+\n\n(?!\*\*)[^]+?\n\n\*\*Choice:\*\* [^]+?\n\n\*\*Why:\*\* [^]+?\n(?:\n\*\*Change:\*\* |\n#|$)/;
  for (const [index, entry] of entries.entries()) assert.equal(form.exec(entry)?.[1], String(index + 1), entry);
});

test('ARCHITECTURE.md lists every dependency', () => {
  const [, list = ''] = read('ARCHITECTURE.md').split('## Dependencies\n');
  const rows = namesIn(list, /^\| ([^|]+?)(?: \(dev\w*\.?\))? +\|/gm);
  const named = rows.slice(2).flatMap((row) => row.split(', '));
  assert.deepEqual(named.toSorted(), Object.keys({ ...dependencies, ...devDependencies }).toSorted());
});

test('README.md lists every operation, and docs/errors.md lists every error message', () => {
  const text = read('README.md') + read('docs/errors.md');
  for (const { name, method, on } of operations) {
    const path = on === 'item' ? '/api/work-items/{id}' : '/api/work-items';
    assert.match(text, new RegExp(`^\\| ${name} +\\| \`${method} ${path}\` +\\|`, 'm'));
  }
  const all = [replies, failureReplies, notFoundReplies].flatMap((each) => Object.values(each));
  for (const { status, body } of all.filter((reply) => reply.status >= 400)) {
    const { error } = JSON.parse(body.toString()) as { error: string };
    assert.match(text, new RegExp(`^\\| ${status} +\\| ${error} +\\|`, 'm'));
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
  const titles = Object.values(troubles).map(({ title }) => title);
  assert.deepEqual(listed.toSorted(), titles.toSorted());
});

test('the command in README.md that tests everything is the command in .ci/run', () => {
  const [, command = ''] = /^To run all tests: `(.+)`\.$/m.exec(read('README.md')) ?? [];
  assert.equal(command, 'npm ci && npm test');
  assert.ok(read('.ci/run').endsWith(`\n${command.replace(' && ', '\n')}\n`));
});

test('a figure in a document is the one in the code', () => {
  const [operating, decisions] = ['docs/operating.md', 'docs/decisions.md'];
  const server = 'packages/core/hosts/clients/client-listener.ts';
  const memory = 'packages/command/settings/warnings.ts';
  for (const [document, said, source, meant] of [
    [operating, /a second signal within ([\d,]+) ms of the first/, 'packages/command/service/lifecycle.ts', /repetitionByNpmMsMax = ([\d_]+)/],
    [decisions, /The gateway checks its limits every ([\d,]+) ms/, server, /sweepMs = ([\d_]+)/],
    [decisions, /nothing has arrived for ([\d,]+) ms/, server, /drainQuietMs = ([\d_]+)/],
    [operating, /plus (\d+) KB for each connection/, memory, /plain: ([\d_]+)_000/],
    [operating, /(\d+) KB with TLS/, memory, /tls: ([\d_]+)_000/],
    [operating, /(\d+) KB with HTTP\/2/, memory, /http2: ([\d_]+)_000/],
    [operating, /(\d+) MB for each process/, memory, /processBytes = ([\d_]+)_000_000/],
  ] as const) {
    const found = [said.exec(read(document)), meant.exec(read(source))];
    const [inDocument, inSource] = found.map((match) => match?.[1]?.replaceAll(/[,_]/g, ''));
    assert.notEqual(inDocument, undefined, String(said));
    assert.equal(inDocument, inSource, String(said));
  } // prettier-ignore
  // Only docs/performance.md states the memory of an idle process.
  for (const path of documents) {
    const text = read(path).replaceAll(/ {2,}/g, ' ');
    const found = text.match(/\d+ Mi?B (?:at rest|idle)|at rest \(\d+|(?:at rest|idle)[^.|]{0,40} \**\(?\d+[^.|]{0,11} Mi?B|idle memory, MB/g) ?? []; // prettier-ignore
    assert.equal(found.length, path === 'docs/performance.md' ? 1 : 0, `${path}: ${found.join('; ')}`);
  }
});

test('docs/settings.md is what `npm run docs` writes, with one entry for each setting [D32]', async () => {
  const written = read('docs/settings.md');
  assert.equal(written, await createSettingsDoc(), 'docs/settings.md is stale: npm run docs');
  for (const name of settingNames) {
    assert.equal(written.split(`\n### \`${variableOf(name)}\`\n`).length, 2, name);
    assert.equal(written.match(new RegExp(`^- \`${flagOf(name)}\`[: ]`, 'gm'))?.length, 1, name);
  }
});

test('recorded figures are in the documents as `npm run figures` writes them, and in the file as --record does', async () => {
  const results = readResults();
  assert.equal(formatResults(results), readFileSync(findResults(), 'utf8'));
  const files = await makeFiles();
  for (const [path, text] of files) assert.equal(read(path), text, `${path} is stale: npm run figures`);
  // If the recorded figures change, every file changes.
  for (const { us } of results.peers.rows.filter(({ name }) => name === 'gateway')) {
    for (const workload of Object.keys(us)) us[workload] = 2 * (us[workload] ?? 0);
  }
  for (const row of results.restart.rows) row.recoveryMaxMs += 1;
  for (const row of results.fleet.rows) row.lost += 1;
  for (const [path, text] of await makeFiles(results)) assert.notEqual(text, files.get(path), path);
});
