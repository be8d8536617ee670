// Repeats the checks of time limits, and puts them off after the process was held up [D19].

import { catchUpMs, monotonicMs } from '../../time/monotonic.ts';

export class Sweeper {
  readonly #everyMs: number;
  readonly #sweep: (now: number, mayPass: boolean) => boolean;
  #timer: NodeJS.Timeout | undefined;
  #dueAt = 0;
  #checksFrom = 0;

  /** `mayPass`: time limits may now pass. `sweep` returns false if nothing is left to check; then `start` is needed. */
  constructor(everyMs: number, sweep: (now: number, mayPass: boolean) => boolean) {
    this.#everyMs = everyMs;
    this.#sweep = sweep;
  }

  start(): void {
    if (this.#timer !== undefined) return;
    this.#dueAt = monotonicMs() + this.#everyMs;
    this.#checksFrom = 0;
    // Timers run before arrived data is read and before the OS accepts more. With `setImmediate`, that comes first.
    this.#timer = setInterval(() => setImmediate(this.#onTime), this.#everyMs).unref();
  }

  readonly #onTime = (): void => {
    const now = monotonicMs();
    const extraMs = catchUpMs(this.#dueAt, now);
    // If the last checks were put off, these are not, so that the limits hold even if the process is always late.
    const hasChecked = this.#dueAt - this.#everyMs >= this.#checksFrom;
    this.#dueAt = now + this.#everyMs;
    if (extraMs > 0 && hasChecked) this.#checksFrom = now + extraMs;
    if (!this.#sweep(now, now >= this.#checksFrom)) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  };
}
