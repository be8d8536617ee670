// Counts requests against a rate in this process.

import type { Clock } from '../../time/clock.ts';
import type { Rate } from '../options/rate.ts';
import type { Count, Taken } from '../options/ports.ts';
import { WindowTable } from './window-table.ts';

/**
 * Largest number of keys that a process counts at a time, in about 15 MB. Beyond it, the oldest windows are dropped early.
 * An attacker gains little by this, because this many addresses have this many times the rate anyway.
 */
export const keysMax = 100_000;

export class OwnCount implements Count {
  readonly #rate: Rate;
  readonly #clock: Clock['steady'];
  readonly #table: WindowTable;

  constructor(rate: Rate, clock: Clock['steady'], table = new WindowTable(keysMax)) {
    this.#rate = rate;
    this.#clock = clock;
    this.#table = table;
  }

  /** Returns a count with another limit that shares the windows. `rate` must have the same window length. */
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
