// /docs and /openapi.json: paths, headers and the setting DOCS.

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createReference } from '../../packages/command/api-reference/reference.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, runCommand, startCommand } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { assertHeaders, assertReply, methodNotAllowed, notFound } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { request, requestBytes } from '../helpers/raw-client.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const pages: readonly [path: string, contentType: string, begins: RegExp, also?: readonly string[]][] = [
  ['/openapi.json', 'application/json', /^\{\n {2}"openapi": "3\.1\./],
  ['/docs', 'text/html; charset=utf-8', /^<!doctype html>/, ['content-security-policy', 'referrer-policy']],
  ['/docs/page.js', 'text/javascript; charset=utf-8', /^\/\/ /],
  ['/docs/page.css', 'text/css; charset=utf-8', /^\/\* /],
  ['/docs/icon.svg', 'image/svg+xml', /^<svg /],
];

describe('DOCS=true', () => {
  let command: Command;
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url, DOCS: 'true', REQUEST_BYTES_MAX: '1000' });
  });
  after(async () => {
    await command.stop();
    assert.equal(command.stderr, '');
  });

  for (const [path, contentType, begins, also = []] of pages) {
    test(`${path} has the file's type and the headers that every reply has; other methods are 405 [D6, D7, D24]`, async () => {
      const reply = await command.call('GET', `${path}?a=1`, { headers: [['X-Request-Id', 'page-1']] });
      assert.match(reply.text, begins);
      assert.equal(reply.header('x-request-id'), 'page-1');
      const head = await command.call('HEAD', path);
      assert.equal(head.body.length, 0);
      for (const each of [reply, head]) {
        assert.equal(each.status, 200);
        assertHeaders(each, ['content-type', 'content-length', ...also]);
        assert.equal(each.header('content-type'), contentType);
        assert.equal(each.header('content-length'), String(reply.body.length));
      }
      for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'BREW', 'OPTIONS']) {
        const other = await command.call(method, path, { body: '{}' });
        if (method !== 'OPTIONS') assertReply(other, 405, methodNotAllowed, ['allow']);
        else assert.equal(other.status, 204);
        assertHeaders(other, method === 'OPTIONS' ? ['allow'] : ['content-type', 'content-length', 'allow']);
        assert.equal(other.header('allow'), 'GET, HEAD, OPTIONS');
      }
    });
  }

  test('the policy allows the page only its own files, and no inline script or style', async () => {
    const reply = await command.call('GET', '/docs');
    assert.doesNotMatch(reply.text, /data-dashboard/, 'ADMIN_PORT=0');
    const policy = reply.header('content-security-policy') ?? '';
    assert.deepEqual(policy.split('; ').toSorted(), [
      "base-uri 'none'",
      "connect-src 'self'",
      "default-src 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "img-src 'self'",
      "script-src 'self'",
      "style-src 'self'",
    ]);
  });

  test('the page has the texts of the document, without HTML in them', async () => {
    const text = (await command.call('GET', '/openapi.json')).text.replace('Returns the whole list', '<b>&\\"`<i>`');
    assert.match(createReference(text), /<p>&#60;b&#62;&#38;&#34;<code>&#60;i&#62;<\/code>: there is no paging/);
  });

  test('similar paths are 404, and no file outside the list is served [D5]', async () => {
    for (const path of [
      ...['/', '/openapi', '/openapi.json/', '/Docs', '/docs/', '/docs/index.html', '/docs/page.js/'],
      ...['/docs/../package.json', '/docs/%2e%2e/package.json', '/docs/reference.ts'],
    ]) {
      assertReply(await command.call('GET', path), 404, notFound);
    }
  });

  test('requests for pages are answered in order on a connection, and their bodies are dropped [D11, D27]', async () => {
    await using client = await command.connect();
    client.send(
      Buffer.concat([
        requestBytes('GET', '/api/work-items'),
        requestBytes('GET', '/docs/icon.svg', { body: 'x'.repeat(500) }),
        requestBytes('GET', '/api/work-items/x'),
      ]),
    );
    assert.equal((await client.reply()).text, '[]');
    assert.match((await client.reply()).text, /^<svg/);
    assert.equal((await client.reply()).status, 400);
  });

  test('an ambiguous request for a page is 400 [D27]', async () => {
    const headers = ['a', 'b'].map((host) => ['Host', host] as const);
    assert.equal((await command.call('GET', '/docs', { headers })).status, 400);
  });

  test('the backend is not called for a page, and the log has a line for each page', async () => {
    const before = backend.requests.length;
    await command.call('GET', '/docs', { headers: [['X-Request-Id', 'logged-page']] });
    const line = await command.log((each) => each['requestId'] === 'logged-page', 'the line of the page');
    assert.deepEqual([line['status'], line['outcome'], line['operation']], [200, 'ok', undefined]);
    assert.equal(backend.requests.length, before);
  });
});

