// `check` of the tokens: fetches the issuer's keys once and lists the usable ones.

import { loadTokens } from '../../core/guards/parts.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { showValue } from '../settings/describe.ts';
import type { Settings } from '../settings/settings.ts';
import type { CheckResult } from './command.ts';

/** Does nothing if tokens are off. */
export async function checkTokens(settings: Settings): Promise<CheckResult> {
  if (settings.authIssuer === '') {
    return {};
  }
  const place = showValue(settings.authJwksUrl === '' ? 'authJwksFile' : 'authJwksUrl', settings);
  try {
    const { fetchKeys } = await loadTokens();
    const { keys, flaws } = await fetchKeys(settings);
    if (keys.length > 0) {
      const names = keys.map(({ kid, algorithm }) => `  ${escapeControls(kid ?? '(no kid)')}: ${algorithm}`);
      const first = `keys: ${place} has ${names.length} usable ${names.length === 1 ? 'key' : 'keys'}`;
      return { lines: [first, ...names] };
    }
    return flaws.length === 0
      ? { problems: [`keys: ${place} has no keys`, adviseOnPlace(settings)] }
      : {
          problems: [
            `keys: ${place} has no usable key`,
            ...flaws.map((flaw) => `  ${flaw}`),
            `  The issuer must publish a usable key for one of AUTH_ALGORITHMS (${settings.authAlgorithms.join(',')}).`,
          ],
        };
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    return { problems: [`keys: ${place}: ${escapeControls(cause)}`, adviseOnPlace(settings)] };
  }
}

function adviseOnPlace({ authJwksUrl }: Settings): string {
  return authJwksUrl === ''
    ? "  Check that AUTH_JWKS_FILE is the file with the issuer's keys, and that this user can read it."
    : "  Check that AUTH_JWKS_URL is the issuer's jwks_uri, and that this machine can reach it.";
}
