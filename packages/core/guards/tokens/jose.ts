// Loads jose, an optional package. Only the code that needs it waits for it.

import { explainLoading } from '../ports/missing-package.ts';

/** Undefined until `loadJose` has resolved. */
export let jose: typeof import('jose');

/** Rejects with a MissingPackageError if jose is not installed. */
export async function loadJose(): Promise<void> {
  // In a `try`, so that bundlers accept that the package is not installed.
  try {
    jose = await import('jose');
  } catch (error) {
    throw explainLoading('authIssuer', 'jose', error);
  }
}
