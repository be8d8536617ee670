// Counts with a shared counter: Redis for several gateways, or the primary process for several workers [D47]. Asks about
// many requests in one question. If a client is known to be over the limit, refuses it without a question. Uses a fallback
// while the counter does not answer in time.

import type { Clock } from '../../time/clock.ts';
import type { Count, Counter } from '../options/ports.ts';
import type { Rate } from '../options/rate.ts';
import { keysMax } from './count.ts';
import { WindowTable } from './window-table.ts';

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
// Largest number of keys in a question. A larger question would block Redis for its other clients for too long.
const keysOfQuestionMax = 500;
// Pause after a failed try to reach the counter, and timeout of a try. So the counter is used again at most 750 ms
// after its return. docs/security.md promises 1 s.
const retryMs = 250;
const reviveMsMax = 500;
// If the counter closes a connection that is younger than this, an outage is reported. An older connection is renewed
// without a report.
const settledMs = 500;

type Settle = (taken: ReturnType<Count['take']>) => void;

/**
 * The state of the counter: `away` → `answering` → `renewing` → `answering` or `away`; `closed` is final.
 *
 * - `away`, the initial state: the fallback counts, and no request waits. The counter is tried until it answers.
 * - `answering`: the counter counts.
 * - `renewing`: the counter has closed the connection, often because it was idle. Requests wait for a new connection at
 *   most as long as for an answer.
 * - `closed`: the fallback counts.
 */
type State = 'away' | 'answering' | 'renewing' | 'closed';

export class SharedCount implements Count {
  readonly #options: SharedCountOptions;
  // Keys over the limit.
  readonly #blocked = new WindowTable(keysMax);
  #state: State = 'away';
  // True from the report of an outage until the report of its end.
  #isReported = false;
  // Requests for the next question, by key.
  #gathered = new Map<string, Settle[]>();
  // Questions without an answer yet.
  readonly #asked = new Set<OpenQuestion>();
  // Arrival of the first gathered request.
  #gatheredAt = 0;
  #isGathering = false;
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

  /** Makes the first try to reach the counter. Resolves when it has answered or failed, within half a second. */
  async start(): Promise<void> {
    await this.#revive();
  }

  take(key: string): ReturnType<Count['take']> {
    const now = this.#options.clock.steady();
    const blocked = this.#blocked.find(key, now);
    if (blocked !== undefined) {
      return { left: -1, msLeft: blocked.endsAt - now };
    }
    return this.isAnswering
      ? new Promise((resolve) => this.#gather(key, resolve, now))
      : this.#options.fallback.take(key);
  }

  /** Closes the counter. From then on the fallback counts. */
  close(): void {
    this.#callOff();
    this.#state = 'closed';
    this.#releaseAll();
    this.#options.counter.close();
  }

  #gather(key: string, settle: Settle, now: number): void {
    if (this.#gathered.size === 0) {
      this.#gatheredAt = now;
    }
    const waiting = this.#gathered.get(key);
    if (waiting === undefined) {
      this.#gathered.set(key, [settle]);
    } else {
      waiting.push(settle);
    }
    this.#askSoon(now);
  }

  #askSoon(now: number): void {
    if (this.#isGathering || this.#state !== 'answering') {
      return;
    }
    this.#isGathering = true;
    if (now - this.#askedAt >= gatherMs) {
      // Deferred, so that the question includes all requests of this event-loop turn.
      setImmediate(this.#askGathered);
    } else {
      this.#options.clock.after(gatherMs, this.#askGathered);
    }
  }

  readonly #askGathered = (): void => {
    this.#isGathering = false;
    if (this.#state !== 'answering') {
      // The gathered requests went to the fallback, or wait for a new connection.
      return;
    }
    this.#askedAt = this.#options.clock.steady();
    const all = [...this.#gathered];
    this.#gathered = new Map();
    for (let from = 0; from < all.length; from += keysOfQuestionMax) {
      this.#ask(all.slice(from, from + keysOfQuestionMax), this.#gatheredAt);
    }
  };

