// Caches verified tokens by a digest that does not reveal them. The next request with the same token then needs only
// the digest, and no signature check [D44].

import type { Clock } from '../time/clock.ts';

interface Entry<T> {
  readonly value: T;
  /** The end of the token's validity, in ms on the wall clock. */
  readonly expiresAt: number;
  /** The end of the entry's use, in ms on the steady clock, which cannot be set back. */
  readonly forgetAt: number;
}

/**
 * The cache has two halves. When the newer half is full, it becomes the older half, and the previous older half is dropped.
 * A token found in the older half moves to the newer half. So a flood of tokens, each used once, does not displace
 * tokens in use.
 */
export class TokenMemory<T> {
  readonly #clock: Clock;
  readonly #halfMax: number;
  #newer = new Map<string, Entry<T>>();
  #older = new Map<string, Entry<T>>();

  constructor(clock: Clock, entriesMax: number) {
    this.#clock = clock;
    this.#halfMax = Math.ceil(entriesMax / 2);
  }

  get size(): number {
    return this.#newer.size + this.#older.size;
  }

  find(digest: string): T | undefined {
    let entry = this.#newer.get(digest);
    if (entry === undefined) {
      entry = this.#older.get(digest);
      if (entry === undefined) return undefined;
      this.#older.delete(digest);
      this.#add(digest, entry);
    }
    if (this.#clock.now() >= entry.expiresAt || this.#clock.steady() >= entry.forgetAt) {
      this.#newer.delete(digest);
      return undefined;
    }
    return entry.value;
  }

  /** Keeps `value` until `expiresAt` on the wall clock or `forgetAt` on the steady clock, whichever comes first. */
  remember(digest: string, value: T, expiresAt: number, forgetAt: number): void {
    this.#add(digest, { value, expiresAt, forgetAt });
  }

  #add(digest: string, entry: Entry<T>): void {
    if (this.#newer.size >= this.#halfMax) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(digest, entry);
  }
}
