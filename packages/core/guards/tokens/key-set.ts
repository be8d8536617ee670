// The issuer's keys, kept up to date in the background: when they are fetched, for how long they count, and what happens
// while they cannot be had [D44]. How they are fetched is key-source.ts's affair, what is in them signing-keys.ts's.

import type { Clock } from '../../time/clock.ts';
import type { FetchedKeys, KeySetObserver } from '../options/ports.ts';
import type { KeySource } from './key-source.ts';
import type { SignatureAlgorithm } from '../options/signature-algorithms.ts';
import { noSigningKeys, readSigningKeys, type SigningKeys } from './signing-keys.ts';

export interface KeySetOptions {
  readonly source: KeySource;
  readonly algorithms: readonly SignatureAlgorithm[];
  /** From one fetch to the next, in milliseconds. */
  readonly refreshMs: number;
  /** For how long keys count after they were fetched, in milliseconds. */
  readonly staleMs: number;
  readonly clock: Clock;
  readonly observer: KeySetObserver;
  /** Is given each set that could be read, for other processes; must not throw. Undefined where there are none. */
  readonly share?: ((keys: FetchedKeys) => void) | undefined;
}

/** A fetch takes no longer, in milliseconds; who waits for it waits no longer either. */
export const fetchTimeoutMs = 5_000;
/** Between two fetches that unknown names of keys cause, in milliseconds. */
const forcedFetchMs = 30_000;
const retryMinMs = 1_000;
const retryMaxMs = 30_000;

export class KeySet {
  readonly #options: KeySetOptions;
  #keys = noSigningKeys;
  /** When those keys were asked for; nothing that came out later is in them. */
  #keysAt = -Infinity;
  #forcedAt = -Infinity;
  #retryMs = retryMinMs;
  #fetching: Promise<void> | undefined;
  #hasTried = false;
  #callOff: () => void = () => undefined;
  readonly #closed = new AbortController();

  constructor(options: KeySetOptions) {
    this.#options = options;
  }

  /** Takes keys that another process has fetched, as old as they are. To be called before `start`. */
  async inherit({ text, ageMs }: FetchedKeys): Promise<void> {
    const { algorithms, clock, observer } = this.#options;
    const keys = await readSigningKeys(text, algorithms);
    if (keys.keys.length > 0) {
      this.#keys = keys;
      this.#keysAt = clock.steady() - ageMs;
      // Nobody has to wait for the first fetch.
      this.#hasTried = true;
      observer.onKeys(keys);
    }
  }

  /** Fetches the keys, from now on to `close`. Resolves when the first fetch has ended, however it did. */
  async start(): Promise<void> {
    await this.#fetch();
  }

  /** No further fetch; one under way is ended. */
  close(): void {
    this.#callOff();
    this.#closed.abort();
  }

  /** The keys that count now; none before the first fetch, and when the last good one is too long ago. */
  get current(): SigningKeys {
    return this.staleAt > this.#options.clock.steady() ? this.#keys : noSigningKeys;
  }

  /** Until when they count, on the clock's steady time. */
  get staleAt(): number {
    return this.#keysAt + this.#options.staleMs;
  }

  /** The first fetch, as long as it is under way: what it brings nobody can know yet. */
  get first(): Promise<void> | undefined {
    return this.#hasTried ? undefined : this.#fetching;
  }

  /**
   * For a key that is not there: the fetch that may bring it, which is one that is under way or a new one. Undefined where
   * there was one already within the last 30 s, for whomever.
   */
  seek(): Promise<void> | undefined {
    const now = this.#options.clock.steady();
    if (this.#fetching !== undefined || this.#closed.signal.aborted) {
      return this.#fetching;
    }
    if (now - this.#forcedAt < forcedFetchMs) {
      return undefined;
    }
    this.#forcedAt = now;
    return this.#fetch();
  }

  #fetch(): Promise<void> {
    this.#callOff();
    this.#fetching = this.#fetchOnce().finally(() => {
      this.#fetching = undefined;
      this.#hasTried = true;
      this.#schedule();
    });
    return this.#fetching;
  }

  async #fetchOnce(): Promise<void> {
    const { source, algorithms, clock, observer, share } = this.#options;
    const startedAt = clock.steady();
    const deadline = new AbortController();
    const { promise: late, reject } = Promise.withResolvers<never>();
    const callOff = clock.after(fetchTimeoutMs, () => {
      reject(new Error(`no whole answer within ${fetchTimeoutMs} ms`));
      deadline.abort();
    });
    try {
      const signal = AbortSignal.any([deadline.signal, this.#closed.signal]);
      const text = await Promise.race([source.read(signal), late]);
      const keys = await readSigningKeys(text, algorithms);
      const isOther = keys.fingerprint !== this.#keys.fingerprint;
      this.#keysAt = startedAt;
      if (isOther) {
        this.#keys = keys;
        observer.onKeys(keys);
      }
      share?.({ text, ageMs: clock.steady() - startedAt });
      observer.onFetch(
        keys.keys.length === 0 ? new Error('it has no key for an algorithm that is allowed') : undefined,
      );
    } catch (error) {
      if (!this.#closed.signal.aborted) {
        observer.onFetch(error instanceof Error ? error : new Error(String(error)));
      }
    } finally {
      callOff();
    }
  }

  #schedule(): void {
    if (this.#closed.signal.aborted) {
      return;
    }
    const { clock, refreshMs } = this.#options;
    let waitMs;
    if (this.current.keys.length > 0) {
      this.#retryMs = retryMinMs;
      // Not later than they cease to count: without any it is tried at once.
      waitMs = Math.min(refreshMs, Math.ceil(this.staleAt - clock.steady()));
    } else {
      waitMs = this.#retryMs;
      this.#retryMs = Math.min(this.#retryMs * 2, retryMaxMs);
    }
    this.#callOff = clock.after(waitMs, () => {
      void this.#fetch();
    });
  }
}