  #ask(waiting: WaitingRequests, since: number): void {
    const { rate, counter, clock, answerMsMax } = this.#options;
    const onFailure = (cause: unknown): void => {
      if (this.#asked.has(asked)) {
        this.#goAway(cause);
        void this.#revive();
      }
    };
    const callOff = clock.after(Math.max(0, since + answerMsMax - clock.steady()), () => {
      // Deferred, because an answer may already be in the socket if this process was busy. Then the answer is read first.
      setImmediate(() => onFailure(this.#silence()));
    });
    const asked: OpenQuestion = { waiting, since, callOff };
    this.#asked.add(asked);
    const keys = waiting.map(([key]) => key);
    const wanted = waiting.map(([, all]) => all.length);
    counter.ask({ rate, keys, wanted }).then((answer) => {
      if (!isAnswer(answer, wanted)) {
        onFailure(new Error('the answer is malformed'));
      } else if (this.#asked.delete(asked)) {
        callOff();
        this.#settle(waiting, answer);
      }
    }, onFailure);
  }

  #settle(waiting: WaitingRequests, answer: readonly number[]): void {
    const { clock, rate } = this.#options;
    const now = clock.steady();
    for (const [index, [key, all]] of waiting.entries()) {
      const [granted = 0, ms = 0, left = 0] = answer.slice(index * 3, index * 3 + 3);
      const msLeft = Math.min(rate.windowMs, Math.max(1, ms));
      if (granted < all.length) {
        this.#blocked.open(key, now + msLeft, now);
      }
      for (const [place, settle] of all.entries()) {
        settle({ left: place < granted ? left + granted - 1 - place : -1, msLeft });
      }
    }
  }

  #goAway(cause: unknown): void {
    this.#callOff();
    this.#state = 'away';
    this.#isReported = true;
    this.#options.onChange(cause);
    this.#releaseAll();
  }

  readonly #onGone = (): void => {
    if (this.#state !== 'answering') {
      return;
    }
    const { clock, answerMsMax } = this.#options;
    const now = clock.steady();
    if (now - this.#revivedAt < settledMs) {
      this.#goAway(new Error('the server closes connections right after accepting them'));
      this.#retrySoon();
      return;
    }
    this.#state = 'renewing';
    this.#gatherAsked();
    this.#callOff = clock.after(answerMsMax, () => this.#goAway(this.#silence()));
    void this.#revive();
  };

  // Moves the requests of unanswered questions to the next question, because the counter may not have counted them.
  // Their deadline stays the same.
  #gatherAsked(): void {
    this.#gatheredAt = Math.min(this.#gatheredAt, ...[...this.#asked].map(({ since }) => since));
    for (const [key, all] of this.#takeWaiting()) {
      this.#gathered.set(key, [...(this.#gathered.get(key) ?? []), ...all]);
    }
  }

  #silence(): Error {
    return new Error(`no answer within ${this.#options.answerMsMax} ms`);
  }

  #releaseAll(): void {
    for (const [key, all] of this.#takeWaiting()) {
      for (const settle of all) {
        settle(this.#options.fallback.take(key));
      }
    }
  }

  // Removes and returns all waiting requests in order of arrival, and cancels the deadlines of their questions.
  #takeWaiting(): WaitingRequests {
    const asked = [...this.#asked];
    const gathered = [...this.#gathered];
    this.#asked.clear();
    this.#gathered = new Map();
    for (const { callOff } of asked) {
      callOff();
    }
    return [...asked.flatMap(({ waiting }) => waiting), ...gathered];
  }

  async #revive(): Promise<void> {
    const { clock, counter, onChange } = this.#options;
    const failure = await failureOf(counter.revive(this.#onGone), reviveMsMax, clock);
    if (this.#state === 'closed') {
      return;
    }
    if (failure !== undefined) {
      if (this.#state === 'renewing' || !this.#isReported) {
        this.#goAway(failure.cause);
      }
      this.#retrySoon();
      return;
    }
    this.#callOff();
    this.#state = 'answering';
    this.#revivedAt = clock.steady();
    if (this.#isReported) {
      this.#isReported = false;
      onChange(undefined);
    }
    if (this.#gathered.size > 0) {
      this.#askSoon(this.#revivedAt);
    }
  }

  #retrySoon(): void {
    this.#callOff = this.#options.clock.after(retryMs, () => void this.#revive());
  }
}

/** Requests that wait for a count, by key. */
type WaitingRequests = readonly (readonly [string, readonly Settle[]])[];

interface OpenQuestion {
  readonly waiting: WaitingRequests;
  /** Arrival of the first of these requests. */
  readonly since: number;
  readonly callOff: () => void;
}

function isAnswer(answer: unknown, wanted: readonly number[]): boolean {
  return (
    Array.isArray(answer) &&
    answer.length === wanted.length * 3 &&
    answer.every((each) => Number.isSafeInteger(each) && each >= 0) &&
    wanted.every((each, index) => answer[index * 3] <= each)
  );
}

interface Failure {
  readonly cause: unknown;
}

// Resolves with the failure of `action`, or undefined if it succeeds within `ms`.
async function failureOf(action: Promise<void>, ms: number, clock: Clock): Promise<Failure | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<Failure>();
  const callOff = clock.after(ms, () => resolve({ cause: new Error(`no answer within ${ms} ms`) }));
  const done = action.then(
    () => undefined,
    (cause: unknown) => ({ cause }),
  );
  const failure = await Promise.race([done, late]);
  callOff();
  return failure;
}
