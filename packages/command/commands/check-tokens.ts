// What `check` says of tokens: whether the issuer's keys can be had, and which of them can be used.

import { loadTokens } from '../../core/guards/parts.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showValue } from '../settings/describe.ts';
import type { Settings } from '../settings/settings.ts';
import type { CheckResult } from './command.ts';

/** Fetches the keys once, where tokens are on. */
export async function checkTokens(settings: Settings): Promise<CheckResult> {
  if (settings.authIssuer === '') {
    return {};
  }
  const place = showValue(settings.authJwksUrl === '' ? 'authJwksFile' : 'authJwksUrl', settings);
  try {
    const { fetchKeys } = await loadTokens();
    const keys = await fetchKeys(settings);
    const names = keys.map(({ kid, algorithm }) => `  ${escapeControls(kid ?? '(no kid)')}: ${algorithm}`);
    return names.length > 0
      ? { lines: [`keys: ${place} has ${names.length} that can be used`, ...names] }
      : {
          problems: [
            `keys: ${place} has none that can be used`,
            `  AUTH_ALGORITHMS is ${settings.authAlgorithms.join(',')}: does the issuer sign with one of them?`,
          ],
        };
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    return {
      problems: [
        `keys: ${place}: ${escapeControls(cause)}`,
        settings.authJwksUrl === ''
          ? '  Is it the file with the keys of the issuer, and may this user read it?'
          : '  Is it the address that the issuer calls jwks_uri, and can this machine reach it?',
      ],
    };
  }
}
