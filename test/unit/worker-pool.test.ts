// The pauses before the primary process replaces a worker, and what it knows of a worker. The workers are simulated.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { Member, type MemberObserver } from '../../packages/command/cluster/member.ts';
import type { ToWorker } from '../../packages/command/cluster/messages.ts';
import { startPool, type PoolSystem } from '../../packages/command/cluster/worker-pool.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import type { FetchedKeys } from '../../packages/core/guards/ports/ports.ts';
import { Figures } from '../../packages/figures/figures.ts';

const { settings } = resolveSettings('serve', { backendUrl: 'http://127.0.0.1:1', port: '0', workers: '2' }, {});

class Worker extends EventEmitter {
  readonly pid = 1;
  connected = true;
  /** The keys that the worker gets with its start. */
  keys: FetchedKeys | undefined;
  readonly send = (message: ToWorker): void => {
    if (message.kind === 'start') this.keys = message.keys;
  };
  readonly end = (signal: NodeJS.Signals | null = null): void => {
    this.connected = false;
    this.emit('exit', signal === null ? 1 : null, signal);
  };
}

test('after the second early death there is a pause before a worker is replaced; each further one doubles it; a new worker gets the keys; what the pool and ended workers counted is kept', async (t) => {
  const workers: Worker[] = [];
  let starts = true;
  let accept: (socket: Socket) => void = () => assert.fail();
  const system = {
    fork: () => {
      const worker = new Worker();
      // The pool listens for messages first.
      const report = { figures: [], failures: [{ at: 0, outcome: 'bug' }] };
      if (starts) queueMicrotask(() => worker.emit('message', { kind: 'ready', report }));
      workers.push(worker);
      return worker;
    },
    listen: (listener: typeof accept) => {
      accept = listener;
      return Promise.resolve({ url: 'http://127.0.0.1:1', close: () => Promise.resolve() });
    },
  } as unknown as PoolSystem;
  const logger = { info: () => undefined, warn: () => undefined, error: () => undefined };
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  const output = { onDrop: (lines: number): void => assert.fail(String(lines)) };
  const pool = await startPool(settings, { logger, output } as never, {}, [], system);
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  for (const [livedMs, pauseMs] of [[0, 0], [0, 100], [0, 200], [9_999, 400], [10_000, 0], [0, 0], [0, 100]] as const) {
    const count = workers.length;
    now += livedMs;
    workers.at(-1)?.end();
    await settle();
    if (pauseMs > 0) {
      t.mock.timers.tick(pauseMs - 1);
      await settle();
      assert.equal(workers.length, count, `less than ${pauseMs} ms`);
    }
    t.mock.timers.tick(1);
    await settle();
    assert.equal(workers.length, count + 1, `${pauseMs} ms`);
  } // prettier-ignore
  workers[0]?.emit('message', { kind: 'keys', place: settings.authJwksUrl, keys: { text: 'keys', ageMs: 0 } });
  assert.equal(pool.hasFailed(), false);
  pool.beginDrain();
  workers.at(-1)?.end();
  await settle();
  assert.equal(pool.hasFailed(), true, 'a worker ended after the drain began');
  t.mock.timers.tick(800);
  await settle();
  assert.equal(workers.at(-1)?.keys?.text, 'keys');
  // Neither a second fault nor a signal for the process group during the start is a death.
  starts = false;
  for (const kind of ['fault', 'fault']) workers.at(-1)?.emit('message', { kind });
  t.mock.timers.tick(1_600);
  for (const signal of ['SIGHUP', null] as const) {
    await settle();
    workers.at(-1)?.end(signal);
  }
  await settle();
  t.mock.timers.tick(1_600);
  await settle();
  const { length } = workers;
  const stopped = pool.stop();
  await settle();
  for (const worker of workers) worker.end('SIGTERM');
  await stopped;
  assert.equal(workers.length, length, 'no worker is started after a stop');
  accept(new Socket());
  output.onDrop(3);
  const { ended } = await pool.reports({ withProcessMetrics: false, probesBackend: false });
  const counts = new Figures(ended.figures);
  const names = ['connection shed', 'log line dropped', 'death exit', 'death signal'] as const;
  assert.deepEqual(names.map((name) => counts.counted(name)), [1, 3, 10, 0]); // prettier-ignore
  assert.equal(ended.failures.length, workers.length - 3);
});

function createMember() {
  const sent: string[] = [];
  const send = ({ kind }: { kind: string }): number => sent.push(kind);
  const child = Object.assign(new EventEmitter(), { pid: 1, connected: true, send, kill: () => true });
  const nothing = (): void => undefined;
  const observer = { isUpToDate: () => true, onReady: nothing, onRoom: nothing, onGone: nothing, onExit: nothing };
  const start = { tls: {}, keys: undefined };
  return { sent, child, member: new Member(child as never, settings, start, observer as unknown as MemberObserver) };
}

test('if the gateway kills a starting worker, the error does not name the memory; the first reason to leave stays', async () => {
  for (const isOwn of [true, false]) {
    const { child, member } = createMember();
    for (const reason of ['hung', 'stop'] as const) member.leave(reason);
    if (isOwn) member.kill();
    Object.assign(child, { connected: false }).emit('exit', null, 'SIGKILL');
    const { message } = (await member.started) as { message: string };
    assert.deepEqual([message.includes('out of memory'), member.departure], [!isOwn, 'hung']);
  }
});

test('a worker may have two unconfirmed connections, and ten unanswered heartbeats, of which one is sent; a start has 60', async () => {
  const { sent, child, member } = createMember();
  const say = (message: object): unknown => child.emit('message', message);
  const beats = (count: number) =>
    Array.from({ length: count }, () => member.beat()).filter((each) => each !== undefined);
  assert.deepEqual(beats(61), [60]);
  say({ kind: 'ready', report: 'first' });
  await member.started;
  for (const hasRoom of [true, false]) {
    member.take(new Socket());
    assert.equal(member.hasRoom, hasRoom);
  }
  for (const number of [1, 2]) say({ kind: 'taken', number });
  assert.deepEqual([member.hasRoom, member.connections, member.beat()], [true, 2, undefined]);
  member.take(new Socket());
  say({ kind: 'pong', number: 2, open: 1 });
  assert.equal(member.connections, 2, 'one at the heartbeat, and one since');
  assert.deepEqual([beats(4), member.isAnswering], [[], true]);
  assert.deepEqual([beats(1), member.isAnswering], [[], false]);
  assert.deepEqual(beats(6), [10]);
  await member.report({ withProcessMetrics: false, probesBackend: false });
  assert.deepEqual(sent, ['start', 'connection', 'connection', 'ping', 'connection', 'ping'], 'no report is awaited');
  say({ kind: 'report', id: 1, report: undefined });
  assert.equal(member.lastReport, 'first');
});
