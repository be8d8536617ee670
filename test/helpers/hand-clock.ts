// A clock whose hands a test turns.

import type { Clock } from '../../packages/core/time/clock.ts';

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
    return () => {
      this.#alarms.delete(alarm);
    };
  }

  /** When the alarms are set to, in milliseconds from now. */
  get waits(): number[] {
    return [...this.#alarms].map(({ at }) => at - this.#steady).sort((a, b) => a - b);
  }

  /** Lets `ms` pass, stopping at each alarm; what an alarm begins has its turns before the next one. */
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

  /** Sets the wall clock, and only that. */
  set(now: number): void {
    this.#now = now;
  }

  #move(steady: number): void {
    this.#now += steady - this.#steady;
    this.#steady = steady;
  }
}

/** As many turns as what has been begun in memory, or in the platform's threads, can need. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
