// Counts requests in memory: in this process, or in the primary process for all workers [D46].

import type { Clock } from '../../time/clock.ts';
import type { Count, Question, Taken } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';
import { WindowTable } from './window-table.ts';

/**
 * Largest number of keys that a process counts at a time, in about 15 MB. Beyond it, the oldest windows are dropped
 * early. An attacker gains little by this: a client with 100,000 addresses has 100,000 times the rate anyway.
 */
export const keysMax = 100_000;

/** Counts one request of `key` at the time `now`, in milliseconds. */
function takeFrom(table: WindowTable, { limit, windowMs }: Rate, key: string, now: number): Taken {
  const window = table.find(key, now) ?? table.open(key, now + windowMs, now);
  const msLeft = window.endsAt - now;
  if (window.count >= limit) return { left: -1, msLeft };
  window.count += 1;
  return { left: limit - window.count, msLeft };
}

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
    return takeFrom(this.#table, this.#rate, key, this.#clock());
  }
}

/** Counts for all workers, in the primary process. */
export class JoinedCount {
  readonly #table = new WindowTable(keysMax);

  /** Counts at the time `now`, in milliseconds. Returns the answer to `Counter.ask`. */
  answer({ rate, keys }: Question, now: number): number[] {
    return keys.flatMap((key) => {
      // A reload may change the window length; counting then starts again.
      const { left, msLeft } = takeFrom(this.#table, rate, `${rate.windowMs} ${key}`, now);
      return [left, Math.ceil(msLeft)];
    });
  }
}
