// Puts off time limits after the process was held up [D19].

import { catchUpMs, monotonicMs } from '../../time/monotonic.ts';

/** Puts off the checks of a repeating timer after the process was held up, by the time that `catchUpMs` returns. */
export class PutOff {
  readonly #everyMs: number;
  #dueAt: number;
  #checksFrom = 0;

  /** The timer has just been started, and fires every `everyMs`. */
  constructor(everyMs: number) {
    this.#everyMs = everyMs;
    this.#dueAt = monotonicMs() + everyMs;
  }

  /** Call this each time that the timer fires. Returns true if time limits may now pass. */
  mayCheck(now: number): boolean {
    const extraMs = catchUpMs(this.#dueAt, now);
    // If the last checks were put off, these are not, so that the limits hold even if the process is always late.
    const hasChecked = this.#dueAt - this.#everyMs >= this.#checksFrom;
    this.#dueAt = now + this.#everyMs;
    if (extraMs > 0 && hasChecked) this.#checksFrom = now + extraMs;
    return now >= this.#checksFrom;
  }
}
