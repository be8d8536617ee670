// Deadlines that all have the same length, kept in the order in which they began, so that one timer serves
// them all. A timer of its own for each call costs a tenth of the call's processor time.

import { monotonicMs } from '../time/monotonic.ts';

export interface DeadlineOwner {
  onDeadlinePassed(deadline: Deadline): void;
}

/** One of an owner's deadlines; not running until a `Deadlines` starts it. */
export class Deadline {
  readonly #owner: DeadlineOwner;
  /** @internal */
  at = 0;
  /** @internal */
  previous: Deadline | undefined;
  /** @internal */
  next: Deadline | undefined;
  /** @internal The line it stands in; undefined when it is not running. */
  line: Deadlines | undefined;

  constructor(owner: DeadlineOwner) {
    this.#owner = owner;
  }

  get isRunning(): boolean {
    return this.line !== undefined;
  }

  /** Ends it without effect; safe at any time. */
  clear(): void {
    this.line?.remove(this);
  }

  /** @internal */
  pass(): void {
    this.#owner.onDeadlinePassed(this);
  }
}

/** Deadlines of `durationMs`; they pass in order, none before its time. */
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
    deadline.line = this;
    deadline.previous = this.#last;
    if (this.#last === undefined) {
      this.#first = deadline;
    } else {
      this.#last.next = deadline;
    }
    this.#last = deadline;
    // A timer that is set already is for an earlier one; when it fires it is set for what is first by then.
    if (this.#timer === undefined) {
      this.#timer = this.#setTimer(this.#durationMs);
    }
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
    deadline.line = undefined;
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

  // Never rounded down: a timer that fires early would be set again for nothing. A call under way has a
  // socket that keeps the process alive; a timer without one must not.
  #setTimer(delayMs: number): NodeJS.Timeout {
    return setTimeout(this.#passDue, Math.ceil(delayMs)).unref();
  }
}
