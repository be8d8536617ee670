// Asks the primary process, which counts for all workers, from within a worker.

import type { Counter, Question } from '../guards/shared-count.ts';

type Answered = (answer: readonly number[]) => void;

export class PrimaryCounter implements Counter {
  readonly #send: (id: number, question: Question) => void;
  readonly #asked = new Map<number, Answered>();
  #nextId = 0;

  /** `send` gets a question to the primary process, if it can. */
  constructor(send: (id: number, question: Question) => void) {
    this.#send = send;
  }

  /** Takes what the primary process has said. */
  onAnswer(id: number, answer: readonly number[]): void {
    this.#asked.get(id)?.(answer);
    this.#asked.delete(id);
  }

  async ask(question: Question): Promise<readonly number[]> {
    const id = this.#nextId;
    this.#nextId += 1;
    const { promise, resolve } = Promise.withResolvers<readonly number[]>();
    this.#asked.set(id, resolve);
    this.#send(id, question);
    return await promise;
  }

  async revive(): Promise<void> {
    // What has not been answered will not be.
    this.#asked.clear();
    await this.ask({ rate: { limit: 1, windowMs: 1 }, keys: [], wanted: [] });
  }

  close(): void {
    this.#asked.clear();
  }
}
