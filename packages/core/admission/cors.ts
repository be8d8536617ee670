// CORS: what browsers let pages of other origins do with the gateway [D45]. Which origins are allowed, and which fields
// that adds to a reply. Pure: lists of headers in, lists of headers out.

import { fieldValue, onlyFieldValue, type RequestHead } from '../http1/head.ts';
import { splitList } from '../text/lists.ts';

export interface CorsOptions {
  /**
   * Origins whose pages may call and read replies, as browsers send them: `https://app.example.com`; `['*']` for any.
   * Default: none, and then no reply says anything of CORS [D45].
   */
  readonly corsOrigins?: readonly string[];
  /** Pages may call with cookies and client certificates; not with `*` [D45]. Default false. */
  readonly corsCredentials?: boolean;
  /** How long browsers may remember what a preflight has told them, in seconds [D45]. Default 600. */
  readonly corsMaxAgeS?: number;
}

/** The names of these options, for whoever lists what can be given. */
export const corsOptionNames = [
  'corsOrigins',
  'corsCredentials',
  'corsMaxAgeS',
] as const satisfies readonly (keyof CorsOptions)[];

/** Stands for every origin. */
export const anyOrigin = '*';

const allowedHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';
const exposedHeaders = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const vary = ['vary', 'origin'];

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
  { corsOrigins = [], corsCredentials = false }: CorsOptions,
  maxAgeS: number,
): Cors | undefined {
  return corsOrigins.length === 0 ? undefined : new Cors(corsOrigins, corsCredentials, maxAgeS);
}

/** What a request says of itself that CORS depends on. */
type Asker = Pick<RequestHead, 'method' | 'fields'>;

export class Cors {
  readonly #byOrigin: ReadonlyMap<string, CorsFields>;
  // For requests of no origin, of another one, and with `*` of any.
  readonly #others: CorsFields;
  readonly #allowsAny: boolean;

  constructor(origins: readonly string[], allowsCredentials: boolean, maxAgeS: number) {
    this.#allowsAny = origins.includes(anyOrigin);
    const fieldsFor = (origin: string, before: readonly string[]): CorsFields => {
      const credentials = allowsCredentials ? ['access-control-allow-credentials', 'true'] : [];
      const grant = [...before, 'access-control-allow-origin', origin, ...credentials];
      return {
        reply: [...grant, 'access-control-expose-headers', exposedHeaders],
        preflight: (methods) => [
          ...grant,
          'access-control-allow-methods',
          methods,
          'access-control-allow-headers',
          allowedHeaders,
          'access-control-max-age',
          String(maxAgeS),
        ],
      };
    };
    this.#byOrigin = new Map(
      this.#allowsAny ? [] : origins.map((origin) => [origin, fieldsFor(origin, vary)]),
    );
    this.#others = this.#allowsAny ? fieldsFor(anyOrigin, []) : { reply: vary, preflight: () => vary };
  }

  /** Whether the request comes from a page of an origin that is allowed. Two origins are none. */
  allows(fields: readonly string[]): boolean {
    const origin = onlyFieldValue(fields, 'origin');
    return origin !== undefined && (this.#allowsAny || this.#byOrigin.has(origin));
  }

  /**
   * What a reply to `asker` has after `headers`, in the same form; `asker` is undefined for bytes that were no request.
   */
  fieldsFor(headers: readonly string[], asker: Asker | undefined): readonly string[] {
    const origin = asker === undefined ? undefined : onlyFieldValue(asker.fields, 'origin');
    const fields = (origin === undefined ? undefined : this.#byOrigin.get(origin)) ?? this.#others;
    if (origin !== undefined && asker !== undefined && isPreflight(asker) && headers.includes('allow')) {
      // The reply to OPTIONS names the methods of the path in `allow` [D6]; one that does not is an error.
      return fields.preflight(headers[headers.indexOf('allow') + 1] ?? '');
    }
    return fields.reply;
  }
}

function isPreflight({ method, fields }: Asker): boolean {
  return method === 'OPTIONS' && fieldValue(fields, 'access-control-request-method') !== undefined;
}

// What the replies to one origin have more than others.
interface CorsFields {
  readonly reply: readonly string[];
  readonly preflight: (methods: string) => readonly string[];
}
