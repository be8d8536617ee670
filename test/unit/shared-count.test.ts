// Counting together with others: few questions, no request past the limit, and nobody waits for who does not answer [D47].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Count, Counter, Question, Taken } from '../../packages/core/guards/options/ports.ts';
import { OwnCount } from '../../packages/core/guards/rate-limit/count.ts';
import { SharedCount } from '../../packages/core/guards/rate-limit/shared-count.ts';
import { JoinedCount } from '../../packages/core/guards/rate-limit/joined-count.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';

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
  /** Its connection is closed from over there. */
  lose: () => void = () => undefined;

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
  revive(onGone: () => void) {
    this.lose = onGone;
    this.revivals += 1;
    return this.onRevive();
  }
  close() {
    this.isClosed = true;
  }
}

function create(fallback?: Count, clock = new HandClock()) {
  const now = () => clock.steady();
  const counter = new TestCounter(now);
  const changes: unknown[] = [];
  const own = new OwnCount(rate, now);
  const count = new SharedCount({
    rate,
    clock,
    counter,
    answerMsMax: 100,
    fallback: fallback ?? own,
    onChange: (cause) => changes.push(cause instanceof Error ? cause.message : cause),
  });
  /** What is told to all of `keys`, when the clock has gone on by `ms`. */
  const tellAll = async (keys: readonly string[], ms = 1) => {
    const taken = Promise.all(keys.map(async (key) => await count.take(key)));
    await settle();
    await clock.pass(ms);
    return await taken;
  };
  const takeAll = async (keys: readonly string[], ms?: number) => (await tellAll(keys, ms)).map(wait);
  const take = async (key: string, ms?: number) => (await takeAll([key], ms))[0];
  return { clock, counter, changes, count, take, takeAll, tellAll, [Symbol.dispose]: () => { count.close(); } }; // prettier-ignore
}

/** How many milliseconds who asked has to wait: 0 for who may come in. */
const wait = (taken: Taken | undefined) => (taken === undefined || taken.left >= 0 ? 0 : taken.msLeft);
/** The same where the answer is there at once. */
function waitOf(taken: ReturnType<Count['take']>): number {
  assert.ok(!(taken instanceof Promise), 'at once');
  return wait(taken);
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
    await shared.clock.pass(59_998);
    assert.deepEqual(shared.count.take('a'), { left: -1, msLeft: 1 }, 'at once');
    assert.equal(shared.counter.questions.length, 1);
    await shared.clock.pass(1);
    assert.equal(await shared.take('a'), 0);
  });

  test('each is told what is left after it, and of a window of others the rest of that', async () => {
    using shared = create();
    await shared.count.start();
    const lefts = async (keys: readonly string[]) => (await shared.tellAll(keys)).map((each) => each?.left);
    assert.deepEqual(await lefts(['a', 'b', 'a', 'a']), [9, 9, 8, 7]);
    shared.counter.count({ rate, keys: ['a'], wanted: [4] });
    assert.deepEqual(await lefts(times(5, 'a')), [2, 1, 0, -1, -1]);
    assert.deepEqual(await shared.tellAll(['b']), [{ left: 8, msLeft: 59_998 }]);
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
    shared.counter.deed = () => Promise.resolve([0, 10 ** 12, 0]);
    assert.equal(await shared.take('a'), 60_000);
    assert.deepEqual(shared.count.take('a'), { left: -1, msLeft: 59_999 });
  });
});

