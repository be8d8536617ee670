// From one request to one answer, as an ASP.NET Core controller for work items gives it: routes, checks and
// status codes. Opens no socket and writes no reply to one; what an item says is not looked at.

import { randomBytes } from 'node:crypto';
import { STATUS_CODES, type IncomingMessage } from 'node:http';

import { readItemText, type ItemText } from './item-text.ts';
import { itemIdMax, type Store } from './store.ts';
import { decodePercent } from '../core/text/percent.ts';

/** Kestrel's default for a request body. */
const requestBytesMax = 30_000_000;

const workItemPath = /^\/api\/workitem(?:\/([^/]+))?\/?$/i;
const jsonType = /^(?:application\/json|text\/json|application\/[^;\s]+\+json)\s*(?:;|$)/i;
const integer = /^\s*[+-]?\d+\s*$/;
const traceParent = /^00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})$/;

/** RFC 9110's section for each status that a problem can have. */
const problemSections: Record<number, string> = {
  400: '15.5.1',
  404: '15.5.5',
  405: '15.5.6',
  413: '15.5.14',
  415: '15.5.16',
  500: '15.6.1',
};

/** One whole answer; without a body it has no content type either. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
}

/** The answer to `request`. Rejects when the client goes away before its body is complete, or on a fault. */
export async function answerRequest(request: IncomingMessage, store: Store): Promise<Answer> {
  const [path] = (request.url ?? '').split('?', 1) as [string];
  const route = workItemPath.exec(path);
  if (!route) return problem(request, 404);

  const [, segment] = route;
  const methods = segment === undefined ? ['GET', 'POST'] : ['GET', 'PUT', 'DELETE'];
  const method = request.method ?? '';
  if (!methods.includes(method)) return problem(request, 405, { headers: { allow: methods.join(', ') } });

  if (segment === undefined) {
    return method === 'GET' ? json(200, store.list()) : createItem(request, store);
  }
  // In ASP.NET's order: an unsupported type is refused before any value is bound.
  if (method === 'PUT' && !hasJsonType(request)) return problem(request, 415);
  const id = readId(segment);
  if (id === undefined) {
    return problem(request, 400, {
      errors: { id: [`The value '${decodePercent(segment) ?? segment}' is not valid.`] },
    });
  }
  if (method === 'PUT') return updateItem(request, store, id);
  if (method === 'DELETE') return store.delete(id) ? noContent : problem(request, 404);
  const item = store.read(id);
  return item ? json(200, item) : problem(request, 404);
}

async function createItem(request: IncomingMessage, store: Store): Promise<Answer> {
  if (!hasJsonType(request)) return problem(request, 415);
  const item = await readItem(request);
  if ('status' in item) return item;
  const id = store.create(item);
  const host = request.headers.host ?? `localhost:${request.socket.localPort ?? ''}`;
  return json(201, Buffer.from(`${item.beforeId}${id}${item.afterId}`), {
    location: `http://${host}/api/WorkItem/${id}`,
  });
}

async function updateItem(request: IncomingMessage, store: Store, id: number): Promise<Answer> {
  const item = await readItem(request);
  if ('status' in item) return item;
  if (item.sentId !== undefined && item.sentId !== id) {
    return problem(request, 400, { errors: { id: ['The id in the body is not the id in the path.'] } });
  }
  return store.update(id, item) ? noContent : problem(request, 404);
}

/** The work item in the body, or the answer that refuses it. */
async function readItem(request: IncomingMessage): Promise<ItemText | Answer> {
  const body = await readBody(request);
  if (!body) return problem(request, 413);
  return (
    readItemText(body) ??
    problem(request, 400, {
      errors: {
        $: [body.length === 0 ? 'A non-empty request body is required.' : 'The body is not a JSON object.'],
      },
    })
  );
}

/** The body, or undefined as soon as it is known to be too long; the server drops what is left of it. */
async function readBody(request: IncomingMessage): Promise<Buffer | undefined> {
  if (Number(request.headers['content-length']) > requestBytesMax) return undefined;
  const pieces: Buffer[] = [];
  let length = 0;
  // Leaving a plain `for await` early would destroy the request; the server still needs it to drop the rest.
  for await (const piece of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > requestBytesMax) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

function hasJsonType(request: IncomingMessage): boolean {
  return jsonType.test(request.headers['content-type'] ?? '');
}

/** The 32-bit integer that a path segment binds to, or undefined. */
function readId(segment: string): number | undefined {
  const text = decodePercent(segment) ?? segment;
  const id = Number(text);
  return integer.test(text) && id >= -itemIdMax - 1 && id <= itemIdMax ? id : undefined;
}

const noContent: Answer = { status: 204, headers: {} };

function json(status: number, body: Uint8Array, headers: Record<string, string> = {}): Answer {
  return { status, headers: { 'content-type': 'application/json; charset=utf-8', ...headers }, body };
}

/** An RFC 9457 answer. Its `traceId` continues the caller's W3C trace context, where there is one. */
export function problem(
  request: IncomingMessage,
  status: number,
  details: { errors?: Record<string, string[]>; headers?: Record<string, string> } = {},
): Answer {
  const [, trace = randomBytes(16).toString('hex'), flags = '00'] =
    traceParent.exec(String(request.headers['traceparent'])) ?? [];
  const text = JSON.stringify({
    type: `https://tools.ietf.org/html/rfc9110#section-${problemSections[status] ?? ''}`,
    title: details.errors ? 'One or more validation errors occurred.' : STATUS_CODES[status],
    status,
    errors: details.errors,
    traceId: `00-${trace}-${randomBytes(8).toString('hex')}-${flags}`,
  });
  return {
    status,
    headers: { 'content-type': 'application/problem+json; charset=utf-8', ...details.headers },
    body: Buffer.from(text),
  };
}
