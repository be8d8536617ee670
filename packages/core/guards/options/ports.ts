// The guards as those see them who do not know which there are: what each is made of and what it tells. Imports nothing of a
// guard's own folder, so that a build can leave it out.

import type { Guard } from '../../call/guard.ts';
import type { GuardSettings } from './guard-options.ts';
import type { Rate } from './rate.ts';

/** A set of the issuer's keys as it was fetched. */
export interface FetchedKeys {
  readonly text: string;
  /** How long ago it was asked for, in milliseconds. */
  readonly ageMs: number;
}

/** One of the issuer's keys that can be used. */
export interface KeyName {
  readonly kid: string | undefined;
  readonly algorithm: string;
}

/** Is told of the issuer's keys. Must not throw. */
export interface KeySetObserver {
  /** Other keys than before, or the first ones; maybe none. */
  onKeys(keys: { readonly keys: readonly KeyName[] }): void;
  /** A fetch has ended, with an error or without. Comes after `onKeys`. */
  onFetch(error: Error | undefined): void;
}

/** Is told of what guards depend on. Must not throw. */
export interface GuardObserver extends KeySetObserver {
  /** Keys that another process has fetched, so long ago, are taken; comes after `onKeys`. */
  onInherited(ageMs: number): void;
  /** Whoever counts does not answer any more, for this reason, or does again: undefined. Not told twice. */
  onCounter(who: 'redis' | 'primary', cause: unknown): void;
  /** Redis asks for no password, and has been given one. Told once. */
  onIdlePassword(): void;
}

/** What became of one request of a key. */
export interface Taken {
  /** The requests that the key's window has left after this one; -1: it had none for this one, which does not count. */
  readonly left: number;
  /** Milliseconds, more than 0, until the window ends. */
  readonly msLeft: number;
}

/** Counts the requests of one rate. */
export interface Count {
  /** Counts one request of `key`; undefined: it may come in, and nobody counts it. Never rejects. */
  take(key: string): Taken | undefined | Promise<Taken | undefined>;
}

/** What is asked at once: for each key of `keys` how many requests want to be counted. */
export interface Question {
  readonly rate: Rate;
  readonly keys: readonly string[];
  readonly wanted: readonly number[];
}

/** A counter has gone for good: the part that notices says so. */
export class CounterGoneError extends Error {}

/** Whoever counts for several: takes as many of each key as its window has left, all or some. */
export interface Counter {
  /**
   * For each key in turn how many are granted, in how many milliseconds its window ends, and how many it has left then:
   * grants, ms, left, grants, ms, left, ...
   * Rejects where it cannot tell. May take for ever.
   */
  ask(question: Question): Promise<readonly number[]>;
  /**
   * Makes it ready to be asked, by a new connection where it has one; rejects where it does not answer. When that
   * connection is closed from over there later, it calls `onGone`, before it rejects what was asked on it.
   */
  revive(onGone: () => void): Promise<void>;
  /** Lets go of what it holds; what is asked then is rejected. */
  close(): void;
}

/** What outlives these guards: the primary process of several workers, or this process where a reload makes new guards. */
export interface Keeper {
  /** Counts for all workers; undefined where this process counts by itself. */
  readonly counter: Counter | undefined;
  /** What this process has counted last, by the length of the windows and whom they are for. */
  readonly counts: Map<string, Count>;
  /** What was fetched last from an address; undefined where nothing was. */
  readonly findKeys: (jwksUrl: string) => FetchedKeys | undefined;
  /** Keeps it for guards that are made later. */
  readonly keepKeys: (jwksUrl: string, keys: FetchedKeys) => void;
}

/** A guard, and how to let go of what it holds. */
interface OpenGuard {
  readonly guard: Guard;
  close(): void;
}

export interface TokenGuardPart {
  /** `fileProblem`: why `authJwksFile` has brought no keys; undefined where it has, or where there is none. */
  readonly createTokenGuard: (
    settings: GuardSettings,
    observer: GuardObserver,
    keeper: Keeper | undefined,
  ) => Promise<OpenGuard & { readonly fileProblem: string | undefined }>;
  /** Fetches the issuer's keys once, within a time. Rejects with an Error for people. */
  readonly fetchKeys: (settings: GuardSettings) => Promise<readonly KeyName[]>;
}

export interface RateLimitPart {
  readonly createRateGuard: (
    settings: GuardSettings,
    rate: Rate,
    observer: GuardObserver,
    keeper: Keeper | undefined,
  ) => Promise<OpenGuard & { readonly redisAnswers: () => boolean | undefined }>;
  /** Counts for several processes, in the primary one. */
  readonly createJoinedCount: () => {
    /** As a `Counter` answers, at `now` in milliseconds. */
    answer(question: Question, now: number): number[];
  };
  /** Counts once in the Redis at `address`. Resolves with its version and the time that it took. Rejects with an Error for people. */
  readonly tryRedis: (address: string) => Promise<{
    readonly version: string | undefined;
    readonly tookMs: number;
    readonly hasIdlePassword: boolean;
  }>;
}
