// Counting for the rate limit: the same tests for the three counters, and what happens if a counter that several processes
// share does not answer [D46, D47, D65]. redis.test.ts has the rest of Redis.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { PrimaryCounter } from '../../packages/command/cluster/primary-counter.ts';
import { createKeeper } from '../../packages/command/service/keeper.ts';
import type { Counter, Keeper } from '../../packages/core/guards/ports/ports.ts';
import { createCounts } from '../../packages/core/guards/rate-limit/rate-limit-part.ts';
import { SharedCounter } from '../../packages/core/guards/rate-limit/shared-counter.ts';
import { Windows } from '../../packages/core/guards/rate-limit/windows.ts';
import { poll } from '../helpers/changes.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';
import { createRateGuard, repeat } from '../helpers/rate-guard.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';

/** A primary process with its workers. `questions` has the number of requests in each question. */
function createPrimary() {
  const counts = createCounts();
  const primary = { answers: true, questions: [] as number[], counters: [] as PrimaryCounter[] };
  const startWorker = (): Keeper => {
    const counter = new PrimaryCounter((requests) => {
      primary.questions.push(requests.length);
      const taken = requests.map(({ key, rate }) => counts.take(key, rate));
      if (primary.answers) setImmediate(() => counter.onAnswer(taken));
    });
    primary.counters.push(counter);
    return { ...createKeeper(), counter };
  };
  return Object.assign(primary, { startWorker });
}

type Create = (settings: { rateLimit: string }) => ReturnType<typeof createRateGuard>;

/** Starts each counter. Returns a function that creates a guard with this counter. */
const counters: Readonly<Record<string, () => Promise<Create>>> = {
  'this process': () => {
    const keeper = createKeeper();
    return Promise.resolve((settings) => createRateGuard(settings, keeper));
  },
  'the primary process': () => {
    const primary = createPrimary();
    return Promise.resolve((settings) => createRateGuard(settings, primary.startWorker()));
  },
  Redis: async () => {
    const redis = await RedisServer.start();
    after(() => redis[Symbol.asyncDispose]());
    return (settings) => createRateGuard({ ...settings, rateLimitRedisUrl: redis.url }, createKeeper());
  },
};

for (const [name, start] of Object.entries(counters)) {
  describe(`${name} counts`, { skip: name === 'Redis' && withoutRedis }, async () => {
    const create = await start();

    test('each client has its own limit; the requests of one are counted in order, and refused at once over the limit', async () => {
      using guard = await create({ rateLimit: '3/1h' });
      assert.deepEqual(await guard.admitAll(['a', 'b', 'a', 'a', 'a', 'b']), ['2', '2', '1', '0', 'refused', '1']);
      assert.deepEqual([guard.admitNow('a'), guard.told], ['refused', []]);
    });

    test('guards count together, also during and after a reload; only another window starts a new count', async () => {
      using old = await create({ rateLimit: '3/1h' });
      assert.equal(await old.admit('c'), '2');
      using other = await create({ rateLimit: '3/1m' });
      assert.equal(await other.admit('c'), '2');
      using raised = await create({ rateLimit: '5/1h' });
      assert.deepEqual([await raised.admit('c'), await old.admit('c')], ['3', '0']);
      assert.deepEqual([await old.admit('c'), await old.admit('c')], ['refused', 'refused']);
      assert.equal(await raised.admit('c'), '1', 'refused requests are not counted');
      using lowered = await create({ rateLimit: '2/1h' });
      assert.equal(await lowered.admit('c'), 'refused');
    });

    test('of 1,000 concurrent requests to two guards, as many as the limit are admitted', async () => {
      using one = await create({ rateLimit: '100/1h' });
      using two = await create({ rateLimit: '100/1h' });
      const results = await Promise.all([one.admitAll(repeat(500, 'd')), two.admitAll(repeat(500, 'd'))]);
      assert.equal(results.flat().filter((each) => each !== 'refused').length, 100);
    });
  });
}

