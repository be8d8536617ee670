// Keeps the issuer's keys longer than the guards of a process live. So a worker can start and a reload can succeed while
// the issuer is down [D44]. The rate limit's counts continue as long as the keeper lives.

import type { Keeper } from '../../core/guards/ports/ports.ts';

/** Creates a keeper without a `counter`. */
export function createKeeper(now = () => performance.now()): Keeper {
  // By address, because keys of another address may belong to another issuer. After a reload, old guards may still keep
  // keys of the old address.
  const kept = new Map<string, { readonly text: string; readonly askedAt: number }>();
  return {
    counter: undefined,
    findKeys: (url) => {
      const found = kept.get(url);
      return found && { text: found.text, ageMs: now() - found.askedAt };
    },
    keepKeys: (url, { text, ageMs }) => {
      kept.set(url, { text, askedAt: now() - ageMs });
    },
  };
}
