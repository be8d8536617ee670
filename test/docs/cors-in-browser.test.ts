// Pages of other origins call the gateway from a real browser, which enforces CORS [D45]. Without CORS, a page of another
// site cannot write to a gateway on this machine [D56].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

let browser: TestBrowser;
const backend = await useBackend('{"id":5}');
// One gateway per configuration. For browsers `127.0.0.1` is another site than `localhost`, the gateways' host; all ports of
// one name are the same site.
let local: Command;
let named: Command;
let withCredentials: Command;
let forAll: Command;

// Serves an empty page of another site.
const site = () =>
  createServer((_request, response) =>
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>elsewhere</title>'),
  );
const sites = [site(), site()] as const;
/** The origin of a site. The gateways allow only the first. */
const originOf = (index: 0 | 1): string => `http://127.0.0.1:${(sites[index].address() as AddressInfo).port}`;

before(async () => {
  for (const each of sites) await once(each.listen(0, '127.0.0.1'), 'listening');
  const environment = { BACKEND_URL: backend.url, HOST: 'localhost', CORS_ORIGINS: originOf(0) };
  local = await startCommand({ ...environment, CORS_ORIGINS: '', DOCS: 'true' });
  named = await startCommand(environment);
  withCredentials = await startCommand({ ...environment, CORS_CREDENTIALS: 'true', CORS_MAX_AGE_S: '0' });
  forAll = await startCommand({ ...environment, CORS_ORIGINS: '*' });
  browser = await TestBrowser.start();
});
after(async () => {
  await browser[Symbol.asyncDispose]();
  for (const each of sites) each.close();
  for (const each of [local, named, withCredentials, forAll]) await each.stop();
});

interface Seen {
  readonly status: number;
  readonly text: string;
  readonly requestId: string | null;
}

/** Calls `fetch` in the page. Returns the reply, or `not allowed`. */
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
  // The log is written in order: after the line of a new call, those of all earlier calls are there.
  const id = `marker-${(markers += 1)}`;
  await command.call('GET', '/nowhere', { headers: [['X-Request-Id', id]] });
  await command.log(({ requestId }) => requestId === id, `the line of ${id}`);
  return command.logs.filter(({ method, outcome }) => method === 'OPTIONS' && outcome === 'ok').length;
}
let markers = 0;

const write = { method: 'PUT', body: '{}', headers: { 'content-type': 'application/json', authorization: 'Bearer x', 'x-request-id': 'mine' } }; // prettier-ignore

describe('a page of an allowed origin', () => {
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

  test('needs one preflight for several writes; without caching, one for each [D45]', async () => {
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

  test('uses credentials only if they are allowed [D45]', async () => {
    await using page = await browser.open(originOf(0));
    const credentials = 'include';
    assert.equal(await fetchFrom(page, named, '/api/work-items/5', { credentials }), 'not allowed');
    const reply = await fetchFrom(page, withCredentials, '/api/work-items/5', { credentials });
    assert.equal(typeof reply === 'object' && reply.status, 200);
    const written = await fetchFrom(page, withCredentials, '/api/work-items/5', { ...write, credentials });
    assert.equal(typeof written === 'object' && written.status, 200);
  });

  test('may not send other headers or methods [D45]', async () => {
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
      'the read is made, but the page does not see the reply',
    );
  });

  test('reads and writes without credentials if every origin is allowed [D45]', async () => {
    await using page = await browser.open(originOf(1));
    for (const options of [{}, write, { method: 'DELETE' }]) {
      const reply = await fetchFrom(page, forAll, '/api/work-items/5', options);
      assert.equal(typeof reply === 'object' && reply.status, 200);
    }
    const options = { credentials: 'include' };
    assert.equal(await fetchFrom(page, forAll, '/api/work-items/5', options), 'not allowed');
  });

  test('a sandboxed frame of an allowed page has no origin and reads nothing [D45]', async () => {
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

/** The number of calls that the gateway has refused as cross-site. */
const refusals = (): number => local.logs.filter(({ outcome }) => outcome === 'forbidden').length;

describe('a page of another site, without CORS [D56]', () => {
  const items = (): string => `http://localhost:${local.port}/api/work-items`;
  const attempts: [name: string, script: () => string][] = [
    [
      'cannot create an item by fetch without a preflight',
      () => `fetch('${items()}', { method: 'POST', mode: 'no-cors', body: '{"title":"evil"}' })`,
    ],
    [
      'cannot create an item by a beacon, which is sent when the page closes',
      () => `navigator.sendBeacon('${items()}', '{"title":"evil"}')`,
    ],
    [
      'cannot create an item by a form whose field is JSON',
      () => `{
        const form = document.createElement('form');
        form.method = 'POST';
        form.action = '${items()}';
        form.enctype = 'text/plain';
        const field = document.createElement('input');
        field.name = '{"title":"evil","ignored":"';
        field.value = '"}';
        form.append(field);
        document.body.append(form);
        form.submit();
      }`,
    ],
  ];
  for (const [name, script] of attempts) {
    test(name, async () => {
      const earlier = refusals();
      await using page = await browser.open(originOf(1));
      await page.page.evaluate(script());
      await poll(() => refusals() === earlier + 1, 'the gateway refuses the call');
      assert.equal(backend.requests.length, 0);
    });
  }

  test('cannot replace or delete an item: the preflight is refused', async () => {
    await using page = await browser.open(originOf(1));
    for (const method of ['PUT', 'DELETE']) {
      const outcome = await page.page.evaluate<string>(
        `fetch('${items()}/5', { method: '${method}', body: '{}' }).then(() => 'sent', () => 'not sent')`,
      );
      assert.equal(outcome, 'not sent', method);
    }
    assert.equal(backend.requests.length, 0);
  });
});

describe('a page of the gateway itself', () => {
  test('creates, replaces and deletes', async () => {
    await using page = await browser.open(`http://localhost:${local.port}/docs`);
    const statuses = await page.page.evaluate<number[]>(`Promise.all([
      fetch('/api/work-items', { method: 'POST', body: '{"title":"good"}' }),
      fetch('/api/work-items/5', { method: 'PUT', body: '{}' }),
      fetch('/api/work-items/5', { method: 'DELETE' }),
    ].map((call) => call.then(({ status }) => status)))`);
    assert.deepEqual(statuses, [201, 200, 200]);
  });

  test('creates an item in the API reference', async () => {
    await using reference = await browser.open(`http://localhost:${local.port}/docs`);
    const operation = reference.page.locator('[id$="-createWorkItem"]');
    await operation.getByRole('button', { expanded: false }).first().click();
    await operation.getByRole('textbox', { name: 'Request body' }).fill('{"title":"good"}');
    await operation.getByRole('button', { name: 'Execute' }).click();
    const status = operation.locator('.live-responses-table tbody .response-col_status');
    assert.match((await status.textContent()) ?? '', /^\s*201/);
    assert.equal(backend.requests[0]?.body.toString(), '{"title":"good"}');
  });
});
