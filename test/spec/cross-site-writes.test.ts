// A write that the browser sends for a page of another site is refused before anything is done for it [D56]. With a
// real browser: test/docs/other-sites.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  allowed,
  assertHeaders,
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

const variants: Record<string, Headers> = {
  'as browsers send it': [
    ['sec-fetch-site', 'cross-site'],
    ['sec-fetch-mode', 'no-cors'],
    ['Origin', 'https://elsewhere.example'],
  ],
  'in capitals': [['SEC-FETCH-SITE', 'CROSS-SITE']],
  'with space around it': [['Sec-Fetch-Site', ' \tcross-site\t ']],
  'behind another one': [
    ['Sec-Fetch-Site', 'same-origin'],
    ['Sec-Fetch-Site', 'cross-site'],
  ],
  'before another one': [
    ['Sec-Fetch-Site', 'cross-site'],
    ['sec-fetch-site', 'same-origin'],
  ],
  'in a list': [['Sec-Fetch-Site', 'none, cross-site']],
  'with the origin of a page of ours': [
    ['Sec-Fetch-Site', 'cross-site'],
    ['Origin', 'http://gateway.test'],
  ],
};

forEachTarget((target) => {
  for (const { name, method, path, options } of writes) {
    for (const [what, headers] of Object.entries(variants)) {
      test(`${name}: cross-site, ${what}, is 403 without a backend call [D56]`, async () => {
        const reply = await target().withoutBackendCall(() =>
          target().call(method, path, { ...options, headers }),
        );
        assertReply(reply, 403, forbidden);
      });
    }

    for (const value of ['same-origin', 'same-site', 'none', '', 'cross-sites']) {
      test(`${name}: "${value}" is served [D56]`, async () => {
        target().backend.answers(answer('{"id":5}'));
        const reply = await target().call(method, path, { ...options, headers: [['Sec-Fetch-Site', value]] });
        assert.ok(reply.status === 200 || reply.status === 201, reply.statusLine);
        assert.equal(target().backend.requests.length, 1);
      });
    }
  }

  test('reads are served to every site, since no page gets to see them [D56]', async () => {
    for (const [method, path] of [
      ['GET', '/api/work-items'],
      ['GET', '/api/work-items/5'],
      ['HEAD', '/api/work-items/5'],
    ] as const) {
      assert.equal((await target().call(method, path, { headers: crossSite })).status, 200);
    }
    assert.equal(target().backend.requests.length, 3);
  });

  test('OPTIONS and unknown methods are what they are without it [D56]', async () => {
    await target().withoutBackendCall(async () => {
      const options = await target().call('OPTIONS', '/api/work-items', { headers: crossSite });
      assert.equal(options.status, 204);
      assert.deepEqual(allowed(options), collectionMethods);
      const patch = await target().call('PATCH', '/api/work-items', { headers: crossSite });
      assertReply(patch, 405, methodNotAllowed, ['allow']);
    });
  });

  test('malformed HTTP is 400 first, then it is 403, whatever else would be wrong [D27, D56]', async (context) => {
if (isBeyondRequest(context, target(), 'malformed HTTP is the host\'s to answer')) return;
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

  test('its body is not asked for, and the next request of the connection is served [D56]', async (context) => {
if (isBeyondRequest(context, target(), 'what becomes of a body is the host\'s')) return;
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

  test('the reply has the headers of every other one, and its body is the same for HTTP/1.0 [D24, D56]', async () => {
    await using client = await target().connect();
    client.send('POST /api/work-items HTTP/1.0\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n\r\n{}');
    const reply = await client.reply();
    assertReply(reply, 403, forbidden);
    assertHeaders(reply, ['content-type', 'content-length']);
    assert.equal(target().backend.requests.length, 0);
  });
}, { requestBytesMax: 1000 }, { kinds: withFetch }); // prettier-ignore
