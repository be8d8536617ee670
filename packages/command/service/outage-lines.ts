// Reports outages in the log with pairs of lines: the first line when an outage begins, the second when it ends. At
// least ten seconds pass between two pairs. Outages that begin in these ten seconds are reported together afterwards,
// with their number.

import { systemClock, type Clock } from '../../core/guards/time/clock.ts';

/** Shortest time from the end of one pair of lines to the beginning of the next. */
export const quietMs = 10_000;

export class OutageLines {
  readonly #onDown: (cause: unknown, outages: number) => void;
  readonly #onUp: () => void;
  readonly #clock: Clock;
  #isDown = false;
  #cause: unknown;
  // Number of outages not reported yet.
  #outages = 0;
  // True if the last line reported the beginning of an outage.
  #isReportedDown = false;
  // Cancels the quiet time after a pair; undefined outside the quiet time.
  #endQuiet: (() => void) | undefined;

  /** `onDown` gets the cause of the latest outage, and the number of outages since the previous call of `onDown`. */
  constructor(onDown: (cause: unknown, outages: number) => void, onUp: () => void, clock: Clock = systemClock) {
    this.#onDown = onDown;
    this.#onUp = onUp;
    this.#clock = clock;
  }

  down(cause: unknown): void {
    this.#isDown = true;
    this.#cause = cause;
    this.#outages += 1;
    this.#report();
  }

  up(): void {
    this.#isDown = false;
    this.#report();
  }

  /** Reports the outages not reported yet, without waiting. */
  close(): void {
    this.#stopWaiting();
    this.#report();
    this.#stopWaiting();
  }

  #stopWaiting(): void {
    this.#endQuiet?.();
    this.#endQuiet = undefined;
  }

  #report(): void {
    if (this.#outages > 0 && !this.#isReportedDown && this.#endQuiet === undefined) {
      this.#onDown(this.#cause, this.#outages);
      this.#isReportedDown = true;
      this.#outages = 0;
    }
    if (this.#isReportedDown && !this.#isDown) {
      this.#onUp();
      this.#isReportedDown = false;
      this.#endQuiet = this.#clock.after(quietMs, () => {
        this.#endQuiet = undefined;
        this.#report();
      });
    }
  }
}
