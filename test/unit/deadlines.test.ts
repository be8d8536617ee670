// Deadlines in one line with one timer: each passes once, in order and not before its time, whatever is taken out of
// the line meanwhile [D19].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, Deadlines } from '../../packages/core/backend/deadlines.ts';
import { poll } from '../helpers/changes.ts';

const durationMs = 20;

/** A line, and what has passed in it. */
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
        // Timers are to be had in whole milliseconds only.
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

/** A deadline of its own that passes meanwhile. */
async function elapse(ms: number): Promise<void> {
  let hasPassed = false;
  const other = new Deadline({
    onDeadlinePassed: () => {
      hasPassed = true;
    },
  });
  new Deadlines(ms).start(other);
  await poll(() => hasPassed, `${ms} ms`);
}

// Every choice of what is cleared among four, at once and in either order.
for (let mask = 0; mask < 16; mask += 1) {
  const cleared = [0, 1, 2, 3].filter((index) => ((mask >> index) & 1) === 1);
  for (const order of [cleared, cleared.toReversed()]) {
    test(`of four, without ${order.join(', ') || 'none'}, the others pass in order [D19]`, async () => {
      const { passed, early, start, clear } = createLine(6);
      for (let index = 0; index < 4; index += 1) start(index);
      for (const index of order) clear(index);
      for (const index of order) clear(index);
      const left = [0, 1, 2, 3].filter((index) => !cleared.includes(index));
      // The last one stands for the test itself: a line's timer does not keep a process alive.
      start(4);
      await poll(() => passed.includes(4), 'the last one has passed');
      assert.deepEqual(passed, [...left, 4]);
      // The line goes on when it has been empty.
      start(5);
      await poll(() => passed.includes(5), 'one more has passed');
      assert.deepEqual(passed, [...left, 4, 5]);
      assert.deepEqual(early, []);
    });
  }
}

test('one that starts later passes later, and one that starts again has its whole time again [D19]', async () => {
  // Long enough that the first half of it is over in time on a busy machine, too.
  const ms = 600;
  const { passed, early, start, clear } = createLine(3, ms);
  start(0);
  await elapse(ms / 6);
  start(1);
  clear(0);
  start(2);
  start(0);
  await poll(() => passed.length === 3, 'all have passed');
  assert.deepEqual(passed, [1, 2, 0]);
  assert.deepEqual(early, []);
});

test('a timer that is for nobody any more passes nothing [D19]', async () => {
  const { passed, start, clear } = createLine(1);
  start(0);
  clear(0);
  await elapse(durationMs * 2);
  assert.deepEqual(passed, []);
  start(0);
  await poll(() => passed.length === 1, 'it has passed');
});
