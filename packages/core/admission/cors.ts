// CORS [D45]: decides which origins are allowed, and which header fields the replies get.

import { fieldValue, fieldValues, onlyFieldValue, type RequestHead } from '../http1/head.ts';
import { splitList } from '../text/lists.ts';

export const anyOrigin = '*';

const allowedHeaders = ['authorization', 'content-type', 'x-request-id', 'traceparent', 'tracestate'];
// Largest number of names that a preflight gets in addition to `allowedHeaders`.
const addedHeadersMax = 32;
const headerName = /^[\w!#$%&'*+.^`|~-]+$/;
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
        preflight: (methods, headers) => [
          ...[...common, 'access-control-allow-methods', methods],
          ...['access-control-allow-headers', headers, 'access-control-max-age', String(maxAgeS)],
        ],
      };
    };
    this.#byOrigin = new Map(this.#allowsAny ? [] : origins.map((origin) => [origin, fieldsFor(origin, vary)]));
    this.#others = this.#allowsAny ? fieldsFor(anyOrigin, []) : { reply: vary, preflight: () => vary };
  }

  /** True if the request comes from a page of an allowed origin. */
  allows(fields: readonly string[]): boolean {
    const origin = originOf(fields);
    return origin !== undefined && (this.#allowsAny || this.#byOrigin.has(origin));
  }

  /** Returns the fields to add after `headers` in the reply. `request` is undefined for a malformed request. */
  fieldsFor(headers: readonly string[], request: CorsRequest | undefined): readonly string[] {
    const origin = request === undefined ? undefined : originOf(request.fields);
    const fields = (origin === undefined ? undefined : this.#byOrigin.get(origin)) ?? this.#others;
    if (origin !== undefined && request !== undefined && isPreflight(request) && headers.includes('allow')) {
      // The reply to OPTIONS has the path's methods in `allow` [D6]. An error reply to OPTIONS has no `allow`.
      return fields.preflight(headers[headers.indexOf('allow') + 1] ?? '', headersFor(request.fields));
    }
    return fields.reply;
  }
}

// Undefined if there are two origins, also if a host has joined them. Such a request is not a CORS request.
function originOf(fields: readonly string[]): string | undefined {
  const origin = onlyFieldValue(fields, 'origin');
  return origin !== undefined && /[\s,]/.test(origin) ? undefined : origin;
}

// The headers that a preflight asks for are granted, because a page of an allowed origin may send any header.
function headersFor(fields: readonly string[]): string {
  const names = splitList(fieldValues(fields, 'access-control-request-headers').join().toLowerCase());
  const added = new Set(names.filter((name) => headerName.test(name) && !allowedHeaders.includes(name)));
  return [...allowedHeaders, ...[...added].slice(0, addedHeadersMax)].join(', ');
}

function isPreflight({ method, fields }: CorsRequest): boolean {
  return method === 'OPTIONS' && fieldValue(fields, 'access-control-request-method') !== undefined;
}

interface CorsFields {
  readonly reply: readonly string[];
  readonly preflight: (methods: string, headers: string) => readonly string[];
}
