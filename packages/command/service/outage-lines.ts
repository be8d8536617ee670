// What the log says of somebody who goes away and comes back: one line each, and of one who does so all the time no more
// than a pair of lines in ten seconds, with how often it was. Nothing is left out: what is not said at once is said later.

import { systemClock, type Clock } from '../../core/time/clock.ts';

interface OutageLinesOptions {
  readonly clock?: Clock;
  /** It has gone away: `outages` times since this was said last, the last time for the reason `cause`. */
  readonly onAway: (cause: unknown, outages: number) => void;
  readonly onBack: () => void;
}

/** From the end of one pair of lines to the begin of the next. */
export const quietMs = 10_000;

export class OutageLines {
  readonly #options: OutageLinesOptions;
  #isAway = false;
  #cause: unknown;
  // Not said yet.
  #outages = 0;
  // What was said last.
  #isSaidAway = false;
  // While it is set nothing new is begun; calls the end of that off.
  #endQuiet: (() => void) | undefined;

  constructor(options: OutageLinesOptions) {
    this.#options = options;
  }

  away(cause: unknown): void {
    this.#isAway = true;
    this.#cause = cause;
    this.#outages += 1;
    this.#say();
  }

  back(): void {
    this.#isAway = false;
    this.#say();
  }

  /** Says at once what is still to be said. */
  close(): void {
    this.#stopWaiting();
    this.#say();
    this.#stopWaiting();
  }

  #stopWaiting(): void {
    this.#endQuiet?.();
    this.#endQuiet = undefined;
  }

  #say(): void {
    const { clock = systemClock, onAway, onBack } = this.#options;
    if (this.#outages > 0 && !this.#isSaidAway && this.#endQuiet === undefined) {
      onAway(this.#cause, this.#outages);
      this.#isSaidAway = true;
      this.#outages = 0;
    }
    if (this.#isSaidAway && !this.#isAway) {
      onBack();
      this.#isSaidAway = false;
      this.#endQuiet = clock.after(quietMs, () => {
        this.#endQuiet = undefined;
        this.#say();
      });
    }
  }
}
