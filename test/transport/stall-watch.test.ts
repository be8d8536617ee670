// The stall timeout of clients, on a clock and on sockets that the test sets [D35].
// server-times.test.ts, tls.test.ts and ../process/hostile-clients.test.ts test it with real sockets.

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { StallWatch } from '../../packages/core/hosts/clients/stall-watch.ts';
import { stopClock, turn } from './served-connections.ts';

const timeoutMs = 400;

function start(t: TestContext) {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const clock = stopClock(t);
  const stalled: string[] = [];
  const stallWatch = new StallWatch<string>(timeoutMs, (call) => stalled.push(call));
  return {
    clock,
    stalled,
    /** Watches a socket with unsent bytes. `read` makes the OS accept one of them. */
    watch: (call: string, kind: 'plain' | 'TLS' | 'without handle' = 'plain', isDone?: () => boolean) => {
      const handle = { bytesWritten: 1_000_000, writeQueueSize: 600_000 };
      const socket = {
        _handle: kind === 'plain' ? handle : null,
        _parent: kind === 'TLS' ? { _handle: handle } : null,
        bytesWritten: 1_000_000,
        writableLength: 1_000_000,
        destroyed: false,
        destroy: () => (socket.destroyed = true),
      };
      const watch = (each: string) => stallWatch.watch(socket as unknown as Socket, each, isDone);
      watch(call);
      const read = () => (kind === 'without handle' ? (socket.writableLength -= 1) : (handle.writeQueueSize -= 1));
      return { socket, handle, watch, read };
    },
    stallWatch,
    /** Lets `ms` pass in steps of a tenth of the timeout, and calls `onStep` before each step. */
    pass: async (ms: number, onStep?: () => void): Promise<void> => {
      const step = timeoutMs / 10;
      for (let at = 0; at < ms; at += step) {
        onStep?.();
        clock.now += step;
        t.mock.timers.tick(step);
        await turn();
      }
    },
  };
}

for (const kind of ['plain', 'TLS', 'without handle'] as const) {
  test(`a client is cut off once, when the OS has accepted nothing for the timeout (${kind})`, async (t) => {
    const { watch, stalled, pass } = start(t);
    const { socket, read } = watch('one', kind);
    await pass(10 * timeoutMs, read);
    await pass(timeoutMs / 2);
    assert.deepEqual(stalled, []);
    await pass(10 * timeoutMs);
    assert.deepEqual([stalled, socket.destroyed], [['one'], true]);
  });
}

test('after a pause of the process, a client gets up to a second to show that it reads [D19]', async (t) => {
  const { clock, watch, stalled, pass } = start(t);
  const { read } = watch('reading');
  watch('stuck');
  await pass(timeoutMs / 2);
  clock.now += 3_000;
  await pass(timeoutMs / 2);
  read();
  await pass(500);
  assert.deepEqual(stalled, []);
  await pass(timeoutMs, read);
  assert.deepEqual(stalled, ['stuck']);
});

test('a client that reads nothing is cut off even if the process is always late', async (t) => {
  const { clock, watch, stalled, pass } = start(t);
  watch('one');
  for (let late = 0; late < 4; late += 1) {
    clock.now += 900;
    await pass(timeoutMs / 4);
  }
  assert.deepEqual(stalled, ['one']);
});

for (const [what, leftPerStep, isStalled] of [
  ['that sends ahead and never reads is cut off, since further replies in the queue are no progress', 100, true],
  ['that reads while further replies are written is not cut off', 99, false],
] as const) {
  test(`a client ${what}`, async (t) => {
    const { watch, stalled, pass } = start(t);
    const { socket, handle, ...watched } = watch('reply 0');
    let replies = 0;
    await pass(1.5 * timeoutMs, () => {
      if (socket.destroyed) return;
      handle.bytesWritten += 100;
      handle.writeQueueSize += leftPerStep;
      watched.watch(`reply ${(replies += 1)}`);
    });
    assert.deepEqual(stalled, isStalled ? [`reply ${replies}`] : []);
  });
}

test('a reply that is sent, or whose connection has closed, is no longer watched, and a later reply is', async (t) => {
  const { watch, stalled, pass } = start(t);
  watch('sent').socket.writableLength = 0;
  watch('closed').socket.destroyed = true;
  await pass(3 * timeoutMs);
  assert.deepEqual(stalled, []);
  watch('later');
  await pass(1.5 * timeoutMs);
  assert.deepEqual(stalled, ['later']);
});

test('a reply that middleware holds back is watched until it is sent', async (t) => {
  const { watch, stalled, pass } = start(t);
  let isDone = false;
  const { socket } = watch('compressed', 'plain', () => isDone);
  socket.writableLength = 0;
  await pass(2 * timeoutMs);
  assert.deepEqual(stalled, [], 'nothing is queued, so the client is not slow');
  socket.writableLength = 1_000_000;
  await pass(1.5 * timeoutMs);
  watch('done', 'plain', () => isDone);
  isDone = true;
  await pass(2 * timeoutMs);
  assert.deepEqual(stalled, ['compressed']);
});

test('a request without a connection, as in `inject` of Fastify, is soon no longer watched', async (t) => {
  const { stallWatch, pass } = start(t);
  let looks = 0;
  const socket: unknown = Object.defineProperty({}, 'destroyed', { get: () => void (looks += 1) });
  stallWatch.watch(socket as Socket, 'injected');
  await pass(timeoutMs);
  const before = looks;
  await pass(3 * timeoutMs);
  assert.equal(looks, before);
});

test('bytes that the OS accepts after a long turn count as progress', async (t) => {
  const { clock, watch, stalled } = start(t);
  const { handle } = watch('one');
  clock.now += 10 * timeoutMs;
  // Node runs timers first, and asks the OS to accept bytes afterwards.
  t.mock.timers.tick(timeoutMs);
  handle.writeQueueSize = 0;
  await turn();
  assert.deepEqual(stalled, []);
});
