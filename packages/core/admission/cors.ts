// CORS: what browsers let pages of other origins do with the gateway [D45]. Which origins are allowed, and which fields
// that adds to a reply. Pure: lists of headers in, lists of headers out.

import { fieldValue, onlyFieldValue, type RequestHead } from '../http1/head.ts';

/** Stands for every origin. */
export const anyOrigin = '*';

const allowedHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';
const exposedHeaders = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const vary = ['vary', 'origin'];

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
