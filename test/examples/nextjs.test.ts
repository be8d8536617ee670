// examples/nextjs, built by Next.js without configuration, over real sockets: the gateway's route, the handwritten handlers
// and the page in a browser [D50]. nextjs-guarded.ts has the guarded route.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { TestBrowser } from '../helpers/browser.ts';
import { createGate } from '../helpers/changes.ts';
import { assertBytes, buildLimitMs, Example, linesOfDocument, type RunningExample } from './installed.ts';
import { forbidden, invalidId, itemNotFound, notFound, operations, succeeded, tooLarge } from '../helpers/expected.ts';
import { RawClient, type CallOptions } from '../helpers/raw-client.ts';
import { answer, behind, noContent, resetPeer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const example = Example.install('nextjs');
const [gateway, byHand] = ['/api/work-items', '/api/by-hand/work-items'];

test('the code in docs/hosts.md is the route of the example, apart from the backend URL', () => {
  const path = '../../examples/nextjs/app/api/work-items/[[...path]]/route.ts';
  // Without the variable, the options fit into one line.
  const lines = readFileSync(join(import.meta.dirname, path), 'utf8')
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
  after(() => site[Symbol.asyncDispose]());

  const json = '{"n":9007199254740993,"x":1.0,"y":1e400,"a":1,"a":2}';
  const changed = '{"n":9007199254740992,"x":1,"y":null,"a":2}';
  const create = async (path: string, options: CallOptions) => {
    const { status, text } = await site.call('POST', path, options);
    return { status, text, sent: backend.requests.at(-1)?.body };
  };

  test('reply and backend call of each operation are the same as those of the gateway', async () => {
    for (const { method, path, options, backendTarget, status, body } of operations) {
      backend.reset();
      backend.answers(answer('{"id":5}'));
      const reply = await site.call(method, path, options);
      assertBytes(reply, status, body);
      const headers = ['content-type', 'cache-control', 'x-content-type-options'].map((name) => reply.header(name));
      assert.deepEqual(headers, ['application/json', 'no-store', 'nosniff']);
      const calls = backend.requests.map((each) => `${each.method} ${each.target} ${each.body.toString()}`);
      assert.deepEqual(calls, [`${method} ${backendTarget} ${String(options.body ?? '')}`]);
      assert.equal(backend.requests[0]?.header('x-request-id'), reply.header('x-request-id'));
    }
  });

  test('errors get the same replies as from the gateway', async () => {
    assertBytes(await site.call('GET', `${gateway}/abc`), 400, invalidId);
    assertBytes(await site.call('GET', `${gateway}/5/6`), 404, notFound);
    assertBytes(await site.call('PATCH', `${gateway}/5`), 405, '{"error":"Method not allowed"}');
    assertBytes(await site.call('POST', gateway, { body: '{"a":' }), 500, '{"error":"Failed to create work item"}');
    assert.equal(backend.requests.length, 0);
    backend.answersOnce(answer('', { status: 404 }), resetPeer(), answer('<p>'), noContent);
    assertBytes(await site.call('GET', `${gateway}/5`), 404, itemNotFound);
    const update = { body: '{}' };
    assertBytes(await site.call('PUT', `${gateway}/5`, update), 500, '{"error":"Failed to update work item"}');
    assertBytes(await site.call('GET', gateway), 500, '{"error":"Failed to fetch work items"}');
    assertBytes(await site.call('DELETE', `${gateway}/%31%32`), 200, succeeded);
    assert.equal(backend.requests.at(-1)?.target, '/api/WorkItem/12');
  });

  // The faults that the README lists for the handwritten handlers; the gateway has none of them.
  test('1, 3: handwritten handlers change JSON, and bodies that are not UTF-8', async () => {
    backend.answers(answer(json));
    assertBytes(await site.call('GET', gateway), 200, json);
    assertBytes(await site.call('GET', byHand), 200, changed);
    assert.equal((await create(gateway, { body: json })).sent?.toString(), json);
    assert.equal((await create(byHand, { body: json })).sent?.toString(), changed);
    const body = Buffer.from('{"title":"Caf\xe9"}', 'latin1');
    const before = backend.requests.length;
    assert.equal((await create(gateway, { body })).status, 500);
    assert.equal(backend.requests.length, before);
    const { status, sent } = await create(byHand, { body });
    assert.deepEqual([status, sent?.toString()], [201, '{"title":"Caf\ufffd"}']);
  });

  test('2: they do not cancel the backend call of a client that has left', async () => {
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

  test('4, 5: they delete another item if the id is large, and follow a redirect of a create with a GET', async () => {
    const redirect = answer('', { status: 302, headers: [['Location', '/api/WorkItem']] });
    for (const path of [gateway, byHand]) {
      assertBytes(await site.call('DELETE', `${path}/9007199254740993`), 200, succeeded);
      backend.answersOnce(redirect);
      assert.equal((await create(path, { body: '{}' })).status, path === gateway ? 500 : 201);
    }
    const calls = backend.requests.map(({ method, target }) => `${method} ${target.replace('/api/WorkItem', '')}`);
    assert.deepEqual(calls, ['DELETE /9007199254740993', 'POST ', 'DELETE /9007199254740992', 'POST ', 'GET ']);
  });

  test('6 to 8: they accept bodies of any size and forms of another site, and allow caches', async () => {
    const body = `"${'x'.repeat(11 << 20)}"`;
    const headers = [
      ['Sec-Fetch-Site', 'cross-site'],
      ['Content-Type', 'text/plain'],
    ] as const;
    for (const [options, status, text] of [
      [{ body }, 413, tooLarge],
      [{ headers, body: '{"a":"="}' }, 403, forbidden],
    ] as const) {
      const refused = await create(gateway, options);
      assert.deepEqual([refused.status, refused.text, refused.sent], [status, text, undefined]);
      assert.equal((await create(byHand, options)).status, 201);
      backend.reset();
      backend.answers(answer('{"id":5}'));
    }
    const largest = `"${'x'.repeat((10 << 20) - 2)}"`;
    const { status, sent } = await create(gateway, { body: largest });
    assert.equal(status, 201);
    assert.ok(sent?.equals(Buffer.from(largest)));
    assert.equal((await site.call('GET', byHand)).header('cache-control'), undefined);
  });

  test('Next.js itself answers the cases that the README lists; a list of 5 MB is complete', async () => {
    assert.equal((await site.call('GET', `${gateway}/%zz`)).status, 500);
    for (const path of [`${gateway}/`, `/${gateway}`]) assert.equal((await site.call('GET', path)).status, 308);
    await using client = await RawClient.open(site.port);
    client.send(`GET ${gateway} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n`);
    await client.closed();
    assert.deepEqual([client.bytesReceived, backend.requests.length], [0, 0]);
    const list = Buffer.from(`[1${',"Ünïcode"'.repeat(400_000)}]`);
    backend.answers(answer(list.toString()));
    assert.ok((await site.call('GET', gateway)).body.equals(list));
  });

  test('the page lists work items, creates one and shows failures', async () => {
    const items = [{ id: 1, title: 'Paint the fence', state: 'New' }];
    backend.answers((exchange) => {
      const { method, body } = exchange.request;
      const isCreate = method === 'POST';
      if (isCreate) items.push({ id: 2, ...(JSON.parse(body.toString()) as { title: string; state: string }) });
      return answer(JSON.stringify(isCreate ? items.at(-1) : items))(exchange);
    });
    await using browser = await TestBrowser.start();
    await using watched = await browser.open(`${site.url}/`);
    const { page } = watched;
    const make = async (title: string) => {
      await page.getByLabel('Title').fill(title);
      await page.getByRole('button', { name: 'Create' }).click();
    };
    await page.getByText('1: Paint the fence (New)').waitFor();
    await make('Mow the lawn');
    await page.getByText('2: Mow the lawn (New)').waitFor();
    await page.getByText('2 work items').waitFor();
    await watched.savePicture('example-nextjs');
    watched.assertClean(site.url);
    assert.deepEqual(await watched.findAccessibilityProblems(), []);
    backend.answers(answer('', { status: 503 }));
    await make('Not to be');
    await page.getByText('Failed to create work item').waitFor();
  });
});
