// Helpers for the tests of the embedded backend: a backend that stops with its test, and calls that return bytes.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import {
  startEmbeddedBackend,
  type EmbeddedBackend,
  type EmbeddedBackendOptions,
} from '../../packages/stand-in-backend/stand-in-server.ts';

export async function startBackend(
  t: TestContext,
  options: Partial<EmbeddedBackendOptions> = {},
): Promise<EmbeddedBackend> {
  const backend = await startEmbeddedBackend({ host: '127.0.0.1', port: 0, database: ':memory:', ...options });
  t.after(() => backend.stop());
  return backend;
}

/** The path of a database in a temporary folder, which is removed after the test. */
export function databaseFile(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'embedded-backend-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, 'work-items.sqlite');
}

export interface Reply {
  status: number;
  headers: Headers;
  body: Buffer;
}

export async function send(
  url: string,
  method: string,
  path: string,
  body?: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = { 'content-type': 'application/json' },
): Promise<Reply> {
  const response = await fetch(url + path, {
    method,
    ...(body === undefined ? {} : { body: typeof body === 'string' ? Buffer.from(body) : body, headers }),
  });
  return { status: response.status, headers: response.headers, body: Buffer.from(await response.arrayBuffer()) };
}

/** Asserts the exact bytes of a JSON answer. */
export function assertJson(reply: Reply, status: number, text: string): void {
  assert.equal(reply.body.toString(), text);
  assert.deepEqual(reply.body, Buffer.from(text));
  assert.equal(reply.status, status);
  assert.equal(reply.headers.get('content-type'), 'application/json; charset=utf-8');
}

/** Asserts an RFC 9457 answer and returns its `errors`. */
export function assertProblem(reply: Reply, status: number, title: string, section: string): unknown {
  assert.equal(reply.status, status);
  assert.equal(reply.headers.get('content-type'), 'application/problem+json; charset=utf-8');
  const { errors, traceId, ...rest } = JSON.parse(reply.body.toString()) as Record<string, unknown>;
  assert.deepEqual(rest, { type: `https://tools.ietf.org/html/rfc9110#section-${section}`, title, status });
  assert.match(String(traceId), /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/);
  return errors;
}

export function assertNoContent(reply: Reply): void {
  assert.equal(reply.status, 204);
  assert.equal(reply.body.length, 0);
  assert.equal(reply.headers.get('content-type'), null);
  assert.equal(reply.headers.get('content-length'), null);
}