describe('DOCS', () => {
  test('with the command serve, the pages are off, so their paths are 404, and the operations work [D5]', async () => {
    await using command = await startCommand({});
    for (const [path] of pages) {
      assertReply(await command.call('GET', path), 404, notFound);
      assertReply(await command.call('POST', path), 404, notFound);
    }
    assert.equal((await command.call('GET', '/api/work-items/x')).status, 400);
  });

  test('with the command dev, the pages are on and their addresses are printed; --docs=false switches them off', async () => {
    const freePorts = { PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0' };
    for (const [args, isOn] of [
      [[], true],
      [['--docs=false'], false],
    ] as const) {
      await using command = runCommand(['dev', ...args], freePorts);
      await poll(() => command.stdout.includes('Ctrl-C stops'), 'the start-up text');
      const port = Number(/http:\/\/localhost:(\d+)\/api\/work-items$/m.exec(command.stdout)?.[1]);
      assert.equal((await request(port, 'GET', '/docs')).status, isOn ? 200 : 404);
      const line = `  API reference       http://localhost:${port}/docs  http://localhost:${port}/openapi.json\n`;
      assert.equal(command.stdout.includes(line), isOn);
      assert.equal(command.stdout.includes('API reference'), isOn);
    }
  });

  test('the page has the address of the dashboard only if the address is loopback', async () => {
    for (const [adminHost, isNamed] of [
      ['127.0.0.1', true],
      ['localhost', true],
      ['0.0.0.0', false],
    ] as const) {
      const adminPort = await findFreePort();
      await using command = await startCommand({ DOCS: 'true', ADMIN_HOST: adminHost, ADMIN_PORT: String(adminPort) });
      const page = (await command.call('GET', '/docs')).text;
      const named = ` data-dashboard="http://${adminHost}:${adminPort}/"`;
      assert.equal(page.includes(named), isNamed, adminHost);
      assert.equal(page.includes('data-dashboard'), isNamed, adminHost);
    }
  });

  test('the limits are those of the whole gateway, as on the dashboard, whatever the number of workers', async () => {
    const settings = { BACKEND_URL: backend.url, DOCS: 'true', IN_FLIGHT_MAX: '1001', BUFFERED_BYTES_MAX: '1000003' };
    const texts: string[] = [];
    for (const WORKERS of ['1', '2']) {
      await using own = await startCommand({ ...settings, WORKERS });
      texts.push((await own.call('GET', '/openapi.json')).text);
      const { facts } = await readState(own.adminPort);
      assert.deepEqual([facts.inFlightMax, facts.bufferedBytesMax], [1_001, 1_000_003]);
    }
    assert.match(texts[1] ?? '', /Calls in flight \| 1,001, then 503/);
    assert.match(texts[1] ?? '', /More than 1,001 calls are in flight, or bodies fill more than 1,000,003 bytes/);
    assert.equal(texts[1], texts[0]);
  });

  test('the modules of the pages are loaded on demand only', () => {
    const root = resolve(import.meta.dirname, '../..');
    const importers = (pattern: RegExp) =>
      globSync('packages/**/*.ts', { cwd: root })
        // Ignores imports of types, which load nothing at run time.
        .filter((path) =>
          pattern.test(readFileSync(resolve(root, path), 'utf8').replaceAll(/^import type [^;]*;/gm, '')),
        )
        .map((path) => path.replaceAll('\\', '/'))
        .toSorted();
    assert.deepEqual(importers(/ from '[^']*\/(?:api-reference|openapi)\/[^']*'/), [
      'packages/command/api-reference/pages.ts',
    ]);
    assert.deepEqual(importers(/await import\('[^']*\/(?:api-reference|openapi)\/[^']*'\)/), [
      'packages/command/commands/openapi.ts',
      'packages/command/service/generation.ts',
      'packages/core/hosts/fastify/fastify.ts',
    ]);
  });
});
