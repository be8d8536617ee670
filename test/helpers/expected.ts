// The replies that the specification requires, written by hand: tables imported from the source would test themselves.

import assert from 'node:assert/strict';
import type { CallOptions, Headers, Reply } from './raw-client.ts';

export interface Operation {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  /** The body that a client sends, if the operation has one. */
  readonly options: CallOptions;
  readonly backendTarget: string;
  readonly status: number;
  /** The client's reply when the backend answers `{"id":5}`. */
  readonly body: string;
  readonly failure: string;
  /** The client receives the backend's body, which must be JSON. */
  readonly passesBody: boolean;
}

const sent = '{"title":"Paint the fence"}';

const [list, item] = ['/api/work-items', '/api/work-items/5'];
const [backendList, backendItem] = ['/api/WorkItem', '/api/WorkItem/5'];
const [passes, discards] = [
  { body: '{"id":5}', passesBody: true },
  { body: '{"success":true}', passesBody: false },
];

/** Specification, sections 4 and 7. */
export const operations: readonly Operation[] = [
  { name: '1 list', method: 'GET', path: list, options: {}, backendTarget: backendList, status: 200, failure: '{"error":"Failed to fetch work items"}', ...passes },
  { name: '2 create', method: 'POST', path: list, options: { body: sent }, backendTarget: backendList, status: 201, failure: '{"error":"Failed to create work item"}', ...passes },
  { name: '3 read', method: 'GET', path: item, options: {}, backendTarget: backendItem, status: 200, failure: '{"error":"Failed to fetch work item"}', ...passes },
  { name: '4 update', method: 'PUT', path: item, options: { body: sent }, backendTarget: backendItem, status: 200, failure: '{"error":"Failed to update work item"}', ...discards },
  { name: '5 delete', method: 'DELETE', path: item, options: {}, backendTarget: backendItem, status: 200, failure: '{"error":"Failed to delete work item"}', ...discards },
]; // prettier-ignore

export function operation(number: 1 | 2 | 3 | 4 | 5): Operation {
  const found = operations[number - 1];
  assert.ok(found);
  return found;
}

/** `passing`: the reply is the backend's body. `discarding`: the reply is `{"success":true}`. */
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

/** Allowed in addition to the headers of D24, because they reveal nothing about the backend or the software. */
const connectionHeaders = ['date', 'connection', 'keep-alive'];

/** Asserts the status and the body of a reply, and that its headers are exactly those of D24 and of `also`. */
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

/** Asserts that the reply has exactly the headers that D24 requires of every reply and the headers in `also`. */
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

/** Header lines in alphabetical order, names in lower case, for comparison as a set. */
export function sorted(headers: Headers): string[] {
  return headers.map(([name, value]) => `${name.toLowerCase()}: ${value}`).sort();
}
