// Asks the primary process, which counts for all workers, from within a worker.

import { CounterGoneError, type Counter, type Question } from '../../core/guards/options/ports.ts';

export class PrimaryCounter implements Counter {
  readonly #send: (id: number, question: Question) => void;
  readonly #asked = new Map<number, PromiseWithResolvers<readonly number[]>>();
  #nextId = 0;
  // Until it has failed to answer it is there: it has started us, and listens since before that.
  #isKnown = true;
  #hasGone = false;

  /** `send` gets a question to the primary process, if it can. */
  constructor(send: (id: number, question: Question) => void) {
    this.#send = send;
  }

  /** Takes what the primary process has said. */
  onAnswer(id: number, answer: readonly number[]): void {
    this.#asked.get(id)?.resolve(answer);
    this.#asked.delete(id);
  }

  /** The primary process has gone: nobody waits for it any more. */
  onGone(): void {
    this.#hasGone = true;
    for (const { reject } of this.#asked.values()) {
      reject(new CounterGoneError());
    }
    this.#asked.clear();
  }

  async ask(question: Question): Promise<readonly number[]> {
    if (this.#hasGone) {
      throw new CounterGoneError();
    }
    const id = this.#nextId;
    this.#nextId += 1;
    const answer = Promise.withResolvers<readonly number[]>();
    this.#asked.set(id, answer);
    this.#send(id, question);
    return await answer.promise;
  }

  async revive(): Promise<void> {
    // What has not been answered will not be.
    this.#asked.clear();
    if (this.#isKnown) {
      this.#isKnown = false;
    } else {
      await this.ask({ rate: { limit: 1, windowMs: 1 }, keys: [], wanted: [] });
    }
  }

  close(): void {
    this.#asked.clear();
  }
}
