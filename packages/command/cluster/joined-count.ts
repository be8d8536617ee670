// What the rate limit counts for all workers together, in the primary process [D46].

import { keysMax } from '../../core/guards/rate-limit/count.ts';
import type { Question } from '../../core/guards/rate-limit/shared-count.ts';
import { WindowTable } from '../../core/guards/rate-limit/window-table.ts';

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
      return [granted, Math.ceil(window.endsAt - now), rate.limit - window.count];
    });
  }
}
