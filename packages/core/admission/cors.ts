// CORS [D45]: decides which origins are allowed, and which header fields the replies get.

import { fieldValue, onlyFieldValue, type RequestHead } from '../http1/head.ts';

export const anyOrigin = '*';

const allowedHeaders = 'authorization, content-type, x-request-id, traceparent, tracestate';
const exposedHeaders = 'x-request-id, retry-after, ratelimit, ratelimit-policy, www-authenticate';
const vary = ['vary', 'origin'];

type CorsRequest = Pick<RequestHead, 'method' | 'fields'>;

export class Cors {
  readonly #byOrigin: ReadonlyMap<string, CorsFields>;
  // The fields for requests without an allowed origin. If `*` allows any origin, the fields for all requests.
  readonly #others: CorsFields;
  readonly #allowsAny: boolean;

  constructor(origins: readonly string[], allowsCredentials: boolean, maxAgeS: number) {
    this.#allowsAny = origins.includes(anyOrigin);
    const fieldsFor = (origin: string, before: readonly string[]): CorsFields => {
      const credentials = allowsCredentials ? ['access-control-allow-credentials', 'true'] : [];
      const common = [...before, 'access-control-allow-origin', origin, ...credentials];
      return {
        reply: [...common, 'access-control-expose-headers', exposedHeaders],
        preflight: (methods) => [
          ...[...common, 'access-control-allow-methods', methods],
          ...['access-control-allow-headers', allowedHeaders, 'access-control-max-age', String(maxAgeS)],
        ],
      };
    };
    this.#byOrigin = new Map(this.#allowsAny ? [] : origins.map((origin) => [origin, fieldsFor(origin, vary)]));
    this.#others = this.#allowsAny ? fieldsFor(anyOrigin, []) : { reply: vary, preflight: () => vary };
  }

  /** True if the request comes from a page of an allowed origin. False if there are two `origin` fields. */
  allows(fields: readonly string[]): boolean {
    const origin = onlyFieldValue(fields, 'origin');
    return origin !== undefined && (this.#allowsAny || this.#byOrigin.has(origin));
  }

  /** Returns the fields to add after `headers` in the reply. `request` is undefined for a malformed request. */
  fieldsFor(headers: readonly string[], request: CorsRequest | undefined): readonly string[] {
    const origin = request === undefined ? undefined : onlyFieldValue(request.fields, 'origin');
    const fields = (origin === undefined ? undefined : this.#byOrigin.get(origin)) ?? this.#others;
    if (origin !== undefined && request !== undefined && isPreflight(request) && headers.includes('allow')) {
      // The reply to OPTIONS has the path's methods in `allow` [D6]. An error reply to OPTIONS has no `allow`.
      return fields.preflight(headers[headers.indexOf('allow') + 1] ?? '');
    }
    return fields.reply;
  }
}

function isPreflight({ method, fields }: CorsRequest): boolean {
  return method === 'OPTIONS' && fieldValue(fields, 'access-control-request-method') !== undefined;
}

interface CorsFields {
  readonly reply: readonly string[];
  readonly preflight: (methods: string) => readonly string[];
}
