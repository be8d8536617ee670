// SharedCount counts requests together with other gateways. It asks the shared counter few questions, admits no request
// over the limit, and waits only a limited time for answers [D47].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Counter, Question } from '../../packages/core/guards/ports/ports.ts';
import {
  createJoinedCount,
  createOwnCount,
  type Count,
  type Taken,
} from '../../packages/core/guards/rate-limit/count.ts';
import { SharedCount } from '../../packages/core/guards/rate-limit/shared-count.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';

const rate = { limit: 10, windowMs: 60_000 };

type Answer = (question: Question) => Promise<readonly number[]>;

/** Counts in memory, unless the test sets `answer`. */
class TestCounter implements Counter {
  readonly questions: Question[] = [];
  readonly #joined = createJoinedCount();
  readonly #now: () => number;
  revivals = 0;
  isClosed = false;
  answer: Answer | undefined;
  onRevive: () => Promise<void> = () => Promise.resolve();
  /** Reports that the counter has closed the connection. */
  lose: () => void = () => undefined;

  constructor(now: () => number) {
    this.#now = now;
  }
  ask(question: Question) {
    this.questions.push(question);
    return this.answer === undefined ? Promise.resolve(this.count(question)) : this.answer(question);
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
  const own = createOwnCount(rate, now);
  const count = new SharedCount({
    rate,
    clock,
    counter,
    answerMsMax: 100,
    fallback: fallback ?? own,
    onChange: (cause) => changes.push(cause instanceof Error ? cause.message : cause),
  });
  /** Counts one request for each of `keys`, and returns the results after `ms` on the clock. */
  const resultsOf = async (keys: readonly string[], ms = 1) => {
    const taken = Promise.all(keys.map(async (key) => await count.take(key)));
    await settle();
    await clock.pass(ms);
    return await taken;
  };
  const takeAll = async (keys: readonly string[], ms?: number) => (await resultsOf(keys, ms)).map(wait);
  const take = async (key: string, ms?: number) => (await takeAll([key], ms))[0];
  return { clock, counter, changes, count, take, takeAll, resultsOf, [Symbol.dispose]: () => count.close() }; // prettier-ignore
}

/** Like `create`, but the count is started. */
async function begin(fallback?: Count) {
  const shared = create(fallback);
  await shared.count.start();
  return shared;
}

/** Milliseconds that the client has to wait: 0 if the request is admitted. */
const wait = (taken: Taken | undefined) => (taken === undefined || taken.left >= 0 ? 0 : taken.msLeft);
/** Like `wait`, for a synchronous result. */
function waitOf(taken: ReturnType<Count['take']>): number {
  assert.ok(!(taken instanceof Promise), 'the result is not a promise');
  return wait(taken);
}
const times = (amount: number, key: string) => Array.from({ length: amount }, () => key);
const admitted = (answers: readonly number[]) => answers.filter((msLeft) => msLeft === 0).length;

describe('while the counter answers', () => {
  test('the requests of one event-loop turn become one question, in order of arrival', async () => {
    using shared = await begin();
    const answers = await shared.takeAll(['a', 'b', 'a', 'c', 'a']);
    assert.deepEqual(answers, [0, 0, 0, 0, 0]);
    assert.deepEqual(shared.counter.questions, [{ rate, keys: ['a', 'b', 'a', 'c', 'a'] }]);
    assert.deepEqual(shared.changes, []);
  });

  test('requests within a millisecond after a question share the next question', async () => {
    using shared = await begin();
    const { clock, counter, count } = shared;
    const taken = [count.take('a')];
    await settle();
    for (const key of ['b', 'c']) {
      taken.push(count.take(key));
      await settle();
    }
    assert.equal(counter.questions.length, 1);
    await clock.pass(1);
    assert.deepEqual((await Promise.all(taken.map(async (each) => await each))).map(wait), [0, 0, 0]);
    assert.deepEqual(counter.questions[1], { rate, keys: ['b', 'c'] });
    await clock.pass(1);
    // After a pause, a request causes a question at once.
    assert.equal(await shared.take('d', 0), 0);
  });

  test('the first requests are admitted; a key over its limit is refused without a question until its window ends', async () => {
    using shared = await begin();
    assert.deepEqual(await shared.takeAll(times(12, 'a')), [...Array<number>(10).fill(0), 60_000, 60_000]);
    await shared.clock.pass(59_998);
    assert.deepEqual(shared.count.take('a'), { left: -1, msLeft: 1 }, 'without a question');
    assert.equal(shared.counter.questions.length, 1);
    await shared.clock.pass(1);
    assert.equal(await shared.take('a'), 0);
  });

  test('each result has the number of requests that are left; requests of other gateways are subtracted', async () => {
    using shared = await begin();
    const lefts = async (keys: readonly string[]) => (await shared.resultsOf(keys)).map((each) => each?.left);
    assert.deepEqual(await lefts(['a', 'b', 'a', 'a']), [9, 9, 8, 7]);
    shared.counter.count({ rate, keys: times(4, 'a') });
    assert.deepEqual(await lefts(times(5, 'a')), [2, 1, 0, -1, -1]);
    assert.deepEqual(await shared.resultsOf(['b']), [{ left: 8, msLeft: 59_998 }]);
  });

  test('of 1,000 requests that arrive ten at a time, only those within the limit are admitted', async () => {
    using shared = await begin();
    const answers: number[] = [];
    for (let round = 0; round < 100; round += 1) {
      answers.push(...(await shared.takeAll(times(10, `key ${round % 3}`))));
    }
    assert.equal(admitted(answers), 30);
  });

  test('many requests are split into several questions', async () => {
    using shared = await begin();
    await shared.takeAll(Array.from({ length: 1_001 }, (_, index) => String(index)));
    const sizes = shared.counter.questions.map(({ keys }) => keys.length);
    assert.deepEqual(sizes, [500, 500, 1]);
  });

  test('an answer with a very long time blocks the key for one window at most', async () => {
    using shared = await begin();
    shared.counter.answer = () => Promise.resolve([-1, 10 ** 12]);
    assert.equal(await shared.take('a'), 60_000);
    assert.deepEqual(shared.count.take('a'), { left: -1, msLeft: 59_999 });
  });
});

describe('when the counter fails', () => {
  const silent: Answer = () => new Promise(() => undefined);
  for (const [title, answer, cause] of [
    ['is silent', silent, 'no answer within 100 ms'],
    ['fails', () => Promise.reject(new Error('gone')), 'gone'],
    ['answers nothing', () => Promise.resolve([]), 'the answer is malformed'],
    ['answers fractions', () => Promise.resolve([0.5, 5]), 'the answer is malformed'],
    ['answers a remaining number below -1', () => Promise.resolve([-2, 5]), 'the answer is malformed'],
    ['answers a negative time', () => Promise.resolve([1, -1]), 'the answer is malformed'],
    ['leaves out the time', () => Promise.resolve([1]), 'the answer is malformed'],
    ['answers text', () => Promise.resolve(['1', '5'] as unknown as number[]), 'the answer is malformed'],
    ['answers null', () => Promise.resolve(null as unknown as number[]), 'the answer is malformed'],
  ] as const) {
    test(`if the counter ${title}, the fallback counts, the outage is reported once, and later requests do not wait`, async () => {
      using shared = await begin();
      shared.counter.answer = answer;
      shared.counter.onRevive = () => Promise.reject(new Error('still down'));
      assert.equal(await shared.take('a', answer === silent ? 100 : 0), 0);
      assert.equal(shared.count.isAnswering, false);
      const answers = times(12, 'a').map((key) => waitOf(shared.count.take(key)));
      assert.deepEqual(answers, [...Array<number>(9).fill(0), 60_000, 60_000, 60_000], 'the fallback counts without waiting');
      await shared.clock.pass(10_000);
      assert.ok(shared.counter.revivals > 40, 'the counter is retried');
      assert.deepEqual(shared.changes, [cause]);
      shared.counter.answer = undefined;
      shared.counter.onRevive = () => Promise.resolve();
      await shared.clock.pass(250);
      assert.equal(shared.count.isAnswering, true);
      assert.deepEqual(shared.changes, [cause, undefined]);
      assert.equal(await shared.take('b'), 0);
      assert.equal(shared.counter.questions.at(-1)?.keys[0], 'b');
    });
  } // prettier-ignore

  test('all waiting requests are released together, and a late answer is ignored', async () => {
    using shared = await begin();
    const late: (() => void)[] = [];
    shared.counter.answer = (question) =>
      new Promise((resolve) => late.push(() => resolve(question.keys.flatMap(() => [-1, 60_000])))); // prettier-ignore
    const first = shared.count.take('a');
    await settle();
    await shared.clock.pass(10);
    const second = shared.count.take('b');
    await settle();
    assert.equal(late.length, 2);
    await shared.clock.pass(90);
    assert.deepEqual((await Promise.all([first, second])).map(wait), [0, 0]);
    await settle();
    assert.equal(shared.count.isAnswering, true, 'the counter is used again');
    for (const answer of late) answer();
    assert.equal(shared.changes.length, 2);
    shared.counter.answer = undefined;
    assert.equal(await shared.take('a'), 0, 'the key is not blocked');
  });

  test('if the process wakes up after the deadline, an answer that has already arrived is used', async () => {
    using shared = await begin();
    let answer = (): void => undefined;
    shared.counter.answer = (question) =>
      new Promise((resolve) => {
        answer = () => resolve(shared.counter.count(question)); // prettier-ignore
      });
    const taken = shared.count.take('a');
    await settle();
    // The answer arrives in the turn in which the deadline expires.
    setImmediate(answer);
    await shared.clock.pass(150);
    assert.equal(wait(await taken), 0);
    assert.deepEqual(shared.changes, []);
  });

  test('without an answer at the start, the outage is reported once and the start continues after half a second', async () => {
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
    ['refuses connections', 0], ['fails after 100 ms', 100], ['cannot be reached', 350], ['is silent', Infinity],
  ] as const) {
    test(`if the counter ${how}, it is used again within a second after its return`, async () => {
      for (let backAt = 2_000; backAt <= 2_800; backAt += 10) {
        using shared = create();
        const { clock, counter } = shared;
        counter.onRevive = async () => {
          // An attempt just before the counter's return may be lost. Later attempts take the longest allowed time.
          const [isUp, ms] = clock.steady() >= backAt ? [true, 240] as const : [false, failsAfterMs] as const;
          await new Promise<void>((resolve) => { if (ms === 0) resolve(); else if (ms < Infinity) clock.after(ms, resolve); });
          if (!isUp) throw new Error('down');
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

  test('an asynchronous fallback is awaited', async () => {
    using shared = await begin({ take: async () => await Promise.resolve({ left: -1, msLeft: 7 }) });
    shared.counter.answer = () => Promise.reject(new Error('gone'));
    assert.equal(await shared.take('a'), 7);
  });
});

describe('when the connection to the counter is closed', () => {
  test('while no request waits, a new connection is opened immediately, and no outage is reported', async () => {
    using shared = await begin();
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

  test('pending and new requests wait for the new connection and are counted on it', async () => {
    using shared = await begin();
    const { clock, counter, count } = shared;
    await clock.pass(500);
    counter.answer = () => new Promise(() => undefined);
    const pending = [count.take('a'), count.take('b')];
    await settle();
    counter.answer = undefined;
    counter.onRevive = () => new Promise((resolve) => clock.after(50, resolve));
    counter.lose();
    const later = [count.take('a'), count.take('c')];
    assert.equal(count.isAnswering, true);
    await clock.pass(50);
    assert.deepEqual((await Promise.all([...pending, ...later])).map(wait), [0, 0, 0, 0]);
    assert.deepEqual(counter.questions[1], { rate, keys: ['a', 'b', 'a', 'c'] });
    assert.deepEqual(shared.changes, []);
  });

  test('if a question finds the connection closed, all requests are asked in order on the new connection', async () => {
    using shared = await begin();
    const { clock, counter, count } = shared;
    await clock.pass(500);
    counter.answer = () => {
      counter.answer = undefined;
      counter.lose();
      return Promise.reject(new Error('closed'));
    };
    const keys = Array.from({ length: 1_001 }, (_, index) => String(index));
    const taken = Promise.all(keys.map(async (key) => await count.take(key)));
    await settle();
    await clock.pass(10);
    assert.equal(admitted((await taken).map(wait)), keys.length);
    assert.deepEqual(
      counter.questions.slice(1).flatMap((question) => question.keys),
      keys,
    );
    assert.deepEqual(shared.changes, []);
  });

  test('requests wait for the new connection at most as long as for an answer; then the fallback counts them', async () => {
    using shared = await begin();
    const { clock, counter, count } = shared;
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

  test('the time limit of an answer includes the wait for a new connection', async () => {
    using shared = await begin();
    const { clock, counter, count } = shared;
    await clock.pass(500);
    counter.onRevive = () => new Promise((resolve) => clock.after(90, resolve));
    counter.answer = () => new Promise(() => undefined);
    counter.lose();
    const taken = count.take('a');
    await clock.pass(90);
    assert.equal(counter.questions.length, 1);
    await clock.pass(10);
    assert.equal(wait(await taken), 0);
  });

  test('a failed reconnect is an outage', async () => {
    using shared = await begin();
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

  test('connections that are closed right after opening are an outage, and new attempts are rare', async () => {
    using shared = await begin();
    const { clock, counter } = shared;
    for (let round = 0; round < 40; round += 1) {
      counter.lose();
      await clock.pass(250);
    }
    assert.ok(counter.revivals <= 41, `${counter.revivals} connections`);
    assert.equal(shared.changes[0], 'the server closes connections right after accepting them');
    assert.equal(shared.changes.length, 80);
  });
});

test('close() releases all waiting requests immediately and asks no more questions', async () => {
  using shared = await begin();
  shared.counter.answer = () => new Promise(() => undefined);
  const pending = shared.count.take('a');
  await settle();
  assert.equal(shared.counter.questions.length, 1);
  const gathered = shared.count.take('b');
  shared.count.close();
  assert.deepEqual((await Promise.all([pending, gathered])).map(wait), [0, 0]);
  await shared.clock.pass(1);
  assert.deepEqual(shared.clock.waits, []);
  assert.equal(waitOf(shared.count.take('c')), 0);
  assert.equal(shared.counter.isClosed, true);
  assert.equal(shared.counter.questions.length, 1);
  assert.deepEqual(shared.changes, []);
});

test('after close, an outage is neither retried nor reported', async () => {
  using away = await begin();
  away.counter.answer = () => Promise.reject(new Error('gone'));
  away.counter.onRevive = () => Promise.reject(new Error('still down'));
  await away.take('a', 0);
  const { revivals } = away.counter;
  away.count.close();
  await away.clock.pass(1_000);
  assert.deepEqual([away.counter.revivals, away.changes], [revivals, ['gone']]);

  for (const outcome of [() => undefined, () => assert.fail('down')]) {
    using starting = create();
    const gate = Promise.withResolvers<undefined>();
    starting.counter.onRevive = () => gate.promise.then(outcome);
    const started = starting.count.start();
    starting.count.close();
    gate.resolve(undefined);
    await started;
    assert.deepEqual([starting.count.isAnswering, starting.changes, starting.clock.waits], [false, [], []]);
  }
});
