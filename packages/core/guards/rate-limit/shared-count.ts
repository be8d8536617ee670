// Counts with a shared counter: Redis for several gateways, or the primary process for several workers [D47]. Asks the
// counter about many requests in one question. Refuses a client that is known to be over the limit without a question.
// Uses a fallback while the counter does not answer in time.

import type { Clock } from '../../time/clock.ts';
import type { Counter } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';
import { WindowTable, type Count } from './count.ts';

interface SharedCountOptions {
  readonly rate: Rate;
  readonly clock: Clock;
  readonly counter: Counter;
  /** Counts while `counter` does not answer. */
  readonly fallback: Count;
  /** Longest wait of a request for `counter`. */
  readonly answerMsMax: number;
  /** Called once when `counter` stops answering, with the cause, and once when it answers again, with undefined. */
  readonly onChange: (cause: unknown) => void;
}

// Interval between questions. After a longer pause, a request causes a question at once. Requests within the interval share
// one question. At 10,000 requests a second, ten requests share a question.
const gatherMs = 1;
// Largest number of requests in a question. A larger question would block Redis for its other clients for too long.
const questionRequestsMax = 500;
// Pause after a failed try to reach the counter, and timeout of a try. So the counter is used again at most 750 ms
// after its return. docs/security.md promises 1 s.
const retryMs = 250;
const reviveMsMax = 500;
// If the counter closes a connection that is younger than this, an outage is reported. An older connection is renewed
// without a report.
const settledMs = 500;

/**
 * The state of the counter:
 *
 * - `starting`: the counter has not been reached yet, and the fallback counts. Next: `answering` or `away`.
 * - `answering`: the counter counts. Next: `renewing` or `away`.
 * - `renewing`: the counter has closed the connection, often because it was idle. Requests wait for a new connection at
 *   most as long as for an answer. Next: `answering` or `away`.
 * - `away`: the outage is reported, and the fallback counts. The counter is tried until it is `answering`.
 * - `closed`: the fallback counts. This state is final.
 */
type State = 'starting' | 'answering' | 'renewing' | 'away' | 'closed';

interface WaitingRequest {
  readonly key: string;
  /** Time of arrival, on the steady clock. */
  readonly since: number;
  readonly settle: (taken: ReturnType<Count['take']>) => void;
}

export class SharedCount implements Count {
  readonly #options: SharedCountOptions;
  // Keys over the limit.
  readonly #blocked = new WindowTable();
  #state: State = 'starting';
  // Requests for the next question, in order of arrival.
  #gathered: WaitingRequest[] = [];
  // The requests of each question without an answer yet.
  readonly #asked = new Set<readonly WaitingRequest[]>();
  #askedAt = -Infinity;
  #revivedAt = 0;
  // Cancels the timer for the next try, or for the wait for a new connection.
  #callOff = (): void => undefined;

  constructor(options: SharedCountOptions) {
    this.#options = options;
  }

  get isAnswering(): boolean {
    return this.#state === 'answering' || this.#state === 'renewing';
  }

