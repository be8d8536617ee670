// A counter that several processes share, and whether it answers [D47].

import type { Counter, Taken } from '../ports/ports.ts';
import type { Rate } from '../../options/rate.ts';
import type { Clock } from '../time/clock.ts';
import { within } from '../time/deadline.ts';

interface SharedCounterOptions {
  readonly rate: Rate;
  readonly clock: Clock;
  readonly counter: Counter;
  readonly answerMsMax: number;
  /** Called once with the cause when `counter` stops answering, and once with undefined when it answers again. */
  readonly onChange: (cause: unknown) => void;
}

const retryMs = 250;
// Timeout of a try. After the counter's return, a try and a pause may pass before it is used again: at most 750 ms.
// docs/security.md promises 1 s.
const reviveMsMax = 500;
// If the counter closes a connection that is younger than this, an outage is reported. An older connection is renewed
// without a report.
const settledMs = 500;

export class SharedCounter {
  readonly #options: SharedCounterOptions;
  // `starting`: the counter has not been reached yet. `away`: an outage is reported, and the counter is tried until it
  // answers. `closed` is final.
  #state: 'starting' | 'answering' | 'away' | 'closed' = 'starting';
  #revivedAt = 0;
  #reviving: Promise<void> | undefined;
  #callOff = (): void => undefined;

  constructor(options: SharedCounterOptions) {
    this.#options = options;
  }

  get isAnswering(): boolean {
    return this.#state === 'answering';
  }

  /** Makes the first try to reach the counter. Resolves when the try has succeeded or failed, within half a second. */
  async start(): Promise<void> {
    await this.#revive();
  }

  /** Rejects if the counter does not answer in time. */
  async take(key: string): Promise<Taken> {
    const { counter, rate, clock, answerMsMax } = this.#options;
    const revivedAt = this.#revivedAt;
    try {
      return await within(clock, answerMsMax, counter.take(key, rate));
    } catch (error) {
      // Another request may have noticed the outage, and it may be over.
      if (this.#state === 'answering' && this.#revivedAt === revivedAt) {
        this.#goAway(error);
        void this.#revive();
      }
      throw error;
    }
  }

  close(): void {
    this.#callOff();
    this.#state = 'closed';
    this.#options.counter.close();
  }

  #goAway(cause: unknown): void {
    this.#state = 'away';
    this.#options.onChange(cause);
  }

  readonly #onGone = (): void => {
    if (this.#state !== 'answering') return;
    if (this.#options.clock.steady() - this.#revivedAt < settledMs) {
      this.#goAway(new Error('the server closes connections right after accepting them'));
      this.#retrySoon();
    } else {
      // Requests wait for the new connection, at most as long as for an answer.
      void this.#revive();
    }
  };

  #revive(): Promise<void> {
    this.#reviving ??= this.#try().finally(() => {
      this.#reviving = undefined;
    });
    return this.#reviving;
  }

  async #try(): Promise<void> {
    const { clock, counter, onChange } = this.#options;
    try {
      await within(clock, reviveMsMax, counter.revive(this.#onGone));
    } catch (error) {
      if (this.#state === 'closed') return;
      if (this.#state !== 'away') this.#goAway(error);
      this.#retrySoon();
      return;
    }
    if (this.#state === 'closed') return;
    const wasAway = this.#state === 'away';
    this.#state = 'answering';
    this.#revivedAt = clock.steady();
    if (wasAway) onChange(undefined);
  }

  #retrySoon(): void {
    this.#callOff = this.#options.clock.after(retryMs, () => void this.#revive());
  }
}
