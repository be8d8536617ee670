// Request bodies before their JSON is checked: order of checks, types, limits [D9 to D11].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { within } from '../helpers/changes.ts';
import {
  assertReply,
  badRequest,
  invalidId,
  methodNotAllowed,
  notFound,
  operation,
  succeeded,
  tooLarge,
} from '../helpers/expected.ts';
import { bytesOf, chunk, forever, requestBytes, type Headers, type RawClient } from '../helpers/raw-client.ts';
import { forEachTarget, forEveryProtocol, type Target } from '../helpers/targets.ts';

const chunkedHeader: Headers = [['Transfer-Encoding', 'chunked']];
const lastChunk = bytesOf('0\r\n\r\n');
const smuggled = 'GET /api/work-items/666 HTTP/1.1\r\nHost: gateway.test\r\n\r\n';
const writes = [operation(2), operation(4)];

/** A request with its body in each framing: by its length, and in chunks. */
function framings(method: string, path: string, body: string | Uint8Array): readonly Buffer[] {
  const pieces = body.length > 0 ? [chunk(body), lastChunk] : [lastChunk];
  const head = requestBytes(method, path, { headers: chunkedHeader });
  return [requestBytes(method, path, { body }), Buffer.concat([head, ...pieces])];
}

/** A JSON text of `length` bytes. */
const jsonOfLength = (length: number): string => `"${'x'.repeat(length - 2)}"`;

/** Call this after an early reply. Asserts that the next request on the connection gets the right reply or no reply. */
async function assertNextIsSafe(target: Target, client: RawClient, sendsIt = true): Promise<void> {
  try {
    if (sendsIt) client.send(requestBytes('GET', '/api/work-items'));
    assertReply(await client.reply(), 200, '[]');
  } catch (error) {
    assert.ok(!client.isOpen, `neither the next reply nor a closed connection: ${String(error)}`);
    assert.equal(client.unread.length, 0, 'a closed connection has sent nothing more');
  }
  assert.ok(!target.backend.requests.some((call) => call.target.endsWith('666')));
}

forEachTarget(
  (target) => {
    const deletion = 'DELETE /api/work-items/5 HTTP/1.1\r\nHost: x\r\n';
    for (const [what, rest, isRefused] of [
      ['has a malformed chunk', 'Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n', true],
      ['has two lengths', 'Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc', true],
      ['ends before its last chunk', 'Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n', false],
      ['ends before its announced length', 'Content-Length: 10\r\n\r\nabc', false],
      ['ends before its body has begun', 'Content-Length: 10\r\n\r\n', false],
    ] as const) {
      test(`a DELETE that ${what} is not sent to the backend [D11]`, async () => {
        // The host of the fetch handler itself replies to malformed HTTP.
        if (isRefused && target().kind === 'fetch') return;
        await target().withoutBackendCall(async () => {
          await using client = await target().connect();
          client.send(deletion + rest);
          if (isRefused) assertReply(await client.reply(), 400, badRequest);
          else client.end();
          await client.closed();
        });
      });
    }

    test('a DELETE with a body is sent to the backend after the body is complete, and without the body [D11]', async () => {
      await using client = await target().connect();
      client.send(`${deletion}Content-Length: 3\r\n\r\nab`);
      await target().settle();
      assert.equal(target().backend.requests.length, 1, 'only the call of settle()');
      client.send('c');
      assertReply(await client.reply(), 200, succeeded);
      const call = target().backend.requests.at(-1);
      assert.deepEqual([call?.method, call?.target, call?.body.length], ['DELETE', '/api/WorkItem/5', 0]);
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });

    for (const [status, method, path, body] of [
      [400, 'PUT', '/api/work-items/abc', invalidId],
      [405, 'PATCH', '/api/work-items/5', methodNotAllowed],
      [404, 'POST', '/nowhere', notFound],
    ] as const) {
      test(`${method} ${path} is ${status} whatever its body, and the next request is safe [D9]`, async () => {
        for (const sent of ['{"a":1}', '{', '', smuggled, jsonOfLength(300_000)]) {
          for (const bytes of framings(method, path, sent)) {
            for (const sendsAhead of [false, true]) {
              await using client = await target().connect();
              client.send(sendsAhead ? Buffer.concat([bytes, requestBytes('GET', '/api/work-items')]) : bytes);
              assertReply(await client.reply(), status, body, status === 405 ? ['allow'] : []);
              await assertNextIsSafe(target(), client, !sendsAhead);
            }
          }
        }
      });
    }
  },
  {},
  { kinds: ['in-process', 'fetch'] },
);

