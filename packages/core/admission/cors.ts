// CORS: what browsers let pages of other origins do with the gateway [D45]. Decides which origins are allowed, and which
// fields a reply gets for them. Pure: lists of headers in, lists of headers out.

import { fieldValue, onlyFieldValue, type RequestHead } from '../http1/head.ts';

/** Stands for every origin. */
export const anyOrigin = '*';

const allowedHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';
const exposedHeaders = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const vary = ['vary', 'origin'];

/** The part of a request that CORS depends on. */
type Asker = Pick<RequestHead, 'method' | 'fields'>;

export class Cors {
  readonly #byOrigin: ReadonlyMap<string, CorsFields>;
  // For requests without an origin or of one that is not allowed; with `*`, for all.
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

  /** Whether the request comes from a page of an allowed origin. Two origins count as none. */
  allows(fields: readonly string[]): boolean {
    const origin = onlyFieldValue(fields, 'origin');
    return origin !== undefined && (this.#allowsAny || this.#byOrigin.has(origin));
  }

  /**
   * The fields that a reply to `asker` has after `headers`. `asker` is undefined for bytes that are no request.
   */
  fieldsFor(headers: readonly string[], asker: Asker | undefined): readonly string[] {
    const origin = asker === undefined ? undefined : onlyFieldValue(asker.fields, 'origin');
    const fields = (origin === undefined ? undefined : this.#byOrigin.get(origin)) ?? this.#others;
    if (origin !== undefined && asker !== undefined && isPreflight(asker) && headers.includes('allow')) {
      // The reply to OPTIONS names the methods of the path in `allow` [D6]. An error has none.
      return fields.preflight(headers[headers.indexOf('allow') + 1] ?? '');
    }
    return fields.reply;
  }
}

function isPreflight({ method, fields }: Asker): boolean {
  return method === 'OPTIONS' && fieldValue(fields, 'access-control-request-method') !== undefined;
}

// The fields that replies to one origin have in addition.
interface CorsFields {
  readonly reply: readonly string[];
  readonly preflight: (methods: string) => readonly string[];
}