describe('windows', () => {
  const rate = { limit: 2, windowMs: 1_000 };

  test('a window begins with its first request and ends after its length; refused requests do not extend it', () => {
    let now = 5_000;
    const windows = new Windows(() => now);
    const rows = [
      [5_000, 'a', 1, 1_000], [5_400.5, 'b', 1, 1_000], [5_999.5, 'a', 0, 0.5], [5_999.5, 'a', -1, 0.5],
      [6_000, 'a', 1, 1_000], [6_000, 'a', 0, 1_000], [6_400, 'b', 0, 0.5], [6_400.5, 'b', 1, 1_000],
      [6_999, 'a', -1, 1], [7_000, 'a', 1, 1_000],
    ] as const; // prettier-ignore
    for (const [at, key, left, msLeft] of rows) {
      now = at;
      assert.deepEqual(windows.findOver(key, rate), left === -1 ? { left, msLeft } : undefined);
      assert.deepEqual(windows.take(key, rate), { left, msLeft }, `${key} at ${at}`);
    }
  });

  test('keys may be any text', () => {
    const windows = new Windows(() => 0);
    for (const key of ['__proto__', 'constructor', '', 'toString', '\0', '\ud800', 'x'.repeat(100_000)]) {
      assert.deepEqual([windows.take(key, rate).left, windows.take(key, rate).left], [1, 0]);
    }
  });

  test('of many keys, at least the youngest half of the largest number is kept, and never more than that number', () => {
    const windows = new Windows(() => 0, 1_000);
    for (let key = 0; key < 10_250; key += 1) {
      windows.take(String(key), rate);
      assert.ok(windows.size <= 1_000);
    }
    for (const [key, left] of [[10_249, 0], [9_750, 0], [9_499, 1]] as const) {
      assert.equal(windows.take(String(key), rate).left, left, String(key));
    } // prettier-ignore
  });

  test('ended windows are removed when others open, also those of another length after a reload', () => {
    let now = 0;
    const windows = new Windows(() => now);
    const long = { limit: 1, windowMs: 86_400_000 };
    windows.take('a', long);
    for (let key = 0; key < 1_000; key += 1) windows.take(String(key), rate);
    for (const [at, length, size] of [[999, rate, 1_002], [2_000, rate, 1_003], [4_000, rate, 3], [6_000, long, 2]] as const) {
      now = at;
      windows.take('b', length);
      assert.equal(windows.size, size);
    } // prettier-ignore
    assert.equal(windows.take('a', long).left, -1, 'the long window still counts');
  });

  test('if another counter refuses a key, the key is over the limit for that time', () => {
    let now = 0;
    const windows = new Windows(() => now);
    const long = { limit: 1, windowMs: 2_000 };
    windows.noteOver('a', rate, 300);
    assert.deepEqual(windows.findOver('a', rate), { left: -1, msLeft: 300 });
    assert.equal(windows.findOver('a', { ...rate, limit: 3 }), undefined, 'a raised limit');
    windows.take('b', long);
    windows.noteOver('a', long, 300);
    now = 300;
    assert.equal(windows.findOver('a', rate), undefined);
    windows.take('a', rate);
    assert.equal(windows.take('b', long).left, -1, 'other windows of this length stay');
  });
});

