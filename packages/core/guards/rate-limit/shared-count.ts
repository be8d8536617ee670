// Counts where others count too: in Redis with other gateways, or in the primary process with other workers. Many requests
// become few questions; what is known to be over is refused without one; and where no answer comes in time, somebody else
// counts until there is one again [D47]. Knows no setting, and not who is asked.

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
  /** No request waits longer for `counter`. */
  readonly answerMsMax: number;
  /** `counter` does not answer any more, for the reason that is given, or does again: undefined. Not told twice. */
  readonly onChange: (cause: unknown) => void;
}

// A question goes out at once where none has gone out for so long; otherwise it waits for that, and takes along whatever
// comes meanwhile. At 10,000 requests a second that is ten in a question.
const gatherMs = 1;
// Larger ones would keep Redis from answering others.
const keysOfQuestionMax = 500;
// While it does not answer, the next try comes so long after one that failed, and a try ends after so long: it is tried at
// least every 750 ms, and so counts again within a second of its return, whatever the moment of that [D47].
const retryMs = 250;
const reviveMsMax = 500;
// A connection that is closed sooner was not worth having: its end is an outage and not put right silently.
const settledMs = 500;

type Told = (taken: ReturnType<Count['take']>) => void;

/**
 * `away` → `answering` → `away` ...; `closed` ends all. In `away` nobody waits: the fallback counts, and the counter is
 * tried until it answers. It begins so, since nothing is known yet. `answering` → `renewing` → `answering` or `away`: its
 * connection has been closed, as is done to one that is idle. For a new one requests wait as they would for an answer.
 */
type State = 'away' | 'answering' | 'renewing' | 'closed';

export class SharedCount implements Count {
  readonly #options: SharedCountOptions;
  // Those that are over, each until its window ends.
  readonly #blocked = new WindowTable(keysMax);
  #state: State = 'away';
  // `onChange` has been told that it does not answer.
  #isTold = false;
  // Those that wait for the next question, and for the answer to one.
  #gathered = new Map<string, Told[]>();
  readonly #asked = new Set<Asked>();
  // When the first of those that are gathered came.
  #gatheredAt = 0;
  #isGathering = false;
  #askedAt = -Infinity;
  #revivedAt = 0;
  // Calls off what waits to be done: the next try; or the end of the patience with a new connection.
  #callOff = (): void => undefined;

  constructor(options: SharedCountOptions) {
    this.#options = options;
  }

  get isAnswering(): boolean {
    return this.#state === 'answering' || this.#state === 'renewing';
  }

