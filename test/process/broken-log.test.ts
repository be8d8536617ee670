// A log that cannot be written: the disk is full, or the reader stops reading or closes the pipe. Lines are dropped and
// counted, calls are served, and the process ends in time with its usual exit code. D53. test/unit/log-output.test.ts
// has more cases.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, figureOf, runCommand, runToEnd, startCommand, type LogLine } from '../helpers/command.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { residentBytes } from '../helpers/process-figures.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import { useFolder } from '../helpers/suites.ts';
import { startUnseen } from './unseen.ts';

const folder = useFolder();
const openFullDisk = () => openSync('/dev/full', 'w');
let pipes = 0;

/** A named pipe: its reader gets the bytes that are written to `output`. */
class Pipe {
  readonly #path = join(folder, `pipe-${(pipes += 1)}`);
  #reader = 0;
  /** All that has been read. */
  text = '';
  readonly output: number;

  constructor() {
    execFileSync('mkfifo', [this.#path]);
    this.openReader();
    this.output = openSync(this.#path, constants.O_WRONLY);
  }

  openReader(): void {
    this.#reader = openSync(this.#path, constants.O_RDONLY | constants.O_NONBLOCK);
  }

  closeReader(): void {
    closeSync(this.#reader);
  }

  /** Reads the bytes that are in the pipe now; if `isSlow`, at most 10,000 of them. */
  read(isSlow = false): string {
    const bytes = Buffer.alloc(isSlow ? 10_000 : 1_048_576);
    try {
      for (let count = 1; count > 0; count = isSlow ? 0 : count) {
        count = readSync(this.#reader, bytes);
        this.text += bytes.toString('utf8', 0, count);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
    return this.text;
  }

  get lines(): LogLine[] {
    return this.text.split('\n').slice(0, -1).map((line) => JSON.parse(line) as LogLine); // prettier-ignore
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

const droppedLines = (command: Command) => figureOf(command, 'log_lines_dropped_total');

/** Makes 200 calls; resolves with the number of lines that have been dropped. */
async function callInVain(command: Command): Promise<number> {
  await call(command, 200);
  await poll(async () => ((await droppedLines(command)) ?? 0) >= 200, 'the lines are counted as dropped');
  return (await droppedLines(command)) ?? 0;
}

/** Sends `signal` and asserts exit code 0 within 5 s. A drain waits 1 s for idle connections, and then for the log. */
async function assertEnds(command: Command, signal: NodeJS.Signals): Promise<void> {
  command.signal(signal);
  await poll(() => command.process.exitCode !== null, 'the process ends', 5_000);
  assert.deepEqual([command.process.exitCode, command.stderr], [0, '']);
}

// The log lines of these calls exceed the buffer of a pipe (64 KiB) and of a socket (about 200 KB).
const manyCalls = 2_000;

test('if the log goes to a full disk, lines are dropped and counted, and the process can end [D53]', async () => {
  await using command = await startUnseen({ LOG_FORMAT: 'json' }, { stdout: openFullDisk() });
  await callInVain(command);
  await assertEnds(command, 'SIGTERM');
});

test('if the reader of the log stops reading, calls are served; if it closes the pipe, lines are dropped; the process can end [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'pretty', WORKERS: '2' }, { stdout: pipe.output });
  await call(command, manyCalls);
  assert.equal((await command.admin('/livez')).status, 200);
  pipe.closeReader();
  await callInVain(command);
  await assertEnds(command, 'SIGINT');
});

test('if the log is a pipe or a socket whose reader has stopped reading, the process can end [D53]', async () => {
  const pipe = new Pipe();
  await using first = await startUnseen({ LOG_FORMAT: 'pretty', WORKERS: '2' }, { stdout: pipe.output });
  await using second = await startCommand({});
  second.process.stdout?.pause();
  for (const command of [first, second]) {
    await call(command, manyCalls);
    await assertEnds(command, 'SIGTERM');
  }
  second.process.stdout?.resume();
});

test('a reader that resumes in time gets every line, in order, and the last line; after an outage, a line states the number of lost lines [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'json' }, { stdout: pipe.output });
  await call(command, manyCalls);
  assert.ok((residentBytes(command.process.pid, 'VmRSS') ?? 0) < 300_000_000);
  await poll(() => pipe.read().split('\n').length > manyCalls + 1, 'every line');
  assert.equal(pipe.lines.filter(({ msg }) => msg === 'request').length, manyCalls);
  const times = pipe.lines.map(({ time }) => String(time));
  assert.deepEqual(times, times.toSorted());
  assert.equal(await droppedLines(command), 0);

  pipe.closeReader();
  const dropped = await callInVain(command);
  pipe.openReader();
  pipe.text = '';
  assert.equal((await command.call('GET', '/nowhere')).status, 404);
  await poll(() => pipe.read().includes('"status":404'), 'the log works again');
  const [first, second] = pipe.lines;
  assert.deepEqual([first?.['level'], first?.['droppedLines'], second?.['status']], ['warn', dropped, 404]);
  assert.equal(await droppedLines(command), dropped);
  await assertEnds(command, 'SIGTERM');
  assert.match(pipe.read(), /"exitCode":0,"msg":"stopped"}\n$/);
});

test('two workers write whole lines to one pipe, even if its reader is slow [D53]', async () => {
  const pipe = new Pipe();
  await using command = await startUnseen({ LOG_FORMAT: 'json', WORKERS: '2' }, { stdout: pipe.output });
  const calls = 1_200;
  await call(command, calls);
  await poll(() => pipe.read(true).split('\n').length > calls + 1, 'every line', 30_000);
  assert.equal(pipe.lines.filter(({ msg }) => msg === 'request').length, calls);
});

test('the reason for a refused start is printed on standard error, even if standard output cannot be written [D53]', async () => {
  await using taken = await startCommand({});
  for (const [PORT, problem] of [
    ['x', /^error: PORT is "x"/],
    [String(taken.port), /^error: port \d+ on 127\.0\.0\.1 is in use/],
  ] as const) {
    const settings = { HOST: '127.0.0.1', PORT, ADMIN_PORT: '0' };
    const { code, stderr } = await runToEnd(['serve'], settings, { stdout: openFullDisk() });
    assert.equal(code, 1);
    assert.match(stderr, problem);
  }
});

test('`dev` with its output on a full disk starts, serves and ends [D53]', async () => {
  const port = await findFreePort();
  const settings = { PORT: `${port}`, ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0', LOG_FORMAT: 'pretty' };
  // Node 22 warns on standard error that SQLite is experimental, but `assertEnds` expects no output there.
  const nodeFlags = ['--disable-warning=ExperimentalWarning'];
  await using command = runCommand(['dev'], settings, { stdout: openFullDisk(), nodeFlags });
  await command.listens(port);
  command.port = port;
  assert.equal((await command.call('GET', '/api/work-items/1')).status, 200);
  await assertEnds(command, 'SIGINT');
});

const openapi = `${process.execPath} dist/command/main.js openapi`;
const shell = (text: string) =>
  spawnSync('sh', ['-c', text], { cwd: resolve(import.meta.dirname, '../..'), maxBuffer: 1_000_000 });

test('standard output is complete, even if it is a pipe', () => {
  const whole = join(folder, 'openapi.json');
  // With guards the document is larger than the buffer of a pipe.
  const scopes = 'list=a,read=a,create=b,update=b,delete=b';
  const tokens = `--auth-issuer https://a --auth-audience b --auth-jwks-url https://a/k --auth-scopes ${scopes}`;
  const longer = `${openapi} --rate-limit 100/60s --cors-origins https://app.example.com ${tokens}`;
  assert.equal(shell(`${longer} > ${whole}`).status, 0);
  const { stdout, stderr } = shell(`${longer} | cat`);
  assert.equal(stderr.toString(), '');
  assert.deepEqual(stdout, readFileSync(whole));
  assert.ok(stdout.length > 65_536, 'more than the buffer of a pipe');
});

test('a command ends with an error if its standard output is on a full disk, but not if the reader closes it early', () => {
  const { status, stderr } = shell(`${openapi} > /dev/full`);
  assert.match(stderr.toString(), /^error: the output could not be written completely: ENOSPC.*\n$/);
  assert.equal(status, 1);
  assert.equal(shell(`${openapi} | head -c 1`).stderr.toString(), '');
});
