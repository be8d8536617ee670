// Counts requests for all workers, in the primary process [D46].

import { keysMax } from './count.ts';
import type { Question } from '../options/ports.ts';
import { WindowTable } from './window-table.ts';

export class JoinedCount {
  readonly #table = new WindowTable(keysMax);

  /** Counts at the time `now`, in milliseconds. Returns the answer to `Counter.ask`. */
  answer({ rate, keys, wanted }: Question, now: number): number[] {
    return keys.flatMap((name, index) => {
      // A reload may change the window length; counting then starts again.
      const key = `${rate.windowMs} ${name}`;
      const window = this.#table.find(key, now) ?? this.#table.open(key, now + rate.windowMs, now);
      const granted = Math.max(0, Math.min(wanted[index] ?? 0, rate.limit - window.count));
      window.count += granted;
      // A reload may have lowered the limit below the count.
      return [granted, Math.ceil(window.endsAt - now), Math.max(0, rate.limit - window.count)];
    });
  }
}
