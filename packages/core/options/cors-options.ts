// The CORS options [D45] and the checks on their combinations. The CORS rules are in admission/cors.ts.

import { anyOrigin, Cors } from '../admission/cors.ts';
import { splitList } from '../text/lists.ts';
import { boolean, integer, listOf } from './kinds.ts';
import type { OptionsOf, OptionRow, ValuesOf } from './rows.ts';

// Matches origins of pages in apps and browser extensions, such as `capacitor://localhost`. Does not match `file:`,
// because browsers send `null` as the origin of a file.
const otherOriginForm = /^(?!https?:|file:)[a-z][a-z0-9+.-]*:\/\/[a-z0-9.-]+(?::\d{1,5})?$/;

/** True if `text` is an origin exactly as browsers send it (RFC 6454, 6.2). `null` is not accepted. */
export function isOrigin(text: unknown): boolean {
  if (typeof text !== 'string') return false;
  const isWeb = /^https?:\/\/[^*]+$/.test(text) && URL.canParse(text) && new URL(text).origin === text;
  return isWeb || otherOriginForm.test(text);
}

/** Parses a comma-separated list of origins, or `*` alone for any origin; undefined if an origin is invalid. */
export function parseOrigins(text: string): readonly string[] | undefined {
  const origins = splitList(text);
  return isOriginList(origins) ? origins : undefined;
}

function isOriginList(list: readonly unknown[]): boolean {
  return (list.length === 1 && list[0] === anyOrigin) || list.every(isOrigin);
}

const origins = listOf(
  isOriginList,
  "must be an array of origins such as https://app.example.com, or ['*']",
  parseOrigins,
  'must be * alone, or origins as browsers send them, separated by commas, for instance https://app.example.com,http://localhost:5173: lower case, without path, trailing slash, user name and default port',
  { takes: 'origins separated by commas, `*` for any origin, or empty for no origin', placeholder: 'origins' },
);

export const corsRows = {
  /**
   * Origins whose pages may call and read replies. Write each origin as browsers send it: `https://app.example.com`.
   * `['*']` allows any origin. Default: no origin, and no reply has a CORS header [D45].
   */
  corsOrigins: {
    kind: origins,
    default: '',
    help: "Origins whose pages may call and read replies; for instance `https://app.example.com,http://localhost:5173`. Write each origin as browsers send it: scheme, host, and the port if it is not the scheme's default. `*` alone allows every origin.",
  },
  /** Allows pages to call with cookies and client certificates; cannot be combined with `*` [D45]. Default false. */
  corsCredentials: {
    kind: boolean,
    default: false,
    help: 'Allows the pages of {corsOrigins} to call with cookies and client certificates. Not needed for tokens in `Authorization`. Cannot be combined with `*`.',
  },
  /** How long browsers may cache the reply to a preflight, in seconds [D45]. Default 600. */
  corsMaxAgeS: {
    // At most a day, because no browser caches the reply to a preflight for longer.
    kind: integer('s', 0, 86_400),
    default: 600,
    help: 'How long browsers may cache the reply to a preflight; Chromium caches it for at most 7,200 s.',
  },
} satisfies Readonly<Record<string, OptionRow>>;

export type CorsOptions = OptionsOf<typeof corsRows>;

export type CorsValues = ValuesOf<typeof corsRows>;

/**
 * Returns problems with combinations of options. The first argument lacks the values that have already been refused.
 * `nameOf` returns the name that messages use for an option.
 */
export function findCorsProblems(
  { corsOrigins, corsCredentials, corsMaxAgeS }: Partial<CorsValues>,
  nameOf: (name: keyof CorsOptions) => string,
): string[] {
  const [list, credentials] = [nameOf('corsOrigins'), nameOf('corsCredentials')];
  if (corsOrigins?.includes(anyOrigin) === true && corsCredentials === true) {
    return [`${credentials} cannot be true when ${list} is *: name the origins instead`];
  }
  if (corsOrigins === undefined || corsOrigins.length > 0) return [];
  return [
    ...(corsCredentials === true ? [`${credentials} is true, but ${list} is empty`] : []),
    ...((corsMaxAgeS ?? corsRows.corsMaxAgeS.default) === corsRows.corsMaxAgeS.default
      ? []
      : [`${nameOf('corsMaxAgeS')} is set, but ${list} is empty`]),
  ];
}

/** Creates the CORS rules; undefined if no origin is allowed. `maxAgeS` in seconds. */
export function createCors(
  { corsOrigins = [], corsCredentials = false }: Partial<CorsValues>,
  maxAgeS: number,
): Cors | undefined {
  return corsOrigins.length === 0 ? undefined : new Cors(corsOrigins, corsCredentials, maxAgeS);
}
