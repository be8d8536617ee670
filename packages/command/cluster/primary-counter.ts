// The rate limit's counter in a worker: sends questions to the primary process, which counts for all workers. During a
// reload a worker has two sets of guards; both share this counter.

import { CounterGoneError, type Counter, type Question } from '../../core/guards/ports/ports.ts';

export class PrimaryCounter implements Counter {
  readonly #send: (id: number, question: Question) => void;
  readonly #asked = new Map<number, PromiseWithResolvers<readonly number[]>>();
  #nextId = 0;
  // The answer to the test question. Resolved at first, so that the first `revive` sends no question: the primary
  // process has just started this worker, so it can answer.
  #test: Promise<unknown> | undefined = Promise.resolve();
  #hasGone = false;

  /** `send` sends a question to the primary process. If that process has ended, the question is lost. */
  constructor(send: (id: number, question: Question) => void) {
    this.#send = send;
  }

  /** Receives an answer of the primary process. */
  onAnswer(id: number, answer: readonly number[]): void {
    this.#asked.get(id)?.resolve(answer);
    this.#asked.delete(id);
  }

  /** Rejects all open questions. Called when the primary process has ended. */
  onGone(): void {
    this.#hasGone = true;
    for (const { reject } of this.#asked.values()) {
      reject(new CounterGoneError());
    }
    this.#asked.clear();
  }

  async ask(question: Question): Promise<readonly number[]> {
    if (this.#hasGone) throw new CounterGoneError();
    const id = this.#nextId;
    this.#nextId += 1;
    const answer = Promise.withResolvers<readonly number[]>();
    this.#asked.set(id, answer);
    this.#send(id, question);
    return await answer.promise;
  }

  /** Resolves when the primary process has answered a test question. At most one test question is open. */
  async revive(): Promise<void> {
    this.#test ??= this.ask({ rate: { limit: 1, windowMs: 1 }, keys: [] });
    try {
      await this.#test;
    } finally {
      this.#test = undefined;
    }
  }

  close(): void {
    // Other guards of this worker may still use the counter.
  }
}
