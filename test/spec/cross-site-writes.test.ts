// Cross-site writes of browsers are refused [D56]. test/docs/cors-in-browser.test.ts uses a real browser.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
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
import { forEachTarget, isBeyondRequest, withFetch, type Target } from '../helpers/targets.ts';

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

const everyProtocol: Parameters<typeof forEachTarget>[2] = {
  kinds: ['in-process', 'command', 'plugin', 'fetch', 'node', 'http2'],
};

/** Sends each write with `headers`, and checks that it is served or refused. */
async function assertWrites(target: Target, isServed: boolean, headers: Headers): Promise<void> {
  target.backend.answers(answer('{"id":5}'));
  for (const { method, path, options, status } of writes) {
    const reply = await target.call(method, path, { ...options, headers });
    assert.equal(reply.status, isServed ? status : 403, `${method} with ${headers.join('; ')}`);
    if (!isServed) assert.equal(reply.text, forbidden);
  }
  assert.equal(target.backend.requests.length, isServed ? writes.length : 0);
  target.backend.reset();
}

describe('without Sec-Fetch-Site, a write must come from the origin of its host', () => {
  forEachTarget((target) => {
    test('a write is served if Origin has the host and port of Host [D56]', async () => {
      for (const [host, origin] of [
        ['items.example', 'http://items.example'],
        ['items.example', 'https://items.example'],
        ['items.example:443', 'https://items.example'],
        ['Items.Example:8080', 'http://items.example:8080'],
        ['[::1]:3000', 'http://[::1]:3000'],
      ] as const) {
        await assertWrites(target(), true, [['Host', host], ['Origin', origin]]);
      }
    });

    test('a write with another Origin, or with the Origin null, is 403, and the backend is not called [D56]', async () => {
      for (const origin of ['http://elsewhere.example', 'http://items.example:8080', 'null', 'http://items.example.evil.example']) {
        await assertWrites(target(), false, [['Host', 'items.example'], ['Origin', origin]]);
      }
    });

    test('a write with two Origin headers is 403 [D56]', async () => {
      const origin = ['Origin', 'http://items.example'] as const;
      await assertWrites(target(), false, [['Host', 'items.example'], origin, ['Origin', 'http://elsewhere.example']]);
    });

    test('a write with Sec-Fetch-Site same-origin is served with any Origin [D56]', async () => {
      await assertWrites(target(), true, [['Host', 'a'], ['Origin', 'http://b'], ['Sec-Fetch-Site', 'same-origin']]);
    });

    test('a read with any Origin is served [D56]', async () => {
      target().backend.answers(answer('[]'));
      const reply = await target().call('GET', '/api/work-items', { headers: [['Origin', 'null']] });
      assert.equal(reply.status, 200);
    });

    test('x-forwarded-host is ignored, because no proxy is trusted [D56]', async () => {
      const headers: Headers = [['Host', 'gateway:3000'], ['X-Forwarded-Host', 'items.example']];
      await assertWrites(target(), false, [...headers, ['Origin', 'http://items.example']]);
      await assertWrites(target(), true, [...headers, ['Origin', 'http://gateway:3000']]);
    });
  }, {}, everyProtocol);

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
  }, { trustedProxies: ['127.0.0.1'] }, everyProtocol);

  forEachTarget((target) => {
    test('an origin of CORS_ORIGINS may write to any host; other origins may not [D45, D56]', async () => {
      await assertWrites(target(), true, [['Host', 'items.example'], ['Origin', 'https://app.example']]);
      await assertWrites(target(), false, [['Host', 'items.example'], ['Origin', 'https://app.example:8443']]);
      await assertWrites(target(), false, [['Host', 'items.example'], ['Origin', 'null']]);
    });
  }, { corsOrigins: ['https://app.example'] }, { kinds: ['in-process', 'command', 'fetch', 'node', 'http2'] });

  forEachTarget((target) => {
    test('if a target is in absolute-form, its host and Host must both match Origin [D56]', async () => {
      target().backend.answers(answer('{"id":5}'));
      for (const [host, authority, status] of [
        ['items.example', 'items.example', 200],
        ['items.example', 'elsewhere.example', 403],
        ['elsewhere.example', 'items.example', 403],
      ] as const) {
        const headers: Headers = [['Host', host], ['Origin', 'http://items.example']];
        const reply = await target().call('DELETE', `http://${authority}/api/work-items/5`, { headers });
        assert.equal(reply.status, status, `${host} ${authority}`);
      }
    });

    test('a write in HTTP/1.0 without Host is refused if it has an Origin [D56]', async () => {
      await using client = await target().connect();
      client.send('DELETE /api/work-items/5 HTTP/1.0\r\nOrigin: http://a\r\n\r\n');
      assert.equal((await client.reply()).status, 403);
    });
  });
}); // prettier-ignore
