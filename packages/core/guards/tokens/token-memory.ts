// Caches verified tokens by a digest that does not reveal them. The next request with the same token then needs only
// the digest, and no signature check [D44].

import type { Clock } from '../time/clock.ts';

interface Entry<T> {
  readonly value: T;
  readonly expiresAt: number;
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
    const newer = this.#newer.get(digest);
    const entry = newer ?? this.#older.get(digest);
    if (entry === undefined || this.#clock.now() >= entry.expiresAt || this.#clock.steady() >= entry.forgetAt) {
      return undefined;
    }
    if (newer === undefined) this.remember(digest, entry.value, entry.expiresAt, entry.forgetAt);
    return entry.value;
  }

  /**
   * Keeps `value` until `expiresAt` on the wall clock or `forgetAt` on the steady clock, which cannot be set back,
   * whichever comes first.
   */
  remember(digest: string, value: T, expiresAt: number, forgetAt: number): void {
    if (this.#newer.size >= this.#halfMax) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(digest, { value, expiresAt, forgetAt });
  }
}
