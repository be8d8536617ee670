// Counts requests with a shared counter: Redis for several gateways, or the primary process for several workers [D47].
// Asks the counter about many requests in one question. If a client is known to be over the limit, refuses it without
// a question. Uses a fallback while the counter does not answer in time.

import type { Clock } from '../time/clock.ts';
import type { Counter } from '../ports/ports.ts';
import type { Rate } from '../../options/rate.ts';
import { afterStep, noAnswerWithin, stepsMax, within } from '../time/deadline.ts';
import { WindowTable, type Count } from './count.ts';

interface SharedCountOptions {
  readonly rate: Rate;
  readonly clock: Clock;
  readonly counter: Counter;
  /** Counts requests while `counter` does not answer. */
  readonly fallback: Count;
  /** Longest wait of a request for `counter`. */
  readonly answerMsMax: number;
  /** Called once with the cause when `counter` stops answering, and once with undefined when it answers again. */
  readonly onChange: (cause: unknown) => void;
}

// Interval between questions. After a longer pause, a request causes a question immediately. Requests within an
// interval share one question. At 10,000 requests a second, ten requests share a question.
const gatherMs = 1;
// Largest number of requests in a question. A larger question would block Redis for its other clients for too long.
const questionRequestsMax = 500;
// Pause after a failed try to reach the counter.
const retryMs = 250;
// Timeout of a try. After the counter's return, a try and a pause may pass before it is used again: at most 750 ms.
// docs/security.md promises 1 s.
const reviveMsMax = 500;
// If the counter closes a connection that is younger than this, an outage is reported. An older connection is renewed
// without a report.
const settledMs = 500;

/**
 * The state of the counter: `starting` → `answering` or `away`; `answering` → `renewing` or `away`; `renewing` →
 * `answering` or `away`; `away` → `answering`. `closed` is final.
 *
 * - `starting`: the counter has not been reached yet. The fallback counts.
 * - `answering`: the counter counts.
 * - `renewing`: the counter has closed the connection, often because it was idle. Requests wait for a new connection at
 *   most as long as for an answer.
 * - `away`: the outage is reported, and the fallback counts. The counter is tried until it answers.
 * - `closed`: the fallback counts.
 */
type State = 'starting' | 'answering' | 'renewing' | 'away' | 'closed';

interface WaitingRequest {
  readonly key: string;
  /** Number of steps that had ended when the first whole step of the wait began. */
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
  // The requests of each unanswered question.
  readonly #asked = new Set<readonly WaitingRequest[]>();
  // Steps of `answerMsMax` that have ended while requests waited.
  #steps = 0;
  // Cancels the current step; undefined if there is none.
  #callOffStep: (() => void) | undefined;
  #isGathering = false;
  #askedAt = -Infinity;
  #revivedAt = 0;
  // Cancels the timer for the next try.
  #callOff = (): void => undefined;

  constructor(options: SharedCountOptions) {
    this.#options = options;
  }

  get isAnswering(): boolean {
    return this.#state === 'answering' || this.#state === 'renewing';
  }

  /** Makes the first try to reach the counter. Resolves when the try has succeeded or failed, within half a second. */
  async start(): Promise<void> {
    await this.#revive();
  }

  take(key: string): ReturnType<Count['take']> {
    const now = this.#options.clock.steady();
    const blocked = this.#blocked.find(key, now);
    if (blocked !== undefined) return { left: -1, msLeft: blocked.endsAt - now };
    if (!this.isAnswering) return this.#options.fallback.take(key);
    return new Promise((settle) => {
      const since = this.#callOffStep === undefined ? this.#steps : this.#steps + 1;
      this.#gathered.push({ key, since, settle });
      this.#watch();
      this.#askSoon(now);
    });
  }

  /** Closes the counter. From then on the fallback counts. */
  close(): void {
    this.#callOff();
    this.#callOffStep?.();
    this.#state = 'closed';
    this.#releaseAll();
    this.#options.counter.close();
  }