  take(key: string): ReturnType<Count['take']> {
    const now = this.#options.clock.steady();
    const blocked = this.#blocked.find(key, now);
    if (blocked !== undefined) return { left: -1, msLeft: blocked.endsAt - now };
    if (!this.isAnswering) return this.#options.fallback.take(key);
    return new Promise((settle) => {
      if (this.#gathered.push({ key, since: now, settle }) === 1) this.#askSoon(now);
    });
  }

  /** Tries to reach the counter. Resolves when it has answered or failed, within half a second. Failed tries are repeated. */
  async start(): Promise<void> {
    const { clock, counter, onChange } = this.#options;
    try {
      await this.#within(reviveMsMax, counter.revive(this.#onGone));
    } catch (error) {
      if (this.#state === 'closed') return;
      if (this.#state !== 'away') this.#goAway(error);
      this.#retrySoon();
      return;
    }
    if (this.#state === 'closed') return;
    this.#callOff();
    if (this.#state === 'away') onChange(undefined);
    this.#state = 'answering';
    this.#revivedAt = clock.steady();
    if (this.#gathered.length > 0) this.#askSoon(this.#revivedAt);
  }

  /** Closes the counter. From then on the fallback counts. */
  close(): void {
    this.#callOff();
    this.#state = 'closed';
    this.#releaseAll();
    this.#options.counter.close();
  }

  #askSoon(now: number): void {
    if (now - this.#askedAt >= gatherMs) {
      // Deferred, so that the question includes all requests of this event-loop turn.
      setImmediate(this.#askGathered);
    } else {
      this.#options.clock.after(gatherMs, this.#askGathered);
    }
  }

  readonly #askGathered = (): void => {
    // Otherwise the requests went to the fallback, or wait for a new connection.
    if (this.#state !== 'answering' || this.#gathered.length === 0) return;
    this.#askedAt = this.#options.clock.steady();
    const all = this.#gathered;
    this.#gathered = [];
    for (let from = 0; from < all.length; from += questionRequestsMax) {
      void this.#ask(all.slice(from, from + questionRequestsMax));
    }
  };

  async #ask(requests: readonly WaitingRequest[]): Promise<void> {
    const { rate, counter, answerMsMax } = this.#options;
    const waitedMs = this.#askedAt - (requests[0]?.since ?? this.#askedAt);
    this.#asked.add(requests);
    try {
      const answer = counter.ask({ rate, keys: requests.map(({ key }) => key) });
      this.#settle(requests, await this.#within(answerMsMax, answer, waitedMs));
    } catch (cause) {
      // Otherwise the requests have gone to the fallback meanwhile, or are asked about again.
      if (!this.#asked.has(requests)) return;
      this.#goAway(cause);
      void this.start();
    }
  }

  #settle(requests: readonly WaitingRequest[], answer: readonly number[]): void {
    if (!isAnswer(answer, requests.length)) throw new Error('the answer is malformed');
    if (!this.#asked.delete(requests)) return;
    const { clock, rate } = this.#options;
    const now = clock.steady();
    for (const [index, { key, settle }] of requests.entries()) {
      const left = answer[index * 2] ?? 0;
      const msLeft = Math.min(rate.windowMs, Math.max(1, answer[index * 2 + 1] ?? 0));
      if (left < 0 && this.#blocked.find(key, now) === undefined) this.#blocked.open(key, now + msLeft, now);
      settle({ left, msLeft });
    }
  }

  // Settles like `promise`, or rejects when `limitMs` have passed, of which `waitedMs` have passed already.
  #within<T>(limitMs: number, promise: Promise<T>, waitedMs = 0): Promise<T> {
    return new Promise((resolve, reject) => {
      const callOff = this.#options.clock.after(Math.max(0, limitMs - waitedMs), () => {
        // Deferred, because an answer may already be in the socket if this process was busy. Then the answer is read first.
        setImmediate(reject, noAnswerWithin(limitMs));
      });
      void promise.then(resolve, reject).finally(callOff);
    });
  }

  #goAway(cause: unknown): void {
    this.#callOff();
    this.#state = 'away';
    this.#options.onChange(cause);
    this.#releaseAll();
  }

  readonly #onGone = (): void => {
    if (this.#state !== 'answering') return;
    const { clock, answerMsMax } = this.#options;
    if (clock.steady() - this.#revivedAt < settledMs) {
      this.#goAway(new Error('the server closes connections right after accepting them'));
      this.#retrySoon();
      return;
    }
    this.#state = 'renewing';
    // The counter may not have counted these requests, so they are asked about again, within the same deadline.
    this.#gathered = this.#takeWaiting();
    this.#callOff = clock.after(answerMsMax, () => this.#goAway(noAnswerWithin(answerMsMax)));
    void this.start();
  };

  #retrySoon(): void {
    this.#callOff = this.#options.clock.after(retryMs, () => void this.start());
  }

  #releaseAll(): void {
    for (const { key, settle } of this.#takeWaiting()) {
      settle(this.#options.fallback.take(key));
    }
  }

  // Removes and returns all waiting requests in order of arrival.
  #takeWaiting(): WaitingRequest[] {
    const waiting = [...this.#asked, this.#gathered].flat();
    this.#asked.clear();
    this.#gathered = [];
    return waiting;
  }
}

function noAnswerWithin(ms: number): Error {
  return new Error(`no answer within ${ms} ms`);
}

/** True if `answer` has the two numbers of `Counter.ask` for each of `count` requests. */
export function isAnswer(answer: unknown, count: number): boolean {
  return (
    Array.isArray(answer) &&
    answer.length === count * 2 &&
    answer.every((each, index) => Number.isSafeInteger(each) && each >= (index % 2 === 0 ? -1 : 0))
  );
}
