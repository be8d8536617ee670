// Cross-site writes of browsers are refused [D56]. test/unit/admission.test.ts has more spellings of the headers;
// test/docs/cors-in-browser.test.ts uses a real browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  assertReply,
  badRequest,
  forbidden,
  invalidId,
  methodNotAllowed,
  operations,
  succeeded,
} from '../helpers/expected.ts';
import { bytesOf, chunk, requestBytes, type Headers } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';

const crossSite: Headers = [['Sec-Fetch-Site', 'cross-site']];
const writes = operations.filter(({ method }) => method !== 'GET');

/** Sends each write with `headers`, and checks that it is served, or refused without a backend call. */
async function assertWrites(target: Target, isServed: boolean, headers: Headers, also: string[] = []): Promise<void> {
  target.backend.answers(answer('{"id":5}'));
  for (const { method, path, options, status } of writes) {
    const reply = await target.call(method, path, { ...options, headers });
    if (isServed) assert.equal(reply.status, status, `${method} with ${headers.join('; ')}`);
    else assertReply(reply, 403, forbidden, also);
  }
  assert.equal(target.backend.requests.length, isServed ? writes.length : 0);
  target.backend.reset();
}

const [own, other] = ['http://items.example', 'http://elsewhere.example'];
const item = '/api/work-items/5';

forEachTarget((target) => {
  test('Sec-Fetch-Site, and without it the host and port of Origin, decide whether a write is served; x-forwarded-host is ignored [D56]', async () => {
    for (const [isServed, host, ...headers] of [
      [false, 'a', ['sec-fetch-site', 'cross-site'], ['sec-fetch-mode', 'no-cors'], ['Origin', other]],
      [false, 'a', ['Sec-Fetch-Site', 'same-origin'], ['Sec-Fetch-Site', 'cross-site']],
      [true, 'a', ['Sec-Fetch-Site', 'same-origin']], [true, 'a', ['Sec-Fetch-Site', '']],
      [true, 'items.example', ['Origin', own]], [true, 'items.example:443', ['Origin', 'https://items.example']],
      [true, 'Items.Example:8080', ['Origin', `${own}:8080`]], [true, '[::1]:3000', ['Origin', 'http://[::1]:3000']],
      [false, 'items.example', ['Origin', other]], [false, 'items.example', ['Origin', `${own}:8080`]],
      [false, 'items.example', ['Origin', 'null']], [false, 'items.example', ['Origin', `${own}.evil.example`]],
      [false, 'items.example', ['Origin', own], ['Origin', other]],
      [true, 'a', ['Origin', 'http://b'], ['Sec-Fetch-Site', 'same-origin']],
      [false, 'gateway:3000', ['X-Forwarded-Host', 'items.example'], ['Origin', own]],
      [true, 'gateway:3000', ['X-Forwarded-Host', 'items.example'], ['Origin', 'http://gateway:3000']],
    ] as const) {
      await assertWrites(target(), isServed, [['Host', host], ...headers]);
    }
  });

  test('reads from any site are served, because no page can read the reply without CORS headers; other methods ignore the site [D56]', async () => {
    for (const [method, path] of [['GET', '/api/work-items'], ['GET', item], ['HEAD', item]] as const) {
      assert.equal((await target().call(method, path, { headers: crossSite })).status, 200);
    }
    assert.equal((await target().call('GET', '/api/work-items', { headers: [['Origin', 'null']] })).status, 200);
    assert.equal((await target().call('OPTIONS', '/api/work-items', { headers: crossSite })).status, 204);
    assertReply(await target().call('PATCH', '/api/work-items', { headers: crossSite }), 405, methodNotAllowed, ['allow']);
    assert.equal(target().backend.requests.length, 4);
  });
}, {}, { kinds: ['in-process', 'plugin', 'fetch', 'node', 'http2'] }); // prettier-ignore

