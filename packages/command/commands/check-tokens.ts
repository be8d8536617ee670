// What `check` says of tokens: whether the issuer's keys can be had, and which of them can be used.

import { loadTokens } from '../../core/guards/parts.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showValue } from '../settings/describe.ts';
import { type Settings } from '../settings/settings.ts';

interface CheckResult {
  readonly isWell: boolean;
  readonly text: string;
}

/** Fetches the keys once; undefined where tokens are off. */
export async function checkTokens(settings: Settings): Promise<CheckResult | undefined> {
  if (settings.authIssuer === '') {
    return undefined;
  }
  const place =
    settings.authJwksUrl === '' ? showValue('authJwksFile', settings) : showValue('authJwksUrl', settings);
  try {
    const { fetchKeys } = await loadTokens();
    const keys = await fetchKeys(settings);
    const lines = keys.map(({ kid, algorithm }) => `  ${escapeControls(kid ?? '(no kid)')}: ${algorithm}\n`);
    return keys.length > 0
      ? { isWell: true, text: `keys: ${place} has ${keys.length} that can be used\n${lines.join('')}` }
      : {
          isWell: false,
          text: `keys: ${place} has none that can be used\n  AUTH_ALGORITHMS is ${settings.authAlgorithms.join(',')}: does the issuer sign with one of them?\n`,
        };
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    return {
      isWell: false,
      text: `keys: ${place}: ${escapeControls(cause)}\n  Is it the address that the issuer calls jwks_uri, and can this machine reach it?\n`,
    };
  }
}
