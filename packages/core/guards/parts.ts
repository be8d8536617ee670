// The list of guards. To leave out a guard, delete its folder and its line here. `npm run leave-out` tests this for
// each guard.

import { explainMissing, MissingPackageError } from './options/missing-package.ts';
import type { RateLimitPart, TokenGuardPart } from './options/ports.ts';

interface GuardParts {
  readonly tokens: () => Promise<TokenGuardPart>;
  readonly rateLimit: () => Promise<RateLimitPart>;
}

const guardParts: Partial<GuardParts> = {
  tokens: () => import('./tokens/part.ts'),
  rateLimit: () => import('./rate-limit/part.ts'),
};

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
