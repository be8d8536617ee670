// What is said of spans that are lost. All are counted at once; lines come in pairs, one when losing begins and one when it
// has ended, and not more than a pair in ten seconds. Each lost span is in the number of one line [D49].

import { systemClock, type Clock } from '../../core/time/clock.ts';
import type { SpanObserver } from '../options/tracing.ts';

/** From one beginning that is told to the next one. */
export const pairMs = 10_000;

export class SpanLosses {
  readonly #observer: SpanObserver;
  readonly #clock: Clock;
  // The beginning was told, the end was not.
  #isTold = false;
  #toldAt = -Infinity;
  // Nothing has been lost since spans were taken.
  #isOver = true;
  #untold = 0;
  #cause = '';
  #cancelAlarm: (() => void) | undefined;
  #isClosed = false;

  constructor(observer: SpanObserver, clock: Clock = systemClock) {
    this.#observer = observer;
    this.#clock = clock;
  }

  /** So many spans are lost, for that reason. */
  lose(spans: number, cause: string): void {
    this.#observer.onDropped(spans);
    this.#untold += spans;
    this.#cause = cause;
    this.#isOver = false;
    if (!this.#isTold && !this.#isClosed) {
      this.#tell();
    }
  }

  /** The collector takes spans. */
  recover(): void {
    this.#isOver = true;
    if (this.#isTold && !this.#isClosed) {
      this.#tellEnd();
    }
  }

  /** `spans` are lost with the end: no line follows. Gives all that are in none. */
  close(spans: number): number {
    this.#isClosed = true;
    this.#cancelAlarm?.();
    this.#observer.onDropped(spans);
    this.#untold += spans;
    return this.#takeUntold();
  }

  #tell(): void {
    const waitMs = this.#toldAt + pairMs - this.#clock.steady();
    if (waitMs > 0) {
      this.#cancelAlarm ??= this.#clock.after(waitMs, () => {
        this.#cancelAlarm = undefined;
        this.#tell();
      });
      return;
    }
    this.#isTold = true;
    this.#toldAt = this.#clock.steady();
    this.#observer.onLosing(this.#cause, this.#takeUntold());
    if (this.#isOver) {
      this.#tellEnd();
    }
  }

  #tellEnd(): void {
    this.#isTold = false;
    this.#observer.onRecovered(this.#cause, this.#takeUntold());
  }

  #takeUntold(): number {
    const spans = this.#untold;
    this.#untold = 0;
    return spans;
  }
}
