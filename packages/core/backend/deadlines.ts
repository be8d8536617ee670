// Keeps deadlines of equal length in the order of their start, so that one timer serves them all. A timer for each call
// would cost a tenth of the call's processor time.

import { catchUpMs, catchUpMsMax, monotonicMs } from '../time/monotonic.ts';

export interface DeadlineOwner {
  onDeadlinePassed(deadline: Deadline): void;
}

/** A deadline of `owner`. `Deadlines.start` starts it. The fields are for `Deadlines`. */
export class Deadline {
  readonly owner: DeadlineOwner;
  at = 0;
  // By how much the deadline can still be extended.
  spareMs = catchUpMsMax;
  // The neighbours in a ring. A deadline that is not running is alone in its ring.
  previous: Deadline = this;
  next: Deadline = this;

  constructor(owner: DeadlineOwner) {
    this.owner = owner;
  }

  get isRunning(): boolean {
    return this.next !== this;
  }

  /** Stops the deadline without notifying its owner. Safe at any time. */
  clear(): void {
    this.previous.next = this.next;
    this.next.previous = this.previous;
    this.previous = this.next = this;
  }
}

/** Deadlines that all last `durationMs`. They pass in the order of their times, never early. */
export class Deadlines {
  readonly #durationMs: number;
  // The end of the ring. It is never started, so it never passes.
  readonly #end = new Deadline({ onDeadlinePassed: () => undefined });
  #timer: NodeJS.Timeout | undefined;
  #dueAt = 0;

  constructor(durationMs: number) {
    this.#durationMs = durationMs;
  }

  /** Starts `deadline`, which must not be running. */
  start(deadline: Deadline): void {
    const now = monotonicMs();
    // Before the deadline is added, because a delay before its start does not extend it.
    this.#catchUp(now);
    deadline.spareMs = catchUpMsMax;
    this.#insert(deadline, now + this.#durationMs, this.#end);
    // A timer that is set for an earlier time remains. When it fires, `#passDue` sets the next timer.
    if (this.#timer === undefined || this.#dueAt > deadline.at) this.#setTimer(this.#durationMs);
  }

  #insert(deadline: Deadline, at: number, { previous }: Deadline): void {
    while (previous.at > at) previous = previous.previous;
    deadline.at = at;
    deadline.previous = previous;
    deadline.next = previous.next;
    previous.next = previous.next.previous = deadline;
  }

  // Sorts the deadlines again, because one that has been extended before gets less time than others.
  #catchUp(now: number): void {
    const extraMs = catchUpMs(this.#dueAt, now);
    if (extraMs > 0) this.#dueAt = now;
    for (let each = this.#end.next, next; extraMs > 0 && each !== this.#end; each = next) {
      next = each.next;
      const addedMs = Math.min(extraMs, each.spareMs);
      each.spareMs -= addedMs;
      each.clear();
      this.#insert(each, Math.max(each.at, now) + addedMs, next);
    }
  }

  readonly #passDue = (): void => {
    this.#timer = undefined;
    const now = monotonicMs();
    this.#catchUp(now);
    try {
      for (let first = this.#end.next; first !== this.#end && first.at <= now; first = this.#end.next) {
        first.clear();
        first.owner.onDeadlinePassed(first);
      }
    } finally {
      // Also if an owner throws. An owner may have started a deadline, and so a timer for a later time.
      if (this.#end.next !== this.#end) this.#setTimer(Math.max(0, this.#end.next.at - now));
    }
  };

  // Rounded up, so that no deadline passes early. `setImmediate`: bytes that arrived during a long turn are read first.
  // `unref`: only the socket of a call in flight may keep the process alive.
  #setTimer(delayMs: number): void {
    clearTimeout(this.#timer);
    this.#dueAt = monotonicMs() + delayMs;
    this.#timer = setTimeout(setImmediate, Math.ceil(delayMs), this.#passDue).unref();
  }
}
