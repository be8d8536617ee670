// examples/nextjs, built by Next.js without configuration, over real sockets: the gateway's route, the handwritten handlers
// and the page in a browser [D50].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { TestBrowser } from '../helpers/browser.ts';
import { createGate } from '../helpers/changes.ts';
import { codeBlocks } from '../helpers/documents.ts';
import { Example, linesOfDocument, type RunningExample } from './installed.ts';
import { forbidden, invalidId, itemNotFound, notFound, operations, succeeded, tooLarge } from '../helpers/expected.ts';
import { createPair, goodToken, keySetOf } from '../helpers/issuer.ts';
import { chunk, RawClient, type CallOptions, type Reply } from '../helpers/raw-client.ts';
import { answer, behind, noContent, resetPeer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const example = Example.install('nextjs');
// The limit is generous: the build needs 12 s of CPU time, and the machine may be busy.
const buildLimitMs = 400_000;
const [gateway, byHand] = ['/api/work-items', '/api/by-hand/work-items'];

test('the code in docs/hosts.md is the route of the example, apart from the backend URL', () => {
  const route = readFileSync(
    join(import.meta.dirname, '../../examples/nextjs/app/api/work-items/[[...path]]/route.ts'),
    'utf8',
  );
  // Without the variable, the options fit into one line.
  const lines = route
    .replace('process.env.BACKEND_URL ?? ', '')
    .replace(/\(\{\n {2}([^}]+),\n\}\)/, (_, options: string) => `({ ${options.replace(/\n */g, ' ')} })`);
  assert.equal(linesOfDocument('Next.js'), lines);
});

