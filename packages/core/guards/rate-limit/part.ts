// Creates the rate limit guard. Requests are counted by this process, by the primary process for its workers, or by Redis.

import { systemClock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { explainMissing } from '../options/missing-package.ts';
import type { Count, Counter, GuardObserver, Keeper, RateLimitPart } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';
import { JoinedCount, OwnCount } from './count.ts';
import { createRateLimit } from './rate-limit.ts';
import { SharedCount } from './shared-count.ts';

// Longest wait for the primary process, which has little to do. If its answer is late, the whole machine is slow,
// including this worker.
const primaryAnswerMsMax = 1_000;
// The results of a count while Redis does not answer, by `rateLimitFallback`. Refused clients may retry after a second.
const takenWithout = { allow: undefined, deny: { left: -1, msLeft: 1_000 } } as const;

/** Creates the guard. Rejects if the Redis client cannot be loaded. */
export async function createRateGuard(
  { rateLimitKey, rateLimitRedisUrl, rateLimitFallback }: GuardSettings,
  rate: Rate,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): ReturnType<RateLimitPart['createRateGuard']> {
  // The library is loaded first, so that nothing must be closed if loading fails.
  const library =
    rateLimitRedisUrl === ''
      ? undefined
      : await explainMissing('rateLimitRedisUrl', 'ioredis', () => import('./redis-counter.ts'));
  const own = continueCount(keeper, `${rateLimitKey} ${rate.windowMs}`, rate);
  const shared: SharedCount[] = [];
  const share = async (
    who: 'primary' | 'redis',
    counter: Counter,
    answerMsMax: number,
    fallback: Count,
  ): Promise<SharedCount> => {
    const onChange = (cause: unknown): void => observer.onCounter(who, cause);
    const count = new SharedCount({ rate, clock: systemClock, counter, answerMsMax, fallback, onChange });
    shared.push(count);
    await count.start();
    return count;
  };
  const primary = keeper?.counter;
  const local = primary === undefined ? own : await share('primary', primary, primaryAnswerMsMax, own);
  const withoutRedis: Count = rateLimitFallback === 'local' ? local : { take: () => takenWithout[rateLimitFallback] };
  const redis =
    library &&
    (await share(
      'redis',
      new library.RedisCounter(new URL(rateLimitRedisUrl), () => observer.onUnusedPassword()),
      library.answerMsMax,
      withoutRedis,
    ));
  return {
    guard: createRateLimit(rate, rateLimitKey, redis ?? local),
    redisAnswers: () => redis?.isAnswering,
    close: () => {
      // Redis is closed first, because the requests that wait for it then go to the fallback, which must still be open.
      for (const each of shared.toReversed()) {
        each.close();
      }
    },
  };
}

// Largest number of kept counts. More than one is kept, because a reload may fail later. Then the previous guards continue
// to count, and the next reload takes over their count.
const countsMax = 4;

function continueCount(keeper: Keeper | undefined, name: string, rate: Rate): OwnCount {
  const last = keeper?.counts.get(name);
  const own = last instanceof OwnCount ? last.withRate(rate) : new OwnCount(rate, () => systemClock.steady());
  if (keeper !== undefined) {
    keeper.counts.delete(name);
    keeper.counts.set(name, own);
    for (const oldest of [...keeper.counts.keys()].slice(0, -countsMax)) {
      keeper.counts.delete(oldest);
    }
  }
  return own;
}

export function createJoinedCount(): JoinedCount {
  return new JoinedCount();
}

/** Connects to the Redis at `address` and counts there once. Rejects with an Error for the operator. */
export async function tryRedis(address: string): ReturnType<RateLimitPart['tryRedis']> {
  const { RedisCounter } = await import('./redis-counter.ts');
  let hasUnusedPassword = false;
  const counter = new RedisCounter(new URL(address), () => {
    hasUnusedPassword = true;
  });
  try {
    await counter.revive(() => undefined);
    const startedAt = performance.now();
    await counter.ask({ rate: { limit: 1, windowMs: 1_000 }, keys: ['check'] });
    const tookMs = performance.now() - startedAt;
    return { version: await counter.version(), tookMs, hasUnusedPassword };
  } finally {
    counter.close();
  }
}