// These tests send complete requests and no raw bytes, so they run over every protocol.
forEveryProtocol((target) => {
  const type = (value: string) => ['Content-Type', value] as const;
  for (const [what, ...headers] of [
    ['no content type'],
    ...['', 'APPLICATION/JSON;CHARSET="latin1"', 'text/plain; charset=;;', 'multipart/form-data; boundary=x', ';;;', '\xe9']
      .map((value) => [`the content type ${JSON.stringify(value)}`, type(value)] as const),
    ['two content types', type('text/plain'), type('application/json')],
    ...['gzip', 'identity', 'nonsense'].map((value) => [`the encoding ${value}`, ['Content-Encoding', value]] as const),
  ] satisfies (readonly [string, ...Headers])[]) {
    test(`${what} is ignored: the bytes decide [D10]`, async (context) => {
      if (headers.length === 2 && target().kind === 'http2') {
        context.skip("Node's client cannot send this field twice");
        return;
      }
      await using client = await target().client();
      assertReply(await client.call('POST', '/api/work-items', { headers, body: '{"a":1}' }), 201, '[]');
      assertReply(await client.call('PUT', '/api/work-items/5', { headers, body: ' [1] ' }), 200, succeeded);
      const received = target().backend.requests.map((call) =>
        [call.body.toString(), call.header('content-type'), call.header('content-encoding')]);
      assert.deepEqual(received, [['{"a":1}', 'application/json', undefined], [' [1] ', 'application/json', undefined]]);
      await target().withoutBackendCall(async () => {
        for (const { method, path, failure } of writes) {
          for (const body of ['a=1', '{', gzipSync('{"a":1}')]) {
            assertReply(await client.call(method, path, { headers, body }), 500, failure);
          }
        }
      });
    });
  } // prettier-ignore

  test('the limit is 10 MiB by default [D11]', async () => {
    const body = jsonOfLength(10 * 1024 * 1024);
    await using client = await target().client();
    assertReply(await client.call('POST', '/api/work-items', { body }), 201, '[]');
    assert.ok((await target().backend.nextRequest()).body.equals(Buffer.from(body)));
    await target().withoutBackendCall(async () => {
      assertReply(await client.call('POST', '/api/work-items', { body: `${body} ` }), 413, tooLarge);
    });
  });
});

