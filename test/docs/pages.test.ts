// /docs and /openapi.json: paths, headers and the setting DOCS.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { loadPages } from '../../packages/command/api-reference/pages.ts';
import { createReference } from '../../packages/command/api-reference/reference.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, runCommand, startCommand } from '../helpers/command.ts';
import { readState } from '../helpers/dashboard-state.ts';
import { assertHeaders, assertReply, methodNotAllowed, notFound } from '../helpers/expected.ts';
import { request, requestBytes } from '../helpers/raw-client.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
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
    const limits = { IN_FLIGHT_MAX: '1001', BUFFERED_BYTES_MAX: '1000003', REQUEST_BYTES_MAX: '1000' };
    command = await startCommand({ BACKEND_URL: backend.url, DOCS: 'true', WORKERS: '2', ...limits });
  });
  after(async () => {
    await command.stop();
    assert.equal(command.stderr, '');
  });

  test('each page has its type and the headers that every reply has; other methods are 405 [D6, D7, D24]', async () => {
    for (const [path, contentType, begins, also = []] of pages) {
      const reply = await command.call('GET', `${path}?a=1`, { headers: [['X-Request-Id', 'page-1']] });
      assert.match(reply.text, begins);
      assert.equal(reply.header('x-request-id'), 'page-1');
      const head = await command.call('HEAD', path);
      assert.equal(head.body.length, 0);
      for (const each of [reply, head]) {
        assertHeaders(each, ['content-type', 'content-length', ...also]);
        const shown = [each.status, each.header('content-type'), each.header('content-length')];
        assert.deepEqual(shown, [200, contentType, String(reply.body.length)]);
      }
      assert.equal(reply.header('content-security-policy'), path === '/docs' ? policy : undefined);
      for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'BREW']) {
        const other = await command.call(method, path, { body: '{}' });
        assertReply(other, 405, methodNotAllowed, ['allow']);
        assert.equal(other.header('allow'), 'GET, HEAD, OPTIONS');
      }
      const options = await command.call('OPTIONS', path);
      assertHeaders(options, ['allow']);
      assert.deepEqual([options.status, options.header('allow')], [204, 'GET, HEAD, OPTIONS']);
    }
  });

  test('the page has the texts of the document, without HTML in them; the limits are those of all workers together', async () => {
    const { text } = await command.call('GET', '/openapi.json');
    const odd = text.replace('Returns the whole list', '<b>&\\"`<i>`');
    assert.match(createReference(odd), /<p>&#60;b&#62;&#38;&#34;<code>&#60;i&#62;<\/code>: there is no paging/);
    assert.match(text, /Calls in flight \| 1,001, then 503/);
    assert.match(text, /More than 1,001 calls are in flight, or bodies fill more than 1,000,003 bytes/);
    const { facts } = await readState(command.adminPort);
    assert.deepEqual([facts.inFlightMax, facts.bufferedBytesMax], [1_001, 1_000_003]);
  });

  test('similar paths are 404, and no file outside the list is served [D5]', async () => {
    for (const path of [
      ...['/', '/openapi', '/openapi.json/', '/Docs', '/docs/', '/docs/index.html', '/docs/page.js/'],
      ...['/docs/../package.json', '/docs/%2e%2e/package.json', '/docs/reference.ts'],
    ])
      assertReply(await command.call('GET', path), 404, notFound);
  });

  test('pages are answered in order on a connection, their bodies are dropped, the backend is not called, and the log has a line [D11, D27]', async () => {
    await using client = await command.connect();
    const page = { headers: [['X-Request-Id', 'logged-page']], body: 'x'.repeat(500) } as const;
    client.send(
      Buffer.concat([
        requestBytes('GET', '/api/work-items'),
        requestBytes('GET', '/docs/icon.svg', page),
        requestBytes('GET', '/api/work-items/x'),
      ]),
    );
    assert.equal((await client.reply()).text, '[]');
    assert.match((await client.reply()).text, /^<svg/);
    assert.equal((await client.reply()).status, 400);
    const { status, outcome, operation } = await command.log((each) => each['requestId'] === 'logged-page', 'the line');
    assert.deepEqual([status, outcome, operation], [200, 'ok', undefined]);
    assert.equal(backend.requests.length, 1);
    const headers = ['a', 'b'].map((host) => ['Host', host] as const);
    assert.equal((await command.call('GET', '/docs', { headers })).status, 400, 'an ambiguous request');
  });
});

test('with the command serve, the pages are off, so their paths are 404, and the operations work [D5]', async () => {
  await using command = await startCommand({});
  for (const [path] of pages) {
    assertReply(await command.call('GET', path), 404, notFound);
    assertReply(await command.call('POST', path), 404, notFound);
  }
  assert.equal((await command.call('GET', '/api/work-items/x')).status, 400);
});

test('with the command dev, the pages are on and their addresses are printed; --docs=false switches them off', async () => {
  for (const args of [[], ['--docs=false']]) {
    const isOn = args.length === 0;
    await using command = runCommand(['dev', ...args], { PORT: '0', ADMIN_PORT: '0', EMBEDDED_BACKEND_PORT: '0' });
    await poll(() => command.stdout.includes('Ctrl-C stops'), 'the start-up text');
    const port = Number(/http:\/\/localhost:(\d+)\/api\/work-items$/m.exec(command.stdout)?.[1]);
    assert.equal((await request(port, 'GET', '/docs')).status, isOn ? 200 : 404);
    const line = `  API reference       http://localhost:${port}/docs  http://localhost:${port}/openapi.json\n`;
    assert.deepEqual([command.stdout.includes(line), command.stdout.includes('API reference')], [isOn, isOn]);
  }
});

test('the page has the address of the dashboard only if the address is known and loopback', () => {
  const { settings } = resolveSettings('serve', {}, {});
  for (const [adminHost, adminPort, address] of [
    ['127.0.0.1', 9_464, 'http://127.0.0.1:9464/'],
    ['localhost', 9_464, 'http://localhost:9464/'],
    ['::1', 9_464, 'http://[::1]:9464/'],
    ['0.0.0.0', 9_464, undefined],
    ['127.0.0.1', 0, undefined],
  ] as const) {
    const page = loadPages({ ...settings, adminHost, adminPort }).replyTo('/docs', 'GET');
    assert.equal(/ data-dashboard="([^"]*)"/.exec(String(page?.body))?.[1], address);
  }
});
