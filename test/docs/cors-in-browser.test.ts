// Pages of other origins call the gateway from a real browser, which keeps the rules that CORS is about [D45].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

let browser: TestBrowser;
let backend: ScriptedBackend;
// One for each way to be set; to a browser `127.0.0.1` is another site than `localhost`, where they are called.
let named: Command;
let withCredentials: Command;
let forAll: Command;

// Any site, with an empty page.
const site = () =>
  createServer((_request, response) => {
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>elsewhere</title>');
  });
const sites = [site(), site()] as const;
/** The origin of one site; the first is allowed. */
const originOf = (index: 0 | 1): string => `http://127.0.0.1:${(sites[index].address() as AddressInfo).port}`;

before(async () => {
  backend = await ScriptedBackend.start();
  for (const each of sites) await once(each.listen(0, '127.0.0.1'), 'listening');
  const environment = { BACKEND_URL: backend.url, HOST: 'localhost', CORS_ORIGINS: originOf(0) };
  named = await startCommand(environment);
  withCredentials = await startCommand({ ...environment, CORS_CREDENTIALS: 'true', CORS_MAX_AGE_S: '0' });
  forAll = await startCommand({ ...environment, CORS_ORIGINS: '*' });
  browser = await TestBrowser.start();
});
beforeEach(() => {
  backend.reset();
  backend.answers(answer('{"id":5}'));
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  for (const each of sites) each.close();
  for (const each of [named, withCredentials, forAll]) await each.stop();
  await backend.stop();
});

interface Seen {
  readonly status: number;
  readonly text: string;
  readonly requestId: string | null;
}

/** What a page gets of `command`: its reply, or `not allowed`. */
async function fetchFrom(
  { page }: WatchedPage,
  command: Command,
  path: string,
  options: object = {},
): Promise<Seen | string> {
  const url = `http://localhost:${command.port}${path}`;
  return await page.evaluate<Seen | string>(
    `fetch(${JSON.stringify(url)}, ${JSON.stringify(options)}).then(
      async (reply) => ({
        status: reply.status,
        text: await reply.text(),
        requestId: reply.headers.get('x-request-id'),
      }),
      () => 'not allowed',
    )`,
  );
}

/** The preflights that `command` has answered so far. */
async function preflights(command: Command): Promise<number> {
  // Lines come in order: when that of a call made now is there, all before it are.
  const id = `marker-${(markers += 1)}`;
  await command.call('GET', '/nowhere', { headers: [['X-Request-Id', id]] });
  await command.log(({ requestId }) => requestId === id, `the line of ${id}`);
  return command.logs.filter(({ method, outcome }) => method === 'OPTIONS' && outcome === 'ok').length;
}
let markers = 0;

const write = { method: 'PUT', body: '{}', headers: { 'content-type': 'application/json', authorization: 'Bearer x', 'x-request-id': 'mine' } }; // prettier-ignore

