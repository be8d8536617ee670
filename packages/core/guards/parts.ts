// The list of guards. To leave out a guard, delete its folder and its line here. `npm run leave-out` tests this for
// each guard.

import type { RateLimitPart, TokenGuardPart } from './options/ports.ts';

interface GuardParts {
  readonly tokens: () => Promise<TokenGuardPart>;
  readonly rateLimit: () => Promise<RateLimitPart>;
}

const guardParts: Partial<GuardParts> = {
  tokens: () => import('./tokens/part.ts'),
  rateLimit: () => import('./rate-limit/part.ts'),
};

/** The error for a missing package or part that a guard needs. The message says what to do. */
export class MissingPackageError extends Error {}

/** Loads the token guard. Rejects with a MissingPackageError. */
export async function loadTokens(): Promise<TokenGuardPart> {
  const load = guardParts.tokens ?? leftOut('authIssuer', 'packages/core/guards/tokens');
  // `jose` is an optional peer dependency. Only this guard needs it.
  return await explainMissing('authIssuer', 'jose', load);
}

/** Loads the rate limit guard. Rejects with a MissingPackageError. */
export async function loadRateLimit(): Promise<RateLimitPart> {
  return await (guardParts.rateLimit ?? leftOut('rateLimit', 'packages/core/guards/rate-limit'))();
}

function leftOut(option: string, folder: string): () => never {
  return () => {
    throw new MissingPackageError(`${option} needs ${folder}, which this build leaves out`);
  };
}

/** Runs `load`. Rejects with a MissingPackageError that names the package if it is not installed. */
export async function explainMissing<T>(option: string, packageName: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new MissingPackageError(`${option} needs the package ${packageName}: run \`npm install ${packageName}\``, {
      cause: error,
    });
  }
}
