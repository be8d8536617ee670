// Describes reply headers and request parameters in the OpenAPI document.

import { anyOrigin } from '../../admission/cors.ts';
import type { FixedReply } from '../../replies.ts';
import { hasTokens, refTo, type JsonObject, type Limits } from './document.ts';

const text: JsonObject = { type: 'string' };
const natural: JsonObject = { type: 'integer', minimum: 0 };
// A condition of a write [D67].
const condition: JsonObject = { ...text, pattern: '^[ -~]+$', minLength: 1, maxLength: 1_024 };
const conditions = [
  ['IfMatch', 'if-match', 'The backend writes only if the item still has one of these tags.'],
  ['IfNoneMatch', 'if-none-match', 'The backend writes only if no item has one of these tags.'],
  ['IfUnmodifiedSince', 'if-unmodified-since', 'The backend writes only if the item has not changed since.'],
  ['IdempotencyKey', 'idempotency-key', 'The backend recognizes a repeated request by this key.'],
] as const;
const requestId: JsonObject = { ...text, pattern: '^[A-Za-z0-9._~-]{1,128}$' };

/** A header that is in every reply for which the document lists it. */
function required(description: string, schema = text): JsonObject {
  return { description, required: true, schema };
}

function optional(description: string, schema = text): JsonObject {
  return { description, required: false, schema };
}

function constant(value: string): JsonObject {
  return { ...text, const: value };
}

/** Describes the headers of replies. The keys are the headers' names in lower case. */
export function describeHeaders(limits: Limits): JsonObject {
  return {
    'x-request-id': required("The request's id: the client's id, or a new id.", requestId),
    'cache-control': required('No reply may be cached.', constant('no-store')),
    'x-content-type-options': required('Browsers must not guess another content type.', constant('nosniff')),
    'content-length': required("The body's exact length in bytes.", natural),
    'retry-after': required('Seconds to wait.', natural),
    ...(hasTokens(limits) && {
      'www-authenticate': optional(
        'The expected authentication, and the error of the token [RFC 6750]. A 403 does not have this header if its reason is a page of another site or a `Host` that is not allowed.',
      ),
    }),
    allow: required('The methods that the path supports.'),
    ...(limits.corsOrigins.length > 0 && describeCors(limits)),
    ...(limits.rateLimit !== '' && {
      'ratelimit-policy': optional(
        'The limit: `q` requests in `w` seconds (draft-ietf-httpapi-ratelimit-headers, a structured field). Present in every reply to a request that the limit counts.',
        { ...text, pattern: '^"default";q=\\d+;w=\\d+$' },
      ),
      ratelimit: optional(
        'The rest of the limit: `r` more requests are accepted before the window ends, in `t` seconds. Present in every reply to a request that the limit counts.',
        { ...text, pattern: '^"default";r=\\d+;t=\\d+$' },
      ),
    }),
  };
}

function describeCors({ corsOrigins, corsCredentials, corsMaxAgeS }: Limits): JsonObject {
  const isForAny = corsOrigins.includes(anyOrigin);
  const toAllowed = isForAny ? '' : ' Present only for a page of an allowed origin.';
  const toPreflight = ' Present only for a CORS preflight of an allowed origin.';
  const mayRead = 'The origin whose page may read the reply.';
  return {
    ...(!isForAny && { vary: required("Replies depend on the page's origin.", constant('origin')) }),
    'access-control-allow-origin': isForAny ? required(mayRead, constant(anyOrigin)) : optional(mayRead + toAllowed),
    ...(corsCredentials && {
      'access-control-allow-credentials': optional(`The page may call with credentials.${toAllowed}`, constant('true')),
    }),
    'access-control-expose-headers': optional(`The headers that the page may read.${toAllowed}`),
    'access-control-allow-methods': optional(`The methods that the page may call with.${toPreflight}`),
    'access-control-allow-headers': optional(`The headers that the page may send.${toPreflight}`),
    'access-control-max-age': optional(`How long the browser may cache this reply, in seconds.${toPreflight}`, {
      type: 'integer',
      const: corsMaxAgeS,
    }),
  };
}

const preflightHeaders = /^access-control-(?:allow-methods|allow-headers|max-age)$/;
const corsHeaders = /^(?:vary|access-control-.*)$/;

// The statuses of replies to requests that the rate limit has counted [D64]. Replies with other statuses are sent before
// the rate limit counts the request.
const countedStatuses: ReadonlySet<number> = new Set([200, 201, 400, 404, 408, 413, 429, 500, 503]);

/** Lists a reply's fixed and varying headers [D24], except `content-type`, which is the key of `content` in OpenAPI. */
export function listHeaders({ status, headers, body }: FixedReply, limits: Limits): JsonObject {
  const described = describeHeaders(limits);
  const isPreflight = headers.includes('allow') && body.length === 0;
  const names = new Set([
    'x-request-id',
    ...(body.length > 0 ? ['content-length'] : []),
    ...headers.filter((_, index) => index % 2 === 0),
    ...Object.keys(described).filter((name) => corsHeaders.test(name) && (isPreflight || !preflightHeaders.test(name))),
    ...(countedStatuses.has(status) ? ['ratelimit-policy', 'ratelimit'] : []),
  ]);
  const listed = [...names].filter((name) => name in described);
  return Object.fromEntries(listed.map((name) => [name, refTo('headers', name)]));
}

/** Describes the parameters of requests. The keys are the parameters' names in the document. */
export function describeParameters({ itemIdParsing }: Limits): JsonObject {
  return {
    Id: {
      name: 'id',
      in: 'path',
      required: true,
      description:
        itemIdParsing === 'leading'
          ? 'A base-10 integer of any length; anything after its digits is ignored (`12abc` is 12, `1.5e+06` is 1).'
          : 'A base-10 integer of any length, and nothing else.',
      // Most ids fit, and without a format generators choose a type of 32 bits.
      schema: { type: 'integer', format: 'int64' },
      example: 1,
    },
    RequestId: inHeader(
      'x-request-id',
      "Repeated in the reply, the gateway's log and the call to the backend. If it is missing or malformed, a new id is generated.",
      requestId,
    ),
    TraceParent: inHeader('traceparent', 'W3C trace context, passed to the backend if it is well-formed.'),
    TraceState: inHeader('tracestate', 'Passed on with `traceparent`.'),
    ...Object.fromEntries(
      conditions.map(([key, name, what]) => [
        key,
        inHeader(name, `Passed to the backend, or refused with 400. ${what}`, condition),
      ]),
    ),
  };
}

function inHeader(name: string, description: string, schema = text): JsonObject {
  return { name, in: 'header', description, schema };
}