forEachTarget((target) => {
  test('a cross-site write is 403 before any other error, except malformed HTTP, which is 400 [D27, D56]', async () => {
    await target().withoutBackendCall(async () => {
      const twoHosts: Headers = [['Host', 'a'], ['Host', 'b'], ...crossSite];
      assertReply(await target().call('POST', '/api/work-items', { headers: twoHosts }), 400, badRequest);
      for (const [method, path, body] of [
        ['PUT', '/api/work-items/abc', '{}'], ['DELETE', '/api/work-items/'], ['POST', '/api/work-items', '{'],
        ['POST', '/api/work-items', `"${'x'.repeat(2000)}"`], ['POST', item, '{}'], ['PUT', '/api/work-items', '{}'],
        ['POST', 'http://elsewhere.example/api/work-items', '{}'],
      ] as const) {
        const reply = await target().call(method, path, { headers: crossSite, ...(body !== undefined && { body }) });
        assertReply(reply, 403, forbidden);
      }
    });
  });

  test('the body of a cross-site write is dropped without 100 Continue, and the next request is served [D56]', async () => {
    await using client = await target().connect();
    const chunked = requestBytes('POST', '/api/work-items', { headers: [...crossSite, ['Transfer-Encoding', 'chunked']] });
    client.send(Buffer.concat([chunked, chunk('{"a":'), chunk('1}'), bytesOf('0\r\n\r\n')]));
    client.send(requestBytes('PUT', item, { headers: crossSite, body: '{}' }));
    client.send(requestBytes('DELETE', '/api/work-items/x'));
    client.send(requestBytes('PUT', '/api/work-items/7', { body: '{}' }));
    for (const [status, body] of [[403, forbidden], [403, forbidden], [400, invalidId], [200, succeeded]] as const) {
      assertReply(await client.reply(), status, body);
    }
    const received = target().backend.requests.map(({ method, target: path }) => `${method} ${path}`);
    assert.deepEqual(received, ['PUT /api/WorkItem/7']);

    client.send(requestBytes('POST', '/api/work-items', { headers: [...crossSite, ['Expect', '100-continue'], ['Content-Length', '2']] }));
    const reply = await client.reply();
    assertReply(reply, 403, forbidden);
    assert.equal(reply.header('connection'), 'close');
    await client.closed();
  });

  test('the host in an absolute-form target and Host must both match Origin; without Host, a write is refused [D56]', async () => {
    target().backend.answers(answer('{"id":5}'));
    for (const [host, authority, status] of [
      ['items.example', 'items.example', 200], ['items.example', 'elsewhere.example', 403], ['elsewhere.example', 'items.example', 403],
    ] as const) {
      const headers: Headers = [['Host', host], ['Origin', own]];
      assert.equal((await target().call('DELETE', `http://${authority}${item}`, { headers })).status, status, `${host} ${authority}`);
    }
    await using client = await target().connect();
    client.send('DELETE /api/work-items/5 HTTP/1.0\r\nOrigin: http://a\r\n\r\n');
    assert.equal((await client.reply()).status, 403);
  });
}, { requestBytesMax: 1000 }, { kinds: ['in-process'] }); // prettier-ignore

forEachTarget((target) => {
  test('x-forwarded-host of a trusted proxy replaces Host; one of several values must match [D56]', async () => {
    const inside = ['Host', 'gateway:3000'] as const;
    const origin = ['Origin', 'https://items.example'] as const;
    for (const hosts of [['items.example'], ['items.example, inner.example'], ['inner.example', 'ITEMS.example:443']]) {
      const forwarded = hosts.map((host) => ['X-Forwarded-Host', host] as const);
      await assertWrites(target(), true, [inside, origin, ...forwarded]);
      await assertWrites(target(), false, [inside, ['Origin', 'http://gateway:3000'], ...forwarded]);
    }
    await assertWrites(target(), false, [inside, origin, ['X-Forwarded-Host', 'elsewhere.example']]);
    await assertWrites(target(), false, [inside, origin]);
    await assertWrites(target(), true, [['Host', 'items.example'], origin, ['X-Forwarded-Host', '']]);
  });
}, { trustedProxies: ['127.0.0.1'] }, { kinds: ['in-process', 'command', 'plugin', 'fetch', 'node'] }); // prettier-ignore

forEachTarget((target) => {
  test('an origin of CORS_ORIGINS may write to any host; other origins may not [D45, D56]', async () => {
    for (const [isServed, origin] of [[true, 'https://app.example'], [false, 'https://app.example:8443'], [false, 'null']] as const) {
      await assertWrites(target(), isServed, [['Host', 'items.example'], ['Origin', origin]], ['vary']);
    }
  });
}, { corsOrigins: ['https://app.example'] }, { kinds: ['in-process', 'fetch', 'node'] }); // prettier-ignore
