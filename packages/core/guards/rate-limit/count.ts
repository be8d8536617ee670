// Counts requests against a rate in this process.

import type { Clock } from '../../time/clock.ts';
import type { Rate } from '../options/rate.ts';
import type { Count, Taken } from '../options/ports.ts';
import { WindowTable } from './window-table.ts';

/**
 * Keys that a process counts at once, about 15 MB of them. Past that those whose window began first are forgotten early:
 * who can call from so many addresses has so many times the rate anyway.
 */
export const keysMax = 100_000;

/** Counts in this process, at once. */
export class OwnCount implements Count {
  readonly #rate: Rate;
  readonly #clock: Clock['steady'];
  readonly #table: WindowTable;

  constructor(rate: Rate, clock: Clock['steady'], table = new WindowTable(keysMax)) {
    this.#rate = rate;
    this.#clock = clock;
    this.#table = table;
  }

  /** The same windows, with what is counted in them, for another limit; `rate` has windows of the same length. */
  withRate(rate: Rate): OwnCount {
    return new OwnCount(rate, this.#clock, this.#table);
  }

  take(key: string): Taken {
    const now = this.#clock();
    const window = this.#table.find(key, now) ?? this.#table.open(key, now + this.#rate.windowMs, now);
    const msLeft = window.endsAt - now;
    if (window.count >= this.#rate.limit) {
      return { left: -1, msLeft };
    }
    window.count += 1;
    return { left: this.#rate.limit - window.count, msLeft };
  }
}
