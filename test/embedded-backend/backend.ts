// The embedded backend in tests: it stops with its test, and its answers are compared byte for byte.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { startEmbeddedBackend, type EmbeddedBackendOptions } from '../../packages/stand-in-backend/stand-in-server.ts';

/** The title and the section of RFC 9110 of each error status. */
const problems: Readonly<Record<number, readonly [title: string, section: string]>> = {
  400: ['One or more validation errors occurred.', '15.5.1'],
  404: ['Not Found', '15.5.5'],
  405: ['Method Not Allowed', '15.5.6'],
  413: ['Payload Too Large', '15.5.14'],
  415: ['Unsupported Media Type', '15.5.16'],
  500: ['Internal Server Error', '15.6.1'],
};
const json = { 'content-type': 'application/json' };

/** Sends a request. Asserts the whole answer: its JSON text, or the errors of an RFC 9457 answer. Returns its headers. */
export async function expect(
  url: string,
  line: string,
  body: string | Uint8Array<ArrayBuffer> | undefined,
  status: number,
  expected?: string | object,
  headers: Record<string, string> = body === undefined ? {} : json,
): Promise<Headers> {
  const [method = '', path = ''] = line.split(' ');
  const sent = body === undefined ? {} : { body: Buffer.from(body as string) };
  const response = await fetch(`${url}/api/WorkItem${path}`, { method, headers, ...sent });
  const bytes = Buffer.from(await response.arrayBuffer());
  const type = response.headers.get('content-type');
  assert.equal(response.status, status, `${line}: ${bytes.toString('utf8', 0, 200)}`);
  if (status === 204) {
    assert.deepEqual([bytes.length, type, response.headers.get('content-length')], [0, null, null]);
  } else if (status < 400) {
    assert.ok(bytes.equals(Buffer.from(expected as string)), `${line}: ${bytes.toString('utf8', 0, 200)}`);
    assert.equal(type, 'application/json; charset=utf-8');
  } else {
    const { traceId, ...problem } = JSON.parse(bytes.toString()) as Record<string, unknown>;
    const [title, section] = problems[status] ?? [];
    const errors = expected === undefined ? {} : { errors: expected };
    assert.deepEqual(problem, {
      type: `https://tools.ietf.org/html/rfc9110#section-${section}`,
      title,
      status,
      ...errors,
    });
    assert.match(String(traceId), /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/);
    assert.equal(type, 'application/problem+json; charset=utf-8');
  }
  return response.headers;
}

/** Starts a backend. `expect` sends a request to it; `exchange` sends these bytes and returns all that comes back. */
export async function startBackend(t: TestContext, options: Partial<EmbeddedBackendOptions> = {}) {
  const backend = await startEmbeddedBackend({ host: '127.0.0.1', port: 0, database: ':memory:', ...options });
  t.after(() => backend.stop());
  type Rest = Parameters<typeof expect> extends [string, ...infer R] ? R : never;
  return {
    ...backend,
    expect: (...rest: Rest) => expect(backend.url, ...rest),
    open: async () => {
      const socket = connect(backend.port, '127.0.0.1').on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    },
    exchange: async (bytes: string) => String(await buffer(connect(backend.port, '127.0.0.1').end(bytes))),
  };
}

/** The path of a database in a temporary folder, which is removed after the test. */
export function databaseFile(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'embedded-backend-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, 'work-items.sqlite');
}
