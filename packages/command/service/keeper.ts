// Keeps the state that must outlive the guards of a process: the issuer's keys and the counts of the rate limit. So a
// worker can start and a reload can succeed while the issuer is down [D44], and the clients' counts continue.

import type { Keeper } from '../../core/guards/options/ports.ts';

/** Creates a keeper without a `counter`. */
export function createKeeper(now = () => performance.now()): Keeper {
  let kept: { readonly url: string; readonly text: string; readonly askedAt: number } | undefined;
  return {
    counter: undefined,
    counts: new Map(),
    // Does not return keys from another address, because they may belong to another issuer.
    findKeys: (url) => (kept?.url === url ? { text: kept.text, ageMs: now() - kept.askedAt } : undefined),
    keepKeys: (url, { text, ageMs }) => {
      kept = { url, text, askedAt: now() - ageMs };
    },
  };
}
