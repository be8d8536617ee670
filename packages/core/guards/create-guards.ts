// Makes the guards that are on, in the order in which they are asked, with what they need: the issuer's keys, and whoever
// counts. What is off is not even loaded. Knows no log and no metrics: whoever asks for them is told what changes.

import { describeError, nodeAuthorities, type Peer } from '../backend/describe-error.ts';
import type { Guard } from '../call/guard.ts';
import type { Count } from './rate-limit/count.ts';
import type { GuardSettings } from './guard-options.ts';
import type { FetchedKeys, KeySetObserver } from './tokens/key-set.ts';
import type { KeySource } from './tokens/key-source.ts';
import { parseRate, type Rate } from './rate-limit/rate.ts';
import type { Counter, SharedCount } from './rate-limit/shared-count.ts';
import { isSignatureAlgorithm } from './tokens/signature-algorithms.ts';
import { scopesOf } from './tokens/token-kinds.ts';

/** Is told of what guards depend on. Must not throw. */
export interface GuardObserver extends KeySetObserver {
  /** Keys that another process has fetched, so long ago, are taken; comes after `onKeys`. */
  onInherited(ageMs: number): void;
  /** Whoever counts does not answer any more, for this reason, or does again: undefined. Not told twice. */
  onCounter(who: 'redis' | 'primary', cause: unknown): void;
  /** Redis asks for no password, and has been given one. Told once. */
  onIdlePassword(): void;
}

/** For people: what has begun where somebody that guards depend on ceases to answer, and that it has ended. */
export const outageTexts = {
  keys: {
    begins: 'the keys of the issuer cannot be fetched',
    ends: 'the keys of the issuer can be fetched again',
  },
  redis: { begins: 'Redis does not count requests', ends: 'Redis counts requests again' },
} as const;

export interface Guards {
  readonly guards: readonly Guard[];
  /** Why `authJwksFile` has brought no keys; undefined where it has, or where there is none. */
  readonly fileProblem: string | undefined;
  /** Whether Redis counts; undefined where none is asked. */
  redisAnswers(): boolean | undefined;
  /** Lets go of whatever they hold, at once. */
  close(): void;
}

/** What outlives these guards: the primary process of several workers, or this process where a reload makes new guards. */
export interface Keeper {
  /** Counts for all workers; undefined where this process counts by itself. */
  readonly counter: Counter | undefined;
  /** What this process has counted last, by the rate and whom it is for. */
  readonly counts: Map<string, Count>;
  /** What was fetched last from an address; undefined where nothing was. */
  readonly findKeys: (jwksUrl: string) => FetchedKeys | undefined;
  /** Keeps it for guards that are made later. */
  readonly keepKeys: (jwksUrl: string, keys: FetchedKeys) => void;
}

/** Guards of one process. Waits for a file of keys to be read, and not for an address. */
export async function createGuards(
  settings: GuardSettings,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): Promise<Guards> {
  const closers: (() => void)[] = [];
  const close = (): void => {
    for (const each of closers) {
      each();
    }
  };
  const guards: Guard[] = [];
  let fileProblem: string | undefined;
  let redis: SharedCount | undefined;
  try {
    if (settings.authIssuer !== '') {
      const tokens = await createTokenGuard(settings, observer, keeper, closers);
      guards.push(tokens.guard);
      ({ fileProblem } = tokens);
    }
    const rate = parseRate(settings.rateLimit);
    if (rate !== undefined) {
      const { createRateLimit } = await import('./rate-limit/rate-limit.ts');
      let count = await createLocalCount(rate, settings.rateLimitKey, observer, keeper, closers);
      if (settings.rateLimitRedisUrl !== '') {
        redis = await createRedisCount(rate, settings, observer, count, closers);
        count = redis;
      }
      guards.push(createRateLimit(rate, settings.rateLimitKey, count));
    }
  } catch (error) {
    close();
    throw error;
  }
  return { guards, fileProblem, redisAnswers: () => redis?.isAnswering, close };
}

// The primary process is on this machine and has little to do: it is late where the machine is, as the worker itself is then.
const primaryAnswerMsMax = 1_000;

// Of this gateway alone: in this process, or in the primary one for all workers together.
async function createLocalCount(
  rate: Rate,
  rateKey: GuardSettings['rateLimitKey'],
  observer: GuardObserver,
  keeper: Keeper | undefined,
  closers: (() => void)[],
): Promise<Count> {
  const [{ keysMax, OwnCount }, { systemClock: clock }] = await Promise.all([
    import('./rate-limit/count.ts'),
    import('../time/clock.ts'),
  ]);
  const name = `${rateKey} ${rate.limit}/${rate.windowMs}`;
  const own = keeper?.counts.get(name) ?? new OwnCount(rate, () => clock.steady());
  keeper?.counts.clear();
  keeper?.counts.set(name, own);
  const primary = keeper?.counter;
  if (primary === undefined) {
    return own;
  }
  const { SharedCount } = await import('./rate-limit/shared-count.ts');
  const count = new SharedCount({
    rate,
    clock,
    counter: primary,
    answerMsMax: primaryAnswerMsMax,
    fallback: own,
    keysMax,
    onChange: (cause) => {
      observer.onCounter('primary', cause);
    },
  });
  closers.push(() => {
    count.close();
  });
  await count.start();
  return count;
}

