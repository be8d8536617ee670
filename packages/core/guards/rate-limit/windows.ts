// Counts requests in memory, in fixed windows. A key's window begins with its first request [D46].

import type { Taken } from '../ports/ports.ts';
import type { Rate } from '../../options/rate.ts';

interface Window {
  readonly endsAt: number;
  count: number;
}

/**
 * Largest number of windows of one length; they need about 15 MB. An attacker gains little by making a process forget
 * windows: a client with 50,000 addresses has 50,000 times the rate anyway.
 */
const windowsMaxDefault = 100_000;

/**
 * The windows of one length, in two halves. When the newer half is full, or a window's length old, it becomes the older
 * half, and the previous older half is dropped. So no request has to remove many windows.
 */
class WindowTable {
  readonly #windowMs: number;
  readonly #halfMax: number;
  #newer = new Map<string, Window>();
  #older = new Map<string, Window>();
  // When all windows of the older half have ended.
  #turnsAt = -Infinity;
  #lastEndsAt = -Infinity;

  constructor(windowMs: number, windowsMax: number) {
    this.#windowMs = windowMs;
    this.#halfMax = windowsMax / 2;
  }

  get size(): number {
    return this.#newer.size + this.#older.size;
  }

  hasEnded(now: number): boolean {
    return now >= this.#lastEndsAt;
  }

  /** Returns the window of `key` that is open at `now`; undefined if there is none. */
  find(key: string, now: number): Window | undefined {
    const window = this.#newer.get(key) ?? this.#older.get(key);
    return window !== undefined && now < window.endsAt ? window : undefined;
  }

  open(key: string, count: number, endsAt: number, now: number): Window {
    if (now >= this.#turnsAt || this.#newer.size >= this.#halfMax) {
      this.#older = this.#newer;
      this.#newer = new Map();
      this.#turnsAt = now + this.#windowMs;
    }
    const window: Window = { endsAt, count };
    this.#newer.set(key, window);
    this.#lastEndsAt = Math.max(this.#lastEndsAt, endsAt);
    return window;
  }
}

/** The counts of a process. Each length of windows has its own table, because a reload can change the length. */
export class Windows {
  readonly #now: () => number;
  readonly #windowsMax: number;
  readonly #tables = new Map<number, WindowTable>();

  /** `now`: a monotonic clock, in milliseconds. */
  constructor(now: () => number, windowsMax = windowsMaxDefault) {
    this.#now = now;
    this.#windowsMax = windowsMax;
  }

  get size(): number {
    return [...this.#tables.values()].reduce((sum, table) => sum + table.size, 0);
  }

  take(key: string, { limit, windowMs }: Rate): Taken {
    const now = this.#now();
    const table = this.#tableFor(windowMs, now);
    const window = table.find(key, now) ?? table.open(key, 0, now + windowMs, now);
    const msLeft = window.endsAt - now;
    if (window.count >= limit) return { left: -1, msLeft };
    window.count += 1;
    return { left: limit - window.count, msLeft };
  }

  /** Returns the refusal of a key that is over the limit, otherwise undefined. Counts nothing. */
  findOver(key: string, { limit, windowMs }: Rate): Taken | undefined {
    const now = this.#now();
    const window = this.#tables.get(windowMs)?.find(key, now);
    return window !== undefined && window.count >= limit ? { left: -1, msLeft: window.endsAt - now } : undefined;
  }

  /** Notes that another counter refuses `key` for the next `msLeft`. */
  noteOver(key: string, { limit, windowMs }: Rate, msLeft: number): void {
    const now = this.#now();
    this.#tableFor(windowMs, now).open(key, limit, now + msLeft, now);
  }

  #tableFor(windowMs: number, now: number): WindowTable {
    let table = this.#tables.get(windowMs);
    if (table === undefined) {
      table = new WindowTable(windowMs, this.#windowsMax);
      this.#tables.set(windowMs, table);
    }
    if (this.#tables.size > 1) {
      for (const [otherMs, other] of this.#tables) {
        if (other !== table && other.hasEnded(now)) this.#tables.delete(otherMs);
      }
    }
    return table;
  }
}
