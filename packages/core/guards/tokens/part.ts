// The guard that checks bearer tokens, with what it needs: the issuer's keys.

import { systemClock } from '../../time/clock.ts';
import type { GuardSettings } from '../options/guard-options.ts';
import { describeFetchError } from '../options/outages.ts';
import type { GuardObserver, Keeper, KeyName, TokenGuardPart } from '../options/ports.ts';
import { isSignatureAlgorithm } from '../options/signature-algorithms.ts';
import { fetchTimeoutMs, KeySet } from './key-set.ts';
import { createFileSource, createUrlSource, type KeySource } from './key-source.ts';
import { readSigningKeys } from './signing-keys.ts';
import { TokenGuard } from './tokens.ts';

/** A guard by these settings. Waits for a file of keys to be read, and not for an address. */
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
    share: (fetched) => {
      keeper?.keepKeys(settings.authJwksUrl, fetched);
    },
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
  // A file is there, whoever is away.
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
    fileProblem:
      settings.authJwksFile === '' || lastError === undefined ? undefined : describeFetchError(lastError),
    close: () => {
      keys.close();
    },
  };
}

/** Fetches the issuer's keys once. Rejects with an Error for people. */
export async function fetchKeys(settings: GuardSettings): Promise<readonly KeyName[]> {
  const signal = AbortSignal.timeout(fetchTimeoutMs);
  try {
    const text = await createKeySource(settings).read(signal);
    const { keys } = await readSigningKeys(text, settings.authAlgorithms.filter(isSignatureAlgorithm));
    return keys;
  } catch (error) {
    const cause = signal.aborted
      ? `no whole answer within ${fetchTimeoutMs} ms`
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
