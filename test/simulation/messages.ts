// The bytes of requests, answers and replies, written independently of the gateway: from the specification, sections 4 and
// 7, and test/helpers/expected.ts. Every byte of a body derives from the request's id.

import {
  badRequest,
  forbidden,
  headersTooLarge,
  invalidId,
  itemNotFound,
  methodNotAllowed,
  notFound,
  operation,
  requestTimeout,
  succeeded,
  tooLarge,
  unavailable,
  type Operation,
} from '../helpers/expected.ts';
import type { AnswerPlan, RequestKind, RequestPlan } from './plan.ts';

export const requestBytesMax = 100_000;
export const responseBytesMax = 200_000;
export const headBytesMax = 4_096;

/** A status and a body that a request may get. */
export interface Allowed {
  readonly status: number;
  readonly body: Buffer;
}

export const allow = (status: number, body: string | Buffer): Allowed => ({
  status,
  body: Buffer.from(body as string),
});

const operations: Partial<Record<RequestKind, Operation>> = {
  list: operation(1), create: operation(2), read: operation(3), head: operation(3), update: operation(4), delete: operation(5),
  'bad-json': operation(2), 'too-large': operation(4), 'bad-chunk': operation(2), unfinished: operation(2),
}; // prettier-ignore

/** The operation that a request of this kind calls; undefined if there is none. */
export function operationOf(kind: RequestKind): Operation | undefined {
  return operations[kind];
}

export function isRead({ kind }: RequestPlan): boolean {
  return kind === 'list' || kind === 'read' || kind === 'head';
}

/** JSON of `bytes` bytes, or a few more. */
export function bodyOf(id: number, attempt: number | 'request', bytes: number): Buffer {
  const start = `{"id":${id},"of":"${attempt}","text":"`;
  return Buffer.concat([
    Buffer.from(start),
    Buffer.alloc(Math.max(0, bytes - start.length - 2), `${id}.`),
    Buffer.from('"}'),
  ]);
}

const fixed: Partial<Record<RequestKind, Allowed>> = {
  'bad-id': allow(400, invalidId),
  'no-path': allow(404, notFound),
  'bad-method': allow(405, methodNotAllowed),
  options: allow(204, ''),
  'no-version': allow(400, badRequest),
  'two-hosts': allow(400, badRequest),
  'two-lengths': allow(400, badRequest),
  garbage: allow(400, badRequest),
  'bad-name': allow(400, badRequest),
  'bad-chunk': allow(400, badRequest),
  'long-head': allow(431, headersTooLarge),
  unfinished: allow(408, requestTimeout),
  'too-large': allow(413, tooLarge),
  'bad-json': allow(500, operation(2).failure),
};

/** The only reply to a request that never reaches the backend; undefined if the backend decides. */
export function fixedReply(kind: RequestKind): Allowed | undefined {
  return fixed[kind];
}

const malformed: readonly RequestKind[] = [
  'no-version',
  'two-hosts',
  'two-lengths',
  'garbage',
  'bad-name',
  'bad-chunk',
  'long-head',
  'unfinished',
];

/** True if the connection ends with the reply, because the next request's start is unknown. */
export function endsConnection({ kind }: RequestPlan): boolean {
  return malformed.includes(kind);
}

export const incomplete = allow(400, badRequest);
export const timedOut = allow(408, requestTimeout);
export const overloaded = allow(503, unavailable);
export const forbiddenReply = allow(403, forbidden);
export const rateLimited = allow(429, '{"error":"Too many requests"}');

export const requestIdOf = (id: number): string => `simulated.${id}`;

export interface RequestParts {
  readonly method: string;
  readonly target: string;
  readonly headers: [name: string, value: string][];
  readonly body: Buffer;
}

const targets: Partial<Record<RequestKind, (id: number) => string>> = {
  'bad-id': () => '/api/work-items/x1',
  'no-path': () => '/api/nothing',
  'bad-method': () => '/api/work-items',
  options: (id) => `/api/work-items/${id}`,
};

export function requestParts({ id, kind, bytes, conditions }: RequestPlan): RequestParts {
  const called = operationOf(kind);
  const method =
    kind === 'head'
      ? 'HEAD'
      : kind === 'bad-method'
        ? 'PATCH'
        : kind === 'options'
          ? 'OPTIONS'
          : (called?.method ?? 'GET');
  const item = called?.path.startsWith('/api/work-items/') === true;
  const headers: RequestParts['headers'] = [['x-request-id', requestIdOf(id)]];
  if (conditions) headers.push(['if-match', `"v${id}"`], ['cookie', 'secret=1']);
  const takesBody = called?.options.body !== undefined;
  const size = kind === 'too-large' ? requestBytesMax + 1 : Math.min(bytes, requestBytesMax);
  const body = takesBody ? bodyOf(id, 'request', size) : Buffer.alloc(0);
  if (kind === 'bad-json') body[body.length - 1] = 0x5d;
  return { method, target: targets[kind]?.(id) ?? (item ? `/api/work-items/${id}` : '/api/work-items'), headers, body };
}

export interface RequestBytes {
  readonly head: Buffer;
  readonly body: Buffer;
}