describe('a shared counter', () => {
  type Take = Counter['take'];
  const silent = <T>() => new Promise<T>(() => undefined);
  const refuse = (message: string) => () => Promise.reject(new Error(message));

  /** Starts a counter that admits all requests, unless the test changes `take` and `onRevive`. */
  async function startShared(onRevive: () => Promise<void> = () => Promise.resolve()) {
    const clock = new HandClock();
    const counter = {
      take: (): ReturnType<Take> => Promise.resolve({ left: 1, msLeft: 1 }),
      onRevive,
      revivals: 0,
      lose: (): void => undefined,
      isClosed: false,
      revive: async (onGone: () => void) => {
        counter.lose = onGone;
        counter.revivals += 1;
        await counter.onRevive();
      },
      close: () => {
        counter.isClosed = true;
      },
    };
    const told: unknown[] = [];
    const onChange = (cause: unknown): void => void told.push(cause instanceof Error ? cause.message : cause);
    const rate = { limit: 1, windowMs: 1_000 };
    const shared = new SharedCounter({ rate, clock, counter, answerMsMax: 100, onChange });
    const started = shared.start();
    await settle();
    const take = () => shared.take('a').then(() => 'counted', (error: unknown) => (error as Error).message); // prettier-ignore
    return { clock, counter, told, shared, started, take, [Symbol.dispose]: () => shared.close() };
  }

  for (const [title, take, cause] of [
    ['is silent', silent, 'no answer within 100 ms'],
    ['fails', refuse('gone'), 'gone'],
  ] as const) {
    test(`that ${title} is not asked until a try succeeds; one outage is reported`, async () => {
      using started = await startShared();
      const { clock, counter, told, shared } = started;
      counter.take = take;
      counter.onRevive = refuse('still down');
      const results = [started.take(), started.take()];
      await clock.pass(100);
      assert.deepEqual([await Promise.all(results), shared.isAnswering], [[cause, cause], false]);
      await clock.pass(10_000);
      assert.ok(counter.revivals >= 40 && counter.revivals <= 42, `${counter.revivals} tries`);
      counter.onRevive = () => Promise.resolve();
      await clock.pass(250);
      assert.deepEqual([shared.isAnswering, told], [true, [cause, undefined]]);
    });
  }

  test('is still used if an old request fails after the counter is back', async () => {
    using started = await startShared();
    const { clock, counter, told, shared } = started;
    const old = Promise.withResolvers<Awaited<ReturnType<Take>>>();
    counter.take = () => old.promise;
    const first = started.take();
    await clock.pass(1);
    counter.take = refuse('gone');
    assert.equal(await started.take(), 'gone');
    await settle();
    assert.equal(shared.isAnswering, true);
    old.reject(new Error('too late'));
    assert.equal(await first, 'too late');
    await clock.pass(1_000);
    assert.deepEqual(told, ['gone', undefined]);
    assert.equal(counter.revivals, 2);
  });

  test('is used if its answer has arrived when the process wakes up after the deadline', async () => {
    using started = await startShared();
    const answer = Promise.withResolvers<Awaited<ReturnType<Take>>>();
    started.counter.take = () => answer.promise;
    const taken = started.take();
    await settle();
    // The answer arrives in the turn in which the deadline expires.
    setImmediate(() => answer.resolve({ left: 1, msLeft: 1 }));
    await started.clock.pass(150);
    assert.equal(await taken, 'counted');
    assert.deepEqual(started.told, []);
  });

  test('that is silent at the start is reported once, and the start continues after half a second', async () => {
    using started = await startShared(silent);
    await started.clock.pass(500);
    await started.started;
    assert.deepEqual([started.told, started.shared.isAnswering], [['no answer within 500 ms'], false]);
  });

  for (const [how, failsAfterMs] of [
    ['refuses connections', 0],
    ['fails after 100 ms', 100],
    ['cannot be reached', 350],
    ['is silent', Infinity],
  ] as const) {
    test(`that ${how} is used again within a second after its return`, async () => {
      for (let backAt = 2_000; backAt <= 2_800; backAt += 80) {
        using started = await startShared(async () => {
          // A try just before the counter's return may be lost. Later tries take the longest allowed time.
          const isUp = started.clock.steady() >= backAt;
          const ms = isUp ? 240 : failsAfterMs;
          await new Promise<void>((resolve) => {
            if (ms < Infinity) started.clock.after(ms, resolve);
          });
          if (!isUp) throw new Error('down');
        });
        await started.clock.pass(backAt);
        assert.equal(started.shared.isAnswering, false);
        await started.clock.pass(1_000);
        assert.equal(started.shared.isAnswering, true, `back at ${backAt}`);
      }
    });
  }

  test('that closes an old connection is revived at once, and an outage is reported only if that fails', async () => {
    using started = await startShared();
    const { clock, counter, told, shared } = started;
    for (let round = 2; round < 5; round += 1) {
      await clock.pass(500);
      counter.lose();
      assert.deepEqual([counter.revivals, shared.isAnswering], [round, true]);
      await settle();
    }
    assert.deepEqual(told, []);
    await clock.pass(500);
    counter.onRevive = refuse('refused');
    counter.lose();
    await settle();
    assert.deepEqual([told, shared.isAnswering], [['refused'], false]);
  });

  test('that closes connections right after opening is an outage, and new tries are rare', async () => {
    using started = await startShared();
    const { clock, counter, told } = started;
    for (let round = 0; round < 40; round += 1) {
      counter.lose();
      await clock.pass(250);
    }
    assert.ok(counter.revivals <= 41, `${counter.revivals} connections`);
    assert.equal(told[0], 'the server closes connections right after accepting them');
    assert.equal(told.length, 80);
  });

  test('that is closed is neither tried nor reported', async () => {
    for (const outcome of [() => undefined, refuse('down')]) {
      const gate = Promise.withResolvers<undefined>();
      const starting = await startShared(() => gate.promise.then(outcome));
      starting.shared.close();
      gate.resolve(undefined);
      await starting.started;
      starting.counter.lose();
      await starting.clock.pass(2_000);
      assert.deepEqual([starting.shared.isAnswering, starting.told, starting.counter.revivals], [false, [], 1]);
      assert.equal(starting.counter.isClosed, true);
    }
    const away = await startShared(refuse('down'));
    away.shared.close();
    await away.clock.pass(2_000);
    assert.deepEqual([away.counter.revivals, away.told], [1, ['down']]);
  });
});

