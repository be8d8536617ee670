// Counts requests in memory. A process counts its own requests, or the primary process counts for all workers [D46].

import type { RateLimitPart } from '../ports/ports.ts';
import type { Rate } from '../../options/rate.ts';

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
// When a window opens, up to this many of the oldest windows of each length are removed, if they have ended. So ended
// windows do not accumulate, and no request has to remove many windows.
const lookedAtMax = 2;

/**
 * Counts in fixed windows of one length, one per key. A window begins with the key's first request. Callers pass the
 * current time, in milliseconds.
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
    this.trim(now, this.#keysMax - 1);
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

  /** Removes a few ended windows, and then the oldest windows, until at most `sizeMax` are left. */
  trim(now: number, sizeMax: number): void {
    for (let lookedAt = 0; lookedAt < lookedAtMax || this.size > sizeMax; lookedAt += 1) {
      const oldest = this.#oldest;
      if (oldest === undefined || (now < oldest.endsAt && this.size <= sizeMax)) return;
      this.#oldest = oldest.next;
      if (this.#oldest === undefined) this.#newest = undefined;
      // If the key has a newer window, that window stays.
      if (this.#windows.get(oldest.key) === oldest) this.#windows.delete(oldest.key);
    }
  }
}

/**
 * Counts in windows of several lengths, because a reload can change the length. Each length has its own table: in a common
 * table, a long window would delay the removal of all later ones. The tables share the limit of keys.
 */
export class WindowTables {
  readonly #keysMax: number;
  readonly #byLength = new Map<number, WindowTable>();

  constructor(keysMax = keysMaxDefault) {
    this.#keysMax = keysMax;
  }

  get size(): number {
    return [...this.#byLength.values()].reduce((sum, table) => sum + table.size, 0);
  }

  /** Counts one request of `key`. */
  take(key: string, rate: Rate, now: number): Taken {
    let table = this.#byLength.get(rate.windowMs);
    if (table === undefined) {
      table = new WindowTable(this.#keysMax);
      this.#byLength.set(rate.windowMs, table);
    }
    if (this.#byLength.size > 1) this.#trimOthers(table, now);
    return table.take(key, rate, now);
  }

  #trimOthers(current: WindowTable, now: number): void {
    let excess = this.size - this.#keysMax + 1;
    for (const [windowMs, table] of this.#byLength) {
      if (table !== current) {
        const sizeBefore = table.size;
        table.trim(now, Math.max(0, sizeBefore - Math.max(0, excess)));
        excess -= sizeBefore - table.size;
        if (table.size === 0) this.#byLength.delete(windowMs);
      }
    }
  }
}

/** Creates the counter for the requests of one process. */
export function createOwnCount(rate: Rate, now: () => number, tables = new WindowTables()) {
  return { take: (key: string) => tables.take(key, rate, now()) } satisfies Count;
}

export const createJoinedCount: RateLimitPart['createJoinedCount'] = () => {
  const tables = new WindowTables();
  return {
    answer: ({ rate, keys }, now) =>
      keys.flatMap((key) => {
        const { left, msLeft } = tables.take(key, rate, now);
        return [left, Math.ceil(msLeft)];
      }),
  };
};
