// The pool of workers: starts, deaths, reloads, reports and the end. The process of these tests is the primary process.
// workers.test.ts tests the command. Heartbeats are four times as frequent as usual.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { joinFailures } from '../../packages/figures/failures.ts';
import { addFigures } from '../../packages/figures/history.ts';
import type { TlsInForce } from '../../packages/command/certificates/certificates.ts';
import { startPool } from '../../packages/command/cluster/worker-pool.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import { LogOutput } from '../../packages/command/log/log-output.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { SettingName, Settings } from '../../packages/command/settings/settings.ts';
import { createGate, poll } from '../helpers/changes.ts';
import './fast-heartbeats.ts';
import type { LogLine } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { childrenOf } from '../helpers/process-figures.ts';
import { isRefused, request, type Reply } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();

const shortly = { withProcessMetrics: false, probesBackend: false };
const path = '/api/work-items';
const noKeys = { authIssuer: 'https://issuer.example', authAudience: 'a', authJwksFile: '/dev/null' };

function settingsWith(changes: Partial<Record<SettingName, string>> = {}): Settings {
  const flags = { host: '127.0.0.1', port: '0', workers: '2', logLevel: 'silent', backendUrl: backend.url };
  return resolveSettings('serve', { ...flags, ...changes }, {}).settings;
}

async function start(changes: Partial<Record<SettingName, string>> = {}, tls: TlsInForce = {}) {
  const lines: LogLine[] = [];
  const stream = { write: (line: string) => void lines.push(JSON.parse(line) as LogLine) };
  const limits = { gatherMs: 0, gatherBytesMax: 1, heldBytesMax: 1 };
  const output = new LogOutput({ write: () => undefined, describeGap: () => '', ...limits });
  const logger = createLogger('debug', stream);
  const log = { logger, output, hasReader: false, apply: () => undefined, end: () => Promise.resolve() };
  const pool = await startPool(settingsWith(changes), log, tls, []);
  const port = Number(new URL(pool.url).port);
  const reports = () => pool.reports(shortly);
  const figures = async () => addFigures(await reports());
  return {
    pool,
    port,
    lines,
    output,
    reports,
    pids: async () => (await reports()).living.map(({ pid }) => pid).sort(),
    figures,
    failures: async () => {
      const { living, ended } = await reports();
      return joinFailures([ended, ...living].map((each) => each.failures));
    },
    /** The number of successful lists of all workers. */
    lists: async () => (await figures()).requests('list', 200),
    call: (method = 'GET', target = path, body?: string) =>
      request(port, method, target, body === undefined ? {} : { body }),
    messages: () => lines.filter(({ level }) => level !== 'info').map(({ msg }) => String(msg)),
    [Symbol.asyncDispose]: () => pool.stop(),
  };
}

type Served = Awaited<ReturnType<typeof start>>;

const workersNow = (): number => childrenOf(process.pid)?.length ?? 0;

/** Asserts that a start or a reload fails with a `StartError` of this message. */
const assertStartError = (start: Promise<unknown>, message: RegExp) =>
  assert.rejects(start, { name: 'StartError', message });

/** Resolves when `count` workers answer and none of them is in `gone`. */
async function isServedBy({ pids }: Served, count: number, gone: readonly number[] = []): Promise<number[]> {
  let now: number[] = [];
  await poll(async () => {
    now = await pids();
    return now.length === count && !now.some((pid) => gone.includes(pid));
  }, `${count} workers answer`);
  return now;
}

