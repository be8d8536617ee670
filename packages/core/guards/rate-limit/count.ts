// Counts requests in memory. A process counts its own requests, or the primary process counts for all workers [D46].

import type { RateLimitPart } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';

/** The result of counting one request. */
export interface Taken {
  /** Requests left in the key's window after this one. -1: the limit was reached, and this request is not counted. */
  readonly left: number;
  /** Milliseconds until the window ends; always more than 0. */
  readonly msLeft: number;
}

/** Counts the requests of one rate. */
export interface Count {
  /** Counts one request of `key`. Returns undefined to admit the request without a count. The promise never rejects. */
  take(key: string): Taken | undefined | Promise<Taken | undefined>;
}

interface Window {
  readonly key: string;
  /** In milliseconds, on the caller's clock. */
  readonly endsAt: number;
  count: number;
  next: Window | undefined;
}

/**
 * Largest number of keys that have a window in a process; they need about 15 MB. To make room for another key, the
 * oldest window is dropped before it ends. An attacker gains little by this: a client with 100,000 addresses has
 * 100,000 times the rate anyway.
 */
const keysMaxDefault = 100_000;
// When a window opens, up to this many of the oldest windows are removed, if they have ended. So ended windows do not
// accumulate, and no request has to remove many windows.
const lookedAtMax = 2;

/**
 * Counts in fixed windows, one per key. A window begins with the key's first request. Callers pass the current time, in
 * milliseconds.
 */
export class WindowTable {
  readonly #keysMax: number;
  readonly #windows = new Map<string, Window>();
  // The ends of a linked list. It has all open windows and some ended windows, in order of opening.
  #oldest: Window | undefined;
  #newest: Window | undefined;

  constructor(keysMax = keysMaxDefault) {
    this.#keysMax = keysMax;
  }

  get size(): number {
    return this.#windows.size;
  }

  /** Returns the window of `key` that is open at `now`; undefined if there is none. */
  find(key: string, now: number): Window | undefined {
    const window = this.#windows.get(key);
    return window !== undefined && now < window.endsAt ? window : undefined;
  }

  /** Opens a window for `key`, in place of the key's previous window. */
  open(key: string, endsAt: number, now: number): Window {
    this.#makeRoom(now);
    const window: Window = { key, endsAt, count: 0, next: undefined };
    this.#windows.set(key, window);
    if (this.#newest === undefined) {
      this.#oldest = window;
    } else {
      this.#newest.next = window;
    }
    this.#newest = window;
    return window;
  }

  /** Counts one request of `key`. */
  take(key: string, { limit, windowMs }: Rate, now: number): Taken {
    const window = this.find(key, now) ?? this.open(key, now + windowMs, now);
    const msLeft = window.endsAt - now;
    if (window.count >= limit) return { left: -1, msLeft };
    window.count += 1;
    return { left: limit - window.count, msLeft };
  }

  #makeRoom(now: number): void {
    for (let lookedAt = 0; lookedAt < lookedAtMax || this.size >= this.#keysMax; lookedAt += 1) {
      const oldest = this.#oldest;
      if (oldest === undefined || (now < oldest.endsAt && this.size < this.#keysMax)) return;
      this.#oldest = oldest.next;
      if (this.#oldest === undefined) this.#newest = undefined;
      // If the key has a newer window, that window stays.
      if (this.#windows.get(oldest.key) === oldest) this.#windows.delete(oldest.key);
    }
  }
}

/** Creates the counter for the requests of one process. */
export function createOwnCount(rate: Rate, now: () => number, table = new WindowTable()) {
  return { take: (key: string) => table.take(key, rate, now()) } satisfies Count;
}

export const createJoinedCount: RateLimitPart['createJoinedCount'] = () => {
  const table = new WindowTable();
  return {
    answer: ({ rate, keys }, now) =>
      keys.flatMap((key) => {
        // The key includes the window length, so counting starts again if a reload changes the length.
        const { left, msLeft } = table.take(`${rate.windowMs} ${key}`, rate, now);
        return [left, Math.ceil(msLeft)];
      }),
  };
};