  // One step at a time serves all waiting requests.
  #watch(): void {
    const { clock, answerMsMax } = this.#options;
    this.#callOffStep ??= afterStep(clock, answerMsMax, () => {
      this.#callOffStep = undefined;
      this.#steps += 1;
      const [oldest] = this.#asked.values().next().value ?? this.#gathered;
      if (oldest === undefined) return;
      if (this.#steps - oldest.since < stepsMax) {
        this.#watch();
        return;
      }
      const isAnswering = this.#state === 'answering';
      this.#goAway(new Error(noAnswerWithin(answerMsMax)));
      // While a new connection is opened, that try goes on.
      if (isAnswering) void this.#revive();
    });
  }

  #askSoon(now: number): void {
    if (this.#isGathering || this.#state !== 'answering') return;
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
    this.#askedAt = this.#options.clock.steady();
    // In other states, the gathered requests went to the fallback, or wait for a new connection. A question may find that
    // the connection has closed.
    while (this.#gathered.length > 0 && this.#state === 'answering') {
      this.#ask(this.#gathered.splice(0, questionRequestsMax));
    }
  };

  #ask(requests: readonly WaitingRequest[]): void {
    const { rate, counter } = this.#options;
    const onFailure = (cause: unknown): void => {
      if (this.#asked.has(requests)) {
        this.#goAway(cause);
        void this.#revive();
      }
    };
    this.#asked.add(requests);
    counter.ask({ rate, keys: requests.map(({ key }) => key) }).then((answer) => {
      if (!isAnswer(answer, requests.length)) {
        onFailure(new Error('the answer is malformed'));
      } else if (this.#asked.delete(requests)) {
        this.#settle(requests, answer);
      }
    }, onFailure);
  }

  #settle(requests: readonly WaitingRequest[], answer: readonly number[]): void {
    const { clock, rate } = this.#options;
    const now = clock.steady();
    for (const [index, { key, settle }] of requests.entries()) {
      const left = answer[index * 2] ?? 0;
      const msLeft = Math.min(rate.windowMs, Math.max(1, answer[index * 2 + 1] ?? 0));
      if (left < 0 && this.#blocked.find(key, now) === undefined) this.#blocked.open(key, now + msLeft, now);
      settle({ left, msLeft });
    }
  }

  #goAway(cause: unknown): void {
    this.#callOff();
    this.#state = 'away';
    this.#options.onChange(cause);
    this.#releaseAll();
  }

  readonly #onGone = (): void => {
    if (this.#state !== 'answering') return;
    if (this.#options.clock.steady() - this.#revivedAt < settledMs) {
      this.#goAway(new Error('the server closes connections right after accepting them'));
      this.#retrySoon();
      return;
    }
    this.#state = 'renewing';
    // Perhaps the counter has not counted the unanswered requests. So the next question repeats them. Their time limits
    // do not change.
    this.#gathered = this.#takeWaiting();
    void this.#revive();
  };

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

  async #revive(): Promise<void> {
    const { clock, counter, onChange } = this.#options;
    try {
      await within(clock, reviveMsMax, counter.revive(this.#onGone), noAnswerWithin(reviveMsMax));
    } catch (error) {
      if (this.#state !== 'closed') {
        if (this.#state !== 'away') this.#goAway(error);
        this.#retrySoon();
      }
      return;
    }
    if (this.#state === 'closed') return;
    this.#callOff();
    const wasAway = this.#state === 'away';
    this.#state = 'answering';
    this.#revivedAt = clock.steady();
    if (wasAway) onChange(undefined);
    if (this.#gathered.length > 0) this.#askSoon(this.#revivedAt);
  }

  #retrySoon(): void {
    this.#callOff = this.#options.clock.after(retryMs, () => void this.#revive());
  }
}

/** True if `answer` has the two numbers of `Counter.ask` for each of `count` requests. */
export function isAnswer(answer: unknown, count: number): boolean {
  return (
    Array.isArray(answer) &&
    answer.length === count * 2 &&
    answer.every((each, index) => Number.isSafeInteger(each) && each >= (index % 2 === 0 ? -1 : 0))
  );
}
