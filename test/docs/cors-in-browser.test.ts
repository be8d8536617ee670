// Pages of other origins call the gateway from a real browser, which enforces CORS [D45]. Without CORS, a page of another
// site cannot write to a gateway on this machine [D56]. page-in-browser.test.ts writes from a page of the gateway.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { TestBrowser, type WatchedPage } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { useBackend } from '../helpers/suites.ts';

let browser: TestBrowser;
const backend = await useBackend('{"id":5}');
// One gateway per configuration, each on the host `localhost`. For browsers, `127.0.0.1` is another site than
// `localhost`, but all ports of one name are the same site.
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
/** The origin of a site. The gateways `named` and `withCredentials` allow only the origin of the first site. */
const originOf = (index: 0 | 1): string => `http://127.0.0.1:${(sites[index].address() as AddressInfo).port}`;

before(async () => {
  for (const each of sites) await once(each.listen(0, '127.0.0.1'), 'listening');
  const environment = { BACKEND_URL: backend.url, HOST: 'localhost', CORS_ORIGINS: originOf(0) };
  local = await startCommand({ ...environment, CORS_ORIGINS: '' });
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

const put = { method: 'PUT', body: '{}', headers: { 'content-type': 'application/json', authorization: 'Bearer x', 'x-request-id': 'mine' } }; // prettier-ignore
const credentials = 'include';
const item = '/api/work-items/5';
const list = '/api/work-items';
const done = { status: 200, text: '{"success":true}', requestId: 'mine' };
const failed = (status: number, error: string) => ({ status, text: JSON.stringify({ error }) });

type Gateway = 'named' | 'withCredentials' | 'forAll';

// Each row: the page's site, the gateway, the call, what the page gets, the backend's calls.
const calls: readonly [title: string, site: 0 | 1, Gateway, path: string, options: object, expected: Partial<Seen> | string, backendCalls: string][] = [
  ['an allowed page reads', 0, 'named', item, { headers: { 'x-request-id': 'mine' } }, { status: 200, text: '{"id":5}', requestId: 'mine' }, 'GET'],
  ['an allowed page updates', 0, 'named', item, put, done, 'PUT'],
  ['an allowed page deletes', 0, 'named', item, { ...put, method: 'DELETE', body: undefined }, done, 'DELETE'],
  ['an allowed page creates', 0, 'named', list, { ...put, method: 'POST' }, { status: 201, text: '{"id":5}', requestId: 'mine' }, 'POST'],
  ['an allowed page creates without a preflight', 0, 'named', list, { method: 'POST', body: '{"a":1}' }, { status: 201 }, 'POST'],
  ['an allowed page sees a 400', 0, 'named', '/api/work-items/x', {}, failed(400, 'Invalid ID format'), ''],
  ['an allowed page sees a 404', 0, 'named', '/nowhere', {}, failed(404, 'Not found'), ''],
  ['an allowed page sees a 500', 0, 'named', list, { method: 'POST', body: '{' }, failed(500, 'Failed to create work item'), ''],
  ['an allowed page may not send credentials', 0, 'named', item, { credentials }, 'not allowed', 'GET'],
  ['an allowed page may send credentials if they are allowed', 0, 'withCredentials', item, { credentials }, { status: 200 }, 'GET'],
  ['an allowed page may write with credentials if they are allowed', 0, 'withCredentials', item, { ...put, credentials }, done, 'PUT'],
  ['an allowed page may send any header', 0, 'named', item, { headers: { 'x-other': 'a', baggage: 'b=c' } }, { status: 200 }, 'GET'],
  ['an allowed page may use only the allowed methods', 0, 'named', list, { method: 'PATCH' }, 'not allowed', ''],
  ['an allowed page may not use a method that the path does not have', 0, 'named', list, put, 'not allowed', ''],
  // The read is made, but the page does not see the reply.
  ['a page that is not allowed does not read', 1, 'named', item, {}, 'not allowed', 'GET'],
  ['a page that is not allowed does not update', 1, 'named', item, put, 'not allowed', ''],
  ['a page that is not allowed does not create without a preflight', 1, 'withCredentials', list, { method: 'POST', body: '{}' }, 'not allowed', ''],
  ['any page reads if every origin is allowed', 1, 'forAll', item, {}, { status: 200 }, 'GET'],
  ['any page updates if every origin is allowed', 1, 'forAll', item, put, { status: 200 }, 'PUT'],
  ['any page deletes if every origin is allowed', 1, 'forAll', item, { method: 'DELETE' }, { status: 200 }, 'DELETE'],
  ['no page sends credentials if every origin is allowed', 1, 'forAll', item, { credentials }, 'not allowed', 'GET'],
]; // prettier-ignore

describe('a call from a page of another origin [D45, D56]', () => {
  const pages: (WatchedPage | undefined)[] = [];
  for (const [title, site, name, path, options, expected, backendCalls] of calls) {
    test(title, async () => {
      const page = (pages[site] ??= await browser.open(originOf(site)));
      const seen = await fetchFrom(page, { named, withCredentials, forAll }[name], path, options);
      assert.partialDeepStrictEqual(seen, expected);
      if (typeof seen === 'object') assert.match(seen.requestId ?? '', /^[A-Za-z0-9._~-]+$/);
      assert.equal(backend.requests.map(({ method }) => method).join(' '), backendCalls);
    });
  }

  test('several writes need one preflight; without caching, each write needs its own', async () => {
    await using page = await browser.open(originOf(0));
    for (const [command, preflights] of [
      [named, 1],
      [withCredentials, 3],
    ] as const) {
      const countPreflights = async (marker: string) => {
        // The log is in order: once it has the line of a new call, it has the lines of all earlier calls.
        await command.call('GET', '/nowhere', { headers: [['X-Request-Id', marker]] });
        await command.log(({ requestId }) => requestId === marker, 'the line of the marker');
        return command.logs.filter(({ method, outcome }) => method === 'OPTIONS' && outcome === 'ok').length;
      };
      const earlier = await countPreflights('before');
      for (let count = 0; count < 3; count += 1) await fetchFrom(page, command, '/api/work-items/77', put);
      assert.equal(await countPreflights('after'), earlier + preflights);
    }
    const received = backend.requests.map(({ method, target }) => `${method} ${target}`);
    assert.deepEqual(
      received,
      Array.from({ length: 6 }, () => 'PUT /api/WorkItem/77'),
    );
  });

  test('a sandboxed frame of an allowed page has no origin and reads nothing', async () => {
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
