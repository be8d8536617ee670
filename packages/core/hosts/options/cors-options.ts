// The options of CORS [D45], and which of their values are valid. The rules themselves are in admission/cors.ts.

import { anyOrigin, Cors } from '../../admission/cors.ts';
import { splitList } from '../../text/lists.ts';

/** Which pages may call. */
export interface CorsRules {
  /** From `parseOrigins`. Default: none. */
  readonly corsOrigins?: readonly string[] | undefined;
  /** With cookies and client certificates. Default false. */
  readonly corsCredentials?: boolean | undefined;
}

// Of pages in apps and browser extensions: `capacitor://localhost`. That of a file is `null`, for every file.
const otherOriginForm = /^(?!https?:|file:)[a-z][a-z0-9+.-]*:\/\/[a-z0-9.-]+(?::\d{1,5})?$/;

/** Whether `text` is an origin to the letter as browsers send it (RFC 6454, 6.2); `null` is none. */
export function isOrigin(text: unknown): boolean {
  if (typeof text !== 'string') {
    return false;
  }
  const isWeb = /^https?:\/\/[^*]+$/.test(text) && URL.canParse(text) && new URL(text).origin === text;
  return isWeb || otherOriginForm.test(text);
}

/** The origins of a comma list, or `*` alone for all of them; undefined when one is none. */
export function parseOrigins(text: string): readonly string[] | undefined {
  const origins = splitList(text);
  return isOriginList(origins) ? origins : undefined;
}

/** Whether `list` is `['*']`, or origins and nothing else. */
export function isOriginList(list: readonly unknown[]): boolean {
  return (list.length === 1 && list[0] === anyOrigin) || list.every(isOrigin);
}

/** The rules of `options`; undefined where no origin is allowed. `maxAgeS` in seconds. */
export function createCors(
  { corsOrigins = [], corsCredentials = false }: CorsRules,
  maxAgeS: number,
): Cors | undefined {
  return corsOrigins.length === 0 ? undefined : new Cors(corsOrigins, corsCredentials, maxAgeS);
}
