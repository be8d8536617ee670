// The options of CORS [D45]: what each is, and what does not go together. The rules themselves are in admission/cors.ts.

import { anyOrigin, Cors } from '../../admission/cors.ts';
import { splitList } from '../../text/lists.ts';
import { boolean, integer, listOf } from './kinds.ts';
import type { OptionsOf, SharedRow, ValuesOf } from './rows.ts';

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

// Whether `list` is `['*']`, or origins and nothing else.
function isOriginList(list: readonly unknown[]): boolean {
  return (list.length === 1 && list[0] === anyOrigin) || list.every(isOrigin);
}

const origins = listOf(
  isOriginList,
  "must be an array of origins such as https://app.example.com, or ['*']",
  parseOrigins,
  'must be origins as browsers send them, separated by commas, for instance https://app.example.com,http://localhost:5173: in small letters, without path, slash at the end, user name and the port that the scheme has anyway; or * alone',
  { takes: 'origins separated by commas, `*` for any, or nothing for none', placeholder: 'origins' },
);

export const corsRows = {
  /**
   * Origins whose pages may call and read replies, as browsers send them: `https://app.example.com`; `['*']` for any.
   * Default: none, and then no reply says anything of CORS [D45].
   */
  corsOrigins: {
    kind: origins,
    default: '',
    help: 'Origins whose pages may call and read replies; for instance `https://app.example.com,http://localhost:5173`. Each is written as browsers send it: scheme, host and, where it is not the usual one, port. `*` alone allows every page there is. Without any, no reply has a CORS header.',
  },
  /** Pages may call with cookies and client certificates; not with `*` [D45]. Default false. */
  corsCredentials: {
    kind: boolean,
    default: false,
    help: 'Whether these pages may call with cookies and client certificates. Tokens in `Authorization` need it not. Cannot be with `*`.',
  },
  /** How long browsers may remember what a preflight has told them, in seconds [D45]. Default 600. */
  corsMaxAgeS: {
    // No browser remembers it for longer than a day.
    kind: integer('s', 0, 86_400),
    default: 600,
    help: 'How long browsers may remember what OPTIONS has told them; then they ask again. Chromium caps it at 7,200 s.',
  },
} satisfies Readonly<Record<string, SharedRow>>;

export type CorsOptions = OptionsOf<typeof corsRows>;

export type CorsValues = ValuesOf<typeof corsRows>;

/** What does not go together; a value that was refused is missing. `nameOf` has the name of an option for people. */
export function findCorsProblems(
  { corsOrigins, corsCredentials, corsMaxAgeS }: Partial<CorsValues>,
  nameOf: (name: keyof CorsOptions) => string,
): string[] {
  const [list, credentials] = [nameOf('corsOrigins'), nameOf('corsCredentials')];
  if (corsOrigins?.includes(anyOrigin) === true && corsCredentials === true) {
    return [`${credentials} cannot be true where ${list} is *: name the origins instead`];
  }
  if (corsOrigins === undefined || corsOrigins.length > 0) {
    return [];
  }
  return [
    ...(corsCredentials === true ? [`${credentials} is true, but ${list} names no origin`] : []),
    ...((corsMaxAgeS ?? corsRows.corsMaxAgeS.default) === corsRows.corsMaxAgeS.default
      ? []
      : [`${nameOf('corsMaxAgeS')} is set, but ${list} names no origin`]),
  ];
}

/** The rules of such values; undefined where no origin is allowed. `maxAgeS` in seconds. */
export function createCors(
  { corsOrigins = [], corsCredentials = false }: Partial<CorsValues>,
  maxAgeS: number,
): Cors | undefined {
  return corsOrigins.length === 0 ? undefined : new Cors(corsOrigins, corsCredentials, maxAgeS);
}
