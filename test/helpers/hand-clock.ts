// A clock that the test sets.

import type { Clock } from '../../packages/core/guards/time/clock.ts';

export class HandClock implements Clock {
  #now: number;
  #steady = 0;
  readonly #alarms = new Set<{ readonly at: number; readonly ring: () => void }>();

  constructor(now = Date.now()) {
    this.#now = now;
  }

  now(): number {
    return this.#now;
  }

  steady(): number {
    return this.#steady;
  }

  after(ms: number, action: () => void): () => void {
    const alarm = { at: this.#steady + ms, ring: action };
    this.#alarms.add(alarm);
    return () => this.#alarms.delete(alarm);
  }

  /** The milliseconds until each alarm, in ascending order. */
  get waits(): number[] {
    return [...this.#alarms].map(({ at }) => at - this.#steady).sort((a, b) => a - b);
  }

  /** Advances by `ms`, and waits several turns of the event loop after each alarm. */
  async pass(ms: number): Promise<void> {
    const end = this.#steady + ms;
    for (;;) {
      const next = [...this.#alarms].sort((a, b) => a.at - b.at)[0];
      if (next === undefined || next.at > end) break;
      this.#move(next.at);
      this.#alarms.delete(next);
      next.ring();
      await settle();
    }
    this.#move(end);
  }

  /** Sets the wall clock only. */
  set(now: number): void {
    this.#now = now;
  }

  #move(steady: number): void {
    this.#now += steady - this.#steady;
    this.#steady = steady;
  }
}

/** Waits several turns of the event loop, so that work in memory and in the platform's threads can finish. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