describe('when it does not answer', () => {
  const silent: Deed = () => new Promise(() => undefined);
  for (const [what, deed, cause] of [
    ['is silent', silent, 'no answer within 100 ms'],
    ['fails', () => Promise.reject(new Error('gone')), 'gone'],
    ['answers nothing', () => Promise.resolve([]), 'what it answers makes no sense'],
    ['grants more than is wanted', () => Promise.resolve([2, 5, 0]), 'what it answers makes no sense'],
    ['grants less than nothing', () => Promise.resolve([-1, 5, 0]), 'what it answers makes no sense'],
    ['answers fractions', () => Promise.resolve([0.5, 5, 0]), 'what it answers makes no sense'],
    ['has less left than nothing', () => Promise.resolve([1, 5, -1]), 'what it answers makes no sense'],
    ['does not say what is left', () => Promise.resolve([1, 5]), 'what it answers makes no sense'],
    ['answers text', () => Promise.resolve(['1', '5', '0'] as unknown as number[]), 'what it answers makes no sense'],
    ['answers null', () => Promise.resolve(null as unknown as number[]), 'what it answers makes no sense'],
  ] as const) {
    test(`it ${what}: the fallback counts, that is told once, and those that come then do not wait`, async () => {
      using shared = create();
      await shared.count.start();
      shared.counter.deed = deed;
      shared.counter.onRevive = () => Promise.reject(new Error('still away'));
      assert.equal(await shared.take('a', deed === silent ? 100 : 0), 0);
      assert.equal(shared.count.isAnswering, false);
      const answers = times(12, 'a').map((key) => waitOf(shared.count.take(key)));
      assert.deepEqual(answers, [...Array<number>(9).fill(0), 60_000, 60_000, 60_000], 'at once, and counted');
      await shared.clock.pass(10_000);
      assert.ok(shared.counter.revivals > 40, 'it is tried again and again');
      assert.deepEqual(shared.changes, [cause]);
      shared.counter.deed = undefined;
      shared.counter.onRevive = () => Promise.resolve();
      await shared.clock.pass(250);
      assert.equal(shared.count.isAnswering, true);
      assert.deepEqual(shared.changes, [cause, undefined]);
      assert.equal(await shared.take('b'), 0);
      assert.equal(shared.counter.questions.at(-1)?.keys[0], 'b');
    });
  } // prettier-ignore

  test('everybody who waits is let go together, and an answer that comes late changes nothing', async () => {
    using shared = create();
    await shared.count.start();
    const late: (() => void)[] = [];
    shared.counter.deed = (question) =>
      new Promise((resolve) => late.push(() => { resolve(question.wanted.flatMap(() => [0, 60_000, 0])); })); // prettier-ignore
    const first = shared.count.take('a');
    await settle();
    await shared.clock.pass(10);
    const second = shared.count.take('b');
    await settle();
    assert.equal(late.length, 2);
    await shared.clock.pass(90);
    assert.deepEqual((await Promise.all([first, second])).map(wait), [0, 0]);
    await settle();
    assert.equal(shared.count.isAnswering, true, 'it is revived');
    for (const answer of late) answer();
    assert.equal(shared.changes.length, 2);
    shared.counter.deed = undefined;
    assert.equal(await shared.take('a'), 0, 'it is not blocked');
  });

  test('an answer that lies there when the process wakes up late is in time', async () => {
    using shared = create();
    await shared.count.start();
    let answer = (): void => undefined;
    shared.counter.deed = (question) =>
      new Promise((resolve) => {
        answer = () => { resolve(shared.counter.count(question)); }; // prettier-ignore
      });
    const taken = shared.count.take('a');
    await settle();
    // Arrives in the turn in which the deadline is seen to have passed.
    setImmediate(answer);
    await shared.clock.pass(150);
    assert.equal(wait(await taken), 0);
    assert.deepEqual(shared.changes, []);
  });

  test('who never answers from the beginning is told once, and started without after half a second', async () => {
    using shared = create();
    shared.counter.onRevive = () => new Promise(() => undefined);
    const started = shared.count.start();
    await shared.clock.pass(500);
    await started;
    assert.deepEqual(shared.changes, ['no answer within 500 ms']);
    assert.equal(waitOf(shared.count.take('a')), 0);
    assert.equal(shared.counter.questions.length, 0);
  });

  for (const [how, failsAfterMs] of [
    ['refuses', 0], ['answers nothing for 100 ms and is given up', 100], ['cannot be reached', 350], ['is silent', Infinity],
  ] as const) {
    test(`while it ${how}: it counts again within a second, whatever the moment of its return`, async () => {
      for (let backAt = 2_000; backAt <= 2_800; backAt += 10) {
        using shared = create();
        const { clock, counter } = shared;
        counter.onRevive = async () => {
          // What is asked just before its return may be lost; from then on it takes as long as it may.
          const [isThere, ms] = clock.steady() >= backAt ? [true, 240] as const : [false, failsAfterMs] as const;
          await new Promise<void>((resolve) => { if (ms === 0) resolve(); else if (ms < Infinity) clock.after(ms, resolve); });
          if (!isThere) throw new Error('away');
        };
        const started = shared.count.start();
        await clock.pass(backAt);
        await started;
        assert.equal(shared.count.isAnswering, false);
        await clock.pass(1_000);
        assert.equal(shared.count.isAnswering, true, `back at ${backAt}`);
      }
    });
  } // prettier-ignore

  test('a fallback that takes its time is waited for', async () => {
    using shared = create({ take: async () => await Promise.resolve({ left: -1, msLeft: 7 }) });
    await shared.count.start();
    shared.counter.deed = () => Promise.reject(new Error('gone'));
    assert.equal(await shared.take('a'), 7);
  });
});

