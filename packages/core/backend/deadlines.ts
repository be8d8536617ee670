// Keeps deadlines of equal length in the order of their start, so that one timer serves them all. A timer for each call
// would cost a tenth of the call's processor time.

import { monotonicMs } from '../time/monotonic.ts';

export interface DeadlineOwner {
  onDeadlinePassed(deadline: Deadline): void;
}

/** A deadline of `owner`. `Deadlines.start` starts it. */
export class Deadline {
  readonly #owner: DeadlineOwner;
  /** @internal */
  at = 0;
  /** @internal */
  previous: Deadline | undefined;
  /** @internal */
  next: Deadline | undefined;
  /** @internal The queue that contains this deadline; undefined if the deadline is not running. */
  queue: Deadlines | undefined;

  constructor(owner: DeadlineOwner) {
    this.#owner = owner;
  }

  get isRunning(): boolean {
    return this.queue !== undefined;
  }

  /** Stops the deadline without notifying its owner. Safe at any time. */
  clear(): void {
    this.queue?.remove(this);
  }

  /** @internal */
  pass(): void {
    this.#owner.onDeadlinePassed(this);
  }
}

/** Deadlines that all last `durationMs`. They pass in the order of their start, never early. */
export class Deadlines {
  readonly #durationMs: number;
  #first: Deadline | undefined;
  #last: Deadline | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(durationMs: number) {
    this.#durationMs = durationMs;
  }

  /** Starts `deadline`, which must not be running. */
  start(deadline: Deadline): void {
    deadline.at = monotonicMs() + this.#durationMs;
    deadline.queue = this;
    deadline.previous = this.#last;
    if (this.#last === undefined) {
      this.#first = deadline;
    } else {
      this.#last.next = deadline;
    }
    this.#last = deadline;
    // A timer that is already set is for an earlier deadline. When it fires, `#passDue` sets the next timer.
    if (this.#timer === undefined) this.#timer = this.#setTimer(this.#durationMs);
  }

  /** @internal */
  remove(deadline: Deadline): void {
    const { previous, next } = deadline;
    if (previous === undefined) {
      this.#first = next;
    } else {
      previous.next = next;
    }
    if (next === undefined) {
      this.#last = previous;
    } else {
      next.previous = previous;
    }
    deadline.previous = undefined;
    deadline.next = undefined;
    deadline.queue = undefined;
  }

  readonly #passDue = (): void => {
    this.#timer = undefined;
    const now = monotonicMs();
    for (let first = this.#first; first !== undefined; first = this.#first) {
      if (first.at > now) {
        this.#timer = this.#setTimer(first.at - now);
        return;
      }
      this.remove(first);
      first.pass();
    }
  };

  // Rounded up, so that no deadline passes early. `setImmediate`: bytes that arrived during a long turn are read first.
  // `unref`: only the socket of a call in flight may keep the process alive.
  #setTimer(delayMs: number): NodeJS.Timeout {
    return setTimeout(setImmediate, Math.ceil(delayMs), this.#passDue).unref();
  }
}
