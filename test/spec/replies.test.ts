// Headers of replies, and the 503 of an overloaded gateway [D24, D26].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createGate } from '../helpers/changes.ts';
import { assertHeaders, assertReply, operations, unavailable } from '../helpers/expected.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';

const ofTheBackend = [
  ['ETag', '"1"'], ['Server', 'Kestrel'], ['Date', 'Mon, 01 Jan 2024 00:00:00 GMT'],
  ['Cache-Control', 'public, max-age=3600'], ['Expires', 'Mon, 01 Jan 2035 00:00:00 GMT'],
  ['Set-Cookie', 'a=1'], ['Location', '/api/WorkItem/5'], ['X-Powered-By', 'ASP.NET'],
  ['X-Request-Id', 'of-the-backend'], ['Vary', '*'], ['Content-Language', 'en'],
  ['Content-Disposition', 'attachment'], ['Access-Control-Allow-Origin', '*'],
  ['Alt-Svc', 'h3=":443"'], ['Link', '</x>; rel=preload'], ['Keep-Alive', 'timeout=1'],
] as const; // prettier-ignore

forEachTarget(
  (target) => {
    for (const { name, method, path, options, status, body, failure } of operations) {
      test(`operation ${name}: a reply has the gateway's headers and none of the backend's [D24]`, async () => {
        for (const [backendStatus, expected, bytes] of [[200, status, body], [503, 500, failure]] as const) {
          target().backend.answersOnce(answer('{"id":5}', { status: backendStatus, headers: ofTheBackend }));
          const reply = await target().call(method, path, options);
          assertReply(reply, expected, bytes);
          assert.notEqual(reply.header('x-request-id'), 'of-the-backend');
          assert.notEqual(reply.header('date'), 'Mon, 01 Jan 2024 00:00:00 GMT');
        } // prettier-ignore
      });
    }

    test('a reply is JSON and not compressed, whatever the client accepts [D24]', async () => {
      const body = `"${'x'.repeat(10_000)}"`;
      target().backend.answers(answer(body));
      for (const accept of ['text/html', 'application/xml;q=1, */*;q=0', 'garbage', '']) {
        const headers = [['Accept', accept], ['Accept-Encoding', 'gzip, br, *']] as const; // prettier-ignore
        assertReply(await target().call('GET', '/api/work-items', { headers }), 200, body);
      }
    });
  },
  {},
  { kinds: ['in-process', 'fetch'] },
);

describe('IN_FLIGHT_MAX=2', () => {
  forEachTarget(
    (target) => {
      /** Makes two calls, which the backend answers only after `finish`. */
      async function fill() {
        const gate = createGate();
        const held = behind(gate, answer('[]'));
        target().backend.answersOnce(held, held);
        const replies = [target().call('GET', '/api/work-items'), target().call('DELETE', '/api/work-items/5')];
        await target().backend.nextRequest();
        await target().backend.nextRequest();
        return async () => {
          gate.open();
          for (const reply of await Promise.all(replies)) assert.equal(reply.status, 200);
        };
      }

      test('a call over the limit is immediately 503 with retry-after: 1, and the backend is not called [D7, D26]', async () => {
        const finish = await fill();
        for (const { method, path, options } of operations) {
          const reply = await target().call(method, path, options);
          assertReply(reply, 503, unavailable, ['retry-after']);
          assert.equal(reply.header('retry-after'), '1');
        }
        const head = await target().call('HEAD', '/api/work-items');
        assert.equal(head.status, 503);
        assertHeaders(head, ['content-type', 'content-length', 'retry-after']);
        assert.equal(target().backend.requests.length, 2);
        await finish();
        for (const { method, path, options, status } of operations) {
          assert.equal((await target().call(method, path, options)).status, status);
        }
      });

      test('failed calls, and calls whose clients left, are no longer in flight [D26]', async () => {
        const { backend } = target();
        for (let count = 0; count < 3; count += 1) {
          backend.answersOnce(answer('', { status: 500 }), answer('<p>'));
          await target().call('GET', '/api/work-items');
          await target().call('GET', '/api/work-items');
          await target().call('PUT', '/api/work-items/5', { body: '{' });
          await target().call('PUT', '/api/work-items/x', { body: '{}' });
          const leaving = await target().connect();
          backend.answersOnce((exchange) => exchange.closed);
          const seen = backend.requests.length + 1;
          leaving.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
          await backend.until(() => backend.requests.length === seen, 'the call of the client that leaves');
          const { connection } = backend.requests.at(-1) ?? assert.fail('a call');
          leaving.destroy();
          await backend.connectionClosed(connection);
        }
        await (
          await fill()
        )();
      });
    },
    { inFlightMax: 2 },
    { kinds: ['in-process', 'command', 'fetch'] },
  );
});