describe('the primary process', () => {
  test('gets one question at a time, with all requests that wait', async () => {
    const primary = createPrimary();
    using guard = await createRateGuard({ rateLimit: '9/1h' }, primary.startWorker());
    assert.deepEqual(primary.questions, [], 'a new worker assumes that its primary process answers');
    primary.answers = false;
    const first = guard.admitAll(['a', 'b']);
    await poll(() => primary.questions.length === 1, 'the first question is asked');
    const second = guard.admitAll(['a', 'c', 'a']);
    await settle();
    assert.deepEqual(primary.questions, [2]);
    primary.answers = true;
    primary.counters[0]?.onAnswer([{ left: 8, msLeft: 1 }, { left: -1, msLeft: 1 }]); // prettier-ignore
    assert.deepEqual(await first, ['8', 'refused']);
    assert.deepEqual(await second, ['7', '8', '6']);
    assert.deepEqual(primary.questions, [2, 3]);
  });

  test('gets one test request while it is silent; when it answers again, it counts again', async () => {
    const primary = createPrimary();
    const keeper = primary.startWorker();
    using guard = await createRateGuard({ rateLimit: '3/1h' }, keeper);
    using other = await createRateGuard({ rateLimit: '3/1h' }, keeper);
    primary.answers = false;
    const pending = guard.admit();
    await poll(() => primary.questions.length === 2, 'the request is asked after the test request of the second guard');
    for (let round = 0; round < 5; round += 1) void keeper.counter?.revive(() => undefined);
    assert.equal(await pending, '2', 'after a second, the worker counts by itself');
    assert.deepEqual(guard.told, ['keeper: no answer within 1000 ms']);
    assert.deepEqual(await guard.admitAll(['a', 'a', 'a']), ['1', '0', 'refused']);
    primary.answers = true;
    primary.counters[0]?.onAnswer([]);
    await poll(() => guard.told.length === 2, 'the primary process answers');
    assert.equal(guard.told[1], 'keeper: undefined');
    assert.deepEqual(primary.questions, [1, 1, 1], 'one further test request');
    assert.equal(await guard.admit('b'), '2');
    guard[Symbol.dispose]();
    assert.equal(await other.admit('b'), '1', 'other guards can still use the counter');
  });

  test('that has ended is not asked again: the worker counts by itself', async () => {
    const primary = createPrimary();
    const keeper = primary.startWorker();
    using guard = await createRateGuard({ rateLimit: '2/1h' }, keeper);
    primary.answers = false;
    const pending = [guard.admit(), guard.admit()];
    await poll(() => primary.questions.length === 1, 'the requests are asked');
    const gathered = guard.admit();
    const gone = /the primary process has ended/;
    const taken = assert.rejects(async () => await keeper.counter?.take('a', { limit: 1, windowMs: 1 }), gone);
    primary.counters[0]?.onGone();
    await taken;
    assert.deepEqual(await Promise.all([...pending, gathered]), ['1', '0', 'refused']);
    const { counter } = keeper;
    await assert.rejects(async () => await counter?.take('a', { limit: 1, windowMs: 1 }), gone);
    await assert.rejects(async () => await counter?.revive(() => undefined), gone);
    assert.deepEqual(primary.questions, [2]);
  });
});

describe('if no shared counter answers', () => {
  const noRedis = { rateLimit: '2/1h', rateLimitRedisUrl: 'redis://127.0.0.1:1' };
  const refused = 'redis: connect ECONNREFUSED 127.0.0.1:1';

  test('the fallback decides at once', async () => {
    for (const [rateLimitFallback, expected] of [
      ['local', ['1', '0', 'refused']],
      ['allow', ['uncounted', 'uncounted', 'uncounted']],
      ['deny', ['refused', 'refused', 'refused']],
    ] as const) {
      using guard = await createRateGuard({ ...noRedis, rateLimitFallback });
      assert.deepEqual([guard.redisAnswers(), guard.told], [false, [refused]]);
      assert.deepEqual([guard.admitNow(), guard.admitNow(), guard.admitNow()], expected);
    }
  });

  test('the primary process counts instead of Redis, then each worker', async () => {
    const primary = createPrimary();
    using one = await createRateGuard(noRedis, primary.startWorker());
    using two = await createRateGuard(noRedis, primary.startWorker());
    assert.deepEqual([await one.admit(), await two.admit(), await one.admit()], ['1', '0', 'refused']);
    for (const counter of primary.counters) counter.onGone();
    assert.deepEqual(await one.admitAll(['b', 'b', 'b']), ['1', '0', 'refused']);
    assert.deepEqual(one.told.slice(0, 2), [refused, 'keeper: the primary process has ended']);
  });
});
