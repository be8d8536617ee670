// The guard that limits rates, with whoever counts: this process, the primary one for several workers, or Redis.

import { systemClock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { explainMissing } from '../options/missing-package.ts';
import type { Count, Counter, GuardObserver, Keeper, RateLimitPart } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';
import { OwnCount } from './count.ts';
import { JoinedCount } from './joined-count.ts';
import { createRateLimit } from './rate-limit.ts';
import { SharedCount } from './shared-count.ts';

// The primary process is on this machine and has little to do: it is late where the machine is, as the worker itself is then.
const primaryAnswerMsMax = 1_000;
// Who is refused while Redis is away may try again soon.
const takenWithout = { allow: undefined, deny: { left: -1, msLeft: 1_000 } } as const;

/** A guard by these settings. Rejects where the client of Redis cannot be loaded. */
export async function createRateGuard(
  { rateLimitKey, rateLimitRedisUrl, rateLimitFallback }: GuardSettings,
  rate: Rate,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): ReturnType<RateLimitPart['createRateGuard']> {
  // Before anything is opened that would have to be closed again.
  const library =
    rateLimitRedisUrl === ''
      ? undefined
      : await explainMissing('rateLimitRedisUrl', 'ioredis', () => import('./redis-counter.ts'));
  const own = continueCount(keeper, `${rateLimitKey} ${rate.windowMs}`, rate);
  const shared: SharedCount[] = [];
  const close = (): void => {
    // What waits for Redis is counted by the fallback then, which must be open still.
    for (const each of shared.toReversed()) {
      each.close();
    }
  };
  const share = async (
    who: 'primary' | 'redis',
    counter: Counter,
    answerMsMax: number,
    fallback: Count,
  ): Promise<SharedCount> => {
    const onChange = (cause: unknown): void => {
      observer.onCounter(who, cause);
    };
    const count = new SharedCount({ rate, clock: systemClock, counter, answerMsMax, fallback, onChange });
    shared.push(count);
    await count.start();
    return count;
  };
  const primary = keeper?.counter;
  const local = primary === undefined ? own : await share('primary', primary, primaryAnswerMsMax, own);
  if (library === undefined) {
    return { guard: createRateLimit(rate, rateLimitKey, local), redisAnswers: () => undefined, close };
  }
  const counter = new library.RedisCounter(new URL(rateLimitRedisUrl), () => {
    observer.onIdlePassword();
  });
  const fallback = rateLimitFallback === 'local' ? local : { take: () => takenWithout[rateLimitFallback] };
  const redis = await share('redis', counter, library.answerMsMax, fallback);
  return {
    guard: createRateLimit(rate, rateLimitKey, redis),
    redisAnswers: () => redis.isAnswering,
    close,
  };
}

// A reload may be given up after this: then the one before it still counts, and the next one continues that.
const countsMax = 4;

// Counts on from what was counted in windows of this name, if anything was.
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

/** Connects to the Redis at `address` and counts there once. Rejects with an Error for people. */
export async function tryRedis(address: string): ReturnType<RateLimitPart['tryRedis']> {
  const { RedisCounter } = await import('./redis-counter.ts');
  let hasIdlePassword = false;
  const counter = new RedisCounter(new URL(address), () => {
    hasIdlePassword = true;
  });
  try {
    await counter.revive(() => undefined);
    const startedAt = performance.now();
    await counter.ask({ rate: { limit: 1, windowMs: 1_000 }, keys: ['check'], wanted: [1] });
    const tookMs = performance.now() - startedAt;
    return { version: await counter.version(), tookMs, hasIdlePassword };
  } finally {
    counter.close();
  }
}
