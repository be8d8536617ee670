// A log that cannot be written: the disk is full, or the reader stops reading or closes the pipe. Lines are dropped and
// counted, calls are served, and the process ends in time with its usual exit code. D53. test/unit/log-output.test.ts
// has more cases.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, figureOf, runCommand, runToEnd, startCommand } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { residentBytes } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { useFolder } from '../helpers/suites.ts';
import { startUnseen } from './unseen.ts';

const folder = useFolder();

/** A named pipe: its reader gets the bytes that are written to `output`. */
class Pipe {
  readonly output: number;
  readonly #path: string;
  #reader: number | undefined;
  static #count = 0;

  constructor() {
    this.#path = join(folder, `pipe-${(Pipe.#count += 1)}`);
    execFileSync('mkfifo', [this.#path]);
    this.openReader();
    this.output = openSync(this.#path, constants.O_WRONLY);
  }

  openReader(): void {
    this.#reader = openSync(this.#path, constants.O_RDONLY | constants.O_NONBLOCK);
  }

  closeReader(): void {
    if (this.#reader !== undefined) closeSync(this.#reader);
    this.#reader = undefined;
  }

  /** The bytes that are in the pipe now, or ''. */
  read(): string {
    const bytes = Buffer.alloc(1_048_576);
    let text = '';
    try {
      for (;;) {
        const count = readSync(this.#reader ?? -1, bytes);
        if (count === 0) return text;
        text += bytes.toString('utf8', 0, count);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      return text;
    }
  }
}

/** Makes `count` calls on four connections; each call gets 400. */
async function call(command: Command, count: number): Promise<void> {
  const burst = 50;
  const one = requestBytes('GET', '/api/work-items/none', { headers: [['X-Request-Id', 'i'.repeat(100)]] });
  const run = async (): Promise<void> => {
    await using client = await command.connect();
    for (let sent = 0; sent < count / 4; sent += burst) {
      client.send(Buffer.concat(Array.from({ length: burst }, () => one)));
      for (let index = 0; index < burst; index += 1) assert.equal((await client.reply()).status, 400);
    }
  };
  await Promise.all(Array.from({ length: 4 }, run));
}

const droppedLines = async (command: Command) => (await figureOf(command, 'log_lines_dropped_total')) ?? NaN;

/** Sends `signal` and asserts exit code 0 within 5 s. A drain waits 1 s for idle connections, and then for the log. */
async function assertEnds(command: Command, signal: NodeJS.Signals): Promise<void> {
  command.signal(signal);
  assert.equal(await command.exitCode(5_000), 0, command.output);
  assert.equal(command.stderr, '');
}

// The log lines of these calls exceed the buffer of a pipe (64 KiB) and of a socket (about 200 KB).
const manyCalls = 2_000;

for (const [what, format, workers] of [
  ['a full disk', 'json', '1'],
  ['a pipe that its reader closes', 'pretty', '2'],
] as const) {
  test(`if the log goes to ${what}, lines are dropped and counted, and the process can end, LOG_FORMAT=${format} [D53]`, async () => {
    const pipe = what === 'a full disk' ? undefined : new Pipe();
    const output = pipe?.output ?? openSync('/dev/full', 'w');
    await using command = await startUnseen({ LOG_FORMAT: format, WORKERS: workers }, { stdout: output });
    pipe?.closeReader();
    await call(command, 200);
    await poll(async () => (await droppedLines(command)) >= 200, 'the lines of 200 calls are counted as dropped');
    await assertEnds(command, 'SIGTERM');
  });
}

test('if the reader of the log stops reading, calls are served, and the process can end [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'pretty', WORKERS: '2' }, { stdout: pipe.output });
  await call(command, manyCalls);
  assert.equal((await command.admin('/livez')).status, 200);
  await assertEnds(command, 'SIGINT');
});

test('if the log is a socket and its reader stops reading, calls are served, and the process can end [D53]', async () => {
  await using command = await startCommand({});
  command.process.stdout?.pause();
  await call(command, manyCalls);
  assert.equal((await command.admin('/livez')).status, 200);
  command.signal('SIGTERM');
  await poll(() => command.process.exitCode !== null, 'the process ends', 5_000);
  assert.equal(command.process.exitCode, 0);
  command.process.stdout?.resume();
});

test('after an outage of the log, a line in place of the lost lines states their number [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'json' }, { stdout: pipe.output });
  await poll(() => pipe.read().includes('"ready"'), 'the log works');
  pipe.closeReader();
  await call(command, 200);
  await poll(async () => (await droppedLines(command)) >= 200, 'the lines are counted as dropped');
  const dropped = await droppedLines(command);
  pipe.openReader();
  assert.equal((await command.call('GET', '/nowhere')).status, 404);
  let text = '';
  await poll(() => (text += pipe.read()).includes('"status":404'), 'the log works again');
  const [first, second] = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.deepEqual([first?.['level'], first?.['droppedLines']], ['warn', dropped]);
  assert.equal(second?.['status'], 404);
  assert.equal(await droppedLines(command), dropped);
  await assertEnds(command, 'SIGTERM');
});

test('a reader of the log that resumes in time gets every line, in order [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'json' }, { stdout: pipe.output });
  const pid = command.process.pid;
  await call(command, manyCalls);
  assert.ok((residentBytes(pid, 'VmRSS') ?? 0) < 300_000_000);
  let text = '';
  await poll(() => (text += pipe.read()).split('\n').length > manyCalls + 1, 'every line');
  const lines = text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.equal(lines.filter(({ msg }) => msg === 'request').length, manyCalls);
  const times = lines.map(({ time }) => String(time));
  assert.deepEqual(times, times.toSorted());
  assert.equal(await droppedLines(command), 0);
  await assertEnds(command, 'SIGTERM');
});

test('the last line of the process is in the log [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'json' }, { stdout: pipe.output });
  await assertEnds(command, 'SIGTERM');
  assert.match(pipe.read(), /"exitCode":0,"msg":"stopped"}\n$/);
});

test('the reason for a refused start is printed on standard error, even if standard output cannot be written [D53]', async () => {
  const output = openSync('/dev/full', 'w');
  const refused = await runToEnd(['serve'], { PORT: 'x' }, { stdout: output });
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /^error: PORT is "x"/);
  await using taken = await startCommand({});
  const settings = { HOST: '127.0.0.1', PORT: `${taken.port}`, ADMIN_PORT: '0' };
  const second = await runToEnd(['serve'], settings, { stdout: output });
  assert.equal(second.code, 1);
  assert.match(second.stderr, /^error: port \d+ on 127\.0\.0\.1 is in use/);
});