describe('when its connection is closed', () => {
  test('while nobody asks: it has a new one at once, and nobody is told', async () => {
    using shared = create();
    await shared.count.start();
    for (let round = 0; round < 5; round += 1) {
      await shared.clock.pass(500);
      shared.counter.lose();
      await settle();
      assert.equal(shared.counter.revivals, round + 2);
      assert.equal(await shared.take('a'), 0);
    }
    assert.equal(shared.counter.questions.length, 5);
    assert.deepEqual(shared.changes, []);
  });

  test('requests wait for the new one, those that were asked for too, and are counted there', async () => {
    using shared = create();
    const { clock, counter, count } = shared;
    await count.start();
    await clock.pass(500);
    counter.deed = () => new Promise(() => undefined);
    const asked = [count.take('a'), count.take('b')];
    await settle();
    counter.deed = undefined;
    counter.onRevive = () => new Promise((resolve) => clock.after(50, resolve));
    counter.lose();
    const later = [count.take('a'), count.take('c')];
    assert.equal(count.isAnswering, true);
    await clock.pass(50);
    assert.deepEqual((await Promise.all([...asked, ...later])).map(wait), [0, 0, 0, 0]);
    assert.deepEqual(counter.questions[1], { rate, keys: ['a', 'b', 'c'], wanted: [2, 1, 1] });
    assert.deepEqual(shared.changes, []);
  });

  test('nobody waits for it longer than for an answer: then the fallback counts', async () => {
    using shared = create();
    const { clock, counter, count } = shared;
    await count.start();
    await clock.pass(500);
    counter.onRevive = () => new Promise(() => undefined);
    counter.lose();
    const taken = [count.take('a')];
    await clock.pass(60);
    taken.push(count.take('a'));
    await clock.pass(40);
    assert.deepEqual((await Promise.all(taken.map(async (each) => await each))).map(wait), [0, 0]);
    assert.equal(counter.questions.length, 0);
    assert.deepEqual(shared.changes, ['no answer within 100 ms']);
    counter.onRevive = () => Promise.resolve();
    await clock.pass(650);
    assert.deepEqual(shared.changes, ['no answer within 100 ms', undefined]);
  });

  test('a request that has waited for a new one has that much less time for its answer', async () => {
    using shared = create();
    const { clock, counter, count } = shared;
    await count.start();
    await clock.pass(500);
    counter.onRevive = () => new Promise((resolve) => clock.after(90, resolve));
    counter.deed = () => new Promise(() => undefined);
    counter.lose();
    const taken = count.take('a');
    await clock.pass(90);
    assert.equal(counter.questions.length, 1);
    await clock.pass(10);
    assert.equal(wait(await taken), 0);
  });

  test('there is no new one: that is an outage', async () => {
    using shared = create();
    await shared.count.start();
    await shared.clock.pass(500);
    shared.counter.onRevive = () => Promise.reject(new Error('refused'));
    shared.counter.lose();
    const taken = shared.count.take('a');
    await settle();
    assert.equal(wait(await taken), 0);
    assert.deepEqual(shared.changes, ['refused']);
    shared.counter.onRevive = () => Promise.resolve();
    await shared.clock.pass(250);
    assert.deepEqual(shared.changes, ['refused', undefined]);
  });

  test('one that is closed again and again as soon as it is there is an outage, and tried at leisure', async () => {
    using shared = create();
    const { clock, counter, count } = shared;
    await count.start();
    for (let round = 0; round < 40; round += 1) {
      counter.lose();
      await clock.pass(250);
    }
    assert.ok(counter.revivals <= 41, `${counter.revivals} connections`);
    assert.equal(shared.changes[0], 'it closes connections as soon as it has taken them');
    assert.equal(shared.changes.length, 80);
  });
});

test('closed, it lets everybody go at once and asks nobody any more', async () => {
  using shared = create();
  await shared.count.start();
  shared.counter.deed = () => new Promise(() => undefined);
  const asked = shared.count.take('a');
  await settle();
  assert.equal(shared.counter.questions.length, 1);
  const gathered = shared.count.take('b');
  shared.count.close();
  assert.deepEqual((await Promise.all([asked, gathered])).map(wait), [0, 0]);
  await shared.clock.pass(1);
  assert.deepEqual(shared.clock.waits, []);
  assert.equal(waitOf(shared.count.take('c')), 0);
  assert.equal(shared.counter.isClosed, true);
  assert.equal(shared.counter.questions.length, 1);
  assert.deepEqual(shared.changes, []);
});
