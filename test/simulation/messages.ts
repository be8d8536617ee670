// The bytes of requests, answers and replies, written independently of the gateway: from the specification, sections 4 and
// 7, and test/helpers/expected.ts. Every byte of a body derives from the request's id.

import * as texts from '../helpers/expected.ts';
import { malformedKinds, type AnswerPlan, type RequestKind, type RequestPlan } from './plan.ts';

export const bodyLimits = { requestBytesMax: 100_000, responseBytesMax: 200_000 };
const { requestBytesMax, responseBytesMax } = bodyLimits;
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
export const incomplete = allow(400, texts.badRequest);
export const unauthorized = allow(401, '{"error":"Unauthorized"}');
export const forbidden = allow(403, texts.forbidden);
export const timedOut = allow(408, texts.requestTimeout);
export const rateLimited = allow(429, '{"error":"Too many requests"}');
export const unavailable = allow(503, texts.unavailable);

interface Kind {
  /** The operation that a request of this kind calls. */
  readonly operation?: texts.Operation;
  readonly method?: string;
  readonly target?: string;
  /** The only reply to a request that never reaches the backend; missing if the backend decides. */
  readonly reply?: Allowed;
}

const [list, create, read, update, remove] = ([1, 2, 3, 4, 5] as const).map(texts.operation);
const kinds = {
  list: { operation: list },
  create: { operation: create },
  read: { operation: read },
  head: { operation: read, method: 'HEAD' },
  update: { operation: update },
  delete: { operation: remove },
  'bad-id': { target: '/api/work-items/x1', reply: allow(400, texts.invalidId) },
  'no-path': { target: '/api/nothing', reply: allow(404, texts.notFound) },
  'bad-method': { method: 'PATCH', reply: allow(405, texts.methodNotAllowed) },
  options: { method: 'OPTIONS', target: '/api/work-items/1', reply: allow(204, '') },
  'too-large': { operation: update, reply: allow(413, texts.tooLarge) },
  'bad-json': { operation: create, reply: allow(500, create?.failure ?? '') },
  'no-version': { reply: incomplete },
  'two-hosts': { reply: incomplete },
  'two-lengths': { reply: incomplete },
  garbage: { reply: incomplete },
  'bad-name': { reply: incomplete },
  'bad-chunk': { operation: create, reply: incomplete },
  'long-head': { reply: allow(431, texts.headersTooLarge) },
  unfinished: { operation: create, reply: timedOut },
} as Readonly<Record<RequestKind, Kind>>;

export const operationOf = ({ kind }: RequestPlan): texts.Operation | undefined => kinds[kind].operation;
export const fixedReply = ({ kind }: RequestPlan): Allowed | undefined => kinds[kind].reply;
export const isRead = ({ kind }: RequestPlan): boolean => kind === 'list' || kind === 'read' || kind === 'head';
/** True if the connection ends with the reply. */
export const isMalformed = ({ kind }: RequestPlan): boolean => malformedKinds.some((each) => each === kind);
export const requestIdOf = (id: number): string => `simulated.${id}`;

/** JSON of `bytes` bytes, or a few more. */
function bodyOf(id: number, attempt: number | 'request', bytes: number): Buffer {
  const start = Buffer.from(`{"id":${id},"of":"${attempt}","text":"`);
  return Buffer.concat([start, Buffer.alloc(Math.max(0, bytes - start.length - 2), `${id}.`), Buffer.from('"}')]);
}

interface RequestParts {
  readonly method: string;
  readonly target: string;
  readonly headers: [name: string, value: string][];
  readonly body: Buffer;
}

/** `token`: the token of the client; undefined if it has none. */
export function requestParts({ id, kind, bytes, conditions }: RequestPlan, token?: string): RequestParts {
  const { operation: called, method = called?.method ?? 'GET', target } = kinds[kind];
  const isOfItem = called?.path.startsWith('/api/work-items/') === true;
  const headers: RequestParts['headers'] = [['x-request-id', requestIdOf(id)]];
  if (token !== undefined) headers.push(['authorization', `Bearer ${token}`]);
  if (conditions) headers.push(['if-match', `"v${id}"`], ['cookie', 'secret=1']);
  const size = kind === 'too-large' ? requestBytesMax + 1 : Math.min(bytes, requestBytesMax);
  const body = called?.options.body === undefined ? Buffer.alloc(0) : bodyOf(id, 'request', size);
  if (kind === 'bad-json') body[body.length - 1] = 0x5d;
  return { method, target: target ?? (isOfItem ? `/api/work-items/${id}` : '/api/work-items'), headers, body };
}