describe('a page of an origin that is allowed', () => {
  test('reads, writes and deletes, and sees the request id [D45]', async () => {
    await using page = await browser.open(originOf(0));
    const item = { status: 200, text: '{"id":5}', requestId: 'mine' };
    const headers = { 'x-request-id': 'mine' };
    assert.deepEqual(await fetchFrom(page, named, '/api/work-items/5', { headers }), item);
    const done = { ...item, text: '{"success":true}' };
    assert.deepEqual(await fetchFrom(page, named, '/api/work-items/5', write), done);
    assert.deepEqual(await fetchFrom(page, named, '/api/work-items/5', { method: 'DELETE', headers }), done);
    const created = await fetchFrom(page, named, '/api/work-items', { ...write, method: 'POST' });
    assert.deepEqual(created, { ...item, status: 201 });
    assert.deepEqual(
      backend.requests.map(({ method }) => method),
      ['GET', 'PUT', 'DELETE', 'POST'],
    );
    assert.deepEqual(page.problems, []);
  });

  test('writes by a request that needs no preflight [D45, D56]', async () => {
    await using page = await browser.open(originOf(0));
    const reply = await fetchFrom(page, named, '/api/work-items', { method: 'POST', body: '{"a":1}' });
    assert.equal(typeof reply === 'object' && reply.status, 201);
    assert.equal(backend.requests[0]?.body.toString(), '{"a":1}');
  });

  test('sees errors, and their request ids [D45]', async () => {
    await using page = await browser.open(originOf(0));
    backend.answers(answer('', { status: 404 }));
    for (const [path, options, status, text] of [
      ['/api/work-items/5', {}, 404, '{"error":"Work item not found"}'],
      ['/api/work-items/x', {}, 400, '{"error":"Invalid ID format"}'],
      ['/nowhere', {}, 404, '{"error":"Not found"}'],
      ['/api/work-items', { method: 'POST', body: '{' }, 500, '{"error":"Failed to create work item"}'],
      ['/api/work-items/5', write, 500, '{"error":"Failed to update work item"}'],
    ] as const) {
      const reply = await fetchFrom(page, named, path, options);
      assert.ok(typeof reply === 'object', path);
      assert.deepEqual([reply.status, reply.text], [status, text]);
      assert.match(reply.requestId ?? '', /^[A-Za-z0-9._~-]+$/);
    }
  });

  test('is remembered: one preflight for several writes, and one each where nothing may be [D45]', async () => {
    await using page = await browser.open(originOf(0));
    const earlier = await preflights(named);
    for (let count = 0; count < 3; count += 1) await fetchFrom(page, named, '/api/work-items/77', write);
    assert.equal(backend.requests.length, 3);
    assert.equal(await preflights(named), earlier + 1);
    const earlierForgotten = await preflights(withCredentials);
    for (let count = 0; count < 3; count += 1) {
      await fetchFrom(page, withCredentials, '/api/work-items/77', write);
    }
    assert.equal(await preflights(withCredentials), earlierForgotten + 3);
  });

  test('uses credentials only where they are allowed [D45]', async () => {
    await using page = await browser.open(originOf(0));
    const credentials = 'include';
    assert.equal(await fetchFrom(page, named, '/api/work-items/5', { credentials }), 'not allowed');
    const reply = await fetchFrom(page, withCredentials, '/api/work-items/5', { credentials });
    assert.equal(typeof reply === 'object' && reply.status, 200);
    const written = await fetchFrom(page, withCredentials, '/api/work-items/5', { ...write, credentials });
    assert.equal(typeof written === 'object' && written.status, 200);
  });

  test('may not send a header that is not allowed, nor call with another method [D45]', async () => {
    await using page = await browser.open(originOf(0));
    const headers = { 'x-other': 'a' };
    assert.equal(await fetchFrom(page, named, '/api/work-items', { headers }), 'not allowed');
    assert.equal(await fetchFrom(page, named, '/api/work-items', { method: 'PATCH' }), 'not allowed');
    assert.equal(await fetchFrom(page, named, '/api/work-items', write), 'not allowed');
    assert.equal(backend.requests.length, 0);
  });
});

describe('a page of another origin', () => {
  test('reads nothing and writes nothing [D45, D56]', async () => {
    await using page = await browser.open(originOf(1));
    for (const command of [named, withCredentials]) {
      assert.equal(await fetchFrom(page, command, '/api/work-items/5'), 'not allowed');
      assert.equal(await fetchFrom(page, command, '/api/work-items/5', write), 'not allowed');
      const simple = { method: 'POST', body: '{}' };
      assert.equal(await fetchFrom(page, command, '/api/work-items', simple), 'not allowed');
    }
    assert.deepEqual(
      backend.requests.map(({ method }) => method),
      ['GET', 'GET'],
      'a read is made, but nobody gets to see it',
    );
  });

  test('may do all that where every origin is allowed, without credentials [D45]', async () => {
    await using page = await browser.open(originOf(1));
    for (const options of [{}, write, { method: 'DELETE' }]) {
      const reply = await fetchFrom(page, forAll, '/api/work-items/5', options);
      assert.equal(typeof reply === 'object' && reply.status, 200);
    }
    const options = { credentials: 'include' };
    assert.equal(await fetchFrom(page, forAll, '/api/work-items/5', options), 'not allowed');
  });

  test('a sandboxed frame of an allowed page is of no origin, and reads nothing [D45]', async () => {
    await using page = await browser.open(originOf(0));
    const outcome = await page.page.evaluate<string>(`new Promise((resolve) => {
      addEventListener('message', (event) => resolve(event.data));
      const frame = document.createElement('iframe');
      frame.sandbox = 'allow-scripts';
      frame.srcdoc = '<script>fetch("http://localhost:${named.port}/api/work-items/5").then(() => "read", () => "not allowed").then((data) => parent.postMessage(data, "*"))</scr' + 'ipt>';
      document.body.append(frame);
    })`);
    assert.equal(outcome, 'not allowed');
  });
});
