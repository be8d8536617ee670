// The fixed replies: status, headers and body. Every reply to a request for an operation is one of these or has the
// backend's JSON as its body [spec 7, rule 2].

import type { BrokenReason, ReplyHead } from './http1/transport.ts';
import { createReplyHead } from './http1/writer.ts';
import { operations, type Operation, type OperationName } from './operations.ts';
import type { Reason } from './reasons.ts';

/** A reply with constant headers and body. Headers that vary are added when the reply is sent [D24]. */
export interface FixedReply extends ReplyHead {
  readonly body: Buffer;
}

export function createFixedReply(status: number, headers: readonly string[], body: Buffer): FixedReply {
  return { ...createReplyHead(status, headers), body };
}

/** Returns header names and values: `content-type` if given, the headers that every reply has, and `others` [D24]. */
export function replyHeaders(contentType: string | undefined, others: readonly string[] = []): string[] {
  return [
    ...(contentType === undefined ? [] : ['content-type', contentType]),
    'cache-control',
    'no-store',
    'x-content-type-options',
    'nosniff',
    ...others,
  ];
}

const json = 'application/json';

/** Serves pages on paths that belong to no operation. */
export interface Pages {
  replyTo(path: string, method: string): FixedReply | undefined;
}

function errorReply(status: number, message: string, headers: readonly string[] = []): FixedReply {
  return createFixedReply(status, replyHeaders(json, headers), Buffer.from(JSON.stringify({ error: message })));
}

function optionsReply(methods: string): FixedReply {
  return createFixedReply(204, replyHeaders(undefined, ['allow', methods]), Buffer.alloc(0));
}

export const collectionMethods = 'GET, HEAD, POST, OPTIONS';
export const itemMethods = 'GET, HEAD, PUT, DELETE, OPTIONS';
const pageMethods = 'GET, HEAD, OPTIONS';

// The challenge to clients without a valid token, in `www-authenticate` [RFC 6750, 3; D43].
const challenge = 'Bearer realm="work-items"';

export const replies = {
  success: createFixedReply(200, replyHeaders(json), Buffer.from('{"success":true}')),
  invalidId: errorReply(400, 'Invalid ID format'),
  unauthorized: errorReply(401, 'Unauthorized', ['www-authenticate', challenge]),
  invalidToken: errorReply(401, 'Unauthorized', ['www-authenticate', `${challenge}, error="invalid_token"`]),
  forbidden: errorReply(403, 'Forbidden'),
  bodyTooLarge: errorReply(413, 'Request body too large'),
  notFound: errorReply(404, 'Not found'),
  collectionMethodNotAllowed: errorReply(405, 'Method not allowed', ['allow', collectionMethods]),
  itemMethodNotAllowed: errorReply(405, 'Method not allowed', ['allow', itemMethods]),
  pageMethodNotAllowed: errorReply(405, 'Method not allowed', ['allow', pageMethods]),
  connectNotAllowed: errorReply(405, 'Method not allowed', ['allow', '']),
  collectionOptions: optionsReply(collectionMethods),
  itemOptions: optionsReply(itemMethods),
  pageOptions: optionsReply(pageMethods),
  overload: errorReply(503, 'Service unavailable', ['retry-after', '1']),
  noKeys: errorReply(503, 'Service unavailable', ['retry-after', '1']),
  badRequest: errorReply(400, 'Bad request'),
  requestTimeout: errorReply(408, 'Request timeout'),
  expectationFailed: errorReply(417, 'Expectation failed'),
  headersTooLarge: errorReply(431, 'Request header fields too large'),
  internalError: errorReply(500, 'Internal server error'),
};

/** Returns the reply to a request over the rate limit [D46]. `headers` (names and values) describe the limit. */
export function replyTooManyRequests(seconds: number, headers: readonly string[]): FixedReply {
  return errorReply(429, 'Too many requests', ['retry-after', String(seconds), ...headers]);
}

/** Returns the 403 for a token without `scope`. A scope has no quotes or backslashes to escape [RFC 6749, 3.3; D43]. */
export function createScopeReply(scope: string): FixedReply {
  const value = `${challenge}, error="insufficient_scope", scope="${scope}"`;
  return errorReply(403, 'Forbidden', ['www-authenticate', value]);
}

/** Returns the reply to a request that is malformed or late, or whose body exceeds the free memory [D26, D27, D35]. */
export function describeBroken(reason: BrokenReason): { reply: FixedReply; code: Reason; cause: string } {
  const { requestTimeout, overload, headersTooLarge, badRequest } = replies;
  if (reason === 'timeout')
    return { reply: requestTimeout, code: 'request-timeout', cause: 'a request that timed out' };
  if (reason === 'overload') return { reply: overload, code: 'no-room', cause: 'no room for the body' };
  const { kind: code, reason: cause } = reason;
  return { reply: code === 'head-too-large' ? headersTooLarge : badRequest, code, cause };
}

/** The heads of replies that pass on the backend's JSON, one for each operation [spec 4]. */
export const answerHeads = perOperation(({ successStatus }) => createReplyHead(successStatus, replyHeaders(json)));

/** The 500 reply of each operation [spec 7]. */
export const failureReplies = perOperation((operation) => errorReply(500, operation.failureMessage));

/** Each operation's reply if the backend answers 404: a 404 for `read`, a 500 for all others [spec 7, rule 1]. */
export const notFoundReplies = perOperation((operation) =>
  operation.notFoundMessage === undefined ? failureReplies[operation.name] : errorReply(404, operation.notFoundMessage),
);

function perOperation<Part>(build: (operation: Operation) => Part): Record<OperationName, Part> {
  return Object.fromEntries(operations.map((operation) => [operation.name, build(operation)])) as Record<
    OperationName,
    Part
  >;
}
