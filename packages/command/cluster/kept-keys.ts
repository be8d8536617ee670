// The issuer's keys as a worker has fetched them last, in the primary process: a worker that starts while the issuer is away
// has them from there [D44].

import type { FetchedKeys } from '../../core/guards/tokens/key-set.ts';

export class KeptKeys {
  #kept: { readonly url: string; readonly text: string; readonly askedAt: number } | undefined;

  /** Keeps what a worker has fetched from `url`, at `now` in milliseconds. */
  keep(url: string, { text, ageMs }: FetchedKeys, now: number): void {
    this.#kept = { url, text, askedAt: now - ageMs };
  }

  /** The last that came from `url`: keys of another address say nothing about its issuer. */
  find(url: string, now: number): FetchedKeys | undefined {
    return this.#kept?.url === url ? { text: this.#kept.text, ageMs: now - this.#kept.askedAt } : undefined;
  }
}
