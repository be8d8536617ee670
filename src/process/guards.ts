// The guards that the settings turn on, in the order in which they are asked, and their lifecycle. What is off is not even
// loaded.

import type { Guard } from '../gateway/guard.ts';
import { escapeControls } from '../telemetry/escape.ts';
import type { Count } from '../guards/count.ts';
import { parseRate, type Rate } from '../guards/rate.ts';
import type { FetchedKeys, KeySetObserver } from '../guards/key-set.ts';
import type { Counter, SharedCount } from '../guards/shared-count.ts';
import { isSignatureAlgorithm } from '../guards/signature-algorithms.ts';
import type { Logger } from '../telemetry/log.ts';
import type { Records } from '../telemetry/report.ts';
import type { Settings } from './settings.ts';
import { StartError } from './start-error.ts';
import { scopesOf } from './token-settings.ts';

export interface Guards {
  readonly guards: readonly Guard[];
  /** Whether Redis counts; undefined where none is asked. */
  redisAnswers(): boolean | undefined;
  /** Lets go of whatever they hold, at once. */
  close(): void;
}

/** The primary process, as one of several workers has it. */
export interface Primary {
  /** Counts for all workers. */
  readonly counter: Counter;
  /** What another worker has fetched last from `AUTH_JWKS_URL`; undefined where none has. */
  readonly keys: FetchedKeys | undefined;
  /** Keeps it for workers that start later. */
  readonly keepKeys: (keys: FetchedKeys) => void;
}

/** What guards are counted in. */
export type GuardRecords = Pick<Records, 'figures' | 'keys'>;

/** Guards of one process that serves clients; `primary` is undefined where it is not one of several. Rejects with a StartError. */
export async function createGuards(
  settings: Settings,
  logger: Logger,
  records: GuardRecords,
  primary: Primary | undefined,
): Promise<Guards> {
  const closers: (() => void)[] = [];
  const guards: Guard[] = [];
  let redisAnswers: (() => boolean) | undefined;
  if (settings.authIssuer !== '') {
    const tokens = await createTokenGuard(settings, logger, records, primary);
    guards.push(tokens.guard);
    closers.push(tokens.close);
  }
  const rate = parseRate(settings.rateLimit);
  if (rate !== undefined) {
    const { createRateLimit } = await import('../guards/rate-limit.ts');
    let count = await createLocalCount(rate, logger, primary?.counter, closers);
    if (settings.rateLimitRedisUrl !== '') {
      const shared = await createRedisCount(rate, settings, logger, count);
      redisAnswers = () => shared.isAnswering;
      closers.push(() => {
        shared.close();
      });
      count = shared;
    }
    guards.push(createRateLimit(rate, settings.rateLimitKey, count));
  }
  return {
    guards,
    redisAnswers: () => redisAnswers?.(),
    close: () => {
      for (const close of closers) {
        close();
      }
    },
  };
}

// Of this gateway alone: in this process, or in the primary one for all workers together.
async function createLocalCount(
  rate: Rate,
  logger: Logger,
  primary: Counter | undefined,
  closers: (() => void)[],
): Promise<Count> {
  const { keysMax, OwnCount } = await import('../guards/count.ts');
  const clock = (): number => performance.now();
  const own = new OwnCount(rate, clock);
  if (primary === undefined) {
    return own;
  }
  const { SharedCount } = await import('../guards/shared-count.ts');
  const count = new SharedCount({
    rate,
    clock,
    counter: primary,
    fallback: own,
    keysMax,
    onChange: (cause) => {
      if (cause === undefined) {
        logger.info('the primary process counts requests again');
      } else {
        logger.warn('the primary process does not count requests: each worker counts its own');
      }
    },
  });
  closers.push(() => {
    count.close();
  });
  await count.start();
  return count;
}

