// Keeps the issuer's keys longer than the guards of a process live. So a worker can start while the key file is unusable,
// and a reload can succeed while the issuer is down [D44]. The rate limit's counts continue as long as the keeper lives.

import type { Keeper } from '../../core/guards/ports/ports.ts';

/** Creates a keeper without a `counter`. */
export function createKeeper(now = () => performance.now()): Keeper {
  // By place, because another place may have another issuer's keys. After a reload, old guards may still keep theirs.
  const kept = new Map<string, { readonly text: string; readonly askedAt: number }>();
  return {
    counter: undefined,
    replacesFile: false,
    findKeys: (place) => {
      const found = kept.get(place);
      return found && { text: found.text, ageMs: now() - found.askedAt };
    },
    keepKeys: (place, { text, ageMs }) => {
      kept.set(place, { text, askedAt: now() - ageMs });
    },
  };
}
