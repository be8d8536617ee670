// Pages of other origins call the gateway from a real browser, which enforces CORS [D45]. Without CORS, a page of another
// site cannot write to a gateway on this machine [D56]. page-in-browser.test.ts writes from a page of the gateway.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, describe, test } from 'node:test';
import { TestBrowser } from '../helpers/browser.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, startCommand } from '../helpers/command.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');
const resources = new AsyncDisposableStack();
after(() => resources.disposeAsync());
const browser = resources.use(await TestBrowser.start());

/** Serves an empty page, and opens it in the browser. */
async function openSite() {
  const server = createServer((_request, response) =>
    response.setHeader('content-type', 'text/html').end('<!doctype html><title>elsewhere</title>'),
  );
  await once(server.listen(0, '127.0.0.1'), 'listening');
  resources.defer(() => void server.close());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { origin, page: resources.use(await browser.open(origin)).page };
}
const [allowed, other] = [await openSite(), await openSite()];

// Each gateway is on the host `localhost`. For browsers, `127.0.0.1` is another site than `localhost`, but all ports of one
// name are the same site.
const start = async (settings: NodeJS.ProcessEnv): Promise<Command> =>
  resources.use(await startCommand({ BACKEND_URL: backend.url, HOST: 'localhost', ...settings }));
const gateways = {
  local: await start({}),
  named: await start({ CORS_ORIGINS: allowed.origin }),
  withCredentials: await start({ CORS_ORIGINS: allowed.origin, CORS_CREDENTIALS: 'true', CORS_MAX_AGE_S: '0' }),
  forAll: await start({ CORS_ORIGINS: '*' }),
};
type Gateway = keyof typeof gateways;
const urlOf = (name: Gateway, path: string) => `http://localhost:${gateways[name].port}${path}`;

interface Seen {
  readonly status: number;
  readonly text: string;
  readonly requestId: string | null;
}

/** Calls `fetch` in the page. Returns the reply, or `not allowed`. */
async function fetchFrom(
  { page }: typeof allowed,
  name: Gateway,
  path: string,
  options: object = {},
): Promise<Seen | string> {
  return await page.evaluate<
    Seen | string
  >(`fetch(${JSON.stringify(urlOf(name, path))}, ${JSON.stringify(options)}).then(
    async (reply) => ({ status: reply.status, text: await reply.text(), requestId: reply.headers.get('x-request-id') }),
    () => 'not allowed',
  )`);
}

const put = { method: 'PUT', body: '{}', headers: { 'content-type': 'application/json', authorization: 'Bearer x', 'x-request-id': 'mine' } }; // prettier-ignore
const credentials = 'include';
const item = '/api/work-items/5';
const list = '/api/work-items';
const done = { status: 200, text: '{"success":true}', requestId: 'mine' };
const failed = (status: number, error: string) => ({ status, text: JSON.stringify({ error }) });

// Each row: the page, the gateway, the call, what the page gets, the backend's calls.
const calls: readonly [title: string, typeof allowed, Gateway, path: string, options: object, expected: Partial<Seen> | string, backendCalls: string][] = [
  ['an allowed page reads', allowed, 'named', item, { headers: { 'x-request-id': 'mine' } }, { status: 200, text: '{"id":5}', requestId: 'mine' }, 'GET'],
  ['an allowed page updates', allowed, 'named', item, put, done, 'PUT'],
  ['an allowed page deletes', allowed, 'named', item, { ...put, method: 'DELETE', body: undefined }, done, 'DELETE'],
  ['an allowed page creates', allowed, 'named', list, { ...put, method: 'POST' }, { status: 201, text: '{"id":5}', requestId: 'mine' }, 'POST'],
  ['an allowed page creates without a preflight', allowed, 'named', list, { method: 'POST', body: '{"a":1}' }, { status: 201 }, 'POST'],
  ['an allowed page sees a 400', allowed, 'named', '/api/work-items/x', {}, failed(400, 'Invalid ID format'), ''],
  ['an allowed page sees a 404', allowed, 'named', '/nowhere', {}, failed(404, 'Not found'), ''],
  ['an allowed page sees a 500', allowed, 'named', list, { method: 'POST', body: '{' }, failed(500, 'Failed to create work item'), ''],
  ['an allowed page may not send credentials', allowed, 'named', item, { credentials }, 'not allowed', 'GET'],
  ['an allowed page may send credentials if they are allowed', allowed, 'withCredentials', item, { credentials }, { status: 200 }, 'GET'],
  ['an allowed page may write with credentials if they are allowed', allowed, 'withCredentials', item, { ...put, credentials }, done, 'PUT'],
  ['an allowed page may send any header', allowed, 'named', item, { headers: { 'x-other': 'a', baggage: 'b=c' } }, { status: 200 }, 'GET'],
  ['an allowed page may use only the allowed methods', allowed, 'named', list, { method: 'PATCH' }, 'not allowed', ''],
  ['an allowed page may not use a method that the path does not have', allowed, 'named', list, put, 'not allowed', ''],
  // The read is made, but the page does not see the reply.
  ['a page that is not allowed does not read', other, 'named', item, {}, 'not allowed', 'GET'],
  ['a page that is not allowed does not update', other, 'named', item, put, 'not allowed', ''],
  ['a page that is not allowed does not create without a preflight', other, 'withCredentials', list, { method: 'POST', body: '{}' }, 'not allowed', ''],
  ['any page reads if every origin is allowed', other, 'forAll', item, {}, { status: 200 }, 'GET'],
  ['any page updates if every origin is allowed', other, 'forAll', item, put, { status: 200 }, 'PUT'],
  ['any page deletes if every origin is allowed', other, 'forAll', item, { method: 'DELETE' }, { status: 200 }, 'DELETE'],
  ['no page sends credentials if every origin is allowed', other, 'forAll', item, { credentials }, 'not allowed', 'GET'],
  ['without CORS, no page replaces an item', other, 'local', item, { method: 'PUT', body: '{}' }, 'not allowed', ''],
  ['without CORS, no page deletes an item', other, 'local', item, { method: 'DELETE' }, 'not allowed', ''],
]; // prettier-ignore

