// Creates the rate limit guard. Requests are counted by this process, by the primary process for its workers, or by Redis.

import { systemClock } from '../time/clock.ts';
import type { Keeper, RateLimitPart } from '../ports/ports.ts';
import { createOwnCount, WindowTables } from './count.ts';
import { createRateLimit } from './rate-limit.ts';
import { SharedCount } from './shared-count.ts';

export { createJoinedCount } from './count.ts';

// Longest wait for the primary process. That process has little to do, so a later answer means that the whole machine
// is slow, including this worker.
const primaryAnswerMsMax = 1_000;
// The result for each request while Redis does not answer, if `rateLimitFallback` is `allow` or `deny`. Refused clients
// may retry after a second.
const takenWithout = { allow: undefined, deny: { left: -1, msLeft: 1_000 } } as const;

/** Creates the guard. Rejects if the Redis client cannot be loaded. */
export const createRateGuard: RateLimitPart['createRateGuard'] = async (settings, rate, observer, keeper) => {
  const { rateLimitKey, rateLimitRedisUrl, rateLimitFallback } = settings;
  // The library is loaded first, so that there is nothing to close if loading fails.
  const library = rateLimitRedisUrl === '' ? undefined : await import('./redis-counter.ts');
  await library?.loadRedis();
  const own = createOwnCount(rate, () => systemClock.steady(), findTables(keeper, rateLimitKey));
  const common = { rate, clock: systemClock };
  const primary =
    keeper?.counter &&
    new SharedCount({
      ...common,
      counter: keeper.counter,
      answerMsMax: primaryAnswerMsMax,
      fallback: own,
      onChange: (cause) => observer.onCounter('primary', cause),
    });
  await primary?.start();
  const local = primary ?? own;
  const redis =
    library &&
    new SharedCount({
      ...common,
      counter: new library.RedisCounter(new URL(rateLimitRedisUrl), () => observer.onUnusedPassword()),
      answerMsMax: library.answerMsMax,
      fallback: rateLimitFallback === 'local' ? local : { take: () => takenWithout[rateLimitFallback] },
      onChange: (cause) => observer.onCounter('redis', cause),
    });
  await redis?.start();
  return {
    guard: createRateLimit(rate, rateLimitKey, redis ?? local),
    redisAnswers: () => redis?.isAnswering,
    close: () => {
      // Redis is closed first: this sends requests that wait for Redis to the fallback, which must still be open.
      redis?.close();
      primary?.close();
    },
  };
};

function findTables(keeper: Keeper | undefined, name: string): WindowTables {
  const last = keeper?.counts.get(name);
  const tables = last instanceof WindowTables ? last : new WindowTables();
  keeper?.counts.set(name, tables);
  return tables;
}

/** Connects to the Redis at `address` and counts there once. Rejects with an Error for the operator. */
export const tryRedis: RateLimitPart['tryRedis'] = async (address) => {
  const { answerOf, RedisCounter } = await import('./redis-counter.ts');
  let hasUnusedPassword = false;
  const counter = new RedisCounter(new URL(address), () => {
    hasUnusedPassword = true;
  });
  try {
    await counter.revive(() => undefined);
    const startedAt = performance.now();
    await answerOf(counter.ask({ rate: { limit: 1, windowMs: 1_000 }, keys: ['check'] }));
    const tookMs = performance.now() - startedAt;
    return { version: await counter.version(), tookMs, hasUnusedPassword };
  } finally {
    counter.close();
  }
};
