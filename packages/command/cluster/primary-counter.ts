// The rate limit's counter in a worker: sends requests to the primary process, which counts for all workers. During a reload
// a worker has two sets of guards; both share this counter.

import type { Counter, Taken } from '../../core/guards/ports/ports.ts';
import type { Rate } from '../../core/options/rate.ts';
import type { CountRequest } from './messages.ts';

// Under load, the requests of this time share a question: at most 1,000 questions a second come from a worker.
const gatherMs = 1;

interface WaitingRequest extends CountRequest, Omit<PromiseWithResolvers<Taken>, 'promise'> {}

export class PrimaryCounter implements Counter {
  readonly #send: (requests: readonly CountRequest[]) => void;
  // The requests of the question that the primary process has to answer. There is one question at a time.
  #asked: readonly WaitingRequest[] = [];
  // The requests of the next question.
  #gathered: WaitingRequest[] = [];
  #askedAt = -Infinity;
  // The test request. Resolved at first, so that the first `revive` sends no request: the primary process has just started
  // this worker, so it can answer.
  #test: Promise<unknown> | undefined = Promise.resolve();
  #hasGone = false;

  /** `send` sends a question to the primary process. If that process has ended, the question is lost. */
  constructor(send: (requests: readonly CountRequest[]) => void) {
    this.#send = send;
  }

  /** Receives the answer of the primary process: one result for each request. */
  onAnswer(taken: readonly Taken[]): void {
    const asked = this.#asked;
    this.#asked = [];
    for (const [index, each] of taken.entries()) asked[index]?.resolve(each);
    if (this.#gathered.length > 0) this.#askSoon();
  }

  /** Rejects all requests. Called when the primary process has ended. */
  onGone(): void {
    this.#hasGone = true;
    for (const { reject } of [...this.#asked, ...this.#gathered]) reject(goneError());
    this.#asked = [];
    this.#gathered = [];
  }

  async take(key: string, rate: Rate): Promise<Taken> {
    if (this.#hasGone) throw goneError();
    const { promise, resolve, reject } = Promise.withResolvers<Taken>();
    this.#gathered.push({ key, rate, resolve, reject });
    if (this.#gathered.length === 1 && this.#asked.length === 0) this.#askSoon();
    return await promise;
  }

  /** Resolves when the primary process has counted a test request. At most one test request is open. */
  async revive(): Promise<void> {
    this.#test ??= this.take('test', { limit: 1, windowMs: 1 });
    try {
      await this.#test;
    } finally {
      this.#test = undefined;
    }
  }

  close(): void {
    // Other guards of this worker may still use the counter.
  }

  #askSoon(): void {
    if (performance.now() - this.#askedAt >= gatherMs) {
      // Deferred, so that the question includes all requests of this event-loop turn.
      setImmediate(() => this.#ask());
    } else {
      setTimeout(() => this.#ask(), gatherMs);
    }
  }

  #ask(): void {
    // The primary process may have ended meanwhile.
    if (this.#gathered.length === 0) return;
    this.#askedAt = performance.now();
    this.#asked = this.#gathered;
    this.#gathered = [];
    this.#send(this.#asked.map(({ key, rate }) => ({ key, rate })));
  }
}

function goneError(): Error {
  return new Error('the primary process has ended');
}
