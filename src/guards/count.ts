// Who counts requests against a rate: the port of counters, and the one that counts in this process.

import type { Clock } from './clock.ts';
import type { Rate } from './rate.ts';
import { WindowTable } from './window-table.ts';

/** Counts the requests of one rate. */
export interface Count {
  /**
   * Counts one request of `key`: 0 where it is within the rate; otherwise it does not count, and the number says in how
   * many milliseconds, more than 0, the key's window ends. Never rejects.
   */
  take(key: string): number | Promise<number>;
}

/**
 * Keys that a process counts at once, about 15 MB of them. Past that those whose window began first are forgotten early:
 * who can call from so many addresses has so many times the rate anyway.
 */
export const keysMax = 100_000;

/** Milliseconds that only go forwards. */
export type SteadyClock = Clock['steady'];

/** Counts in this process, at once. */
export class OwnCount implements Count {
  readonly #rate: Rate;
  readonly #clock: SteadyClock;
  readonly #table: WindowTable;

  constructor(rate: Rate, clock: SteadyClock, table = new WindowTable(keysMax)) {
    this.#rate = rate;
    this.#clock = clock;
    this.#table = table;
  }

  take(key: string): number {
    const now = this.#clock();
    const window = this.#table.find(key, now) ?? this.#table.open(key, now + this.#rate.windowMs, now);
    if (window.count >= this.#rate.limit) {
      return window.endsAt - now;
    }
    window.count += 1;
    return 0;
  }
}
