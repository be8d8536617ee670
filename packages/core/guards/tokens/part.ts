// Creates the token guard with its key set.

import { systemClock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { describeFetchError } from '../options/outages.ts';
import type { GuardObserver, Keeper, TokenGuardPart } from '../options/ports.ts';
import { fetchTimeoutMs, KeySet } from './key-set.ts';
import { createFileSource, createUrlSource, type KeySource } from './key-source.ts';
import { explainUnusable, readSigningKeys } from './signing-keys.ts';
import { TokenGuard } from './tokens.ts';

/** Creates the guard. Waits until a key file has been read, but does not wait for keys from an address. */
export async function createTokenGuard(
  settings: GuardSettings,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): ReturnType<TokenGuardPart['createTokenGuard']> {
  const hasFile = settings.authJwksFile !== '';
  let lastError: Error | undefined;
  const keys = new KeySet({
    source: createKeySource(settings),
    algorithms: settings.authAlgorithms,
    refreshMs: settings.authJwksRefreshMs,
    staleMs: settings.authJwksStaleMs,
    clock: systemClock,
    share: (fetched) => keeper?.keepKeys(settings.authJwksUrl, fetched),
    observer: {
      onKeys: (each) => {
        guard.forgetAll();
        observer.onKeys(each);
      },
      onFetch: (error) => {
        lastError = error;
        observer.onFetch(error);
      },
    },
  });
  const guard = new TokenGuard(settings, keys, systemClock);
  // Kept keys are not used with a file, since a file can be read at any time.
  const kept = hasFile ? undefined : keeper?.findKeys(settings.authJwksUrl);
  if (kept !== undefined) {
    await keys.inherit(kept);
    if (keys.current.keys.length > 0) observer.onInherited(kept.ageMs);
  }
  const first = keys.start();
  if (hasFile) await first;
  return {
    guard,
    fileProblem: hasFile && lastError !== undefined ? describeFetchError(lastError) : undefined,
    close: () => keys.close(),
  };
}

/** Fetches the issuer's keys once. Rejects with an Error for the operator. */
export async function fetchKeys(settings: GuardSettings): ReturnType<TokenGuardPart['fetchKeys']> {
  const { authAlgorithms } = settings;
  const signal = AbortSignal.timeout(fetchTimeoutMs);
  try {
    const text = await createKeySource(settings).read(signal);
    const { keys } = await readSigningKeys(text, authAlgorithms);
    return { keys, flaws: keys.length === 0 ? explainUnusable(text, authAlgorithms) : [] };
  } catch (error) {
    const cause = signal.aborted
      ? `no complete answer within ${fetchTimeoutMs} ms`
      : describeFetchError(error instanceof Error ? error : new Error(String(error)));
    throw new Error(cause, { cause: error });
  }
}

function createKeySource({ authJwksUrl, authJwksFile }: GuardSettings): KeySource {
  return authJwksUrl === '' ? createFileSource(authJwksFile) : createUrlSource(new URL(authJwksUrl));
}
