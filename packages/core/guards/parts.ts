// The list of guards. To leave one out, delete its folder and its line here: `npm run leave-out` tries that with each.

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

/** Loads the guard of tokens. Rejects with a MissingPackageError. */
export async function loadTokens(): Promise<TokenGuardPart> {
  const load = guardParts.tokens ?? leftOut('authIssuer', 'packages/core/guards/tokens');
  // An optional peer: who does not want the guard need not install it.
  return await explainMissing('authIssuer', 'jose', load);
}

/** Loads the guard that limits rates. Rejects with a MissingPackageError. */
export async function loadRateLimit(): Promise<RateLimitPart> {
  return await (guardParts.rateLimit ?? leftOut('rateLimit', 'packages/core/guards/rate-limit'))();
}

function leftOut(option: string, folder: string): () => never {
  return () => {
    throw new MissingPackageError(`${option} needs ${folder}, which this build leaves out`);
  };
}
