// The guards that the settings turn on, and what log and metrics say of what they depend on.

import { createGuards as create, type Guards } from '../../core/guards/create-guards.ts';
import { MissingPackageError } from '../../core/guards/options/missing-package.ts';
import { describeFetchError, outageTexts } from '../../core/guards/options/outages.ts';
import { CounterGoneError, type GuardObserver, type Keeper } from '../../core/guards/options/ports.ts';
import { escapeControls } from '../../core/text/escape.ts';
import type { Logger } from '../log/log.ts';
import type { Records } from '../../figures/report.ts';
import { OutageLines } from './outage-lines.ts';
import type { Settings } from '../settings/settings.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';

/** Guards of one process that serves clients. Rejects with a StartError. */
export async function createGuards(
  settings: Settings,
  logger: Logger,
  records: Pick<Records, 'figures' | 'keys'>,
  keeper: Keeper,
): Promise<Guards> {
  // What is said of whoever counts.
  const lines = {
    redis: new OutageLines({
      onAway: (cause, outages) => {
        const text = cause instanceof Error ? escapeControls(cause.message) : undefined;
        const fallback = settings.rateLimitFallback;
        logger.error({ cause: text, outages, fallback }, outageTexts.redis.begins);
      },
      onBack: () => {
        logger.info(outageTexts.redis.ends);
      },
    }),
    primary: new OutageLines({
      onAway: (_, outages) => {
        logger.warn({ outages }, 'the primary process does not count requests: each worker counts its own');
      },
      onBack: () => {
        logger.info('the primary process counts requests again');
      },
    }),
  };
  const guards = await create(settings, createObserver(logger, records, lines), keeper).catch(
    (error: unknown) => {
      throw error instanceof MissingPackageError ? new StartError(error.message, error) : error;
    },
  );
  const close = (): void => {
    guards.close();
    lines.redis.close();
    lines.primary.close();
  };
  // A file is there or it is not: who names a wrong one is told at once, as with every other file.
  if (guards.fileProblem !== undefined) {
    close();
    throw new StartError(`AUTH_JWKS_FILE has no keys: ${guards.fileProblem}`, undefined);
  }
  return { ...guards, close };
}

// One line a change: keys come, go and come back, and an outage begins, has another cause, and ends.
function createObserver(
  logger: Logger,
  records: Pick<Records, 'figures' | 'keys'>,
  lines: Readonly<Record<'redis' | 'primary', OutageLines>>,
): GuardObserver {
  let failure: string | undefined;
  return {
    onKeys: ({ keys }) => {
      records.keys.noteKeys(keys.length);
      const names = keys.map(({ kid, algorithm }) => `${kid ?? '(no kid)'} ${algorithm}`);
      // That there are none is told as a failure, with its cause.
      if (names.length > 0) {
        logger.info({ keys: names }, 'the keys of the issuer');
      }
    },
    onInherited: (ageMs) => {
      records.keys.noteInherited(ageMs);
    },
    onFetch: (error) => {
      const cause = error === undefined ? undefined : describeFetchError(error);
      records.keys.noteFetch(error === undefined);
      records.figures.recordKeyFetch(error === undefined);
      if (cause !== undefined && cause !== failure) {
        logger.error({ cause }, outageTexts.keys.begins);
      } else if (cause === undefined && failure !== undefined) {
        logger.info(outageTexts.keys.ends);
      }
      failure = cause;
    },
    onCounter: (who, cause) => {
      if (cause === undefined) {
        lines[who].back();
      } else if (!(cause instanceof CounterGoneError)) {
        lines[who].away(cause);
      }
    },
    onIdlePassword: () => {
      logger.warn(idlePasswordText);
    },
  };
}

/** For people who have to find out which it is. */
export const idlePasswordText =
  'Redis asks for no password, but RATE_LIMIT_REDIS_URL has one: is it the right Redis, and has its password been set there?';
