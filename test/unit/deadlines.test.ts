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
  const passed: number[] = [];
  const startedAt: number[] = [];
  const early: number[] = [];
  const deadlines = Array.from({ length: count }, (_, index) => {
    const deadline: Deadline = new Deadline({
      onDeadlinePassed: (which) => {
        assert.equal(which, deadline);
        assert.equal(which.isRunning, false);
        passed.push(index);
        // Tolerates 1 ms, because timers count whole milliseconds.
        if (performance.now() - (startedAt[index] ?? 0) < ms - 1) early.push(index);
      },
    });
    return deadline;
  });
  const start = (index: number) => {
    const deadline = deadlines[index];
    assert.ok(deadline);
    startedAt[index] = performance.now();
    line.start(deadline);
    assert.equal(deadline.isRunning, true);
  };
  const clear = (index: number) => {
    deadlines[index]?.clear();
    assert.equal(deadlines[index]?.isRunning, false);
  };
  return { passed, early, start, clear };
}

/** Waits for `ms`, measured by a separate `Deadlines` object. */
async function elapse(ms: number): Promise<void> {
  const other = new Deadline({ onDeadlinePassed: () => undefined });
  new Deadlines(ms).start(other);
  await poll(() => !other.isRunning, `${ms} ms`);
}

// Every subset of four deadlines, in ascending and in descending order.
const subsets = Array.from({ length: 16 }, (_, mask) => [0, 1, 2, 3].filter((index) => ((mask >> index) & 1) === 1));
test('after clearing any of four deadlines, the others pass in order [D19]', async () => {
  const clearAndPass = async (cleared: readonly number[]): Promise<void> => {
    const { passed, early, start, clear } = createLine(6);
    for (let index = 0; index < 4; index += 1) start(index);
    for (const index of [...cleared, ...cleared]) clear(index);
    const left = [0, 1, 2, 3].filter((index) => !cleared.includes(index));
    // The test polls for a fifth, last deadline, because the timer alone does not keep the process alive.
    start(4);
    await poll(() => passed.includes(4), 'the fifth deadline has passed');
    assert.deepEqual(passed, [...left, 4]);
    // `Deadlines` works again after all deadlines have passed.
    start(5);
    await poll(() => passed.includes(5), 'the sixth deadline has passed');
    assert.deepEqual([passed, early], [[...left, 4, 5], []]);
  };
  await Promise.all(subsets.flatMap((cleared) => [clearAndPass(cleared), clearAndPass(cleared.toReversed())]));
});

test('a deadline that is started again gets its full time again [D19]', async () => {
  // Long enough for a busy machine.
  const ms = 600;
  const { passed, early, start, clear } = createLine(3, ms);
  start(0);
  await elapse(ms / 6);
  start(1);
  clear(0);
  start(2);
  start(0);
  await poll(() => passed.length === 3, 'all deadlines have passed');
  assert.deepEqual(passed, [1, 2, 0]);
  assert.deepEqual(early, []);
});

test('a timer whose deadline was cleared does nothing [D19]', async () => {
  const { passed, start, clear } = createLine(1);
  start(0);
  clear(0);
  await elapse(durationMs * 2);
  assert.deepEqual(passed, []);
  start(0);
  await poll(() => passed.length === 1, 'the deadline has passed');
});

test('bytes that arrive in time during a long turn are read before the deadline passes [D19]', async (t) => {
  const { passed, start, clear } = createLine(1);
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const sender = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [[receiver]] = await Promise.all([accepted, once(sender, 'connect')]);
  t.after(() => {
    sender.destroy();
    receiver.destroy();
    server.close();
  });
  let isRead = false;
  receiver.once('data', () => {
    isRead = true;
    clear(0);
  });
  // The next turn begins with the timers, before the sockets are read.
  await nextTurn();
  start(0);
  sender.write('answer');
  for (const until = performance.now() + 2 * durationMs; performance.now() < until;);
  await poll(() => isRead, 'the answer is read');
  await nextTurn();
  assert.deepEqual(passed, []);
});

test('after a pause of the process, a deadline leaves time for more than what has arrived [D19]', async () => {
  const { passed, start } = createLine(2);
  await nextTurn();
  start(0);
  start(1);
  for (const until = performance.now() + 900; performance.now() < until;);
  for (let turns = 0; turns < 20; turns += 1) await nextTurn();
  assert.deepEqual(passed, []);
  await poll(() => passed.length === 2, 'the deadlines have passed');
  assert.deepEqual(passed, [0, 1]);
});

test('after two pauses of the process, deadlines pass in the order of their times [D19]', async () => {
  const ms = 300;
  const { passed, start } = createLine(2, ms);
  const pause = async (): Promise<void> => {
    for (const until = performance.now() + 3 * ms; performance.now() < until;);
    for (let turns = 0; turns < 20; turns += 1) await nextTurn();
  };
  start(0);
  // Extends the first deadline beyond the end of the second, and leaves it less time for the next pause.
  await pause();
  start(1);
  await pause();
  await poll(() => passed.length === 2, 'the deadlines have passed');
  assert.deepEqual(passed, [0, 1]);
});

test('a deadline that starts right after a pause is not extended, and passes before older, extended ones [D19]', async (t) => {
  const now = performance.now.bind(performance);
  let pausedMs = 0;
  t.mock.method(performance, 'now', () => now() + pausedMs);
  const { passed, early, start, clear } = createLine(3);
  start(0);
  start(1);
  // A call starts after the pause, and before the timer that was due during it.
  pausedMs = 900;
  start(2);
  await poll(() => passed.length > 0, 'a deadline has passed');
  assert.deepEqual([passed, early], [[2], []]);
  for (const index of [0, 1]) clear(index);
});

test('deadlines that start while others pass add no timers [D19]', async (t) => {
  const timers = t.mock.method(globalThis, 'setTimeout');
  const line = new Deadlines(durationMs);
  let passes = 0;
  const onDeadlinePassed = (deadline: Deadline) => {
    passes += 1;
    line.start(deadline);
  };
  const deadlines = Array.from({ length: 4 }, () => new Deadline({ onDeadlinePassed }));
  const before = timers.mock.callCount();
  for (const deadline of deadlines) {
    line.start(deadline);
    for (const until = performance.now() + 2; performance.now() < until;);
  }
  let turns = 0;
  while (passes < 100) {
    await nextTurn();
    turns += 1;
  }
  for (const deadline of deadlines) deadline.clear();
  assert.ok(turns > 0);
  // Each pass needs at most a timer for the next deadline, and one that it starts itself.
  const made = timers.mock.callCount() - before;
  assert.ok(made <= 2 * passes + 1, `${made} timers for ${passes} passes`);
});

for (const [what, start] of [
  ['a call', (onOver: () => void) => new Deadlines(durationMs).start(new Deadline({ onDeadlinePassed: onOver }))],
  ['the process', (onOver: () => void) => startDeadline(durationMs, onOver)],
] as const) {
  test(`a deadline of ${what} passes, even if every timer fires 0.9 s late [D19]`, async (t) => {
    const now = performance.now.bind(performance);
    let addedMs = 0;
    t.mock.method(performance, 'now', () => now() + (addedMs += 900));
    let isOver = false as boolean;
    start(() => (isOver = true));
    for (const until = now() + 8_000; !isOver && now() < until;)
      await new Promise((resolve) => setTimeout(resolve, 20));
    assert.ok(isOver);
  });
}

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
