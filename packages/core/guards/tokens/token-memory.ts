// Tokens that have been verified, so that the next call with one costs a digest instead of a signature. Known by the
// SHA-256 of the whole token, and never by less of it [D44].

import { hash } from 'node:crypto';

import type { Clock } from '../../time/clock.ts';

/** A token's name here: the token itself cannot be read from it. */
export type TokenDigest = string;

export function digestToken(token: string): TokenDigest {
  // As characters of one byte each: the shortest, and the quickest to make.
  return hash('sha256', token, 'latin1');
}

interface Entry<T> {
  readonly value: T;
  /** On the wall clock, as the token says it. */
  readonly expiresAt: number;
  /** On the steady clock: nobody can set that one back. */
  readonly forgetAt: number;
}

/**
 * At most `entriesMax` tokens. In two halves: when the newer one is full the older one is forgotten, and whatever was
 * asked for meanwhile has moved to the newer. So a flood of tokens that come once pushes out no others for long.
 */
export class TokenMemory<T> {
  readonly #clock: Clock;
  readonly #halfMax: number;
  #newer = new Map<TokenDigest, Entry<T>>();
  #older = new Map<TokenDigest, Entry<T>>();

  constructor(clock: Clock, entriesMax: number) {
    this.#clock = clock;
    this.#halfMax = Math.ceil(entriesMax / 2);
  }

  get size(): number {
    return this.#newer.size + this.#older.size;
  }

  /** What was remembered of this token; undefined for one that is not known, or no longer. */
  find(digest: TokenDigest): T | undefined {
    let entry = this.#newer.get(digest);
    if (entry === undefined) {
      entry = this.#older.get(digest);
      if (entry === undefined) {
        return undefined;
      }
      this.#older.delete(digest);
      this.#add(digest, entry);
    }
    if (this.#clock.now() >= entry.expiresAt || this.#clock.steady() >= entry.forgetAt) {
      this.#newer.delete(digest);
      return undefined;
    }
    return entry.value;
  }

  /** Until the wall clock says `expiresAt` or the steady one `forgetAt`, whichever is first. */
  remember(digest: TokenDigest, value: T, expiresAt: number, forgetAt: number): void {
    this.#add(digest, { value, expiresAt, forgetAt });
  }

  forgetAll(): void {
    this.#newer = new Map();
    this.#older = new Map();
  }

  #add(digest: TokenDigest, entry: Entry<T>): void {
    if (this.#newer.size >= this.#halfMax) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(digest, entry);
  }
}
