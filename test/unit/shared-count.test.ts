// Counting together with others: few questions, no request past the limit, and nobody waits for who does not answer [D47].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { OwnCount, type Count } from '../../src/guards/count.ts';
import { SharedCount, type Counter, type Question } from '../../src/guards/shared-count.ts';
import { JoinedCount } from '../../src/workers/joined-count.ts';
import { poll } from '../helpers/changes.ts';

const rate = { limit: 10, windowMs: 60_000 };

type Deed = (question: Question) => Promise<readonly number[]>;

/** A counter that answers as it should, until it is told to do something else. */
class TestCounter implements Counter {
  readonly questions: Question[] = [];
  readonly #joined = new JoinedCount();
  readonly #now: () => number;
  revivals = 0;
  isClosed = false;
  deed: Deed | undefined;
  onRevive: () => Promise<void> = () => Promise.resolve();

  constructor(now: () => number) {
    this.#now = now;
  }
  ask(question: Question) {
    this.questions.push(question);
    return this.deed === undefined ? Promise.resolve(this.count(question)) : this.deed(question);
  }
  count(question: Question) {
    return this.#joined.answer(question, this.#now());
  }
  revive() {
    this.revivals += 1;
    return this.onRevive();
  }
  close() {
    this.isClosed = true;
  }
}

function create(fallback?: Count, clock = { now: 1_000 }) {
  const now = () => clock.now;
  const counter = new TestCounter(now);
  const changes: unknown[] = [];
  const own = new OwnCount(rate, now);
  const count = new SharedCount({
    rate,
    clock: now,
    counter,
    fallback: fallback ?? own,
    keysMax: 1_000,
    onChange: (cause) => changes.push(cause instanceof Error ? cause.message : cause),
  });
  const takeAll = (keys: readonly string[]) => Promise.all(keys.map(async (key) => await count.take(key)));
  return { clock, counter, changes, count, takeAll, [Symbol.dispose]: () => { count.close(); } }; // prettier-ignore
}

const times = (amount: number, key: string) => Array.from({ length: amount }, () => key);
const passed = (answers: readonly number[]) => answers.filter((msLeft) => msLeft === 0).length;

describe('while it answers', () => {
  test('what comes in one turn is one question, in which each key stands once', async () => {
    using shared = create();
    await shared.count.start();
    const answers = await shared.takeAll(['a', 'b', 'a', 'c', 'a']);
    assert.deepEqual(answers, [0, 0, 0, 0, 0]);
    assert.deepEqual(shared.counter.questions, [{ rate, keys: ['a', 'b', 'c'], wanted: [3, 1, 1] }]);
    assert.deepEqual(shared.changes, []);
  });

  test('the first that come are let in, and who is over is refused without a question until the window ends', async () => {
    using shared = create();
    await shared.count.start();
    assert.deepEqual(await shared.takeAll(times(12, 'a')), [...Array<number>(10).fill(0), 60_000, 60_000]);
    shared.clock.now += 59_999;
    assert.equal(shared.count.take('a'), 1, 'at once');
    assert.equal(shared.counter.questions.length, 1);
    shared.clock.now += 1;
    assert.equal(await shared.count.take('a'), 0);
  });

  test('1,000 requests, some at a time: never one too many', async () => {
    using shared = create();
    await shared.count.start();
    const answers: number[] = [];
    for (let round = 0; round < 100; round += 1) {
      answers.push(...(await shared.takeAll(times(10, `key ${round % 3}`))));
    }
    assert.equal(passed(answers), 30);
  });

  test('many keys become several questions', async () => {
    using shared = create();
    await shared.count.start();
    await shared.takeAll(Array.from({ length: 1_001 }, (_, index) => String(index)));
    assert.deepEqual(
      shared.counter.questions.map(({ keys }) => keys.length),
      [500, 500, 1],
    );
  });

  test('nobody is blocked for longer than a window, whatever it says', async () => {
    using shared = create();
    await shared.count.start();
    shared.counter.deed = () => Promise.resolve([0, 10 ** 12]);
    assert.equal(await shared.count.take('a'), 60_000);
    assert.equal(shared.count.take('a'), 60_000);
  });
});

