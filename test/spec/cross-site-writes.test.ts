// Cross-site writes of browsers are refused [D56]. test/docs/cors-in-browser.test.ts uses a real browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  allowed,
  assertReply,
  badRequest,
  collectionMethods,
  forbidden,
  invalidId,
  methodNotAllowed,
  operations,
  succeeded,
} from '../helpers/expected.ts';
import { bytesOf, chunk, requestBytes, type Headers } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, isBeyondRequest, withFetch } from '../helpers/targets.ts';

const crossSite: Headers = [['Sec-Fetch-Site', 'cross-site']];
const writes = operations.filter(({ method }) => method !== 'GET');

// test/unit/cross-site.test.ts has more spellings of the header.
const variants: Record<string, Headers> = {
  'as browsers send it': [
    ['sec-fetch-site', 'cross-site'],
    ['sec-fetch-mode', 'no-cors'],
    ['Origin', 'https://elsewhere.example'],
  ],
  'after another value': [
    ['Sec-Fetch-Site', 'same-origin'],
    ['Sec-Fetch-Site', 'cross-site'],
  ],
};

forEachTarget((target) => {
  for (const { name, method, path, options } of writes) {
    for (const [title, headers] of Object.entries(variants)) {
      test(`${name}: a call with Sec-Fetch-Site cross-site, ${title}, is 403, and the backend is not called [D56]`, async () => {
        const reply = await target().withoutBackendCall(() =>
          target().call(method, path, { ...options, headers }),
        );
        assertReply(reply, 403, forbidden);
      });
    }

    for (const value of ['same-origin', '']) {
      test(`${name}: a call with Sec-Fetch-Site "${value}" is served [D56]`, async () => {
        target().backend.answers(answer('{"id":5}'));
        const reply = await target().call(method, path, { ...options, headers: [['Sec-Fetch-Site', value]] });
        assert.ok(reply.status === 200 || reply.status === 201, reply.statusLine);
        assert.equal(target().backend.requests.length, 1);
      });
    }
  }

  test('reads from any site are served, because no page can read the reply without CORS headers [D56]', async () => {
    for (const [method, path] of [
      ['GET', '/api/work-items'],
      ['GET', '/api/work-items/5'],
      ['HEAD', '/api/work-items/5'],
    ] as const) {
      assert.equal((await target().call(method, path, { headers: crossSite })).status, 200);
    }
    assert.equal(target().backend.requests.length, 3);
  });

  test('OPTIONS and unknown methods ignore Sec-Fetch-Site [D56]', async () => {
    await target().withoutBackendCall(async () => {
      const options = await target().call('OPTIONS', '/api/work-items', { headers: crossSite });
      assert.equal(options.status, 204);
      assert.deepEqual(allowed(options), collectionMethods);
      const patch = await target().call('PATCH', '/api/work-items', { headers: crossSite });
      assertReply(patch, 405, methodNotAllowed, ['allow']);
    });
  });

  test('a cross-site write is 403 before any other error, except malformed HTTP, which is 400 [D27, D56]', async (context) => {
    if (isBeyondRequest(context, target(), 'the host itself replies to malformed HTTP')) return;
    await target().withoutBackendCall(async () => {
      const twoHosts: Headers = [['Host', 'a'], ['Host', 'b'], ...crossSite]; // prettier-ignore
      assertReply(await target().call('POST', '/api/work-items', { headers: twoHosts }), 400, badRequest);
      for (const [method, path, body] of [
        ['PUT', '/api/work-items/abc', '{}'],
        ['DELETE', '/api/work-items/', undefined],
        ['POST', '/api/work-items', '{'],
        ['POST', '/api/work-items', `"${'x'.repeat(2000)}"`],
        ['POST', '/api/work-items/5', '{}'],
        ['PUT', '/api/work-items', '{}'],
        ['POST', 'http://elsewhere.example/api/work-items', '{}'],
      ] as const) {
        const reply = await target().call(method, path, {
          headers: crossSite,
          ...(body !== undefined && { body }),
        });
        assertReply(reply, 403, forbidden);
      }
    });
  });

  test('the body of a cross-site write is dropped without 100 Continue, and the next request is served [D56]', async (context) => {
    if (isBeyondRequest(context, target(), 'the host handles bodies')) return;
    await using client = await target().connect();
    const chunked = requestBytes('POST', '/api/work-items', { headers: [...crossSite, ['Transfer-Encoding', 'chunked']] }); // prettier-ignore
    client.send(Buffer.concat([chunked, chunk('{"a":'), chunk('1}'), bytesOf('0\r\n\r\n')]));
    client.send(requestBytes('PUT', '/api/work-items/5', { headers: crossSite, body: '{}' }));
    client.send(requestBytes('DELETE', '/api/work-items/x'));
    client.send(requestBytes('PUT', '/api/work-items/7', { body: '{}' }));
    assertReply(await client.reply(), 403, forbidden);
    assertReply(await client.reply(), 403, forbidden);
    assertReply(await client.reply(), 400, invalidId);
    assertReply(await client.reply(), 200, succeeded);
    assert.deepEqual(
      target().backend.requests.map(({ method, target: path }) => `${method} ${path}`),
      ['PUT /api/WorkItem/7'],
    );

    client.send(requestBytes('POST', '/api/work-items', { headers: [...crossSite, ['Expect', '100-continue'], ['Content-Length', '2']] })); // prettier-ignore
    const reply = await client.reply();
    assertReply(reply, 403, forbidden);
    assert.equal(reply.header('connection'), 'close');
    await client.closed();
  });
}, { requestBytesMax: 1000 }, { kinds: withFetch }); // prettier-ignore
