// The guards that the settings turn on, in the order in which they are asked, and their lifecycle. What is off is not even
// loaded.

import type { Guard } from '../gateway/guard.ts';
import type { Count } from '../guards/count.ts';
import { parseRate, type Rate } from '../guards/rate.ts';
import type { Counter } from '../guards/shared-count.ts';
import type { Logger } from '../telemetry/log.ts';
import type { Settings } from './settings.ts';

export interface Guards {
  readonly guards: readonly Guard[];
  /** Lets go of whatever they hold, at once. */
  close(): void;
}

/** Guards of one process that serves clients; `primary` counts for all workers, where it is one of several. */
export async function createGuards(
  settings: Settings,
  logger: Logger,
  primary: Counter | undefined,
): Promise<Guards> {
  const closers: (() => void)[] = [];
  const guards: Guard[] = [];
  const rate = parseRate(settings.rateLimit);
  if (rate !== undefined) {
    const { createRateLimit } = await import('../guards/rate-limit.ts');
    const count = await createLocalCount(rate, logger, primary, closers);
    guards.push(createRateLimit(rate, settings.rateLimitKey, count));
  }
  return {
    guards,
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