describe('when it does not answer', () => {
  const silent: Deed = () => new Promise(() => undefined);
  for (const [what, deed, cause] of [
    ['is silent', silent, 'no answer within 100 ms'],
    ['fails', () => Promise.reject(new Error('gone')), 'gone'],
    ['answers nothing', () => Promise.resolve([]), 'what it answers makes no sense'],
    ['grants more than is wanted', () => Promise.resolve([2, 5]), 'what it answers makes no sense'],
    ['grants less than nothing', () => Promise.resolve([-1, 5]), 'what it answers makes no sense'],
    ['answers fractions', () => Promise.resolve([0.5, 5]), 'what it answers makes no sense'],
    ['answers text', () => Promise.resolve(['1', '5'] as unknown as number[]), 'what it answers makes no sense'],
    ['answers null', () => Promise.resolve(null as unknown as number[]), 'what it answers makes no sense'],
  ] as const) {
    test(`it ${what}: the fallback counts, that is told once, and those that come then do not wait`, async () => {
      using shared = create();
      await shared.count.start();
      shared.counter.deed = deed;
      shared.counter.onRevive = () => Promise.reject(new Error('still away'));
      assert.equal(await shared.count.take('a'), 0);
      assert.equal(shared.count.isAnswering, false);
      const answers = times(12, 'a').map((key) => shared.count.take(key));
      assert.deepEqual(answers, [...Array<number>(9).fill(0), 60_000, 60_000, 60_000], 'at once, and counted');
      await poll(() => shared.counter.revivals === 3, 'it is tried again and again');
      assert.deepEqual(shared.changes, [cause]);
      shared.counter.deed = undefined;
      shared.counter.onRevive = () => Promise.resolve();
      await poll(() => shared.count.isAnswering, 'it answers again');
      assert.deepEqual(shared.changes, [cause, undefined]);
      assert.equal(await shared.count.take('b'), 0);
      assert.equal(shared.counter.questions.at(-1)?.keys[0], 'b');
    });
  } // prettier-ignore

  test('everybody who waits is let go together, and an answer that comes late changes nothing', async () => {
    using shared = create();
    await shared.count.start();
    const late: (() => void)[] = [];
    shared.counter.deed = (question) =>
      new Promise((resolve) => late.push(() => { resolve(question.wanted.flatMap(() => [0, 60_000])); })); // prettier-ignore
    const first = shared.count.take('a');
    await poll(() => late.length === 1, 'the first is asked for');
    shared.clock.now += 10;
    const second = shared.count.take('b');
    await poll(() => late.length === 2, 'the second is asked for');
    assert.deepEqual(await Promise.all([first, second]), [0, 0]);
    await poll(() => shared.count.isAnswering, 'it is revived');
    for (const answer of late) answer();
    assert.equal(shared.changes.length, 2);
    shared.counter.deed = undefined;
    assert.equal(await shared.count.take('a'), 0, 'it is not blocked');
  });

  test('an answer that lies there when the process wakes up late is in time', async () => {
    using shared = create();
    await shared.count.start();
    shared.counter.deed = (question) =>
      new Promise((resolve) => {
        // Arrives in the turn in which the deadline is seen to have passed.
        setTimeout(() => setImmediate(() => { resolve(shared.counter.count(question)); }), 1); // prettier-ignore
      });
    const taken = shared.count.take('a');
    await poll(() => shared.counter.questions.length === 1, 'it is asked for');
    const end = performance.now() + 150;
    while (performance.now() < end);
    assert.equal(await taken, 0);
    assert.deepEqual(shared.changes, []);
  });

  test('who never answers from the beginning is told once, and started without after half a second', async () => {
    using shared = create();
    shared.counter.onRevive = () => new Promise(() => undefined);
    await shared.count.start();
    assert.deepEqual(shared.changes, ['no answer within 500 ms']);
    assert.equal(shared.count.take('a'), 0);
    assert.equal(shared.counter.questions.length, 0);
  });

  test('a fallback that takes its time is waited for', async () => {
    using shared = create({ take: async () => await Promise.resolve(7) });
    await shared.count.start();
    shared.counter.deed = () => Promise.reject(new Error('gone'));
    assert.equal(await shared.count.take('a'), 7);
  });
});

test('closed, it lets everybody go at once and asks nobody any more', async () => {
  using shared = create();
  await shared.count.start();
  shared.counter.deed = () => new Promise(() => undefined);
  const asked = shared.count.take('a');
  await poll(() => shared.counter.questions.length === 1, 'it is asked');
  const gathered = shared.count.take('b');
  const startedAt = performance.now();
  shared.count.close();
  assert.deepEqual(await Promise.all([asked, gathered]), [0, 0]);
  assert.ok(performance.now() - startedAt < 90);
  assert.equal(shared.count.take('c'), 0);
  assert.equal(shared.counter.isClosed, true);
  assert.equal(shared.counter.questions.length, 1);
  assert.deepEqual(shared.changes, []);
});
