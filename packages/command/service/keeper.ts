// Keeps the state that must outlive the guards of a process: the issuer's keys and the counts of the rate limit. So a
// worker can start and a reload can succeed while the issuer is down [D44], and the clients' counts continue.

import type { FetchedKeys, Keeper } from '../../core/guards/options/ports.ts';

export class KeptKeys {
  #kept: { readonly url: string; readonly text: string; readonly askedAt: number } | undefined;

  /** Keeps the keys fetched from `url`; `now` in milliseconds. */
  keep(url: string, { text, ageMs }: FetchedKeys, now: number): void {
    this.#kept = { url, text, askedAt: now - ageMs };
  }

  /** Returns the last keys if they came from `url`. Keys from another address may belong to another issuer. */
  find(url: string, now: number): FetchedKeys | undefined {
    return this.#kept?.url === url ? { text: this.#kept.text, ageMs: now - this.#kept.askedAt } : undefined;
  }
}

/** Creates the keeper of a single serving process. */
export function createKeeper(): Keeper {
  const keys = new KeptKeys();
  return {
    counter: undefined,
    counts: new Map(),
    findKeys: (jwksUrl) => keys.find(jwksUrl, performance.now()),
    keepKeys: (jwksUrl, fetched) => keys.keep(jwksUrl, fetched, performance.now()),
  };
}
