// Counts where others count too: in Redis with other gateways, or in the primary process with other workers. Many requests
// become few questions; what is known to be over is refused without one; and where no answer comes in time, somebody else
// counts until there is one again [D47]. Knows no setting, and not who is asked.

import type { Count, SteadyClock } from './count.ts';
import type { Rate } from './rate.ts';
import { WindowTable } from './window-table.ts';

/** What is asked at once: for each key of `keys` how many requests want to be counted. */
export interface Question {
  readonly rate: Rate;
  readonly keys: readonly string[];
  readonly wanted: readonly number[];
}

/** Whoever counts for several: takes as many of each key as its window has left, all or some. */
export interface Counter {
  /**
   * For each key in turn how many are granted and in how many milliseconds its window ends: grants, ms, grants, ms, ...
   * Rejects where it cannot tell. May take for ever.
   */
  ask(question: Question): Promise<readonly number[]>;
  /** Makes it ready to be asked, by a new connection where it has one; rejects where it does not answer. */
  revive(): Promise<void>;
  /** Lets go of what it holds; what is asked then is rejected. */
  close(): void;
}

export interface SharedCountOptions {
  readonly rate: Rate;
  readonly clock: SteadyClock;
  readonly counter: Counter;
  /** Counts while `counter` does not answer. */
  readonly fallback: Count;
  /** Keys that are remembered to be over. */
  readonly keysMax: number;
  /** `counter` does not answer any more, for the reason that is given, or does again: undefined. Not told twice. */
  readonly onChange: (cause: unknown) => void;
}

// A question goes out at once where none has gone out for so long; otherwise it waits for that, and takes along whatever
// comes meanwhile. At 10,000 requests a second that is ten in a question.
const gatherMs = 1;
// Larger ones would keep Redis from answering others.
const keysOfQuestionMax = 500;
/** No request waits longer for `counter` [D47]. */
export const answerMsMax = 100;
// While it does not answer it is tried so often; with `answerMsMax` and what a connection may take, within a second.
const retryMs = 250;
const reviveMsMax = 500;

type Told = (msLeft: number) => void;

/**
 * `away` → `answering` → `away` ...; `closed` ends both. In `away` nobody waits: the fallback counts, and the counter is
 * tried until it answers. It begins so, since nothing is known yet.
 */
type State = 'away' | 'answering' | 'closed';

export class SharedCount implements Count {
  readonly #options: SharedCountOptions;
  // Those that are over, each until its window ends.
  readonly #blocked: WindowTable;
  #state: State = 'away';
  // `onChange` has been told that it does not answer.
  #isTold = false;
  // Those that wait for the next question, and for the answer to one.
  #gathered = new Map<string, Told[]>();
  readonly #asked = new Set<Asked>();
  #isGathering = false;
  #askedAt = -Infinity;
  #retry: NodeJS.Timeout | undefined;

  constructor(options: SharedCountOptions) {
    this.#options = options;
    this.#blocked = new WindowTable(options.keysMax);
  }

  get isAnswering(): boolean {
    return this.#state === 'answering';
  }

  /** Tries the counter for the first time; resolves when it has answered, or has not within half a second. */
  async start(): Promise<void> {
    await this.#revive();
  }

  take(key: string): number | Promise<number> {
    const now = this.#options.clock();
    const blocked = this.#blocked.find(key, now);
    if (blocked !== undefined) {
      return blocked.endsAt - now;
    }
    return this.#state === 'answering'
      ? new Promise((resolve) => {
          this.#gather(key, resolve);
        })
      : this.#options.fallback.take(key);
  }

