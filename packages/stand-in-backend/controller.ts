// Answers requests as an ASP.NET Core controller for work items does: routes, checks and status codes. Independent of
// sockets, and of the items' contents.

import { randomBytes } from 'node:crypto';
import { STATUS_CODES, type IncomingMessage } from 'node:http';

import { readItemText, type ItemText } from './item-text.ts';
import { itemIdMax, type Store } from './store.ts';
import { decodePercent } from '../core/text/percent.ts';

/** Kestrel's default limit on the bytes of a request body. */
const requestBytesMax = 30_000_000;

const workItemPath = /^\/api\/workitem(?:\/([^/]+))?\/?$/i;
const jsonType = /^(?:application\/json|text\/json|application\/[^;\s]+\+json)\s*(?:;|$)/i;
const integer = /^\s*[+-]?\d+\s*$/;
const traceParent = /^00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})$/;

// prettier-ignore
const sections = { 400: '15.5.1', 404: '15.5.5', 405: '15.5.6', 413: '15.5.14', 415: '15.5.16', 500: '15.6.1' } as const;

/** A complete answer. An answer without a body has no content type. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
}

/** Answers `request`. Rejects on a fault, or if the client disconnects before the body is complete. */
export async function answerRequest(request: IncomingMessage, store: Store): Promise<Answer> {
  const { url = '', method = '', headers } = request;
  const route = workItemPath.exec(url.replace(/\?.*/s, ''));
  if (!route) return problem(request, 404);
  const [, segment] = route;
  const methods = segment === undefined ? ['GET', 'POST'] : ['GET', 'PUT', 'DELETE'];
  if (!methods.includes(method)) return problem(request, 405, { headers: { allow: methods.join(', ') } });
  const takesBody = method === 'POST' || method === 'PUT';
  // As in ASP.NET, an unsupported media type is refused before the id and the body are read.
  if (takesBody && !jsonType.test(headers['content-type'] ?? '')) return problem(request, 415);
  const id = segment === undefined ? undefined : readId(segment);
  if (segment !== undefined && id === undefined) {
    const value = decodePercent(segment) ?? segment;
    return problem(request, 400, { errors: { id: [`The value '${value}' is not valid.`] } });
  }
  const sent = takesBody ? await readItem(request) : undefined;
  if (sent && 'status' in sent) return sent;
  if (id === undefined) return sent ? createItem(request, store, sent) : json(200, store.list());
  if (sent) return updateItem(request, store, id, sent);
  if (method === 'DELETE') return store.delete(id) ? noContent : problem(request, 404);
  const item = store.read(id);
  return item ? json(200, item) : problem(request, 404);
}

function createItem(request: IncomingMessage, store: Store, item: ItemText): Answer {
  const id = store.create(item);
  const host = request.headers.host ?? `localhost:${request.socket.localPort ?? ''}`;
  return json(201, Buffer.from(`${item.beforeId}${id}${item.afterId}`), {
    location: `http://${host}/api/WorkItem/${id}`,
  });
}

function updateItem(request: IncomingMessage, store: Store, id: number, item: ItemText): Answer {
  if (item.sentId !== undefined && item.sentId !== id) {
    return problem(request, 400, { errors: { id: ['The id in the body is not the id in the path.'] } });
  }
  return store.update(id, item) ? noContent : problem(request, 404);
}

async function readItem(request: IncomingMessage): Promise<ItemText | Answer> {
  const body = await readBody(request);
  if (!body) return problem(request, 413);
  const flaw = body.length === 0 ? 'A non-empty request body is required.' : 'The body is not a JSON object.';
  return readItemText(body) ?? problem(request, 400, { errors: { $: [flaw] } });
}

/** Returns the body; undefined if it is too long. The server drops the rest of such a body. */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  if (Number(request.headers['content-length']) > requestBytesMax) return undefined;
  const pieces: Buffer[] = [];
  let length = 0;
  // A plain `for await` that ends early would destroy the request, but the server must still drop the body's rest.
  for await (const piece of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > requestBytesMax) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** Parses a path segment as a 32-bit integer; undefined if the segment is not such an integer. */
function readId(segment: string): number | undefined {
  const text = decodePercent(segment) ?? segment;
  const id = Number(text);
  return integer.test(text) && id >= -itemIdMax - 1 && id <= itemIdMax ? id : undefined;
}

const noContent: Answer = { status: 204, headers: {} };

function json(status: number, body: Uint8Array, headers: Record<string, string> = {}): Answer {
  return { status, headers: { 'content-type': 'application/json; charset=utf-8', ...headers }, body };
}

/** Makes an error answer in the format of RFC 9457. Its `traceId` continues the client's W3C trace context, if any. */
export function problem(
  request: IncomingMessage,
  status: keyof typeof sections,
  details: { errors?: Record<string, string[]>; headers?: Record<string, string> } = {},
): Answer {
  const [, trace = randomBytes(16).toString('hex'), flags = '00'] =
    traceParent.exec(String(request.headers['traceparent'])) ?? [];
  const text = JSON.stringify({
    type: `https://tools.ietf.org/html/rfc9110#section-${sections[status]}`,
    title: details.errors ? 'One or more validation errors occurred.' : STATUS_CODES[status],
    status,
    errors: details.errors,
    traceId: `00-${trace}-${randomBytes(8).toString('hex')}-${flags}`,
  });
  const headers = { 'content-type': 'application/problem+json; charset=utf-8', ...details.headers };
  return { status, headers, body: Buffer.from(text) };
}
