// Lists the guards. Loads and creates only the enabled guards. To leave out a guard, delete its folder and its line
// here. `npm run leave-out` tests this for each guard.

import type { Guard } from '../call/guard.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { findMissingPackage, MissingPackageError } from './ports/missing-package.ts';
import type { GuardObserver, Keeper, RateLimitPart, TokenGuardPart } from './ports/ports.ts';
import { parseRate } from '../options/rate.ts';

interface GuardParts {
  readonly tokens: TokenGuardPart;
  readonly rateLimit: RateLimitPart;
}

const guardParts: { readonly [Name in keyof GuardParts]?: () => Promise<GuardParts[Name]> } = {
  tokens: () => import('./tokens/tokens-part.ts'),
  rateLimit: () => import('./rate-limit/rate-limit-part.ts'),
};

const leftOut: Readonly<Record<keyof GuardParts, string>> = {
  tokens: 'authIssuer needs packages/core/guards/tokens, which this build leaves out',
  rateLimit: 'rateLimit needs packages/core/guards/rate-limit, which this build leaves out',
};

/** Rejects with a MissingPackageError if the guard is missing. */
export async function loadGuard<Name extends keyof GuardParts>(name: Name): Promise<GuardParts[Name]> {
  const load = guardParts[name];
  if (load === undefined) throw new MissingPackageError(leftOut[name]);
  return await load();
}

export interface Guards {
  readonly guards: readonly Guard[];
  /** Why no keys could be read from `authJwksFile`; undefined if keys are known or no file is set. */
  readonly fileProblem: string | undefined;
  /** True while Redis counts requests; undefined if no Redis is set. */
  redisAnswers(): boolean | undefined;
  close(): void;
}

/**
 * Creates the guards of one process, in the order in which they run. Waits until a key file has been read, but does not
 * wait for keys from an address. Rejects with a MissingPackageError if a guard or its package is missing.
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
      : await (await loadGuard('tokens')).createTokenGuard(settings, observer, keeper);
  try {
    const limit = rate && (await (await loadGuard('rateLimit')).createRateGuard(settings, rate, observer, keeper));
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

/** Returns one problem for each guard, or package of a guard, that `settings` need and that is missing. */
export function findMissingParts(settings: Partial<GuardSettings>): string[] {
  const { authIssuer = '', rateLimit = '', rateLimitRedisUrl = '' } = settings;
  return [
    authIssuer !== '' && (guardParts.tokens ? findMissingPackage('authIssuer', 'jose') : leftOut.tokens),
    rateLimit !== '' && !guardParts.rateLimit && leftOut.rateLimit,
    rateLimitRedisUrl !== '' && guardParts.rateLimit && findMissingPackage('rateLimitRedisUrl', 'ioredis'),
  ].filter((each) => typeof each === 'string');
}
