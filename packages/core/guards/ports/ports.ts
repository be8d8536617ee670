// The interfaces between the guards and the rest of the gateway, and the words that both sides use in log and metrics.

import type { Guard } from '../../call/guard.ts';
import type { GuardSettings } from '../../options/guard-options.ts';
import type { Rate } from '../../options/rate.ts';

/**
 * The names of token defects (flaws) in log and metrics. They reveal nothing of a token's content, and clients never
 * receive them [D43].
 */
export const tokenFlawNames = [
  'malformed', // the token, its header or its claims cannot be parsed
  'algorithm', // not in `authAlgorithms`
  'unknown-key', // the issuer has no key with the token's key id and algorithm
  'signature',
  'issuer',
  'audience',
  'expired',
  'not-yet-valid',
  'type', // not the type that `authTokenType` requires
  'claims', // `exp` is missing, or `exp`, `nbf`, `iat` or `sub` has the wrong type
] as const;

export type TokenFlaw = (typeof tokenFlawNames)[number];

/** Log messages for the beginning and the end of an outage. */
export const outageTexts = {
  keys: { begins: 'the keys of the issuer cannot be fetched', ends: 'the keys of the issuer can be fetched again' },
  redis: { begins: 'Redis does not count requests', ends: 'Redis counts requests again' },
  accept: { begins: 'connections cannot be accepted', ends: 'connections can be accepted again' },
} as const;

/** Receives the events of guards. Its methods must not throw. */
export interface GuardObserver {
  /** Called with the issuer's first keys, and whenever the keys change. `keys` may be empty. */
  onKeys(keys: readonly KeyName[]): void;
  /**
   * Called after each fetch of keys, later than `onKeys`. `cause` says in one line why there are no keys, if so.
   * `hasKeySet` is true if the issuer gave a key set.
   */
  onFetch(cause: string | undefined, hasKeySet: boolean): void;
  /** Called after `onKeys` when the guard starts with keys from the `Keeper`, which were fetched `ageMs` ago. */
  onInherited(ageMs: number): void;
  /** Called once with the cause when the counter stops answering, and once with undefined when it answers again. */
  onCounter(who: 'redis' | 'keeper', cause: unknown): void;
  onUnusedPassword(): void;
}

interface KeyName {
  readonly kid: string | undefined;
  readonly algorithm: string;
}

export interface FetchedKeys {
  readonly text: string;
  /** Time since the fetch began, in milliseconds. */
  readonly ageMs: number;
}

/** The address or the file of the issuer's keys. */
export function placeOfKeys(settings: Pick<GuardSettings, 'authJwksUrl' | 'authJwksFile'>): string {
  const { authJwksUrl, authJwksFile } = settings;
  return authJwksUrl === '' ? authJwksFile : authJwksUrl;
}

/** State that outlives guards: kept for a reload, and for the other processes of a gateway. */
export interface Keeper {
  /** The counter for all processes of a gateway; undefined if this process counts by itself. */
  readonly counter: Counter | undefined;
  /** Returns the keys last read from a place (`placeOfKeys`); undefined if there are none. */
  readonly findKeys: (place: string) => FetchedKeys | undefined;
  readonly keepKeys: (place: string, keys: FetchedKeys) => void;
  /** True: the last keys of a key file are used until it is read, and if it is unusable. */
  readonly replacesFile: boolean;
}

export interface Taken {
  /** Requests left in the key's window after this one. -1: the limit was reached, and this request is not counted. */
  readonly left: number;
  /** Milliseconds until the window ends; always more than 0. */
  readonly msLeft: number;
}

/** Counts requests for several processes. */
export interface Counter {
  /** Rejects if the counter cannot count. May never settle. */
  take(key: string, rate: Rate): Promise<Taken>;
  /**
   * Prepares for requests, with a new connection if the counter uses connections. Rejects if the counter does not answer.
   * Calls `onGone` if the counter later closes that connection. If `onGone` calls `revive` at once, the requests without an
   * answer are counted on the next connection.
   */
  revive(onGone: () => void): Promise<void>;
  close(): void;
}

interface OpenGuard {
  readonly guard: Guard;
  close(): void;
}

export interface TokenGuardPart {
  readonly createTokenGuard: (
    settings: GuardSettings,
    observer: GuardObserver,
    keeper: Keeper | undefined,
  ) => Promise<OpenGuard & { readonly fileProblem: string | undefined }>;
  /** Fetches the issuer's keys once, with a timeout. Rejects with an Error for the operator. */
  readonly fetchKeys: (settings: GuardSettings) => Promise<{
    readonly keys: readonly KeyName[];
    /** If no key can be used, the reasons: one line per key, for up to five keys. Otherwise empty. */
    readonly flaws: readonly string[];
  }>;
}

export interface RateLimitPart {
  readonly createRateGuard: (
    settings: GuardSettings,
    rate: Rate,
    observer: GuardObserver,
    keeper: Keeper | undefined,
  ) => Promise<OpenGuard & { readonly redisAnswers: () => boolean | undefined }>;
  /** Creates the counts of a process that counts the requests of others. */
  readonly createCounts: () => { take(key: string, rate: Rate): Taken };
  /** Counts one request in the Redis at `address`. Rejects with an Error for the operator. */
  readonly tryRedis: (
    address: string,
  ) => Promise<{ readonly version: string | undefined; readonly tookMs: number; readonly hasUnusedPassword: boolean }>;
}
