// Creates the token guard with its key set.

import { systemClock } from '../time/clock.ts';
import { placeOfKeys, type TokenGuardPart } from '../ports/ports.ts';
import { createKeySource, describeFetchError, fetchText, KeySet } from './key-set.ts';
import { loadJose, readSigningKeys } from './signing-keys.ts';
import { TokenGuard } from './tokens.ts';

export const createTokenGuard: TokenGuardPart['createTokenGuard'] = async (settings, observer, keeper) => {
  await loadJose();
  const hasFile = settings.authJwksFile !== '';
  const place = placeOfKeys(settings);
  const kept = hasFile && keeper?.replacesFile !== true ? undefined : keeper?.findKeys(place);
  const needsFile = hasFile && kept === undefined;
  let isInUse = !needsFile;
  let lastCause: string | undefined;
  const keys = new KeySet({
    settings,
    source: createKeySource(settings),
    clock: systemClock,
    // A file without keys stops a start or a reload, which then changes nothing. Later it withdraws the keys.
    share: (fetched) => {
      if (isInUse || keys.current.length > 0) keeper?.keepKeys(place, fetched);
    },
    observer: {
      onKeys: (each) => {
        guard.forgetAll();
        observer.onKeys(each);
      },
      onFetch: (cause, hasKeySet) => {
        lastCause = cause;
        observer.onFetch(cause, hasKeySet);
      },
    },
  });
  const guard = new TokenGuard(settings, keys, systemClock);
  if (kept !== undefined) {
    await keys.inherit(kept);
    if (keys.current.length > 0) observer.onInherited(kept.ageMs);
  }
  const first = keys.start();
  if (hasFile) await first;
  isInUse = true;
  return { guard, fileProblem: needsFile ? lastCause : undefined, close: () => keys.close() };
};

export const fetchKeys: TokenGuardPart['fetchKeys'] = async (settings) => {
  try {
    const text = await fetchText(createKeySource(settings), systemClock);
    return await readSigningKeys(text, settings.authAlgorithms);
  } catch (error) {
    throw new Error(describeFetchError(error), { cause: error });
  }
};