test('`dev` with its output on a full disk starts, serves and ends [D53]', async () => {
  const output = openSync('/dev/full', 'w');
  const [port, adminPort] = [await findFreePort(), await findFreePort()];
  const settings = { PORT: `${port}`, ADMIN_PORT: `${adminPort}`, EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'pretty' };
  // Node 22 warns on standard error that SQLite is experimental, but `assertEnds` expects no output there.
  const nodeFlags = ['--disable-warning=ExperimentalWarning'];
  await using command = runCommand(['dev'], settings, { stdout: output, nodeFlags });
  command.port = port;
  command.adminPort = adminPort;
  await poll(
    () =>
      command.call('GET', '/api/work-items/1').then(
        ({ status }) => status === 200,
        () => !command.isRunning,
      ),
    'the command serves',
  );
  await assertEnds(command, 'SIGINT');
});

describe('standard output', () => {
  const command = `${process.execPath} dist/command/main.js openapi`;
  const shell = (text: string) =>
    spawnSync('sh', ['-c', text], { cwd: resolve(import.meta.dirname, '../..'), maxBuffer: 1_000_000 });

  test('standard output is complete, even if it is a pipe', () => {
    const whole = join(folder, 'openapi.json');
    // With guards the document is larger than the buffer of a pipe.
    const scopes = 'list=a,read=a,create=b,update=b,delete=b';
    const tokens = `--auth-issuer https://a --auth-audience b --auth-jwks-url https://a/k --auth-scopes ${scopes}`;
    const longer = `${command} --rate-limit 100/60s --cors-origins https://app.example.com ${tokens}`;
    assert.equal(shell(`${longer} > ${whole}`).status, 0);
    const { stdout, stderr } = shell(`${longer} | cat`);
    assert.equal(stderr.toString(), '');
    assert.deepEqual(stdout, readFileSync(whole));
    assert.ok(stdout.length > 65_536, 'more than the buffer of a pipe');
  });

  for (const printed of ['openapi', '--help']) {
    test(`${printed} ends with an error if its standard output is on a full disk`, () => {
      const { status, stderr } = shell(`${process.execPath} dist/command/main.js ${printed} > /dev/full`);
      assert.match(stderr.toString(), /^error: the output could not be written completely: ENOSPC.*\n$/);
      assert.equal(status, 1);
    });
  }

  test('if the reader of standard output closes it early, no error is printed', () => {
    assert.equal(shell(`${command} | true`).stderr.toString(), '');
    assert.equal(shell(`${command} | head -c 1`).stderr.toString(), '');
  });
});