test('workers share a port, and reports cover all workers', async () => {
  const listened: number[] = [];
  const onListen = (message: unknown): void =>
    void listened.push((message as { options: { port: number } }).options.port);
  subscribe('tracing:net.server.listen:asyncStart', onListen);
  await using served = await start();
  unsubscribe('tracing:net.server.listen:asyncStart', onListen);
  // A port that is closed and opened again could meanwhile be taken by another program.
  assert.deepEqual(listened, [0]);
  assert.equal(served.pool.hasWorkers, true);
  assert.match(served.pool.url, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.equal(new Set(await served.pids()).size, 2);
  assert.equal(workersNow(), 2);
  for (let calls = 0; calls < 6; calls += 1) assertReply(await served.call(), 200, '[]');
  assert.equal(await served.lists(), 6);
  served.output.onDrop(3);
  assert.equal((await served.figures()).counted('log line dropped'), 3);
  assert.deepEqual(served.messages(), []);
  await served.pool.stop();
  assert.equal(workersNow(), 0);
  assert.equal(await isRefused(served.port), true);
  const { isServing, living } = await served.reports();
  assert.deepEqual([isServing, living], [false, []]);
  assert.equal(await served.lists(), 6);
});

test('connections are refused until the first worker is ready', async () => {
  const port = await findFreePort();
  const starting = start({ port: String(port) });
  await poll(() => workersNow() > 0, 'the first worker exists');
  const [worker = 0] = childrenOf(process.pid) ?? [];
  process.kill(worker, 'SIGSTOP');
  try {
    assert.equal(await isRefused(port), true);
  } finally {
    process.kill(worker, 'SIGCONT');
  }
  await using served = await starting;
  assertReply(await served.call(), 200, '[]');
});

test('the start fails and leaves no worker if the port is in use or a worker cannot start', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const port = String((taken.address() as AddressInfo).port);
  const inUse = new RegExp(`^port ${port} on 127.0.0.1 is in use: .*--port \\(PORT\\)$`);
  for (const [changes, message] of [
    [{ port }, inUse],
    [noKeys, /AUTH_JWKS_FILE \(.+\) cannot be used/],
  ] as const) {
    await assertStartError(start(changes), message);
  }
  taken.close();
  assert.equal(workersNow(), 0);
});

for (const signal of ['SIGHUP', 'SIGKILL'] as const) {
  const isForGroup = signal !== 'SIGKILL';
  test(`if ${signal} ends a worker during its start, ${isForGroup ? 'the worker is started again' : 'the start fails'}`, async () => {
    const starting = start();
    await poll(() => workersNow() > 0, 'a worker starts');
    const [victim = 0] = childrenOf(process.pid) ?? [];
    process.kill(victim, signal);
    if (isForGroup) {
      await using served = await starting;
      assert.ok(!(await isServedBy(served, 2)).includes(victim));
      assert.equal((await served.figures()).counted('death signal'), 0);
      assert.deepEqual(served.lines, []);
    } else {
      await assertStartError(
        starting,
        /^a worker ended during its start with signal SIGKILL: check whether the system was out of memory$/,
      );
      assert.equal(workersNow(), 0);
    }
  });
}

test('the death of a worker is logged and counted by cause; the worker is replaced, and the reports keep its counts', async () => {
  await using served = await start();
  for (let calls = 0; calls < 6; calls += 1) assertReply(await served.call(), 200, '[]');
  await served.call('GET', `${path}/none`);
  const before = await served.pids();
  const [first = 0, second = 0] = before;
  process.kill(first, 'SIGKILL');
  const others = await isServedBy(served, 2, [first]);
  assert.ok(others.includes(second));
  process.kill(second, 'SIGABRT');
  await isServedBy(served, 2, before);
  await poll(async () => (await served.figures()).counted('death aborted') === 1, 'both deaths are counted');
  assert.equal((await served.figures()).counted('death killed'), 1);
  assert.equal(await served.lists(), 6);
  assert.equal((await served.failures()).length, 1);
  assert.deepEqual(
    served.lines.filter(({ level }) => level === 'error').map(({ worker, code, signal, msg }) => [worker, code, signal, msg]),
    [
      [first, null, 'SIGKILL', 'a worker ended with signal SIGKILL: replacing it'],
      [second, null, 'SIGABRT', 'a worker ended with signal SIGABRT: replacing it'],
    ],
  );
  assert.equal(workersNow(), 2);
}); // prettier-ignore

test('a worker that hangs is killed and replaced; until then the reports have its last report', async () => {
  await using served = await start();
  for (let calls = 0; calls < 6; calls += 1) await served.call();
  const [victim = 0, other = 0] = await served.pids();
  // This is the last report of the victim. It has the counts of the victim's calls.
  await served.reports();
  process.kill(victim, 'SIGSTOP');
  assert.deepEqual(await served.pids(), [victim, other]);
  assert.equal(await served.lists(), 6);
  await poll(() => served.lines.length > 0, 'the hung worker is noticed', 30_000);
  await isServedBy(served, 2, [victim]);
  assert.deepEqual(served.messages(), [
    'a worker has not answered for 10 s: killing it',
    'a worker ended with signal SIGKILL: replacing it',
  ]);
  assert.equal(served.lines[0]?.['worker'], victim);
  assert.equal((await served.figures()).counted('death frozen'), 1);
});

