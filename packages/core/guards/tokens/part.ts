// Creates the token guard with its key set.

import { systemClock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { describeFetchError } from '../options/outages.ts';
import type { GuardObserver, Keeper, TokenGuardPart } from '../options/ports.ts';
import { isSignatureAlgorithm } from '../options/signature-algorithms.ts';
import { fetchTimeoutMs, KeySet } from './key-set.ts';
import { createFileSource, createUrlSource, type KeySource } from './key-source.ts';
import { explainUnusable, readSigningKeys } from './signing-keys.ts';
import { TokenGuard } from './tokens.ts';

/** Creates the guard. Waits until a key file has been read, but not until keys have been fetched from an address. */
export async function createTokenGuard(
  settings: GuardSettings,
  observer: GuardObserver,
  keeper: Keeper | undefined,
): ReturnType<TokenGuardPart['createTokenGuard']> {
  let lastError: Error | undefined;
  const keys = new KeySet({
    source: createKeySource(settings),
    algorithms: settings.authAlgorithms.filter(isSignatureAlgorithm),
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
  const kept = settings.authJwksFile === '' ? keeper?.findKeys(settings.authJwksUrl) : undefined;
  if (kept !== undefined) {
    await keys.inherit(kept);
    if (keys.current.keys.length > 0) {
      observer.onInherited(kept.ageMs);
    }
  }
  const first = keys.start();
  if (settings.authJwksFile !== '') {
    await first;
  }
  return {
    guard,
    fileProblem: settings.authJwksFile === '' || lastError === undefined ? undefined : describeFetchError(lastError),
    close: () => keys.close(),
  };
}

/** Fetches the issuer's keys once. Rejects with an Error for the operator. */
export async function fetchKeys(settings: GuardSettings): ReturnType<TokenGuardPart['fetchKeys']> {
  const signal = AbortSignal.timeout(fetchTimeoutMs);
  try {
    const text = await createKeySource(settings).read(signal);
    const algorithms = settings.authAlgorithms.filter(isSignatureAlgorithm);
    const { keys } = await readSigningKeys(text, algorithms);
    return { keys, flaws: keys.length === 0 ? explainUnusable(text, algorithms) : [] };
  } catch (error) {
    const cause = signal.aborted
      ? `no complete answer within ${fetchTimeoutMs} ms`
      : describeFetchError(error instanceof Error ? error : new Error(String(error)));
    throw new Error(cause, { cause: error });
  }
}

function createKeySource({
  authJwksUrl,
  authJwksFile,
}: Pick<GuardSettings, 'authJwksUrl' | 'authJwksFile'>): KeySource {
  return authJwksUrl === '' ? createFileSource(authJwksFile) : createUrlSource(new URL(authJwksUrl));
}