  /** Tries the counter for the first time; resolves when it has answered, or has not within half a second. */
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
      ? new Promise((resolve) => {
          this.#gather(key, resolve, now);
        })
      : this.#options.fallback.take(key);
  }

  /** Asks nobody any more: the fallback counts. */
  close(): void {
    this.#callOff();
    this.#state = 'closed';
    this.#releaseAll();
    this.#options.counter.close();
  }

  #gather(key: string, told: Told, now: number): void {
    if (this.#gathered.size === 0) {
      this.#gatheredAt = now;
    }
    const waiting = this.#gathered.get(key);
    if (waiting === undefined) {
      this.#gathered.set(key, [told]);
    } else {
      waiting.push(told);
    }
    this.#askSoon(now);
  }

  #askSoon(now: number): void {
    if (this.#isGathering || this.#state !== 'answering') {
      return;
    }
    this.#isGathering = true;
    if (now - this.#askedAt >= gatherMs) {
      // With all that this turn of the event loop brings.
      setImmediate(this.#askGathered);
    } else {
      this.#options.clock.after(gatherMs, this.#askGathered);
    }
  }

  readonly #askGathered = (): void => {
    this.#isGathering = false;
    if (this.#state !== 'answering') {
      // They have been let go, or wait for a new connection.
      return;
    }
    this.#askedAt = this.#options.clock.steady();
    const all = [...this.#gathered];
    this.#gathered = new Map();
    for (let from = 0; from < all.length; from += keysOfQuestionMax) {
      this.#ask(all.slice(from, from + keysOfQuestionMax), this.#gatheredAt);
    }
  };

  #ask(waiting: Waiting, since: number): void {
    const { rate, counter, clock, answerMsMax } = this.#options;
    const onFailure = (cause: unknown): void => {
      if (this.#asked.has(asked)) {
        this.#goAway(cause);
        void this.#revive();
      }
    };
    const callOff = clock.after(Math.max(0, since + answerMsMax - clock.steady()), () => {
      // An answer may lie in the socket already, and we have been busy: it is read in the turn that ends then.
      setImmediate(() => {
        onFailure(this.#silence());
      });
    });
    const asked: Asked = { waiting, since, callOff };
    this.#asked.add(asked);
    const keys = waiting.map(([key]) => key);
    const wanted = waiting.map(([, told]) => told.length);
    counter.ask({ rate, keys, wanted }).then((answer) => {
      if (!isAnswer(answer, wanted)) {
        onFailure(new Error('what it answers makes no sense'));
      } else if (this.#asked.delete(asked)) {
        callOff();
        this.#settle(waiting, answer);
      }
    }, onFailure);
  }

  #settle(waiting: Waiting, answer: readonly number[]): void {
    const { clock, rate } = this.#options;
    const now = clock.steady();
    for (const [index, [key, all]] of waiting.entries()) {
      const [granted = 0, ms = 0, left = 0] = answer.slice(index * 3, index * 3 + 3);
      const msLeft = Math.min(rate.windowMs, Math.max(1, ms));
      if (granted < all.length) {
        this.#blocked.open(key, now + msLeft, now);
      }
      for (const [place, told] of all.entries()) {
        told({ left: place < granted ? left + granted - 1 - place : -1, msLeft });
      }
    }
  }

  #goAway(cause: unknown): void {
    this.#callOff();
    this.#state = 'away';
    this.#isTold = true;
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
      this.#goAway(new Error('it closes connections as soon as it has taken them'));
      this.#retrySoon();
      return;
    }
    this.#state = 'renewing';
    this.#gatherAsked();
    this.#callOff = clock.after(answerMsMax, () => {
      this.#goAway(this.#silence());
    });
    void this.#revive();
  };

  // We cannot know whether these were counted, so they are asked for again, within the original deadline.
  #gatherAsked(): void {
    this.#gatheredAt = Math.min(this.#gatheredAt, ...[...this.#asked].map(({ since }) => since));
    for (const [key, told] of this.#letGo()) {
      this.#gathered.set(key, [...(this.#gathered.get(key) ?? []), ...told]);
    }
  }

  #silence(): Error {
    return new Error(`no answer within ${this.#options.answerMsMax} ms`);
  }

  #releaseAll(): void {
    for (const [key, all] of this.#letGo()) {
      for (const told of all) {
        told(this.#options.fallback.take(key));
      }
    }
  }

  // All that wait, in the order in which they came; nothing is expected for them any more.
  #letGo(): Waiting {
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
      if (this.#state === 'renewing' || !this.#isTold) {
        this.#goAway(failure.cause);
      }
      this.#retrySoon();
      return;
    }
    this.#callOff();
    this.#state = 'answering';
    this.#revivedAt = clock.steady();
    if (this.#isTold) {
      this.#isTold = false;
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

/** By key, all that wait. */
type Waiting = readonly (readonly [string, readonly Told[]])[];

interface Asked {
  readonly waiting: Waiting;
  /** When the first of them came. */
  readonly since: number;
  /** What would be done at its deadline. */
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

// Undefined where it was a success in time.
async function failureOf(deed: Promise<void>, ms: number, clock: Clock): Promise<Failure | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<Failure>();
  const callOff = clock.after(ms, () => {
    resolve({ cause: new Error(`no answer within ${ms} ms`) });
  });
  const done = deed.then(
    () => undefined,
    (cause: unknown) => ({ cause }),
  );
  const failure = await Promise.race([done, late]);
  callOff();
  return failure;
}
