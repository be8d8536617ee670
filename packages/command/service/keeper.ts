// What outlives the guards of a process: the issuer's keys that were fetched last, and what the rate limit has counted. So
// neither a worker that starts nor a reload depends on an issuer that is away [D44], and no client's count begins anew.

import type { FetchedKeys, Keeper } from '../../core/guards/options/ports.ts';

export class KeptKeys {
  #kept: { readonly url: string; readonly text: string; readonly askedAt: number } | undefined;

  /** Keeps what was fetched from `url`, at `now` in milliseconds. */
  keep(url: string, { text, ageMs }: FetchedKeys, now: number): void {
    this.#kept = { url, text, askedAt: now - ageMs };
  }

  /** The last that came from `url`: keys of another address say nothing about its issuer. */
  find(url: string, now: number): FetchedKeys | undefined {
    return this.#kept?.url === url ? { text: this.#kept.text, ageMs: now - this.#kept.askedAt } : undefined;
  }
}

/** Of a process that serves clients alone. */
export function createKeeper(): Keeper {
  const keys = new KeptKeys();
  return {
    counter: undefined,
    counts: new Map(),
    findKeys: (jwksUrl) => keys.find(jwksUrl, performance.now()),
    keepKeys: (jwksUrl, fetched) => {
      keys.keep(jwksUrl, fetched, performance.now());
    },
  };
}
