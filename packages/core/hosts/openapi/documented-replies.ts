// The error replies in the OpenAPI document, each with the condition under which a client gets it.

import { isCrossSiteWrite } from '../../admission/cross-site.ts';
import { parseRate, rateHeaders } from '../../options/rate.ts';
import { scopesOf } from '../../options/guard-kinds.ts';
import { isRead, type Operation, type OperationName } from '../../operations.ts';
import {
  createScopeReply,
  failureReplies,
  notFoundReplies,
  replies,
  replyTooManyRequests,
  type FixedReply,
} from '../../replies.ts';
import { count, hasTokens, present, seconds, type Limits } from './document.ts';

export type DocumentedReply = readonly [reply: FixedReply, when: string];

const badRequest: DocumentedReply = [
  replies.badRequest,
  'The request is malformed, or two parsers could read it differently. The connection is closed.',
];

/** Replies to requests that belong to no operation. */
export const outsideReplies: readonly DocumentedReply[] = [
  [replies.notFound, 'No such path.'],
  [replies.collectionMethodNotAllowed, 'The path does not support this method; `Allow` lists the supported methods.'],
  [replies.internalError, 'A fault of the gateway.'],
];

/** Replies that all operations share: to requests refused before they reach an operation, and the 503. */
export function sharedReplies(limits: Limits): DocumentedReply[] {
  return present<DocumentedReply>([
    [
      replies.requestTimeout,
      `The head took longer than ${seconds(limits.requestHeadersTimeoutMs)}, or head and body together longer than ${seconds(limits.requestTimeoutMs)}. The connection is closed.`,
    ],
    [replies.expectationFailed, '`Expect` has a value other than `100-continue`.'],
    [
      replies.headersTooLarge,
      `The target and the headers are larger than ${count(limits.requestHeadBytesMax)} bytes. The connection is closed.`,
    ],
    hasTokens(limits) && [replies.noKeys, 'The gateway has no key to verify the token with: try again later.'],
    [
      replies.overload,
      `More than ${count(limits.inFlightMax)} calls are in flight, or bodies fill more than ${count(limits.bufferedBytesMax)} bytes of memory. The backend is not called: try again after \`Retry-After\` seconds.`,
    ],
  ]);
}

/** The 403 for pages of other sites and for forbidden host names [D56, D57]; undefined if no request gets a 403. */
function refusal(method: string, { allowedHosts, corsOrigins }: Limits): DocumentedReply | undefined {
  const reasons = present([
    isCrossSiteWrite({ method, target: '', fields: ['origin', 'null'] }, () => false) &&
      `a page of another site${corsOrigins.length > 0 ? ', whose origin is not allowed,' : ''} made the browser send the request (\`Sec-Fetch-Site: cross-site\`, or without this header the \`Origin\` of another site)`,
    allowedHosts.length > 0 && '`Host` is not an allowed name of this gateway',
  ]);
  return reasons.length === 0
    ? undefined
    : [replies.forbidden, `Refused: ${reasons.join(', or ')}. The backend is not called.`];
}

/** The 429 of the rate limit [D46]; undefined if there is no rate limit. */
function tooMany({ rateLimit, rateLimitKey }: Limits): DocumentedReply | undefined {
  const rate = parseRate(rateLimit);
  if (rate === undefined) return undefined;
  const who = rateLimitKey === 'identity' ? "by the token's subject" : 'from this address (IPv6: from its /64)';
  const windowS = rate.windowMs / 1_000;
  return [
    replyTooManyRequests(windowS, rateHeaders(rate, 0, windowS)),
    `More than ${count(rate.limit)} requests in ${seconds(rate.windowMs)} ${who}. The backend is not called: try again after \`Retry-After\` seconds.`,
  ];
}

/** The scope that an operation requires; undefined if it requires none, or if tokens are off. */
export function scopeOf(name: OperationName, limits: Limits): string | undefined {
  return hasTokens(limits) ? scopesOf(limits.authScopes).get(name) : undefined;
}

/** All replies to `OPTIONS` on a path. Replies with the same status are in the order of the gateway's checks. */
export function methodsReplies(on: Operation['on'], limits: Limits): DocumentedReply[] {
  const reply = on === 'collection' ? replies.collectionOptions : replies.itemOptions;
  const shared = sharedReplies(limits).filter(([{ status }]) => status !== 503);
  return present([[reply, 'The methods of this path.'], badRequest, refusal('OPTIONS', limits), ...shared]);
}

/** All error replies of an operation. Replies with the same status are in the order of the gateway's checks. */
export function errorsOf(operation: Operation, limits: Limits): DocumentedReply[] {
  const { name, method, on, takesBody, passesAnswer } = operation;
  const hasNotFound = operation.notFoundMessage !== undefined;
  const isGuarded = hasTokens(limits);
  const scope = scopeOf(name, limits);
  const failures = present([
    hasNotFound
      ? 'the backend answered with a status other than 2xx and 404'
      : 'the backend answered with a status other than 2xx, for instance 404',
    `, or its answer was not complete within ${seconds(limits.backendTimeoutMs)}`,
    passesAnswer && `, was not JSON, or had more than ${count(limits.responseBytesMax)} bytes`,
    takesBody && ', or the request body is not valid JSON (then the backend is not called)',
  ]);
  return present<DocumentedReply>([
    on === 'item' && [replies.invalidId, '`id` is not an integer. The backend is not called.'],
    badRequest,
    !isRead(operation) && [
      replies.badRequest,
      `A condition cannot be passed on: it is longer than 1,024 bytes, is not printable ASCII, or comes twice${method === 'PUT' ? ', or there is a `Content-Range`' : ''}. The backend is not called.`,
    ],
    refusal(method, limits),
    isGuarded && [replies.unauthorized, 'No token. The backend is not called.'],
    isGuarded && [replies.invalidToken, 'The token is invalid or expired.'],
    scope !== undefined && [createScopeReply(scope), `The token lacks the scope \`${scope}\`.`],
    tooMany(limits),
    hasNotFound && [notFoundReplies[name], 'The backend has no such work item.'],
    takesBody && [
      replies.bodyTooLarge,
      `The body is larger than ${count(limits.requestBytesMax)} bytes. The backend is not called.`,
    ],
    [failureReplies[name], `Failed: ${failures.join('')}.`],
    ...sharedReplies(limits),
  ]);
}