describe('REQUEST_BYTES_MAX=1000', () => {
  forEachTarget(
    (target) => {
      const send = async (bytes: Buffer | string) => {
        const client = await target().connect();
        client.send(bytes);
        return client;
      };

      for (const { method, path, status } of writes) {
        test(`${method}: a body of exactly the limit passes; a larger one is 413 without a backend call [D11]`, async () => {
          for (const bytes of framings(method, path, jsonOfLength(1000))) {
            await using client = await send(bytes);
            assert.equal((await client.reply()).status, status);
            assert.equal((await target().backend.nextRequest()).body.toString(), jsonOfLength(1000));
          }
          await target().withoutBackendCall(async () => {
            for (const body of [jsonOfLength(1001), '{'.repeat(1001), jsonOfLength(500_000)]) {
              for (const bytes of framings(method, path, body)) {
                await using client = await send(bytes);
                assertReply(await client.reply(), 413, tooLarge);
                client.destroy();
              }
            }
          });
        });

        test(`${method}: a length over the limit is refused before the body arrives, and without 100 Continue [D11]`, async () => {
          await target().withoutBackendCall(async () => {
            const length = ['Content-Length', '100000000000'] as const;
            await using early = await send(requestBytes(method, path, { headers: [length] }));
            assertReply(await early.reply(), 413, tooLarge);
            if (target().kind === 'fetch') return;
            await using expecting = await send(
              requestBytes(method, path, { headers: [['Content-Length', '1001'], ['Expect', '100-continue']] }),
            ); // prettier-ignore
            // Node sends 100 Continue before the gateway gets the request.
            if (target().kind !== 'in-process') assert.equal((await expecting.reply()).status, 100);
            assertReply(await expecting.reply(), 413, tooLarge);
          });
        });
      }

      test('after a body over the limit, the next request is safe; an invalid id is 400 even with such a body [D9, D11]', async () => {
        for (const [path, status, body] of [
          ['/api/work-items/5', 413, tooLarge],
          ['/api/work-items/abc', 400, invalidId],
        ] as const) {
          for (const bytes of framings('PUT', path, jsonOfLength(1001))) {
            await using client = await send(bytes);
            assertReply(await client.reply(), status, body);
            await assertNextIsSafe(target(), client);
          }
        }
      });

      for (const [method, path] of [
        ['GET', '/api/work-items'],
        ['GET', '/api/work-items/5'],
        ['HEAD', '/api/work-items/5'],
        ['DELETE', '/api/work-items/5'],
        ['OPTIONS', '/api/work-items'],
      ] as const) {
        const replied = async (client: RawClient) => {
          const reply = await client.reply({ hasBody: method !== 'HEAD' });
          assert.equal(reply.status, method === 'OPTIONS' ? 204 : 200);
          return reply;
        };

        test(`a body on ${method} ${path} is dropped and changes nothing; if it is over the limit, the connection closes [D11]`, async () => {
          for (const body of ['not JSON', smuggled, 'x'.repeat(1000)]) {
            for (const bytes of framings(method, path, body)) {
              await using client = await send(bytes);
              assert.equal((await replied(client)).header('connection'), 'keep-alive');
              if (method !== 'OPTIONS') {
                const call = await target().backend.nextRequest();
                assert.equal(call.method, method === 'HEAD' ? 'GET' : method);
                assert.deepEqual([call.body.length, call.header('content-length')], [0, undefined]);
              }
              await assertNextIsSafe(target(), client);
              target().backend.reset();
              target().backend.answers((exchange) => exchange.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]'));
            }
          }
          for (const bytes of framings(method, path, 'x'.repeat(200_000))) {
            await using client = await send(bytes);
            await replied(client);
            if (target().kind !== 'fetch') await client.closed();
          }
        });
      }

      test('the rest of a body that arrives after the reply is dropped; if the body exceeds the limit, the connection closes [D11]', async () => {
        // The host of the fetch handler closes connections.
        if (target().kind === 'fetch') return;
        const head = requestBytes('GET', '/api/work-items', { headers: chunkedHeader });
        const begun = Buffer.concat([head, chunk('x'.repeat(600))]);
        await using inside = await send(begun);
        assertReply(await inside.reply(), 200, '[]');
        inside.send(Buffer.concat([chunk('x'.repeat(400)), lastChunk]));
        assertReply(await inside.call('GET', '/api/work-items'), 200, '[]');

        await using beyond = await send(begun);
        assertReply(await beyond.reply(), 200, '[]');
        beyond.send(chunk('x'.repeat(401)));
        // Sends continuously: otherwise the host's own time limit would close the connection.
        await within(beyond.sendPieces(forever(chunk('x'))), 'the connection is closed');
      });

      test('a write with a body far over the limit gets its reply, and then the connection ends without a reset [D11]', async () => {
        for (const [method, status] of [['PUT', 413], ['DELETE', 200]] as const) {
          await using client = await send(requestBytes(method, '/api/work-items/5', { body: 'x'.repeat(5_000_000) }));
          assert.equal((await client.reply()).status, status);
          if (target().kind !== 'fetch') assert.equal(await client.closed(), 'end');
        } // prettier-ignore
      });
    },
    { requestBytesMax: 1000 },
    { kinds: ['in-process', 'plugin', 'fetch', 'node'] },
  );
});
