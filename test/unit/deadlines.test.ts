// Deadlines that share a timer: each passes once, in order and not early, even if others are cleared [D19].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Deadline, Deadlines } from '../../packages/core/backend/deadlines.ts';
import { startDeadline } from '../../packages/core/hosts/common/process-deadline.ts';
import { poll } from '../helpers/changes.ts';

const durationMs = 20;

/** Creates deadlines, and records the index of each deadline that passes. */
function createLine(count: number, ms = durationMs) {
  const line = new Deadlines(ms);
  const [passed, startedAt, early]: [number[], number[], number[]] = [[], [], []];
  const deadlines = Array.from({ length: count }, (_, index) => {
    const deadline: Deadline = new Deadline({
      onDeadlinePassed: (which) => {
        assert.deepEqual([which === deadline, which.isRunning], [true, false]);
        passed.push(index);
        // Tolerates 1 ms, because timers count whole milliseconds.
        if (performance.now() - (startedAt[index] ?? 0) < ms - 1) early.push(index);
      },
    });
    return deadline;
  });
  const start = (...indexes: number[]) => {
    for (const index of indexes) {
      const deadline = deadlines[index] ?? assert.fail();
      startedAt[index] = performance.now();
      line.start(deadline);
      assert.equal(deadline.isRunning, true);
    }
  };
  const clear = (...indexes: number[]) => {
    for (const index of indexes) {
      deadlines[index]?.clear();
      assert.equal(deadlines[index]?.isRunning, false);
    }
  };
  return { passed, early, start, clear };
}

/** Blocks the process, then lets the turns pass in which timers and sockets catch up. */
async function pause(ms: number): Promise<void> {
  for (const until = performance.now() + ms; performance.now() < until;);
  for (let turns = 0; turns < 20; turns += 1) await nextTurn();
}

test('after clearing any of four deadlines, in either order, the others pass in order, and later ones too', async () => {
  const clearAndPass = async (cleared: readonly number[]): Promise<void> => {
    const { passed, early, start, clear } = createLine(6);
    start(0, 1, 2, 3);
    clear(...cleared, ...cleared);
    const left = [0, 1, 2, 3].filter((index) => !cleared.includes(index));
    // The test polls for a fifth, last deadline, because the timer alone does not keep the process alive.
    start(4);
    await poll(() => passed.includes(4), 'the fifth deadline has passed');
    start(5);
    await poll(() => passed.includes(5), 'the sixth deadline has passed');
    assert.deepEqual([passed, early], [[...left, 4, 5], []]);
  };
  const subsets = Array.from({ length: 16 }, (_, mask) => [0, 1, 2, 3].filter((index) => ((mask >> index) & 1) === 1));
  await Promise.all(subsets.flatMap((cleared) => [clearAndPass(cleared), clearAndPass(cleared.toReversed())]));
});

test('a deadline that is started again gets its full time again', async () => {
  const { passed, early, start, clear } = createLine(3, 300);
  start(0);
  await pause(50);
  start(1);
  clear(0);
  start(2, 0);
  await poll(() => passed.length === 3, 'all deadlines have passed');
  assert.deepEqual([passed, early], [[1, 2, 0], []]);
});

test('bytes that arrive in time during a long turn are read before the deadline passes', async (t) => {
  const { passed, start, clear } = createLine(1);
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const sender = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [[receiver]] = await Promise.all([accepted, once(sender, 'connect')]);
  t.after(() => {
    for (const socket of [sender, receiver]) socket.destroy();
    server.close();
  });
  const read = once(receiver, 'data').then(() => clear(0));
  // The next turn begins with the timers, before the sockets are read.
  await nextTurn();
  start(0);
  sender.write('answer');
  for (const until = performance.now() + 2 * durationMs; performance.now() < until;);
  await read;
  await nextTurn();
  assert.deepEqual(passed, []);
});

test('after pauses of the process, a deadline leaves time for more than what has arrived; they pass in order', async () => {
  const { passed, start } = createLine(3, 300);
  await nextTurn();
  start(0);
  await pause(900);
  assert.deepEqual(passed, []);
  // The first one has been extended beyond the end of this one, and has less time for the next pause.
  start(1);
  await pause(900);
  await poll(() => passed.length === 2, 'the deadlines have passed');
  assert.deepEqual(passed, [0, 1]);
});

test('a deadline that starts right after a pause is not extended, and passes before older, extended ones', async (t) => {
  const now = performance.now.bind(performance);
  let pausedMs = 0;
  t.mock.method(performance, 'now', () => now() + pausedMs);
  const { passed, early, start, clear } = createLine(3);
  start(0, 1);
  // A call starts after the pause, and before the timer that was due during it.
  pausedMs = 900;
  start(2);
  await poll(() => passed.length > 0, 'a deadline has passed');
  assert.deepEqual([passed, early], [[2], []]);
  clear(0, 1);
});

test('a deadline of a call and of the process passes, even if every timer fires 0.9 s late', async (t) => {
  const now = performance.now.bind(performance);
  let addedMs = 0;
  t.mock.method(performance, 'now', () => now() + (addedMs += 900));
  const over: string[] = [];
  new Deadlines(durationMs).start(new Deadline({ onDeadlinePassed: () => void over.push('call') }));
  startDeadline(durationMs, () => void over.push('process'));
  await poll(() => over.length === 2, 'both have passed');
});

test('after an owner throws, the later deadlines pass', async () => {
  const thrown: unknown[] = [];
  process.setUncaughtExceptionCaptureCallback((error) => thrown.push(error));
  try {
    const line = new Deadlines(durationMs);
    const onDeadlinePassed = (): never => {
      throw new Error('owner');
    };
    const later = new Deadline({ onDeadlinePassed: () => undefined });
    line.start(new Deadline({ onDeadlinePassed }));
    line.start(later);
    await poll(() => !later.isRunning, 'the later deadline');
  } finally {
    process.setUncaughtExceptionCaptureCallback(null);
  }
  assert.deepEqual(thrown.map(String), ['Error: owner']);
});
