// The replies that a client can get, each with when it gets it: what the OpenAPI document says of errors.

import { isCrossSiteWrite } from '../../admission/cross-site.ts';
import { parseRate, rateHeaders } from '../../guards/options/rate.ts';
import { scopesOf } from '../../guards/options/token-kinds.ts';
import type { Operation, OperationName } from '../../operations.ts';
import {
  createScopeReply,
  failureReplies,
  notFoundReplies,
  replies,
  replyTooManyRequests,
  type FixedReply,
} from '../../replies.ts';
import { count, hasTokens, present, seconds, type Limits } from './document.ts';

export interface Documented {
  readonly reply: FixedReply;
  readonly when: string;
}

function documented(reply: FixedReply, when: string): Documented {
  return { reply, when };
}

const badRequest = documented(
  replies.badRequest,
  'Not HTTP, or HTTP that two parsers could read in two ways. The connection is closed.',
);

/** Replies on paths that are no operation's. */
export const outsideReplies: readonly Documented[] = [
  documented(replies.notFound, 'No such path.'),
  documented(
    replies.collectionMethodNotAllowed,
    'A method that the path does not have; `Allow` names those that it has.',
  ),
  documented(replies.internalError, 'A fault of the gateway.'),
];

/** Replies to requests that come to no operation. */
function earlyReplies(limits: Limits): Documented[] {
  return [
    documented(
      replies.requestTimeout,
      `The head took longer than ${seconds(limits.requestHeadersTimeoutMs)}, or head and body together longer than ${seconds(limits.requestTimeoutMs)}. The connection is closed.`,
    ),
    documented(replies.expectationFailed, 'An `Expect` other than `100-continue`.'),
    documented(
      replies.headersTooLarge,
      `The target and the headers have more than ${count(limits.requestHeadBytesMax)} bytes. The connection is closed.`,
    ),
  ];
}

function unavailability(limits: Limits): Documented[] {
  return present([
    hasTokens(limits) &&
      documented(replies.noKeys, 'There is no key to check the token with: try again later.'),
    documented(
      replies.overload,
      `More than ${count(limits.inFlightMax)} calls at once, or bodies of more than ${count(limits.bufferedBytesMax)} bytes held for them. The backend is not called: try again after \`Retry-After\` seconds.`,
    ),
  ]);
}

/** The replies that are the same for every operation. */
export function sharedReplies(limits: Limits): Documented[] {
  return [...earlyReplies(limits), ...unavailability(limits)];
}

/** What is refused to pages of other sites, and under other names [D56, D57]. */
function refusal(method: string, { allowedHosts, corsOrigins }: Limits): Documented | undefined {
  const reasons = present([
    isCrossSiteWrite(method, 'cross-site') &&
      `a browser sends it for a page of another site (\`Sec-Fetch-Site: cross-site\`)${corsOrigins.length > 0 ? ' and of no origin that is allowed' : ''}`,
    allowedHosts.length > 0 && '`Host` is no name under which this gateway is called',
  ]);
  return reasons.length === 0
    ? undefined
    : documented(replies.forbidden, `Refused: ${reasons.join(', or ')}. The backend is not called.`);
}

/** What a client gets that makes too many requests [D46]. */
function tooMany({ rateLimit, rateLimitKey }: Limits): Documented | undefined {
  const rate = parseRate(rateLimit);
  if (rate === undefined) {
    return undefined;
  }
  const who = rateLimitKey === 'identity' ? 'whom the token names' : 'from this address (IPv6: from its /64)';
  const windowS = rate.windowMs / 1_000;
  return documented(
    replyTooManyRequests(windowS, rateHeaders(rate, 0, windowS)),
    `More than ${count(rate.limit)} requests in ${seconds(rate.windowMs)} ${who}. The backend is not called: try again after \`Retry-After\` seconds.`,
  );
}

/** The scope that an operation needs, where there are tokens. */
export function scopeOf(name: OperationName, limits: Limits): string | undefined {
  return hasTokens(limits) ? scopesOf(limits.authScopes).get(name) : undefined;
}

/** Every reply of a path to `OPTIONS`, in the order in which it is decided within a status. */
export function methodsReplies(on: Operation['on'], limits: Limits): Documented[] {
  const reply = on === 'collection' ? replies.collectionOptions : replies.itemOptions;
  return present([
    documented(reply, 'The methods of this path.'),
    badRequest,
    refusal('OPTIONS', limits),
    ...earlyReplies(limits),
  ]);
}

/** Every error of an operation, in the order in which it is decided within a status. */
export function errorsOf(operation: Operation, limits: Limits): Documented[] {
  const { name, method, on, takesBody, passesAnswer } = operation;
  const hasNotFound = operation.notFoundMessage !== undefined;
  const isGuarded = hasTokens(limits);
  const scope = scopeOf(name, limits);
  const failures = present([
    'the backend answered with no success status',
    hasNotFound ? ' other than 404' : ' (its 404 is no exception)',
    `, or did not answer in full within ${seconds(limits.backendTimeoutMs)}`,
    passesAnswer && `, or not with JSON, or with more than ${count(limits.responseBytesMax)} bytes of it`,
    takesBody && ', or the request body is not valid JSON (then it was not called)',
  ]);
  return present([
    on === 'item' && documented(replies.invalidId, '`id` holds no integer. The backend is not called.'),
    badRequest,
    refusal(method, limits),
    isGuarded && documented(replies.unauthorized, 'No token. The backend is not called.'),
    isGuarded && documented(replies.invalidToken, 'A token that is not valid, or not any more.'),
    scope !== undefined && documented(createScopeReply(scope), `The token lacks the scope \`${scope}\`.`),
    tooMany(limits),
    hasNotFound && documented(notFoundReplies[name], 'The backend has no such work item.'),
    takesBody &&
      documented(
        replies.bodyTooLarge,
        `The body has more than ${count(limits.requestBytesMax)} bytes. The backend is not called.`,
      ),
    ...earlyReplies(limits),
    documented(failureReplies[name], `Failed: ${failures.join('')}.`),
    ...unavailability(limits),
  ]);
}
