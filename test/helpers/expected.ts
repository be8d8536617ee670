// What the specification says, spelled out by hand. Nothing here may come from the source: a wrong table
// would test itself.

import assert from 'node:assert/strict';
import type { CallOptions, Headers, Reply } from './raw-client.ts';

export interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  /** What a client sends; an operation without a request body has none. */
  readonly options: CallOptions;
  readonly backendTarget: string;
  readonly status: number;
  /** What a client gets when the backend answers `{"id":5}`. */
  readonly body: string;
  readonly failure: string;
  /** Whether the backend's body reaches the client, and so must be JSON. */
  readonly passesBody: boolean;
}

const sent = '{"title":"Paint the fence"}';

/** Specification, sections 4 and 7. */
export const operations: readonly Operation[] = [
  {
    name: '1 list',
    method: 'GET',
    path: '/api/work-items',
    options: {},
    backendTarget: '/api/WorkItem',
    status: 200,
    body: '{"id":5}',
    failure: '{"error":"Failed to fetch work items"}',
    passesBody: true,
  },
  {
    name: '2 create',
    method: 'POST',
    path: '/api/work-items',
    options: { body: sent },
    backendTarget: '/api/WorkItem',
    status: 201,
    body: '{"id":5}',
    failure: '{"error":"Failed to create work item"}',
    passesBody: true,
  },
  {
    name: '3 read',
    method: 'GET',
    path: '/api/work-items/5',
    options: {},
    backendTarget: '/api/WorkItem/5',
    status: 200,
    body: '{"id":5}',
    failure: '{"error":"Failed to fetch work item"}',
    passesBody: true,
  },
  {
    name: '4 update',
    method: 'PUT',
    path: '/api/work-items/5',
    options: { body: sent },
    backendTarget: '/api/WorkItem/5',
    status: 200,
    body: '{"success":true}',
    failure: '{"error":"Failed to update work item"}',
    passesBody: false,
  },
  {
    name: '5 delete',
    method: 'DELETE',
    path: '/api/work-items/5',
    options: {},
    backendTarget: '/api/WorkItem/5',
    status: 200,
    body: '{"success":true}',
    failure: '{"error":"Failed to delete work item"}',
    passesBody: false,
  },
];

export function operation(number: 1 | 2 | 3 | 4 | 5): Operation {
  const found = operations[number - 1];
  assert.ok(found);
  return found;
}

/** The operations whose reply is the backend's body, and those whose reply is `{"success":true}`. */
export const passing = operations.filter(({ passesBody }) => passesBody);
export const discarding = operations.filter(({ passesBody }) => !passesBody);

export const invalidId = '{"error":"Invalid ID format"}';
export const itemNotFound = '{"error":"Work item not found"}';
export const notFound = '{"error":"Not found"}';
export const methodNotAllowed = '{"error":"Method not allowed"}';
export const forbidden = '{"error":"Forbidden"}';
export const tooLarge = '{"error":"Request body too large"}';
export const unavailable = '{"error":"Service unavailable"}';
export const badRequest = '{"error":"Bad request"}';
export const headersTooLarge = '{"error":"Request header fields too large"}';
export const requestTimeout = '{"error":"Request timeout"}';
export const succeeded = '{"success":true}';

/** What may stand in a reply besides the headers of D24: they say nothing of the backend or of the software. */
const connectionHeaders = ['date', 'connection', 'keep-alive'];

/** A reply of ours: its status, its bytes, and exactly the headers of D24 with `also` added. */
export function assertReply(
  reply: Reply,
  status: number,
  body: string | Uint8Array,
  also: readonly string[] = [],
): void {
  const bytes = Buffer.from(body);
  assert.deepEqual(
    { status: reply.status, body: reply.body.toString('latin1') },
    { status, body: bytes.toString('latin1') },
  );
  assertHeaders(reply, ['content-type', 'content-length', ...also]);
  assert.equal(reply.header('content-type'), 'application/json');
  assert.equal(reply.header('content-length'), String(bytes.length));
}

/** The headers of D24 that every reply has, those of `also`, and no other. */
export function assertHeaders(reply: Reply, also: readonly string[]): void {
  const names = reply.headers.map(([name]) => name.toLowerCase());
  assert.deepEqual(
    names.filter((name) => !connectionHeaders.includes(name)).sort(),
    ['cache-control', 'x-content-type-options', 'x-request-id', ...also].sort(),
    `the headers of ${reply.statusLine}`,
  );
  assert.equal(reply.header('cache-control'), 'no-store');
  assert.equal(reply.header('x-content-type-options'), 'nosniff');
  assert.match(reply.header('x-request-id') ?? '', /^[A-Za-z0-9._~-]{1,128}$/);
}

/** The names in an `Allow` header, in alphabetical order. */
export function allowed(reply: Reply): string[] {
  return (reply.header('allow') ?? '').split(/\s*,\s*/).sort();
}

export const collectionMethods = ['GET', 'HEAD', 'OPTIONS', 'POST'];
export const itemMethods = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PUT'];

/** Header lines as pairs, names in lower case, in alphabetical order: for comparing as a set. */
export function sorted(headers: Headers): string[] {
  return headers.map(([name, value]) => `${name.toLowerCase()}: ${value}`).sort();
}