test('a reload gives every worker the new settings and changes the number of workers; the reports keep counts and failures', async () => {
  await using served = await start();
  for (let calls = 0; calls < 6; calls += 1) assertReply(await served.call(), 200, '[]');
  await served.call('GET', `${path}/none`);
  const before = await served.pids();
  for (const [workers, requestBytesMax, status] of [
    ['2', '10', 413],
    ['3', '100', 201],
    ['1', '10', 413],
  ] as const) {
    const { finished } = await served.pool.reload(settingsWith({ workers, requestBytesMax }), {});
    await finished;
    const now = await served.pids();
    assert.equal(now.length, Number(workers));
    assert.ok(
      before.every((pid) => now.includes(pid) || workers === '1'),
      'no worker is replaced',
    );
    assert.equal(workersNow(), Number(workers));
    for (const pid of now) {
      assert.equal((await served.call('POST', path, '{"title":"long"}')).status, status, `${workers}, ${pid}`);
    }
    assert.equal(await served.lists(), 6);
    assert.equal((await served.failures()).at(-1)?.outcome, 'invalid-id');
    for (const cause of ['killed', 'signal', 'exit'] as const) {
      assert.equal((await served.figures()).counted(`death ${cause}`), 0, 'a retired worker is not counted as dead');
    }
  }
  assert.deepEqual(served.lines, []);
  await served.pool.stop();
  await (
    await served.pool.reload(settingsWith(), {})
  ).finished;
  assert.equal(workersNow(), 0);
});

test('after the second early death there is a pause before a worker is replaced; each further one doubles it', async () => {
  await using served = await start({ workers: '1' });
  for (const pauseMs of [0, 100, 200]) {
    const [victim = 0] = await served.pids();
    const deaths = served.lines.length;
    process.kill(victim, 'SIGKILL');
    await poll(() => served.lines.length > deaths, 'the death is logged');
    const diedAt = performance.now();
    await poll(() => workersNow() === 1, 'the worker is replaced');
    // The 50 ms allow for a late `diedAt`, and for the clock of timers, which may be a millisecond ahead.
    assert.ok(performance.now() - diedAt > pauseMs - 50, `${pauseMs} ms`);
    await isServedBy(served, 1, [victim]);
  }
});

test('all workers share one rate limit, and each may serve an equal part of IN_FLIGHT_MAX', async () => {
  await using limited = await start({ rateLimit: '3/60s' });
  const statuses: number[] = [];
  for (let calls = 0; calls < 5; calls += 1) statuses.push((await limited.call()).status);
  assert.deepEqual(statuses, [200, 200, 200, 429, 429]);
  await limited.pool.stop();
  await using shared = await start({ inFlightMax: '3' });
  // Two workers serve 2 calls each: half of 3, rounded up. After the reload, one worker serves 3 calls.
  for (const [workers, served] of [
    ['2', 4],
    ['1', 3],
  ] as const) {
    if (workers === '1') await (await shared.pool.reload(settingsWith({ inFlightMax: '3', workers }), {})).finished;
    const gate = createGate();
    backend.answers(behind(gate, answer('[]')));
    const refused: Reply[] = [];
    const calls = Array.from({ length: 12 }, async () => {
      const reply = await shared.call();
      if (reply.status === 503) refused.push(reply);
    });
    await poll(() => refused.length === 12 - served, 'all other calls are refused');
    gate.open();
    await Promise.all(calls);
    assert.equal(refused.length, 12 - served);
  }
});

test('a worker that dies during SHUTDOWN_DELAY_MS is replaced, and its successor closes connections, too [D33]', async () => {
  await using served = await start();
  served.pool.beginDrain();
  const before = await served.pids();
  for (const pid of before) process.kill(pid, 'SIGKILL');
  const reply = await served.call();
  assert.deepEqual([reply.text, reply.header('connection')], ['[]', 'close']);
  // The second successor may still be starting.
  await served.pool.finishDrain(new AbortController().signal);
  assert.equal(workersNow(), 0);
  assert.equal(served.pool.hasFailed(), true);
});
