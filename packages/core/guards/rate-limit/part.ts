// The guard that limits rates, with whoever counts: this process, the primary one for several workers, or Redis.

import { systemClock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { explainMissing } from '../options/missing-package.ts';
import type { Count, GuardObserver, Keeper, RateLimitPart } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';
import { keysMax, OwnCount } from './count.ts';
import { JoinedCount } from './joined-count.ts';
import { createRateLimit } from './rate-limit.ts';
import { SharedCount } from './shared-count.ts';

// The primary process is on this machine and has little to do: it is late where the machine is, as the worker itself is then.
const primaryAnswerMsMax = 1_000;
// Who is refused while Redis is away may try again soon.
const takenWithout = { allow: undefined, deny: { left: -1, msLeft: 1_000 } } as const;

/** A guard by these settings. Rejects where the client of Redis cannot be loaded. */
export async function createRateGuard(
  settings: GuardSettings,
  rate: Rate,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): ReturnType<RateLimitPart['createRateGuard']> {
  const local = await createLocalCount(settings, rate, observer, keeper);
  const { rateLimitKey } = settings;
  if (settings.rateLimitRedisUrl === '') {
    const { count, close } = local;
    return { guard: createRateLimit(rate, rateLimitKey, count), redisAnswers: () => undefined, close };
  }
  try {
    const redis = await createRedisCount(settings, rate, observer, local.count);
    return {
      guard: createRateLimit(rate, rateLimitKey, redis),
      redisAnswers: () => redis.isAnswering,
      close: () => {
        redis.close();
        local.close();
      },
    };
  } catch (error) {
    local.close();
    throw error;
  }
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

/** A count of this gateway alone, and how to let go of it. */
interface LocalCount {
  readonly count: Count;
  readonly close: () => void;
}

async function createLocalCount(
  { rateLimitKey }: GuardSettings,
  rate: Rate,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): Promise<LocalCount> {
  const name = `${rateLimitKey} ${rate.limit}/${rate.windowMs}`;
  const own = keeper?.counts.get(name) ?? new OwnCount(rate, () => systemClock.steady());
  keeper?.counts.clear();
  keeper?.counts.set(name, own);
  const primary = keeper?.counter;
  if (primary === undefined) {
    return { count: own, close: () => undefined };
  }
  const count = new SharedCount({
    rate,
    clock: systemClock,
    counter: primary,
    answerMsMax: primaryAnswerMsMax,
    fallback: own,
    keysMax,
    onChange: (cause) => {
      observer.onCounter('primary', cause);
    },
  });
  await count.start();
  return {
    count,
    close: () => {
      count.close();
    },
  };
}

// With other gateways; `local` counts for this one alone.
async function createRedisCount(
  { rateLimitRedisUrl, rateLimitFallback }: GuardSettings,
  rate: Rate,
  observer: GuardObserver,
  local: Count,
): Promise<SharedCount> {
  const { answerMsMax, RedisCounter } = await explainMissing(
    'rateLimitRedisUrl',
    'ioredis',
    () => import('./redis-counter.ts'),
  );
  const count = new SharedCount({
    rate,
    clock: systemClock,
    counter: new RedisCounter(new URL(rateLimitRedisUrl), () => {
      observer.onIdlePassword();
    }),
    answerMsMax,
    fallback: rateLimitFallback === 'local' ? local : { take: () => takenWithout[rateLimitFallback] },
    keysMax,
    onChange: (cause) => {
      observer.onCounter('redis', cause);
    },
  });
  await count.start();
  return count;
}
