// The stall timeout of clients, on a clock and on sockets that the test sets. D35.
// server-times.test.ts, tls.test.ts and ../process/hostile-clients.test.ts test it with real sockets.

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { StallWatch } from '../../packages/core/hosts/clients/stall-watch.ts';
import { stopClock, turn } from './served-connections.ts';

const timeoutMs = 400;

/** A socket with unsent bytes. `carrier`: the socket below it, if it is a TLS socket. */
function createSocket(carrier?: Socket) {
  const handle = { bytesWritten: 1_000_000, writeQueueSize: 600_000 };
  const socket = {
    _handle: handle as typeof handle | null,
    _parent: carrier ?? null,
    bytesWritten: 1_000_000,
    writableLength: 1_000_000,
    destroyed: false,
    destroy: () => {
      socket.destroyed = true;
      socket._handle = null;
    },
  };
  return { handle, socket, asSocket: socket as unknown as Socket };
}

function startWatch(context: TestContext) {
  context.mock.timers.enable({ apis: ['setInterval'] });
  const clock = stopClock(context);
  const stalled: string[] = [];
  const watch = new StallWatch<string>(timeoutMs, (call) => stalled.push(call));
  /** Lets `ms` pass in steps of a tenth of the timeout, and calls `onStep` before each step. */
  const pass = async (ms: number, onStep?: () => void): Promise<void> => {
    const step = timeoutMs / 10;
    for (let at = 0; at < ms; at += step) {
      onStep?.();
      clock.now += step;
      context.mock.timers.tick(step);
      await turn();
    }
  };
  return { clock, watch, stalled, pass };
}

for (const [what, isSecure] of [
  ['a socket', false],
  ['the carrier of a TLS socket', true],
] as const) {
  test(`a client is cut off once, when the OS has accepted nothing from ${what} for the timeout [D35]`, async (t) => {
    const { watch, stalled, pass } = startWatch(t);
    const below = createSocket();
    const above = isSecure ? createSocket(below.asSocket) : below;
    watch.watch(above.asSocket, 'one');
    await pass(10 * timeoutMs, () => (below.handle.writeQueueSize -= 1));
    await pass(timeoutMs / 2);
    assert.deepEqual(stalled, []);
    await pass(10 * timeoutMs);
    assert.deepEqual([stalled, above.socket.destroyed], [['one'], true]);
  });
}

test('after a pause of the process, a client gets up to a second to show that it reads [D19, D35]', async (t) => {
  const { clock, watch, stalled, pass } = startWatch(t);
  const [reading, stuck] = [createSocket(), createSocket()];
  watch.watch(reading.asSocket, 'reading');
  watch.watch(stuck.asSocket, 'stuck');
  await pass(timeoutMs / 2);
  clock.now += 3_000;
  await pass(timeoutMs / 2);
  assert.deepEqual(stalled, []);
  reading.handle.writeQueueSize -= 1;
  await pass(500);
  assert.deepEqual(stalled, []);
  await pass(timeoutMs, () => (reading.handle.writeQueueSize -= 1));
  assert.deepEqual(stalled, ['stuck']);
});

test('a client that reads nothing is cut off even if the process is always late [D35]', async (t) => {
  const { clock, watch, stalled, pass } = startWatch(t);
  watch.watch(createSocket().asSocket, 'one');
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
  test(`a client ${what} [D35]`, async (t) => {
    const { watch, stalled, pass } = startWatch(t);
    const { socket, handle, asSocket } = createSocket();
    let replies = 0;
    await pass(1.5 * timeoutMs, () => {
      if (socket.destroyed) return;
      handle.bytesWritten += 100;
      handle.writeQueueSize += leftPerStep;
      watch.watch(asSocket, `reply ${(replies += 1)}`);
    });
    assert.deepEqual(stalled, isStalled ? [`reply ${replies}`] : []);
  });
}

test('without handles, the public properties show the progress', async (t) => {
  const { watch, stalled, pass } = startWatch(t);
  const { socket, asSocket } = createSocket();
  socket._handle = null;
  watch.watch(asSocket, 'one');
  await pass(3 * timeoutMs, () => (socket.writableLength -= 1));
  assert.deepEqual(stalled, []);
  await pass(1.5 * timeoutMs);
  assert.deepEqual(stalled, ['one']);
});

test('a reply that is sent, or whose connection has closed, is no longer watched, and a later reply is', async (t) => {
  const { watch, stalled, pass } = startWatch(t);
  const [sent, closed, later] = [createSocket(), createSocket(), createSocket()];
  watch.watch(sent.asSocket, 'sent');
  watch.watch(closed.asSocket, 'closed');
  sent.socket.writableLength = 0;
  closed.socket.destroy();
  await pass(3 * timeoutMs);
  assert.deepEqual(stalled, []);
  watch.watch(later.asSocket, 'later');
  await pass(1.5 * timeoutMs);
  assert.deepEqual(stalled, ['later']);
});

test('a reply that middleware holds back is watched until it is sent', async (t) => {
  const { watch, stalled, pass } = startWatch(t);
  const { socket, asSocket } = createSocket();
  socket.writableLength = 0;
  let isDone = false;
  watch.watch(asSocket, 'compressed', () => isDone);
  await pass(2 * timeoutMs);
  assert.deepEqual(stalled, [], 'nothing is queued, so the client is not slow');
  socket.writableLength = 1_000_000;
  await pass(1.5 * timeoutMs);
  assert.deepEqual(stalled, ['compressed']);
  const next = createSocket();
  watch.watch(next.asSocket, 'done', () => isDone);
  isDone = true;
  await pass(2 * timeoutMs);
  assert.equal(next.socket.destroyed, false);
});

test('a request without a connection is soon no longer watched', async (t) => {
  const { watch, stalled, pass } = startWatch(t);
  let looks = 0;
  // Fastify's `inject` passes such an object as the socket.
  const socket = {
    get destroyed() {
      looks += 1;
      return undefined;
    },
  };
  watch.watch(socket as unknown as Socket, 'injected');
  await pass(timeoutMs);
  const before = looks;
  await pass(3 * timeoutMs);
  assert.deepEqual([looks, stalled], [before, []]);
});

test('bytes that the OS accepts after a long turn count as progress [D35]', async (t) => {
  const { clock, watch, stalled } = startWatch(t);
  const { handle, asSocket } = createSocket();
  watch.watch(asSocket, 'one');
  clock.now += 10 * timeoutMs;
  // Node runs timers first, and asks the OS to accept bytes afterwards.
  t.mock.timers.tick(timeoutMs);
  handle.writeQueueSize = 0;
  await turn();
  assert.deepEqual(stalled, []);
});