/** The bytes of a request over HTTP/1.1. */
export function requestBytes(plan: RequestPlan): RequestBytes {
  const { kind, isChunked, expects } = plan;
  const { method, target, headers, body } = requestParts(plan);
  const chunked = kind === 'bad-chunk' || (isChunked && body.length > 0 && kind !== 'unfinished');
  const lines = headers.map(([name, value]) => `${name}: ${value}`);
  lines.push('host: gateway.test');
  if (kind === 'two-hosts') lines.push('host: other.test');
  if (kind === 'bad-name') lines.push('bad name: 1');
  if (kind === 'long-head') lines.push(`x-long: ${'x'.repeat(headBytesMax)}`);
  if (chunked || kind === 'two-lengths') lines.push('transfer-encoding: chunked');
  if (!chunked && (body.length > 0 || kind === 'two-lengths')) lines.push(`content-length: ${body.length}`);
  if (expects && body.length > 0) lines.push('expect: 100-continue');
  const start =
    kind === 'garbage' ? '\x16\x03\x01\x02' : `${method} ${target}${kind === 'no-version' ? '' : ' HTTP/1.1'}`;
  const head = Buffer.from(`${start}\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  if (kind === 'unfinished') return { head, body: body.subarray(0, body.length - 1) };
  if (kind === 'bad-chunk') return { head, body: Buffer.from('zz\r\n') };
  return { head, body: chunked ? inChunks(body) : body };
}

function inChunks(body: Buffer): Buffer {
  const middle = Math.ceil(body.length / 3);
  const parts = [body.subarray(0, middle), body.subarray(middle)].filter(({ length }) => length > 0);
  const framed = parts.flatMap((part) => [Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n')]);
  return Buffer.concat([...framed, Buffer.from('0\r\n\r\n')]);
}

/** The head of the call that the backend must get, with its body [D12, D23, D67]. */
export function backendCall(plan: RequestPlan): RequestBytes {
  const called = operationOf(plan.kind);
  const { body, method } = requestParts(plan);
  const item = called?.backendTarget === '/api/WorkItem' ? '' : `/${plan.id}`;
  const condition = plan.conditions && !isRead(plan) ? `if-match: "v${plan.id}"\r\n` : '';
  const length = body.length === 0 ? '' : `content-length: ${body.length}\r\n`;
  const id = requestIdOf(plan.id);
  const head = `${method === 'HEAD' ? 'GET' : method} /api/WorkItem${item} HTTP/1.1\r\nhost: backend.test:5104\r\ncontent-type: application/json\r\nx-request-id: ${id}\r\n${condition}${length}\r\n`;
  return { head: Buffer.from(head, 'latin1'), body };
}

export interface AnswerBytes {
  readonly bytes: Buffer;
  /** The end of the final head. */
  readonly headEnd: number;
  /** The end of the message; Infinity if the end of the connection ends it. */
  readonly end: number;
  /** The bytes that a client gets if the answer is passed on. */
  readonly body: Buffer;
  /** The connection may be used again. */
  readonly persists: boolean;
}

const hasNoBody = (status: number): boolean => status === 204 || status === 304;

export function answerBytes(plan: RequestPlan, attempt: number, answer: AnswerPlan): AnswerBytes {
  const { status, bytes, framing, body: kind, head: headKind, then, cut, cutAt } = answer;
  const json = kind === 'number' ? Buffer.from(String(plan.id)) : bodyOf(plan.id, attempt, bytes);
  if (kind === 'not-json') json[json.length - 1] = 0x5d;
  const body = hasNoBody(status) ? Buffer.alloc(0) : json;
  const lines = ['x-secret: backend', ...(then === 'announce' ? ['connection: close'] : [])];
  // A length that is one too long or, with bytes behind the answer, too short.
  const announced = body.length + (cut === 'short' && cutAt < 1 ? 1 : 0);
  if (framing === 'length' && !hasNoBody(status)) lines.push(`content-length: ${announced}`);
  if (framing === 'chunked' && !hasNoBody(status)) lines.push('transfer-encoding: chunked');
  if (headKind === 'two-lengths') lines.push('content-length: 1', 'content-length: 2');
  const before = headKind === '1xx' ? 'HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 102 \r\n\r\n' : '';
  const first =
    headKind === 'switching'
      ? 'HTTP/1.1 101 Switching'
      : headKind === 'bad'
        ? 'HTTP/9 200'
        : `HTTP/1.1 ${status} secret`;
  const head = Buffer.from(`${before}${first}\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  const framed = framing === 'chunked' && !hasNoBody(status) ? inChunks(body) : body;
  const all = Buffer.concat([head, framed]);
  const length = hasNoBody(status) || framing !== 'length' ? all.length : head.length + announced;
  const isUntilClose = framing === 'until-close' && !hasNoBody(status);
  return {
    bytes: all,
    headEnd: head.length,
    end: isUntilClose ? Infinity : length,
    body,
    persists: !isUntilClose && then !== 'announce',
  };
}

/**
 * Returns what a complete answer means for the client [spec 4 and 7]. `headOnly`: no more than its head has arrived;
 * undefined if that does not decide.
 */
export function replyToAnswer(
  plan: RequestPlan,
  answer: AnswerPlan,
  bytes: AnswerBytes,
  headOnly: boolean,
): Allowed | undefined {
  const called = operationOf(plan.kind) ?? operation(1);
  const { status, body, head } = answer;
  const failure = allow(500, called.failure);
  if (head !== 'good' && head !== '1xx') return failure;
  if (status === 404 && called === operation(3)) return allow(404, itemNotFound);
  if (status > 299) return failure;
  if (!called.passesBody) return allow(called.status, succeeded);
  if (headOnly) return undefined;
  const isJson = body !== 'not-json' && !hasNoBody(status);
  return isJson && bytes.body.length <= responseBytesMax ? { status: called.status, body: bytes.body } : failure;
}
