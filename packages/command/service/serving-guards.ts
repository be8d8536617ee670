// Creates the guards that the settings turn on, and reports the state of their dependencies in log and metrics.

import { createGuards as create, type Guards } from '../../core/guards/guard-parts.ts';
import { MissingPackageError } from '../../core/guards/ports/missing-package.ts';
import { outageTexts, type GuardObserver, type Keeper } from '../../core/guards/ports/ports.ts';
import { nameWithPath } from '../../core/options/accepted-values.ts';
import { escapeControls } from '../../core/text/escape.ts';
import type { Logger } from '../log/log.ts';
import type { Records } from '../../figures/report.ts';
import { OutageLines } from './outage-lines.ts';
import type { Settings } from '../settings/settings.ts';
import { StartError } from '../../core/hosts/common/start-error.ts';

// The keys in the log's last line about keys. A reload creates new guards, which often load the same keys.
const loggedKeys = new WeakMap<Logger, string>();

/** Creates the guards of one `Generation`. Rejects with a StartError. */
export async function createGuards(
  settings: Settings,
  logger: Logger,
  { figures, keys: keyRecords }: Pick<Records, 'figures' | 'keys'>,
  keeper: Keeper,
): Promise<Guards> {
  const lines = {
    redis: new OutageLines(
      (cause, outages) => {
        const text = cause instanceof Error ? escapeControls(cause.message) : undefined;
        const fallback = settings.rateLimitFallback;
        logger.error({ cause: text, outages, fallback }, outageTexts.redis.begins);
      },
      () => logger.info(outageTexts.redis.ends),
    ),
    keeper: new OutageLines(
      (_, outages) => {
        logger.warn(
          { outages },
          'the primary process does not answer: each worker counts its own requests for the rate limit',
        );
      },
      () => logger.info('the primary process answers again and counts requests for the rate limit'),
    ),
  };
  let keyFailure: string | undefined;
  // While false, an unusable key file is a problem of the start or the reload, and not logged here.
  let hasKeys = settings.authJwksFile === '';
  // Logs changes only: new keys, and the beginning and end of an outage. As long as the keys cannot be fetched, each
  // new cause is logged too.
  const observer: GuardObserver = {
    onKeys: (keys) => {
      keyRecords.note({ keys: keys.length });
      const names = keys.map(({ kid, algorithm }) => `${kid ?? '(no kid)'} ${algorithm}`);
      // Without keys, `onFetch` logs the failure and its cause.
      hasKeys ||= names.length > 0;
      if (names.length > 0 && loggedKeys.get(logger) !== names.join()) {
        loggedKeys.set(logger, names.join());
        logger.info({ keys: names }, "loaded the issuer's keys");
      }
    },
    onInherited: (ageMs) => keyRecords.note({ fetchedAt: Date.now() - ageMs }),
    onFetch: (cause, hasKeySet) => {
      keyRecords.note(cause === undefined ? { fetchedAt: Date.now() } : {});
      figures.count(cause === undefined ? 'key fetch ok' : 'key fetch failed');
      if (!hasKeys) return;
      if (cause !== undefined && cause !== keyFailure) {
        logger.error({ cause }, hasKeySet ? 'the key set of the issuer has no usable key' : outageTexts.keys.begins);
      } else if (cause === undefined && keyFailure !== undefined) {
        logger.info(outageTexts.keys.ends);
      }
      keyFailure = cause;
    },
    onCounter: (who, cause) => {
      if (cause === undefined) lines[who].up();
      else lines[who].down(cause);
    },
    onUnusedPassword: () => logger.warn(unusedPasswordText),
  };
  const guards = await create(settings, observer, keeper).catch((error: unknown) => {
    throw error instanceof MissingPackageError ? new StartError(error.message, error) : error;
  });
  const close = (): void => {
    guards.close();
    lines.redis.close();
    lines.keeper.close();
  };
  // Without the last keys, the start fails if the key file is unusable, because a file does not recover by itself.
  // If an issuer is down, the start succeeds, because the issuer may recover.
  if (guards.fileProblem !== undefined) {
    close();
    const name = nameWithPath('AUTH_JWKS_FILE', settings.authJwksFile);
    throw new StartError(`${name} cannot be used: ${guards.fileProblem}`, undefined);
  }
  hasKeys = true;
  return { ...guards, close };
}

export const unusedPasswordText =
  'RATE_LIMIT_REDIS_URL has a password, but Redis requires none: check that it is the right Redis and that its password is set';