export interface RequestBytes {
  readonly head: Buffer;
  readonly body: Buffer;
}

/** The bytes of a request over HTTP/1.1. */
export function requestBytes(plan: RequestPlan, token?: string): RequestBytes {
  const { kind, isChunked, expects } = plan;
  const { method, target, headers, body } = requestParts(plan, token);
  const chunked = kind === 'bad-chunk' || (isChunked && body.length > 0 && kind !== 'unfinished');
  const lines = [...headers.map(([name, value]) => `${name}: ${value}`), 'host: gateway.test'];
  if (kind === 'two-hosts') lines.push('host: other.test');
  if (kind === 'bad-name') lines.push('bad name: 1');
  if (kind === 'long-head') lines.push(`x-long: ${'x'.repeat(headBytesMax)}`);
  if (chunked || kind === 'two-lengths') lines.push('transfer-encoding: chunked');
  if (!chunked && (body.length > 0 || kind === 'two-lengths')) lines.push(`content-length: ${body.length}`);
  if (expects && body.length > 0) lines.push('expect: 100-continue');
  const line =
    kind === 'garbage' ? '\x16\x03\x01\x02' : `${method} ${target}${kind === 'no-version' ? '' : ' HTTP/1.1'}`;
  const head = Buffer.from(`${line}\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1');
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

/** The call that the backend must get [D12, D23, D67]. */
export function backendCall(plan: RequestPlan): RequestBytes {
  const { body, method } = requestParts(plan);
  const { id, conditions } = plan;
  const lines = [
    `${method === 'HEAD' ? 'GET' : method} /api/WorkItem${operationOf(plan)?.backendTarget === '/api/WorkItem' ? '' : `/${id}`} HTTP/1.1`,
    ...['host: backend.test:5104', 'content-type: application/json', `x-request-id: ${requestIdOf(id)}`],
    ...(conditions && !isRead(plan) ? [`if-match: "v${id}"`] : []),
    ...(body.length === 0 ? [] : [`content-length: ${body.length}`]),
  ];
  return { head: Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body };
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

export function answerBytes(plan: RequestPlan, attempt: number, answer: AnswerPlan): AnswerBytes {
  const { status, bytes, body: kind, head: headKind, then, cut, cutAt } = answer;
  const json = kind === 'number' ? Buffer.from(String(plan.id)) : bodyOf(plan.id, attempt, bytes);
  if (kind === 'not-json') json[json.length - 1] = 0x5d;
  const framing = status === 204 ? 'none' : answer.framing;
  const body = framing === 'none' ? Buffer.alloc(0) : json;
  const lines = ['x-secret: backend', ...(then === 'announce' ? ['connection: close'] : [])];
  // A length that is one too long or, with bytes behind the answer, too short.
  const announced = body.length + (cut === 'short' && cutAt < 1 ? 1 : 0);
  if (framing === 'length') lines.push(`content-length: ${announced}`);
  if (framing === 'chunked') lines.push('transfer-encoding: chunked');
  if (headKind === 'two-lengths') lines.push('content-length: 1', 'content-length: 2');
  const first =
    { switching: 'HTTP/1.1 101 Switching', bad: 'HTTP/9 200' }[headKind as string] ?? `HTTP/1.1 ${status} secret`;
  const before = headKind === '1xx' ? 'HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 102 \r\n\r\n' : '';
  const head = Buffer.from(`${before}${first}\r\n${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  const all = Buffer.concat([head, framing === 'chunked' ? inChunks(body) : body]);
  return {
    bytes: all,
    headEnd: head.length,
    end: framing === 'until-close' ? Infinity : framing === 'length' ? head.length + announced : all.length,
    body,
    persists: framing !== 'until-close' && then !== 'announce',
  };
}

/**
 * Returns what an answer means for the client [spec 4 and 7]. `isWhole`: false if no more than its head has arrived; then
 * the result is undefined if that does not decide.
 */
export function replyToAnswer(
  plan: RequestPlan,
  answer: AnswerPlan,
  bytes: Buffer,
  isWhole: boolean,
): Allowed | undefined {
  const called = operationOf(plan) ?? texts.operation(1);
  const { status, body, head } = answer;
  const failure = allow(500, called.failure);
  if (head !== 'good' && head !== '1xx') return failure;
  if (status === 404 && called === read) return allow(404, texts.itemNotFound);
  if (status > 299) return failure;
  if (!called.passesBody) return allow(called.status, texts.succeeded);
  if (!isWhole) return undefined;
  const isUsable = body !== 'not-json' && status !== 204 && bytes.length <= responseBytesMax;
  return isUsable ? { status: called.status, body: bytes } : failure;
}
