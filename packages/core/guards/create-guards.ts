// Makes the guards that are on, in the order in which they are asked. What is off is not even loaded. Knows no log and no
// metrics: whoever asks for guards is told what changes.

import type { Guard } from '../call/guard.ts';
import type { GuardSettings } from './options/guard-options.ts';
import type { GuardObserver, Keeper } from './options/ports.ts';
import { parseRate } from './options/rate.ts';
import { loadRateLimit, loadTokens } from './parts.ts';

export interface Guards {
  readonly guards: readonly Guard[];
  /** Why `authJwksFile` has brought no keys; undefined where it has, or where there is none. */
  readonly fileProblem: string | undefined;
  /** Whether Redis counts; undefined where none is asked. */
  redisAnswers(): boolean | undefined;
  /** Lets go of whatever they hold, at once. */
  close(): void;
}

/**
 * Guards of one process. Waits for a file of keys to be read, and not for an address. Rejects with a MissingPackageError.
 */
export async function createGuards(
  settings: GuardSettings,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): Promise<Guards> {
  const rate = parseRate(settings.rateLimit);
  const tokens =
    settings.authIssuer === ''
      ? undefined
      : await (await loadTokens()).createTokenGuard(settings, observer, keeper);
  try {
    const limit = rate && (await (await loadRateLimit()).createRateGuard(settings, rate, observer, keeper));
    return {
      guards: [tokens, limit].flatMap((each) => each?.guard ?? []),
      fileProblem: tokens?.fileProblem,
      redisAnswers: () => limit?.redisAnswers(),
      close: () => {
        tokens?.close();
        limit?.close();
      },
    };
  } catch (error) {
    tokens?.close();
    throw error;
  }
}
