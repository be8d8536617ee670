// The fetch handler in Hono: headers of middleware, mounts and prefixes, as docs/hosts.md describes them [D50].

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Hono } from 'hono';
import { cors } from 'hono/cors';
import { requestId } from 'hono/request-id';
import { createFetchHandler, type FetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { operations } from '../helpers/expected.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend('{"id":5}');

/** Adds the gateway's routes to `app`, as docs/hosts.md does. */
const addRoutes = (call: FetchHandler, app: Hono): void => {
  app.all('/api/work-items/*', (context) => call(context.req.raw).then((made) => context.newResponse(made.body, made)));
};

const send = (app: Hono, method: string, path: string, options: { readonly body?: string | Uint8Array } = {}) =>
  app.request(`http://items.example${path}`, { method, body: options.body as string });

test('docs/hosts.md and the example add the same routes', () => {
  const [line = '-'] = /app\.all\(.*/.exec(String(addRoutes)) ?? [];
  for (const path of ['docs/hosts.md', 'examples/hono/server.js']) {
    assert.ok(readFileSync(join(import.meta.dirname, '../..', path), 'utf8').includes(line), path);
  }
});

test('headers that middleware sets before and after the gateway are kept, and bytes are unchanged', async () => {
  const app = new Hono();
  app.use(cors({ origin: 'https://app.example', credentials: true }), requestId({ headerName: 'x-trace' }));
  app.use(async (context, next) => {
    context.header('set-cookie', 'a=1', { append: true });
    context.header('set-cookie', 'b=2', { append: true });
    await next();
    context.header('x-after', '1');
  });
  addRoutes(createFetchHandler({ backendUrl: backend.url }), app);
  for (const { method, path, options, status, body } of operations) {
    const response = await send(app, method, path, options);
    assert.deepEqual([response.status, await response.text()], [status, body]);
    const { headers } = response;
    assert.deepEqual(headers.getSetCookie(), ['a=1', 'b=2']);
    assert.deepEqual([headers.get('x-after'), headers.get('access-control-allow-credentials')], ['1', 'true']);
    assert.match(headers.get('x-trace') ?? '', /./);
    assert.deepEqual([headers.get('content-type'), headers.get('cache-control')], ['application/json', 'no-store']);
  }
  const options = await send(app, 'OPTIONS', '/api/work-items');
  assert.deepEqual([options.status, options.body], [204, null]);
  backend.answers(answer('[1]'));
  const head = await send(app, 'HEAD', '/api/work-items');
  assert.deepEqual([head.status, head.headers.get('content-length'), await head.text()], [200, '3', '']);
});

test("members that middleware appends to vary after the gateway join the gateway's own [D45]", async () => {
  const app = new Hono();
  app.use(async (context, next) => {
    await next();
    context.header('vary', 'accept-encoding', { append: true });
  });
  addRoutes(createFetchHandler({ backendUrl: backend.url, corsOrigins: ['https://app.example'] }), app);
  const { headers } = await send(app, 'GET', '/api/work-items/5');
  assert.equal(headers.get('vary'), 'origin, accept-encoding');
});

test('mounted with replaceRequest: false, and under a prefix, every operation is served', async () => {
  const call = createFetchHandler({ backendUrl: backend.url });
  const prefixed = createFetchHandler({ backendUrl: backend.url, prefix: '/v1' });
  const [mounted, inner, outer, based] = [new Hono(), new Hono(), new Hono(), new Hono()];
  // eslint-disable-next-line @typescript-eslint/no-deprecated
  mounted.mount('/api/work-items', call, { replaceRequest: false });
  addRoutes(prefixed, inner);
  outer.route('/v1', inner);
  based.basePath('/v1').all('/api/work-items/*', (context) => prefixed(context.req.raw));
  for (const [app, prefix] of [
    [mounted, ''],
    [based, '/v1'],
    [outer, '/v1'],
  ] as const) {
    // prettier-ignore
    for (const { method, path, options, status, body, backendTarget } of operations) {
      const response = await send(app, method, prefix + path, options);
      assert.deepEqual([response.status, await response.text()], [status, body]);
      assert.equal(backend.requests.at(-1)?.target, backendTarget);
    }
  }
});
