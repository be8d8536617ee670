// Describes reply headers and request parameters in the OpenAPI document.

import { anyOrigin } from '../../admission/cors.ts';
import { hasTokens, type JsonObject, type Limits } from './document.ts';

const text: JsonObject = { type: 'string' };
const natural: JsonObject = { type: 'integer', minimum: 0 };
const requestId: JsonObject = { ...text, pattern: '^[A-Za-z0-9._~-]{1,128}$' };

interface Header {
  readonly name: string;
  readonly described: JsonObject;
}

/** A header that is in every reply for which the document lists it. */
function required(name: string, description: string, schema = text): Header {
  return { name, described: { description, required: true, schema } };
}

function optional(name: string, description: string, schema = text): Header {
  return { name, described: { description, required: false, schema } };
}

function constant(value: string): JsonObject {
  return { ...text, const: value };
}

/** Describes the headers of replies, by their names in lower case. */
export function describeHeaders(limits: Limits): ReadonlyMap<string, Header> {
  const { corsOrigins, corsCredentials, corsMaxAgeS, rateLimit } = limits;
  const hasCors = corsOrigins.length > 0;
  const isForAny = corsOrigins.includes(anyOrigin);
  const toAllowed = isForAny ? '' : ' Only for a page of an allowed origin.';
  const toPreflight = ' Only for a CORS preflight of an allowed origin.';
  const mayRead = 'The origin whose page may read the reply.';
  const headers: Readonly<Record<string, Header | false>> = {
    'x-request-id': required('RequestId', "The request's id: the client's own, or a new one.", requestId),
    'cache-control': required('CacheControl', 'No reply may be cached.', constant('no-store')),
    'x-content-type-options': required(
      'ContentTypeOptions',
      'Browsers must not guess another content type.',
      constant('nosniff'),
    ),
    'content-length': required('ContentLength', "The body's exact length in bytes.", natural),
    'retry-after': required('RetryAfter', 'Seconds to wait.', natural),
    'www-authenticate':
      hasTokens(limits) &&
      optional(
        'WwwAuthenticate',
        'The expected authentication, and the error of the token [RFC 6750]. Missing if a page was refused.',
      ),
    allow: required('Allow', 'The methods that the path supports.'),
    vary: hasCors && !isForAny && required('Vary', "Replies depend on the page's origin.", constant('origin')),
    'access-control-allow-origin':
      hasCors &&
      (isForAny ? required('CorsOrigin', mayRead, constant(anyOrigin)) : optional('CorsOrigin', mayRead + toAllowed)),
    'access-control-allow-credentials':
      hasCors &&
      corsCredentials &&
      optional('CorsCredentials', `The page may call with credentials.${toAllowed}`, constant('true')),
    'access-control-expose-headers':
      hasCors && optional('CorsExposedHeaders', `The headers that the page may read.${toAllowed}`),
    'access-control-allow-methods':
      hasCors && optional('CorsMethods', `The methods that the page may call with.${toPreflight}`),
    'access-control-allow-headers':
      hasCors && optional('CorsHeaders', `The headers that the page may send.${toPreflight}`),
    'access-control-max-age':
      hasCors &&
      optional('CorsMaxAge', `How long the browser may cache this reply, in seconds.${toPreflight}`, {
        type: 'integer',
        const: corsMaxAgeS,
      }),
    'ratelimit-policy':
      rateLimit !== '' &&
      optional(
        'RateLimitPolicy',
        'The limit: `q` requests in `w` seconds (draft-ietf-httpapi-ratelimit-headers, a structured field). Every reply to a request that counts has it.',
        { ...text, pattern: '^"default";q=\\d+;w=\\d+$' },
      ),
    ratelimit:
      rateLimit !== '' &&
      optional(
        'RateLimit',
        'The rest of the limit: `r` requests until the window ends in `t` seconds. Every reply to a request that counts has it.',
        { ...text, pattern: '^"default";r=\\d+;t=\\d+$' },
      ),
  };
  return new Map(Object.entries(headers).filter((each): each is [string, Header] => each[1] !== false));
}

/** Describes the parameters of requests, by their names in the document. */
export function describeParameters({ itemIdParsing }: Limits): JsonObject {
  return {
    Id: {
      name: 'id',
      in: 'path',
      required: true,
      description:
        itemIdParsing === 'leading'
          ? 'A base-10 integer of any length; anything after its digits is ignored (`12abc` is 12).'
          : 'A base-10 integer of any length, and nothing else.',
      schema: { type: 'integer' },
      example: 1,
    },
    RequestId: inHeader(
      'x-request-id',
      "Repeated in the reply, the gateway's log and the call to the backend. If it is missing or malformed, a new one is generated.",
      requestId,
    ),
    TraceParent: inHeader('traceparent', 'W3C trace context, passed to the backend if it is well-formed.'),
    TraceState: inHeader('tracestate', 'Passed on with `traceparent`.'),
  };
}

function inHeader(name: string, description: string, schema = text): JsonObject {
  return { name, in: 'header', description, schema };
}