describe('a call from a page of another origin [D45, D56]', () => {
  for (const [title, site, name, path, options, expected, backendCalls] of calls) {
    test(title, async () => {
      const seen = await fetchFrom(site, name, path, options);
      assert.partialDeepStrictEqual(seen, expected);
      if (typeof seen === 'object') assert.match(seen.requestId ?? '', /^[A-Za-z0-9._~-]+$/);
      assert.equal(backend.requests.map(({ method }) => method).join(' '), backendCalls);
    });
  }

  test('several writes need one preflight; without caching, each write needs its own', async () => {
    for (const [name, preflights] of [
      ['named', 1],
      ['withCredentials', 3],
    ] as const) {
      const command = gateways[name];
      const countPreflights = async (marker: string) => {
        // The log is in order: once it has the line of a new call, it has the lines of all earlier calls.
        await command.call('GET', '/nowhere', { headers: [['X-Request-Id', marker]] });
        await command.log(({ requestId }) => requestId === marker, 'the line of the marker');
        return command.logs.filter(({ method, outcome }) => method === 'OPTIONS' && outcome === 'ok').length;
      };
      const earlier = await countPreflights('before');
      for (let count = 0; count < 3; count += 1) await fetchFrom(allowed, name, '/api/work-items/77', put);
      assert.equal(await countPreflights('after'), earlier + preflights);
    }
    const received = backend.requests.map(({ method, target }) => `${method} ${target}`);
    assert.deepEqual(received, Array<string>(6).fill('PUT /api/WorkItem/77'));
  });

  test('a sandboxed frame of an allowed page has no origin and reads nothing', async () => {
    const outcome = await allowed.page.evaluate<string>(`new Promise((resolve) => {
      addEventListener('message', (event) => resolve(event.data));
      const frame = document.createElement('iframe');
      frame.sandbox = 'allow-scripts';
      frame.srcdoc = '<script>fetch("${urlOf('named', item)}").then(() => "read", () => "not allowed").then((data) => parent.postMessage(data, "*"))</scr' + 'ipt>';
      document.body.append(frame);
    })`);
    assert.equal(outcome, 'not allowed');
  });
});

test('without CORS, a page of another site creates no item: by fetch without a preflight, by a beacon, or by a form whose field is JSON [D56]', async () => {
  const refusals = (): number => gateways.local.logs.filter(({ outcome }) => outcome === 'forbidden').length;
  const earlier = refusals();
  const items = urlOf('local', list);
  for (const [index, script] of [
    `void fetch('${items}', { method: 'POST', mode: 'no-cors', body: '{"title":"evil"}' })`,
    `navigator.sendBeacon('${items}', '{"title":"evil"}')`,
    `{
      const form = Object.assign(document.createElement('form'), { method: 'POST', action: '${items}', enctype: 'text/plain' });
      form.append(Object.assign(document.createElement('input'), { name: '{"title":"evil","ignored":"', value: '"}' }));
      document.body.append(form);
      form.submit();
    }`,
  ].entries()) {
    await other.page.evaluate(script);
    await poll(() => refusals() === earlier + index + 1, 'the gateway refuses the call');
  }
  assert.equal(backend.requests.length, 0);
});