describe('in Next.js', { skip: example.skip, timeout: buildLimitMs }, () => {
  let site: RunningExample;
  before(async () => {
    example.run('next', ['build']);
    site = await example.start('next', ['start', '--hostname', '127.0.0.1'], backend.url);
  });
  after(async () => {
    await site[Symbol.asyncDispose]();
  });

  for (const { name, method, path, options, backendTarget, status, body } of operations) {
    test(`operation ${name}: the reply and the backend call are the same as those of the gateway`, async () => {
      const reply = await site.call(method, path, options);
      assertBytes(reply, status, body);
      assert.equal(reply.header('content-type'), 'application/json');
      assert.equal(reply.header('cache-control'), 'no-store');
      assert.equal(reply.header('x-content-type-options'), 'nosniff');
      const calls = backend.requests.map((each) => `${each.method} ${each.target}`);
      assert.deepEqual(calls, [`${method} ${backendTarget}`]);
      assert.equal(backend.requests[0]?.header('x-request-id'), reply.header('x-request-id'));
      assert.equal(backend.requests[0]?.body.toString(), options.body ?? '');
    });
  }

  test('errors get the same replies as from the gateway', async () => {
    assertBytes(await site.call('GET', '/api/work-items/abc'), 400, invalidId);
    assertBytes(await site.call('GET', '/api/work-items/5/6'), 404, notFound);
    assertBytes(await site.call('PATCH', '/api/work-items/5'), 405, '{"error":"Method not allowed"}');
    const create = { body: '{"a":' };
    assertBytes(await site.call('POST', '/api/work-items', create), 500, '{"error":"Failed to create work item"}');
    assert.equal(backend.requests.length, 0);
    backend.answersOnce(answer('', { status: 404 }), resetPeer(), answer('<p>'));
    assertBytes(await site.call('GET', '/api/work-items/5'), 404, itemNotFound);
    assertBytes(await site.call('PUT', '/api/work-items/5', { body: '{}' }), 500, '{"error":"Failed to update work item"}'); // prettier-ignore
    assertBytes(await site.call('GET', '/api/work-items'), 500, '{"error":"Failed to fetch work items"}');
    backend.answersOnce(noContent);
    assertBytes(await site.call('DELETE', '/api/work-items/%31%32'), 200, succeeded);
    assert.equal(backend.requests.at(-1)?.target, '/api/WorkItem/12');
  });

  describe('the faults that the README lists for the handwritten handlers', () => {
    const json = '{"n":9007199254740993,"x":1.0,"y":1e400,"a":1,"a":2}';
    const changed = '{"n":9007199254740992,"x":1,"y":null,"a":2}';
    const create = async (path: string, options: CallOptions) => {
      const reply = await site.call('POST', path, options);
      return { reply, sent: backend.requests.at(-1)?.body };
    };

    test('1: JSON is changed', async () => {
      backend.answers(answer(json));
      assertBytes(await site.call('GET', gateway), 200, json);
      assertBytes(await site.call('GET', byHand), 200, changed);
      assert.equal((await create(gateway, { body: json })).sent?.toString(), json);
      assert.equal((await create(byHand, { body: json })).sent?.toString(), changed);
    });

    test('2: the backend call of a client that has left is not cancelled', async () => {
      const gate = createGate();
      backend.answers(behind(gate, answer('[]')));
      const leave = async (path: string) => {
        await using client = await RawClient.open(site.port);
        client.send(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
        return (await backend.nextRequest()).connection;
      };
      const kept = await leave(byHand);
      // The gateway's call is cancelled. The earlier call of the handwritten handler is still open.
      await backend.connectionClosed(await leave(gateway));
      assert.equal(backend.isClosed(kept), false);
      gate.open();
    });

    test('3: a body that is not UTF-8 is changed', async () => {
      const body = Buffer.from('{"title":"Caf\xe9"}', 'latin1');
      assert.equal((await create(gateway, { body })).reply.status, 500);
      assert.equal(backend.requests.length, 0);
      const { reply, sent } = await create(byHand, { body });
      assert.equal(reply.status, 201);
      assert.equal(sent?.toString(), '{"title":"Caf\ufffd"}');
    });

    test('4: a delete with a large id deletes another item', async () => {
      for (const path of [gateway, byHand]) {
        assertBytes(await site.call('DELETE', `${path}/9007199254740993`), 200, succeeded);
      }
      const targets = backend.requests.map(({ target }) => target);
      assert.deepEqual(targets, ['/api/WorkItem/9007199254740993', '/api/WorkItem/9007199254740992']);
    });

    test('5: a redirect of a create is followed with a GET', async () => {
      const redirect = answer('', { status: 302, headers: [['Location', '/api/WorkItem']] });
      backend.answersOnce(redirect);
      assert.equal((await create(gateway, { body: '{}' })).reply.status, 500);
      backend.answersOnce(redirect);
      assert.equal((await create(byHand, { body: '{}' })).reply.status, 201);
      const methods = backend.requests.map(({ method }) => method);
      assert.deepEqual(methods, ['POST', 'POST', 'GET']);
    });

    test('6: a body of any size is accepted', async () => {
      const body = `"${'x'.repeat(11 << 20)}"`;
      assertBytes((await create(gateway, { body })).reply, 413, tooLarge);
      assert.equal(backend.requests.length, 0);
      assert.equal((await create(byHand, { body })).reply.status, 201);
      const largest = `"${'x'.repeat((10 << 20) - 2)}"`;
      const { reply, sent } = await create(gateway, { body: largest });
      assert.equal(reply.status, 201);
      assert.ok(sent?.equals(Buffer.from(largest)));
    });

    test('7: replies have no cache-control', async () => {
      assert.equal((await site.call('GET', gateway)).header('cache-control'), 'no-store');
      assert.equal((await site.call('GET', byHand)).header('cache-control'), undefined);
    });

    test('8: a page of another site may send a form', async () => {
      const form: CallOptions = {
        headers: [
          ['Sec-Fetch-Site', 'cross-site'],
          ['Content-Type', 'text/plain'],
        ],
        body: '{"a":"="}',
      };
      assertBytes((await create(gateway, form)).reply, 403, forbidden);
      assert.equal(backend.requests.length, 0);
      assert.equal((await create(byHand, form)).reply.status, 201);
    });
  });

  test('Next.js itself answers the cases that the README lists', async () => {
    assert.equal((await site.call('GET', '/api/work-items/%zz')).status, 500);
    for (const path of ['/api/work-items/', '//api/work-items']) {
      assert.equal((await site.call('GET', path)).status, 308);
    }
    await using client = await RawClient.open(site.port);
    client.send(`GET ${gateway} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n`);
    await client.closed();
    assert.equal(client.bytesReceived, 0);
    assert.equal(backend.requests.length, 0);
  });

  test('a list of 5 MB is complete', async () => {
    const list = `[1${',"Ünïcode"'.repeat(400_000)}]`;
    backend.answers(answer(list));
    const reply = await site.call('GET', gateway);
    assert.ok(reply.body.equals(Buffer.from(list)));
  });

  test('the page lists work items, creates one and shows failures', async () => {
    const items = [{ id: 1, title: 'Paint the fence', state: 'New' }];
    backend.answers((exchange) => {
      const { method, body } = exchange.request;
      if (method === 'POST') {
        items.push({ id: 2, ...(JSON.parse(body.toString()) as { title: string; state: string }) });
      }
      return answer(JSON.stringify(method === 'POST' ? items.at(-1) : items))(exchange);
    });
    await using browser = await TestBrowser.start();
    await using watched = await browser.open(`${site.url}/`);
    const { page } = watched;
    await page.getByText('1: Paint the fence (New)').waitFor();
    await page.getByLabel('Title').fill('Mow the lawn');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByText('2: Mow the lawn (New)').waitFor();
    await page.getByText('2 work items').waitFor();
    await watched.savePicture('example-nextjs');
    watched.assertClean(site.url);
    assert.deepEqual(await watched.findAccessibilityProblems(), []);
    backend.answers(answer('', { status: 503 }));
    await page.getByLabel('Title').fill('Not to be');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByText('Failed to create work item').waitFor();
  });
});

describe('in Next.js, the guarded route of docs/hosts.md, with basePath, trailingSlash and a proxy, which cuts bodies', { skip: example.skip, timeout: buildLimitMs }, () => {
  const pair = createPair('one', 'ES256');
  const issuer = createServer((_request, response) => response.end(keySetOf(pair)));
  const items = '/site/api/work-items/';
  const start = (variables: NodeJS.ProcessEnv = {}) =>
    example.start('next', ['start', 'guarded', '--hostname', '127.0.0.1'], backend.url, variables);
  let site: RunningExample;
  before(async () => {
    await once(issuer.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`;
    const route = (codeBlocks('docs/hosts.md').find((block) => block.includes('backendUrl: process.env')) ?? '')
      .replace('https://login.example.com/oauth', url)
      .replace('authIssuer', 'trailingSlash: true,\n  authIssuer');
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
  const claims = { iss: 'https://login.example.com/', aud: 'https://items.example.com' };
  const headers = [['Authorization', `Bearer ${goodToken(pair, undefined, claims)}`]] as const;

  for (const { name, method, path, options, backendTarget, status, body } of operations) {
    test(`operation ${name}: Next.js redirects to the path with a slash, which is served`, async () => {
      const first = await site.call(method, `/site${path}`, { ...options, headers });
      assert.deepEqual([first.status, first.header('location')], [308, `/site${path}/`]);
      assert.equal((await site.call(method, `/site${path}/`, options)).status, 401);
      const reply = await site.call(method, `/site${path}/`, { ...options, headers });
      assertBytes(reply, status, body);
      assert.deepEqual([reply.header('x-proxy'), reply.header('cache-control')], ['1', 'no-store']);
      const calls = backend.requests.map((each) => `${each.method} ${each.target} ${String(each.body)}`);
      assert.deepEqual(calls, [`${method} ${backendTarget} ${String(options.body ?? '')}`]);
    });
  }

  test('an invalid id and an unknown path get the replies of the gateway', async () => {
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
}); // prettier-ignore

/** Asserts status and body only: Next.js adds headers for the connection and caches. */
function assertBytes(reply: Reply, status: number, body: string): void {
  assert.deepEqual([reply.status, reply.text], [status, body]);
}
