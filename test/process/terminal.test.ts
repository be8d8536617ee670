// When its terminal closes, the command ends as after SIGTERM; without a terminal, SIGHUP causes a reload [D54]. On
// a terminal the output is short lines, not JSON. `script` of util-linux makes a real terminal. When `script` is
// killed, the terminal closes.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test, type TestContext } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { stateOf, treeOf } from '../helpers/process-figures.ts';
import { Program } from '../helpers/program.ts';
import { isRefused, RawClient, request } from '../helpers/raw-client.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

const { stdout: version } = spawnSync('script', ['--version']);
const skip =
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- null where there is no such program
  !version?.includes('util-linux') && '`script` of util-linux is not installed; on Debian: apt-get install bsdutils';

const root = resolve(import.meta.dirname, '../..');
const folder = useFolder();
const backend = await useBackend();
const gateway = `${process.execPath} dist/command/main.js`;
const firstPort = /http:\/\/127\.0\.0\.1:(\d+)/;
let terminals = 0;

/**
 * Runs a shell command on its own terminal, and kills all of its processes when the test ends. A shell that outlives the
 * terminal writes the exit code to a file.
 */
class OnTerminal extends Program {
  readonly #codeFile: string;
  #pids: readonly number[] = [];

  constructor(t: TestContext, command: string, environment: NodeJS.ProcessEnv = {}) {
    const codeFile = join(folder, String((terminals += 1)));
    // The kernel sends SIGHUP to the outer shell. When that shell ends, all other processes get SIGHUP.
    const kept = `sh -c 'trap "" HUP; ${command}; echo $? > ${codeFile}'; true`;
    super(['script', '-qfc', kept, '/dev/null'], {
      cwd: root,
      env: {
        ...{ PATH: `${join(root, 'node_modules/.bin')}:${process.env['PATH'] ?? ''}`, TERM: 'dumb', NO_COLOR: '1' },
        ...{ HOST: '127.0.0.1', PORT: '0', ADMIN_HOST: '127.0.0.1', ADMIN_PORT: '0' },
        ...{ EMBEDDED_BACKEND_HOST: '127.0.0.1', EMBEDDED_BACKEND_PORT: '0', BACKEND_URL: backend.url },
        ...environment,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#codeFile = codeFile;
    t.after(() => {
      this.close();
      for (const pid of this.#pids) if (stateOf(pid) !== undefined) process.kill(pid, 'SIGKILL');
    });
  }

  /** Waits until `pattern` is shown and returns its first group. */
  async shows(pattern: RegExp): Promise<string> {
    return (await this.prints(pattern, 30_000))[1] ?? '';
  }

  /** The processes on the terminal. */
  get pids(): readonly number[] {
    return treeOf(this.process.pid).slice(1);
  }

  close(): void {
    if (this.isRunning) this.#pids = [...this.#pids, ...this.pids];
    this.signal('SIGKILL');
  }

  /** Closes the terminal, if it is open, and waits for the exit code of the command. */
  async ends(code: number): Promise<void> {
    this.close();
    const read = () => (existsSync(this.#codeFile) ? readFileSync(this.#codeFile, 'utf8') : '');
    await poll(() => read().endsWith('\n'), 'the process ends');
    assert.equal(read(), `${code}\n`);
  }
}

test('the summary on a terminal warns of a dead backend [D34]', { skip }, async (t) => {
  const terminal = new OnTerminal(t, `${gateway} serve`, { BACKEND_URL: 'http://127.0.0.1:1' });
  const summary = await terminal.shows(
    /( +Backend +http:\/\/127\.0\.0\.1:1\/api\/WorkItem\r?\n +Warning +the backend does not answer: [^]*?)\r?\n +Health/,
  );
  const lines = summary.split(/\r?\n/);
  assert.ok(lines.length > 3 && lines.every(({ length }) => length <= 80), summary);
  const advice =
    'Check that the backend is running, that BACKEND_URL is its address, and that this machine can reach it.';
  assert.ok(summary.replaceAll(/\s+/g, ' ').endsWith(`: connect ECONNREFUSED 127.0.0.1:1. ${advice}`), summary);
  await terminal.ends(0);
});

for (const [command, environment] of [
  [`${gateway} serve < /dev/null 2> /dev/null`, { LOG_FORMAT: 'json', WORKERS: '2' }],
  ['npm run serve', { LOG_FORMAT: 'json' }],
] as const) {
  test(`a closing terminal drains ${command.replace(gateway, '')} [D54]`, { skip }, async (t) => {
    const terminal = new OnTerminal(t, command, environment);
    const port = Number(await terminal.shows(firstPort));
    const { pids } = terminal;
    const { client, open } = await holdCall(backend, { port });
    terminal.close();
    await poll(() => isRefused(port), 'no new connection is accepted');
    open();
    const reply = await client.reply();
    assertReply(reply, 200, '{"id":5}');
    assert.equal(reply.header('connection'), 'close');
    client.destroy();
    if (command.startsWith(gateway)) await terminal.ends(0);
    await poll(() => pids.every((pid) => stateOf(pid) === undefined), 'the processes end');
  });
}

for (const [command, count] of [
  ['npm start', 3],
  [`${gateway} backend`, 1],
] as const) {
  test(
    `a closing terminal ends ${command.replace(gateway, '')} with all of its listeners [D54]`,
    { skip },
    async (t) => {
      const terminal = new OnTerminal(t, command);
      if (count > 1) await terminal.shows(/(Ctrl-C)/);
      else assert.equal((await request(Number(await terminal.shows(firstPort)), 'GET', '/api/WorkItem')).status, 200);
      const found = terminal.output.matchAll(new RegExp(firstPort, 'g'));
      const ports = new Set(Array.from(found, (match) => Number(match[1])));
      assert.equal(ports.size, count);
      if (count === 1) await terminal.ends(0);
      terminal.close();
      for (const port of ports) await poll(() => isRefused(port), `port ${port} is closed`);
    },
  );
}

test(
  'serve shows its addresses, the backend and the settings on a terminal, then short log lines [D31]',
  { skip },
  async (t) => {
    const terminal = new OnTerminal(t, `${gateway} serve`, { WORKERS: '2', DOCS: 'true' });
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
    await terminal.ends(0);
  },
);

test(
  'without pino-pretty, as in the npm package, serve shows the same summary, then JSON lines [D31]',
  { skip },
  async (t) => {
    const hide = join(folder, 'hide.cjs');
    const fail = "Object.assign(new Error('hidden'), { code: 'MODULE_NOT_FOUND' })";
    const body = `if (/^pino-pretty/.test(name)) throw ${fail}; return find(name, ...rest);`;
    writeFileSync(
      hide,
      `const { Module } = require('node:module'); const find = Module._resolveFilename; Module._resolveFilename = (name, ...rest) => { ${body} };`,
    );
    const summaries: string[] = [];
    for (const [NODE_OPTIONS, line] of [
      ['', /(INFO: GET \/nowhere)/],
      [`--require=${hide}`, /(\{.*"path":"\/nowhere".*\}\r?\n)/],
    ] as const) {
      const terminal = new OnTerminal(t, `${gateway} serve`, { NODE_OPTIONS });
      const port = Number(await terminal.shows(firstPort));
      await terminal.shows(/(Ctrl-C stops\.)/);
      summaries.push(terminal.output.replaceAll(/:\d+(?=\/)/g, ':0'));
      await request(port, 'GET', '/nowhere');
      await terminal.shows(line);
      assert.doesNotMatch(terminal.output, /"ready"/);
      await terminal.ends(0);
    }
    assert.equal(summaries[1], summaries[0]);
  },
);

test(
  'with LOG_FORMAT=json every line is JSON; if Ctrl-S stops the output, calls are served, and SIGTERM ends the process [D31, D53]',
  { skip },
  async (t) => {
    const terminal = new OnTerminal(t, `${gateway} serve`, { LOG_FORMAT: 'json' });
    await terminal.shows(/("msg":"ready")\}\r?\n/);
    for (const line of terminal.output.trim().split(/\r?\n/)) assert.match(line, /^\{.*\}$/);
    terminal.process.stdin?.write('\u0013');
    await using client = await RawClient.open(Number(await terminal.shows(firstPort)));
    for (let call = 0; call < 500; call += 1) assert.equal((await client.call('GET', '/nowhere')).status, 404);
    const isGateway = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, 'latin1').startsWith(process.execPath);
    const [pid, ...others] = terminal.pids.filter(isGateway);
    assert.ok(pid !== undefined && others.length === 0);
    process.kill(pid, 'SIGTERM');
    await poll(() => stateOf(pid) === undefined, 'the gateway ends');
    await terminal.ends(0);
  },
);