async function createTokenGuard(
  settings: Settings,
  logger: Logger,
  records: GuardRecords,
  primary: Primary | undefined,
): Promise<{ readonly guard: Guard; readonly close: () => void }> {
  const [{ KeySet }, { TokenGuard }, { systemClock: clock }] = await Promise.all([
    import('../guards/key-set.ts'),
    import('../guards/tokens.ts'),
    import('../guards/clock.ts'),
  ]);
  const algorithms = settings.authAlgorithms.filter(isSignatureAlgorithm);
  const said = createKeyLog(logger, records);
  const keys = new KeySet({
    source: await createKeySource(settings),
    algorithms,
    refreshMs: settings.authJwksRefreshMs,
    staleMs: settings.authJwksStaleMs,
    clock,
    share: primary?.keepKeys,
    observer: {
      onKeys: (each) => {
        guard.forgetAll();
        said.onKeys(each);
      },
      onFetch: (error) => {
        said.onFetch(error);
      },
    },
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
  if (primary?.keys !== undefined && settings.authJwksFile === '') {
    await keys.inherit(primary.keys);
    if (keys.current.keys.length > 0) {
      records.keys.noteInherited(primary.keys.ageMs);
    }
  }
  const first = keys.start();
  if (settings.authJwksFile !== '') {
    // A file is there or it is not: who names a wrong one is told at once, as with every other file.
    await first;
    if (keys.current.keys.length === 0) {
      keys.close();
      throw new StartError(
        `AUTH_JWKS_FILE has no keys: ${records.keys.status?.cause ?? 'nothing was read'}`,
        undefined,
      );
    }
  }
  return {
    guard,
    close: () => {
      keys.close();
    },
  };
}

/** Where the keys come from. */
export async function createKeySource({ authJwksUrl, authJwksFile }: Settings) {
  const { createFileSource, createUrlSource } = await import('../guards/key-source.ts');
  return authJwksUrl === '' ? createFileSource(authJwksFile) : createUrlSource(new URL(authJwksUrl));
}

// One line a change: keys come, go and come back, and an outage begins and ends.
function createKeyLog(logger: Logger, records: GuardRecords): KeySetObserver {
  let isFailing = false;
  return {
    onKeys: ({ keys }) => {
      records.keys.noteKeys(keys.length);
      const names = keys.map(({ kid, algorithm }) => `${kid ?? '(no kid)'} ${algorithm}`);
      logger.info({ keys: names }, 'the keys of the issuer');
    },
    onFetch: (error) => {
      const cause = error === undefined ? undefined : describeFetchError(error);
      records.keys.noteFetch(cause);
      records.figures.recordKeyFetch(error === undefined);
      if (error !== undefined && !isFailing) {
        logger.error({ cause }, 'the keys of the issuer cannot be fetched');
      } else if (error === undefined && isFailing) {
        logger.info('the keys of the issuer can be fetched again');
      }
      isFailing = error !== undefined;
    },
  };
}

/** What has kept keys from being fetched, in one line. */
export function describeFetchError(error: Error): string {
  const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  return errors
    .map((each) => {
      const { message, code = String(each) } = each as NodeJS.ErrnoException;
      return message === '' ? code : message;
    })
    .join('; ');
}

// With other gateways; `local` counts for this one alone.
async function createRedisCount(
  rate: Rate,
  { rateLimitRedisUrl, rateLimitFallback }: Settings,
  logger: Logger,
  local: Count,
): Promise<SharedCount> {
  const [{ keysMax }, { SharedCount }, { RedisCounter }] = await Promise.all([
    import('../guards/count.ts'),
    import('../guards/shared-count.ts'),
    import('../guards/redis-counter.ts'),
  ]);
  const count = new SharedCount({
    rate,
    clock: () => performance.now(),
    counter: new RedisCounter(new URL(rateLimitRedisUrl)),
    fallback: rateLimitFallback === 'local' ? local : { take: () => msLeftOf[rateLimitFallback] },
    keysMax,
    onChange: (cause) => {
      if (cause === undefined) {
        logger.info('Redis counts requests again');
      } else {
        const text = cause instanceof Error ? escapeControls(cause.message) : undefined;
        logger.error({ cause: text, fallback: rateLimitFallback }, 'Redis does not count requests');
      }
    },
  });
  await count.start();
  return count;
}

// Who is refused while Redis is away may try again soon.
const msLeftOf = { allow: 0, deny: 1_000 } as const;