  /** Asks nobody any more: the fallback counts. */
  close(): void {
    clearTimeout(this.#retry);
    this.#state = 'closed';
    this.#releaseAll();
    this.#options.counter.close();
  }

  #gather(key: string, told: Told): void {
    const waiting = this.#gathered.get(key);
    if (waiting === undefined) {
      this.#gathered.set(key, [told]);
    } else {
      waiting.push(told);
    }
    if (this.#isGathering) {
      return;
    }
    this.#isGathering = true;
    if (this.#options.clock() - this.#askedAt >= gatherMs) {
      // With all that this turn of the event loop brings.
      setImmediate(this.#askGathered);
    } else {
      setTimeout(this.#askGathered, gatherMs);
    }
  }

  readonly #askGathered = (): void => {
    this.#isGathering = false;
    this.#askedAt = this.#options.clock();
    const all = [...this.#gathered];
    this.#gathered = new Map();
    for (let from = 0; from < all.length; from += keysOfQuestionMax) {
      this.#ask(all.slice(from, from + keysOfQuestionMax));
    }
  };

  #ask(waiting: readonly (readonly [string, readonly Told[]])[]): void {
    if (this.#state !== 'answering') {
      this.#release(waiting);
      return;
    }
    const { rate, counter } = this.#options;
    const asked: Asked = {
      waiting,
      deadline: setTimeout(() => {
        this.#onDeadline(asked);
      }, answerMsMax),
    };
    this.#asked.add(asked);
    const keys = waiting.map(([key]) => key);
    const wanted = waiting.map(([, told]) => told.length);
    counter.ask({ rate, keys, wanted }).then(
      (answer) => {
        if (this.#isOver(asked)) {
          return;
        }
        if (isAnswer(answer, wanted)) {
          this.#settle(asked, answer);
        } else {
          this.#onAway(asked, new Error('what it answers makes no sense'));
        }
      },
      (error: unknown) => {
        if (!this.#isOver(asked)) {
          this.#onAway(asked, error);
        }
      },
    );
  }

  #isOver(asked: Asked): boolean {
    return !this.#asked.has(asked);
  }

  // An answer may lie in the socket already, and we have been busy: it is read in the turn that ends then.
  #onDeadline(asked: Asked): void {
    setImmediate(() => {
      if (!this.#isOver(asked)) {
        this.#onAway(asked, new Error(`no answer within ${answerMsMax} ms`));
      }
    });
  }

  #settle(asked: Asked, answer: readonly number[]): void {
    this.#end(asked);
    const { clock, rate } = this.#options;
    const now = clock();
    for (const [index, [key, waiting]] of asked.waiting.entries()) {
      const granted = answer[index * 2] ?? 0;
      const msLeft = Math.min(rate.windowMs, Math.max(1, answer[index * 2 + 1] ?? 0));
      if (granted < waiting.length) {
        this.#blocked.open(key, now + msLeft, now);
      }
      for (const [place, told] of waiting.entries()) {
        told(place < granted ? 0 : msLeft);
      }
    }
  }

  #end(asked: Asked): void {
    clearTimeout(asked.deadline);
    this.#asked.delete(asked);
  }

  #onAway(asked: Asked, cause: unknown): void {
    if (this.#state === 'answering') {
      this.#state = 'away';
      this.#tell(cause);
      this.#releaseAll();
      void this.#revive();
    } else {
      this.#end(asked);
      this.#release(asked.waiting);
    }
  }

  #tell(cause: unknown): void {
    this.#isTold = true;
    this.#options.onChange(cause);
  }

  #releaseAll(): void {
    const asked = [...this.#asked];
    for (const each of asked) {
      this.#end(each);
    }
    const gathered = [...this.#gathered];
    this.#gathered = new Map();
    for (const { waiting } of asked) {
      this.#release(waiting);
    }
    this.#release(gathered);
  }

  #release(waiting: readonly (readonly [string, readonly Told[]])[]): void {
    for (const [key, all] of waiting) {
      for (const told of all) {
        const msLeft = this.#options.fallback.take(key);
        if (typeof msLeft === 'number') {
          told(msLeft);
        } else {
          void msLeft.then(told);
        }
      }
    }
  }

  async #revive(): Promise<void> {
    try {
      await within(this.#options.counter.revive(), reviveMsMax);
      if (this.#state === 'away') {
        this.#state = 'answering';
        if (this.#isTold) {
          this.#isTold = false;
          this.#options.onChange(undefined);
        }
      }
    } catch (error) {
      if (this.#state === 'away') {
        if (!this.#isTold) {
          this.#tell(error);
        }
        this.#retry = setTimeout(() => void this.#revive(), retryMs);
      }
    }
  }
}

interface Asked {
  readonly waiting: readonly (readonly [string, readonly Told[]])[];
  readonly deadline: NodeJS.Timeout;
}

function isAnswer(answer: unknown, wanted: readonly number[]): boolean {
  return (
    Array.isArray(answer) &&
    answer.length === wanted.length * 2 &&
    answer.every((each) => Number.isSafeInteger(each) && each >= 0) &&
    wanted.every((each, index) => answer[index * 2] <= each)
  );
}

async function within(promise: Promise<void>, ms: number): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    reject(new Error(`no answer within ${ms} ms`));
  }, ms);
  try {
    await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