async function createTokenGuard(
  settings: GuardSettings,
  observer: GuardObserver,
  keeper: Keeper | undefined,
  closers: (() => void)[],
): Promise<{ readonly guard: Guard; readonly fileProblem: string | undefined }> {
  const [{ KeySet }, { TokenGuard }, { systemClock: clock }] = await load('authIssuer', 'jose', [
    import('./tokens/key-set.ts'),
    import('./tokens/tokens.ts'),
    import('../time/clock.ts'),
  ]);
  const algorithms = settings.authAlgorithms.filter(isSignatureAlgorithm);
  let lastError: Error | undefined;
  const keys = new KeySet({
    source: await createKeySource(settings),
    algorithms,
    refreshMs: settings.authJwksRefreshMs,
    staleMs: settings.authJwksStaleMs,
    clock,
    share: (fetched) => {
      keeper?.keepKeys(settings.authJwksUrl, fetched);
    },
    observer: {
      onKeys: (each) => {
        guard.forgetAll();
        observer.onKeys(each);
      },
      onFetch: (error) => {
        lastError = error;
        observer.onFetch(error);
      },
    },
  });
  closers.push(() => {
    keys.close();
  });
  const guard = new TokenGuard(
    {
      issuer: settings.authIssuer,
      audiences: settings.authAudience,
      algorithms,
      clockSkewMs: settings.authClockSkewMs,
      type: settings.authTokenType === 'any' ? undefined : settings.authTokenType,
      scopes: scopesOf(settings.authScopes),
      scopeClaim: settings.authScopeClaim,
    },
    keys,
    clock,
  );
  // A file is there, whoever is away.
  const kept = settings.authJwksFile === '' ? keeper?.findKeys(settings.authJwksUrl) : undefined;
  if (kept !== undefined) {
    await keys.inherit(kept);
    if (keys.current.keys.length > 0) {
      observer.onInherited(kept.ageMs);
    }
  }
  const first = keys.start();
  if (settings.authJwksFile === '') {
    return { guard, fileProblem: undefined };
  }
  await first;
  if (keys.current.keys.length > 0) {
    return { guard, fileProblem: undefined };
  }
  return {
    guard,
    fileProblem: lastError === undefined ? 'nothing was read' : describeFetchError(lastError),
  };
}

/** Where the keys come from. */
export async function createKeySource({
  authJwksUrl,
  authJwksFile,
}: Pick<GuardSettings, 'authJwksUrl' | 'authJwksFile'>): Promise<KeySource> {
  const { createFileSource, createUrlSource } = await import('./tokens/key-source.ts');
  return authJwksUrl === '' ? createFileSource(authJwksFile) : createUrlSource(new URL(authJwksUrl));
}

const issuer: Peer = { name: 'the issuer', plainScheme: 'http:', authorities: nodeAuthorities };

/** What has kept keys from being fetched, in one line. */
export function describeFetchError(error: Error): string {
  // Of several addresses each has its own; all of them together say nothing more.
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors.map((each) => describeError(each, issuer)).join('; ');
}

// With other gateways; `local` counts for this one alone.
async function createRedisCount(
  rate: Rate,
  { rateLimitRedisUrl, rateLimitFallback }: GuardSettings,
  observer: GuardObserver,
  local: Count,
  closers: (() => void)[],
): Promise<SharedCount> {
  const [{ keysMax }, { systemClock: clock }, { SharedCount }, { answerMsMax, RedisCounter }] = await load(
    'rateLimitRedisUrl',
    'ioredis',
    [
      import('./rate-limit/count.ts'),
      import('../time/clock.ts'),
      import('./rate-limit/shared-count.ts'),
      import('./rate-limit/redis-counter.ts'),
    ],
  );
  const count = new SharedCount({
    rate,
    clock,
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
  closers.push(() => {
    count.close();
  });
  await count.start();
  return count;
}

// Who is refused while Redis is away may try again soon.
const takenWithout = { allow: undefined, deny: { left: -1, msLeft: 1_000 } } as const;

/** A package that a guard needs is not installed; the message says what to do. */
export class MissingPackageError extends Error {}

// A guard whose package is an optional peer: who does not want the guard need not install it.
async function load<const Modules extends readonly Promise<object>[]>(
  option: string,
  name: string,
  modules: Modules,
): Promise<{ -readonly [Index in keyof Modules]: Awaited<Modules[Index]> }> {
  try {
    return await Promise.all(modules);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') {
      throw error;
    }
    throw new MissingPackageError(`${option} needs the package ${name}: run \`npm install ${name}\``, {
      cause: error,
    });
  }
}
