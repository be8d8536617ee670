// The guarded route of docs/hosts.md in Next.js with basePath, trailingSlash and a proxy, which cuts bodies. Part of the nightly
// run only: it needs a build of its own, which takes 12 s of processor time, and changes only with Next.js.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { codeBlock, replaceEach } from '../helpers/documents.ts';
import { assertBytes, buildLimitMs, Example, type RunningExample } from './installed.ts';
import { invalidId, notFound, operations, tooLarge } from '../helpers/expected.ts';
import { createPair, goodToken, keySetOf } from '../helpers/issuer.ts';
import { chunk, RawClient } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const example = Example.install('nextjs');
const pair = createPair('one', 'ES256');
const items = '/site/api/work-items/';
const claims = { iss: 'https://login.example.com/', aud: 'https://items.example.com' };
const headers = [['Authorization', `Bearer ${goodToken(pair, undefined, claims)}`]] as const;

describe('in Next.js with a configuration', { skip: example.skip, timeout: buildLimitMs }, () => {
  const issuer = createServer((_request, response) => response.end(keySetOf(pair)));
  const start = (variables: NodeJS.ProcessEnv = {}) =>
    example.start('next', ['start', 'guarded', '--hostname', '127.0.0.1'], backend.url, variables);
  let site: RunningExample;
  before(async () => {
    await once(issuer.listen(0, '127.0.0.1'), 'listening');
    const route = replaceEach(codeBlock('docs/hosts.md', 'backendUrl: process.env'), {
      'https://login.example.com/oauth': `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`,
      authIssuer: 'trailingSlash: true,\n  authIssuer',
    });
    const files = {
      'next.config.mjs':
        "const experimental = { proxyClientMaxBodySize: process.env.BODY_LIMIT ?? '10mb' };\n" +
        "export default { basePath: '/site', trailingSlash: true, experimental };\n",
      'proxy.js':
        "import { NextResponse } from 'next/server';\n" +
        "export const proxy = () => NextResponse.next({ headers: { 'x-proxy': '1' } });\n",
      'app/layout.js': 'export default ({ children }) => <html><body>{children}</body></html>;\n',
      'app/page.js': 'export default () => <p>Work items</p>;\n',
      'app/api/work-items/[[...path]]/route.js': `import { createFetchHandler } from 'work-item-gateway/fetch';\n${route}`,
    };
    for (const [name, text] of Object.entries(files)) example.write(join('guarded', name), text);
    // `BACKEND_URL` is not set here.
    example.run('next', ['build', 'guarded']);
    site = await start();
  });
  after(async () => {
    issuer.close();
    await site[Symbol.asyncDispose]();
  });

  test('each operation is redirected to its path with a slash, which is served; a bad request gets the reply of the gateway', async () => {
    for (const { method, path, options, backendTarget, status, body } of operations) {
      backend.reset();
      backend.answers(answer('{"id":5}'));
      const first = await site.call(method, `/site${path}`, { ...options, headers });
      assert.deepEqual([first.status, first.header('location')], [308, `/site${path}/`]);
      assert.equal((await site.call(method, `/site${path}/`, options)).status, 401);
      const reply = await site.call(method, `/site${path}/`, { ...options, headers });
      assertBytes(reply, status, body);
      assert.deepEqual([reply.header('x-proxy'), reply.header('cache-control')], ['1', 'no-store']);
      const calls = backend.requests.map((each) => `${each.method} ${each.target} ${String(each.body)}`);
      assert.deepEqual(calls, [`${method} ${backendTarget} ${String(options.body ?? '')}`]);
    }
    backend.reset();
    assertBytes(await site.call('GET', `${items}abc/`, { headers }), 400, invalidId);
    assertBytes(await site.call('GET', `${items}5/6/`, { headers }), 404, notFound);
    assert.deepEqual(backend.requests, []);
  });

  test('a body above the limit is refused: with a content-length, and in chunks with the setting of the README [D70]', async () => {
    const digits = '1'.repeat(12_000_000);
    assertBytes(await site.call('POST', items, { headers, body: digits }), 413, tooLarge);
    await using other = await start({ BODY_LIMIT: '11mb' });
    await using client = await RawClient.open(other.port);
    const [[name, value]] = headers;
    client.send(`POST ${items} HTTP/1.1\r\nHost: x\r\n${name}: ${value}\r\nTransfer-Encoding: chunked\r\n\r\n`);
    await client.sendPieces([chunk(digits), '0\r\n\r\n']);
    assertBytes(await client.reply(), 413, tooLarge);
    assert.equal(backend.requests.length, 0);
  });
});
