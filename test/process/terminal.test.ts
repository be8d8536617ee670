// When its terminal closes, the command ends as after SIGTERM; without a terminal, SIGHUP causes a reload [D54]. On
// a terminal the output is short lines, not JSON. `script` of util-linux makes a real terminal. When `script` is
// killed, the terminal closes.

import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { holdCall } from './held-call.ts';
import { assertReply } from '../helpers/expected.ts';
import { stateOf, treeOf } from '../helpers/process-figures.ts';
import { isRefused, RawClient, request } from '../helpers/raw-client.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const { stdout: version } = spawnSync('script', ['--version']);
const skip =
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- null where there is no such program
  !version?.includes('util-linux') && '`script` of util-linux is not installed; on Debian: apt-get install bsdutils';

const root = resolve(import.meta.dirname, '../..');
const folder = useFolder();
const backend = await useBackend();
const started = new Set<number>();
after(() => {
  for (const pid of started) {
    // A process is left only if a test failed.
    if (stateOf(pid) !== undefined) process.kill(pid, 'SIGKILL');
  }
});

let terminals = 0;

/** Runs a shell command on its own terminal. A shell that outlives the terminal writes the exit code to a file. */
class OnTerminal {
  readonly #terminal: ChildProcess;
  readonly #codeFile: string;
  output = '';

