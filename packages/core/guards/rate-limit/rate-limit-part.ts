// Creates the rate limit guard, and chooses the counter of each request: Redis, the counter that several processes of
// one gateway share, or this process.

import type { Counter, GuardObserver, Keeper, RateLimitPart, Taken } from '../ports/ports.ts';
import { systemClock } from '../time/clock.ts';
import { createRateLimit } from './rate-limit.ts';
import { SharedCounter } from './shared-counter.ts';
import { Windows } from './windows.ts';

// Longest wait for the keeper's counter. Its process has little to do, so a later answer means that the whole machine is
// slow, including this process.
const keeperAnswerMsMax = 1_000;
// The result for each request while Redis does not answer, if `rateLimitFallback` is `allow` or `deny`. Refused clients
// may retry after a second.
const takenWithout = { allow: undefined, deny: { left: -1, msLeft: 1_000 } } as const;

// The counts of each process. The guards that a reload creates continue them.
const countsByKeeper = new WeakMap<Keeper, Windows>();

export function createCounts(): Windows {
  return new Windows(() => systemClock.steady());
}

export const createRateGuard: RateLimitPart['createRateGuard'] = async (settings, rate, observer, keeper) => {
  const { rateLimitKey, rateLimitRedisUrl, rateLimitFallback } = settings;
  const own = (keeper && countsByKeeper.get(keeper)) ?? createCounts();
  if (keeper !== undefined) countsByKeeper.set(keeper, own);
  const share = (who: Parameters<GuardObserver['onCounter']>[0], counter: Counter, answerMsMax: number) => {
    const onChange = (cause: unknown): void => observer.onCounter(who, cause);
    return new SharedCounter({ rate, clock: systemClock, counter, answerMsMax, onChange });
  };
  let redis: SharedCounter | undefined;
  if (rateLimitRedisUrl !== '') {
    const { answerMsMax, loadRedis, RedisCounter } = await import('./redis-counter.ts');
    await loadRedis();
    const counter = new RedisCounter(new URL(rateLimitRedisUrl), () => observer.onUnusedPassword());
    redis = share('redis', counter, answerMsMax);
  }
  const isLocal = redis === undefined || rateLimitFallback === 'local';
  const keepers = isLocal && keeper?.counter ? share('keeper', keeper.counter, keeperAnswerMsMax) : undefined;
  const shared = [redis, keepers].filter((each) => each !== undefined);
  await Promise.all(shared.map((each) => each.start()));

  // The first of `counters` that answers counts the request. If it fails, the request goes to the next one.
  const take = (key: string, counters = shared): Taken | undefined | Promise<Taken | undefined> => {
    const index = counters.findIndex(({ isAnswering }) => isAnswering);
    const counter = counters[index];
    if (counter !== undefined) return takeFrom(counter, key, counters.slice(index + 1));
    return isLocal ? own.take(key, rate) : takenWithout[rateLimitFallback];
  };
  const takeFrom = async (counter: SharedCounter, key: string, others: SharedCounter[]) => {
    try {
      const taken = await counter.take(key);
      if (taken.left < 0) own.noteOver(key, rate, taken.msLeft);
      return taken;
    } catch {
      return await take(key, others);
    }
  };
  return {
    guard: createRateLimit(rate, rateLimitKey, { take: (key) => own.findOver(key, rate) ?? take(key) }),
    redisAnswers: () => redis?.isAnswering,
    close: () => {
      // Requests that wait for an answer then get what requests get without a shared counter.
      for (const each of shared) each.close();
    },
  };
};

export const tryRedis: RateLimitPart['tryRedis'] = async (address) => {
  const { answerOf, loadRedis, RedisCounter } = await import('./redis-counter.ts');
  await loadRedis();
  let hasUnusedPassword = false;
  const counter = new RedisCounter(new URL(address), () => {
    hasUnusedPassword = true;
  });
  try {
    await counter.revive(() => undefined);
    const startedAt = performance.now();
    await answerOf(counter.take('check', { limit: 1, windowMs: 1_000 }));
    const tookMs = performance.now() - startedAt;
    return { version: await counter.version(), tookMs, hasUnusedPassword };
  } finally {
    counter.close();
  }
};
