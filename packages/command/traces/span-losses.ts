// Reports lost spans. Each loss is counted immediately. Log lines come in pairs, one when losses begin and one when
// they end, at most one pair in ten seconds. Each lost span is counted in exactly one line [D49].

import { systemClock, type Clock } from '../../core/time/clock.ts';
import type { SpanObserver } from '../options/tracing.ts';

/** Shortest time from the first line of one pair to the first line of the next. */
export const pairMs = 10_000;

export class SpanLosses {
  readonly #observer: SpanObserver;
  readonly #clock: Clock;
  // True between the two lines of a pair.
  #isReported = false;
  #reportedAt = -Infinity;
  // True if no span was lost since the collector last accepted spans.
  #isOver = true;
  #unreported = 0;
  #cause = '';
  #cancelAlarm: (() => void) | undefined;
  #isClosed = false;

  constructor(observer: SpanObserver, clock: Clock = systemClock) {
    this.#observer = observer;
    this.#clock = clock;
  }

  /** Counts `spans` lost because of `cause`. */
  lose(spans: number, cause: string): void {
    this.#observer.onDropped(spans);
    this.#unreported += spans;
    this.#cause = cause;
    this.#isOver = false;
    if (!this.#isReported && !this.#isClosed) {
      this.#report();
    }
  }

  /** The collector accepts spans. */
  recover(): void {
    this.#isOver = true;
    if (this.#isReported && !this.#isClosed) {
      this.#reportEnd();
    }
  }

  /**
   * Counts `spans` that are lost at the end, without a line. Returns the number of lost spans that no line has reported.
   */
  close(spans: number): number {
    this.#isClosed = true;
    this.#cancelAlarm?.();
    this.#observer.onDropped(spans);
    this.#unreported += spans;
    return this.#takeUnreported();
  }

  #report(): void {
    const waitMs = this.#reportedAt + pairMs - this.#clock.steady();
    if (waitMs > 0) {
      this.#cancelAlarm ??= this.#clock.after(waitMs, () => {
        this.#cancelAlarm = undefined;
        this.#report();
      });
      return;
    }
    this.#isReported = true;
    this.#reportedAt = this.#clock.steady();
    this.#observer.onLosing(this.#cause, this.#takeUnreported());
    if (this.#isOver) {
      this.#reportEnd();
    }
  }

  #reportEnd(): void {
    this.#isReported = false;
    this.#observer.onRecovered(this.#cause, this.#takeUnreported());
  }

  #takeUnreported(): number {
    const spans = this.#unreported;
    this.#unreported = 0;
    return spans;
  }
}