  constructor(command: string, environment: NodeJS.ProcessEnv) {
    terminals += 1;
    this.#codeFile = join(folder, String(terminals));
    // The kernel sends SIGHUP to the outer shell. When that shell ends, all other processes get SIGHUP.
    const kept = `sh -c 'trap "" HUP; ${command}; echo $? > ${this.#codeFile}'; true`;
    this.#terminal = spawn('script', ['-qfc', kept, '/dev/null'], {
      cwd: root,
      env: {
        PATH: `${join(root, 'node_modules/.bin')}:${process.env['PATH'] ?? ''}`,
        TERM: 'dumb',
        HOST: '127.0.0.1',
        PORT: '0',
        ADMIN_HOST: '127.0.0.1',
        ADMIN_PORT: '0',
        EMBEDDED_BACKEND_PORT: '0',
        NO_COLOR: '1',
        BACKEND_URL: backend.url,
        ...environment,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#terminal.stdout?.on('data', (data: Buffer) => {
      this.output += data.toString('utf8');
    });
  }

  /** Waits until `pattern` is shown and returns its first group. */
  async shows(pattern: RegExp): Promise<string> {
    let match: RegExpExecArray | null = null;
    await poll(() => (match = pattern.exec(this.output)) !== null, `${String(pattern)} in\n${this.output}`, 30_000);
    return (match as RegExpExecArray | null)?.[1] ?? '';
  }

  get pid(): number {
    return this.#terminal.pid ?? 0;
  }

  type(text: string): void {
    this.#terminal.stdin?.write(text);
  }

  close(): void {
    for (const pid of treeOf(this.#terminal.pid).slice(1)) started.add(pid);
    this.#terminal.kill('SIGKILL');
  }

  async exitCode(): Promise<number> {
    let text = '';
    await poll(() => {
      try {
        text = readFileSync(this.#codeFile, 'utf8');
      } catch {
        // Not written yet.
      }
      return text.endsWith('\n');
    }, 'the process ends');
    return Number(text);
  }
}

const gateway = `${process.execPath} dist/command/main.js`;
const firstPort = /http:\/\/127\.0\.0\.1:(\d+)/;

test('the summary on a terminal warns of a dead backend [D34]', { skip }, async () => {
  const terminal = new OnTerminal(`${gateway} serve`, { BACKEND_URL: 'http://127.0.0.1:1' });
  const summary = await terminal.shows(/( +Backend +http:\/\/127\.0\.0\.1:1\/api\/WorkItem\r?\n +Warning +the backend does not answer: [^]*?)\r?\n +Health/);
  const lines = summary.split(/\r?\n/);
  assert.ok(lines.length > 3 && lines.every(({ length }) => length <= 80), summary);
  assert.match(summary.replaceAll(/\s+/g, ' '), /: connect ECONNREFUSED 127\.0\.0\.1:1\. Check that the backend is running, that BACKEND_URL is its address, and that this machine can reach it\.$/);
  terminal.close();
  assert.equal(await terminal.exitCode(), 0);
}); // prettier-ignore

describe('a terminal that closes', { skip }, () => {
  for (const [command, environment] of [
    ['serve', {}],
    ['serve < /dev/null 2> /dev/null', { LOG_FORMAT: 'json', WORKERS: '2' }],
  ] as const) {
    test(`a closing terminal drains ${command}: ${JSON.stringify(environment)} [D54]`, async () => {
      const terminal = new OnTerminal(`${gateway} ${command}`, environment);
      const port = Number(await terminal.shows(firstPort));
      const { client, open } = await holdCall(backend, { port });
      terminal.close();
      await poll(() => isRefused(port), 'no new connection is accepted');
      open();
      const reply = await client.reply();
      assertReply(reply, 200, '{"id":5}');
      assert.equal(reply.header('connection'), 'close');
      client.destroy();
      assert.equal(await terminal.exitCode(), 0);
    });
  }

  test('a closing terminal drains npm run serve, and no process keeps the ports [D54]', async () => {
    const terminal = new OnTerminal('npm run serve', { LOG_FORMAT: 'json', WORKERS: '2' });
    const port = Number(await terminal.shows(firstPort));
    const pid = Number(/"pid":(\d+)/.exec(terminal.output)?.[1]);
    const { client, open } = await holdCall(backend, { port });
    terminal.close();
    await poll(() => isRefused(port), 'no new connection is accepted');
    open();
    assertReply(await client.reply(), 200, '{"id":5}');
    client.destroy();
    await poll(() => stateOf(pid) === undefined, 'the process ends');
  });

  test('a closing terminal ends npm start, both listeners and the embedded backend [D54]', async () => {
    const terminal = new OnTerminal('npm start', { HOST: '127.0.0.1', EMBEDDED_BACKEND_HOST: '127.0.0.1' });
    await terminal.shows(/(Ctrl-C)/);
    const ports = new Set(
      [...terminal.output.matchAll(/http:\/\/127\.0\.0\.1:(\d+)/g)].map((match) => Number(match[1])),
    );
    assert.equal(ports.size, 3);
    terminal.close();
    for (const port of ports) await poll(() => isRefused(port), `port ${port} is closed`);
  });

  test('a closing terminal ends the embedded backend with exit code 0 [D54]', async () => {
    const environment = { EMBEDDED_BACKEND_HOST: '127.0.0.1' };
    const terminal = new OnTerminal(`${gateway} backend`, environment);
    const port = Number(await terminal.shows(firstPort));
    const reply = await request(port, 'GET', '/api/WorkItem');
    assert.equal(reply.status, 200);
    terminal.close();
    assert.equal(await terminal.exitCode(), 0);
  });
});

describe('on a terminal', { skip }, () => {
  test('serve shows its addresses, the backend and the settings, then short log lines [D31]', async () => {
    const terminal = new OnTerminal(`${gateway} serve`, { WORKERS: '2', DOCS: 'true' });
    const port = await terminal.shows(/Work Item Gateway +http:\/\/127\.0\.0\.1:(\d+)\/api\/work-items\r?\n/);
    const adminPort = await terminal.shows(/Dashboard +http:\/\/127\.0\.0\.1:(\d+)\/\r?\n/);
    await terminal.shows(/(Ctrl-C stops\.)/);
    for (const part of [
      `  Backend             ${backend.url}/api/WorkItem`,
      `  API reference       http://127.0.0.1:${port}/docs  http://127.0.0.1:${port}/openapi.json`,
      `  Health and metrics  http://127.0.0.1:${adminPort}/readyz  http://127.0.0.1:${adminPort}/metrics`,
      `  Settings            HOST=127.0.0.1 (environment)`,
      `                      DOCS=true (environment)`,
    ]) {
      assert.ok(terminal.output.includes(part), `${part} in\n${terminal.output}`);
    }
    await request(Number(port), 'GET', '/nowhere?secret', { headers: [['X-Request-Id', 'one']] });
    await terminal.shows(/INFO: (GET) \/nowhere 404 no-operation \([\d.]+ ms, 21 bytes\) 127\.0\.0\.1 one\r?\n/);
    for (const line of terminal.output.split(/\r?\n/)) assert.ok(line.length <= 120, line);
    assert.doesNotMatch(terminal.output, /[{}]|secret/);
    terminal.close();
    assert.equal(await terminal.exitCode(), 0);
  });

  test('without pino-pretty, as in the npm package, serve shows the same summary, then JSON lines [D31]', async () => {
    const hide = join(folder, 'hide.cjs');
    const fail = "Object.assign(new Error('hidden'), { code: 'MODULE_NOT_FOUND' })";
    const body = `if (/^pino-pretty/.test(name)) throw ${fail}; return find(name, ...rest);`;
    writeFileSync(
      hide,
      `const { Module } = require('node:module'); const find = Module._resolveFilename; Module._resolveFilename = (name, ...rest) => { ${body} };`,
    );
    const summaries: string[] = [];
    for (const NODE_OPTIONS of ['', `--require=${hide}`]) {
      const terminal = new OnTerminal(`${gateway} serve`, { NODE_OPTIONS });
      const port = Number(await terminal.shows(firstPort));
      await terminal.shows(/(Ctrl-C stops\.)/);
      summaries.push(terminal.output.replaceAll(/:\d+(?=\/)/g, ':0'));
      await request(port, 'GET', '/nowhere');
      await terminal.shows(NODE_OPTIONS === '' ? /(INFO: GET \/nowhere)/ : /(\{.*"path":"\/nowhere".*\}\r?\n)/);
      assert.doesNotMatch(terminal.output, /"ready"/);
      terminal.close();
      assert.equal(await terminal.exitCode(), 0);
    }
    assert.equal(summaries[1], summaries[0]);
  });

  test('with LOG_FORMAT=json every line is JSON [D31]', async () => {
    const terminal = new OnTerminal(`${gateway} serve`, { LOG_FORMAT: 'json' });
    await terminal.shows(/("msg":"ready")\}\r?\n/);
    for (const line of terminal.output.trim().split(/\r?\n/)) assert.match(line, /^\{.*\}$/);
    terminal.close();
    assert.equal(await terminal.exitCode(), 0);
  });

  test('if Ctrl-S stops the output, calls are served, and SIGTERM still ends the process [D53]', async () => {
    const terminal = new OnTerminal(`${gateway} serve`, {});
    const port = Number(await terminal.shows(firstPort));
    terminal.type('\u0013');
    await using client = await RawClient.open(port);
    for (let call = 0; call < 500; call += 1) {
      assert.equal((await client.call('GET', '/nowhere')).status, 404);
    }
    const gateways = treeOf(terminal.pid).filter((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, 'latin1').startsWith(process.execPath),
    );
    assert.equal(gateways.length, 1);
    process.kill(gateways[0] ?? 0, 'SIGTERM');
    assert.equal(await terminal.exitCode(), 0);
    terminal.close();
  });
});
