// Creates the enabled guards, in the order in which they run. Disabled guards are not loaded.

import type { Guard } from '../call/guard.ts';
import type { GuardSettings } from './options/guard-options.ts';
import type { GuardObserver, Keeper } from './options/ports.ts';
import { parseRate } from './options/rate.ts';
import { explainMissing, loadRateLimit, loadTokens } from './parts.ts';

export interface Guards {
  readonly guards: readonly Guard[];
  /** Why no keys could be read from `authJwksFile`; undefined if keys were read, or if there is no file. */
  readonly fileProblem: string | undefined;
  /** True while Redis counts; undefined without Redis. */
  redisAnswers(): boolean | undefined;
  close(): void;
}

/**
 * Creates the guards of one process. Waits until a key file has been read, but does not wait for keys from an address.
 * Rejects with a MissingPackageError.
 */
export async function createGuards(
  settings: GuardSettings,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): Promise<Guards> {
  const rate = parseRate(settings.rateLimit);
  const tokens =
    settings.authIssuer === '' ? undefined : await (await loadTokens()).createTokenGuard(settings, observer, keeper);
  try {
    const limit =
      rate &&
      (await explainMissing('rateLimitRedisUrl', 'ioredis', async () =>
        (await loadRateLimit()).createRateGuard(settings, rate, observer, keeper),
      ));
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
