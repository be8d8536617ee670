// What the rate limit counts for all workers together, in the primary process [D46].

import { keysMax } from './count.ts';
import type { Question } from '../options/ports.ts';
import { WindowTable } from './window-table.ts';

export class JoinedCount {
  readonly #table = new WindowTable(keysMax);

  /** As a `Counter` answers, at `now` in milliseconds. */
  answer({ rate, keys, wanted }: Question, now: number): number[] {
    return keys.flatMap((name, index) => {
      // A reload may change the window: it begins anew then.
      const key = `${rate.windowMs} ${name}`;
      const window = this.#table.find(key, now) ?? this.#table.open(key, now + rate.windowMs, now);
      const granted = Math.max(0, Math.min(wanted[index] ?? 0, rate.limit - window.count));
      window.count += granted;
      // A reload may have lowered the limit below what is counted.
      return [granted, Math.ceil(window.endsAt - now), Math.max(0, rate.limit - window.count)];
    });
  }
}
