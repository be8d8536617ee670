// The rate limit's counter in a worker: sends questions to the primary process, which counts for all workers.

import { CounterGoneError, type Counter, type Question } from '../../core/guards/options/ports.ts';

export class PrimaryCounter implements Counter {
  readonly #send: (id: number, question: Question) => void;
  readonly #asked = new Map<number, PromiseWithResolvers<readonly number[]>>();
  #nextId = 0;
  // True until the first `revive`, which assumes that the primary process answers, because it has just started this worker.
  // Each later `revive` sends a test question.
  #isKnown = true;
  #hasGone = false;

  /** `send` sends a question to the primary process. Questions to a process that has ended are lost. */
  constructor(send: (id: number, question: Question) => void) {
    this.#send = send;
  }

  /** Receives an answer of the primary process. */
  onAnswer(id: number, answer: readonly number[]): void {
    this.#asked.get(id)?.resolve(answer);
    this.#asked.delete(id);
  }

  /** The primary process has ended: rejects all open questions. */
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
    // Nothing waits for the open questions any more.
    this.#asked.clear();
    if (this.#isKnown) {
      this.#isKnown = false;
    } else {
      await this.ask({ rate: { limit: 1, windowMs: 1 }, keys: [] });
    }
  }

  close(): void {
    this.#asked.clear();
  }
}
