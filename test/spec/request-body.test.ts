// Request bodies before their JSON is checked: order of checks, types, limits. D9 to D11.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { within } from '../helpers/changes.ts';
import {
  assertReply,
  invalidId,
  methodNotAllowed,
  notFound,
  operation,
  succeeded,
  tooLarge,
} from '../helpers/expected.ts';
import { bytesOf, chunk, requestBytes, type Headers, type RawClient } from '../helpers/raw-client.ts';
import { forEachTarget, forEveryProtocol, isBeyondRequest } from '../helpers/targets.ts';

const chunkedHeader: Headers = [['Transfer-Encoding', 'chunked']];
const lastChunk = bytesOf('0\r\n\r\n');
const smuggled = 'GET /api/work-items/666 HTTP/1.1\r\nHost: gateway.test\r\n\r\n';

/** The same body in both framings. */
function framings(method: string, path: string, body: string | Uint8Array): [name: string, bytes: Buffer][] {
  return [
    ['content-length', requestBytes(method, path, { body })],
    [
      'chunked',
      Buffer.concat([
        requestBytes(method, path, { headers: chunkedHeader }),
        body.length > 0 ? chunk(body) : bytesOf(''),
        lastChunk,
      ]),
    ],
  ];
}

/** A JSON text of `length` bytes. */
function jsonOfLength(length: number): string {
  return `"${'x'.repeat(length - 2)}"`;
}

/** Call this after an early reply. Asserts that the next request on the connection gets the right reply or no reply. */
async function assertNextIsSafe(client: RawClient, sendsIt = true): Promise<void> {
  try {
    if (sendsIt) client.send(requestBytes('GET', '/api/work-items'));
    assertReply(await client.reply(), 200, '[]');
  } catch (error) {
    assert.ok(!client.isOpen, `neither the next reply nor a closed connection: ${String(error)}`);
    assert.equal(client.unread.length, 0, 'a closed connection has sent nothing more');
  }
}

forEachTarget(
  (target) => {
    const deletion = 'DELETE /api/work-items/5 HTTP/1.1\r\nHost: x\r\n';
    for (const [name, bytes, status] of [
      ['has a malformed chunk', `${deletion}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n`, 400],
      ['ends before its last chunk', `${deletion}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n`, undefined],
      ['ends before its announced length', `${deletion}Content-Length: 10\r\n\r\nabc`, undefined],
      ['ends before its body has begun', `${deletion}Content-Length: 10\r\n\r\n`, undefined],
      ['has two lengths', `${deletion}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc`, 400],
    ] as const) {
      test(`a DELETE that ${name} is not sent to the backend [D11]`, async (context) => {
        if (status === 400 && isBeyondRequest(context, target(), 'the host itself replies to malformed HTTP')) return;
        await target().withoutBackendCall(async () => {
          await using client = await target().connect();
          client.send(bytes);
          if (status === undefined) {
            client.end();
          } else {
            assertReply(await client.reply(), status, '{"error":"Bad request"}');
          }
          await client.closed();
        });
      });
    }

    test('a DELETE with a body is sent to the backend after the body is complete, and without the body [D11]', async () => {
      await using client = await target().connect();
      const before = target().backend.requests.length;
      client.send(`${deletion}Content-Length: 3\r\n\r\nab`);
      await target().settle();
      assert.equal(target().backend.requests.length, before + 1, 'only the call of settle()');
      client.send('c');
      assertReply(await client.reply(), 200, succeeded);
      const call = target().backend.requests.at(-1);
      assert.deepEqual([call?.method, call?.target, call?.body.length], ['DELETE', '/api/WorkItem/5', 0]);
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });

    for (const [name, body] of [
      ['a good body', '{"a":1}'],
      ['a body that is not JSON', '{'],
      ['an empty body', ''],
      ['a body shaped like a request', smuggled],
      ['a large body', jsonOfLength(300_000)],
    ] as const) {
      for (const [framing, bytes] of framings('PUT', '/api/work-items/abc', body)) {
        test(`an invalid id is 400 for every body, and the next request is safe: ${name}, ${framing} [D9]`, async () => {
          await using client = await target().connect();
          await target().withoutBackendCall(async () => {
            client.send(bytes);
            assertReply(await client.reply(), 400, invalidId);
          });
          await assertNextIsSafe(client);
          await using pipelining = await target().connect();
          pipelining.send(Buffer.concat([bytes, requestBytes('GET', '/api/work-items')]));
          assertReply(await pipelining.reply(), 400, invalidId);
          await assertNextIsSafe(pipelining, false);
          assert.ok(!target().backend.requests.some((call) => call.target.endsWith('666')));
        });
      }
    }

    for (const [status, method, path, reply] of [
      [405, 'PATCH', '/api/work-items/5', methodNotAllowed],
      [404, 'POST', '/nowhere', notFound],
    ] as const) {
      test(`after the ${status} to ${method} ${path} with any body, the next request is safe [D9]`, async () => {
        for (const body of ['{"a":1}', smuggled, jsonOfLength(300_000)]) {
          for (const [, bytes] of framings(method, path, body)) {
            await using client = await target().connect();
            client.send(bytes);
            const early = await client.reply();
            assertReply(early, status, reply, status === 405 ? ['allow'] : []);
            await assertNextIsSafe(client);
          }
        }
        assert.ok(!target().backend.requests.some((call) => call.target.endsWith('666')));
      });
    }
  },
  {},
  { kinds: ['in-process', 'fetch'] },
);

// These tests send complete requests and no raw bytes, so they run over every protocol.
forEveryProtocol((target) => {
  const types = [
    undefined, '', 'APPLICATION/JSON;CHARSET="latin1"', 'text/plain; charset=;;', 'multipart/form-data; boundary=x', ';;;', '\xe9',
  ]; // prettier-ignore
  for (const type of types) {
    test(`the content type ${type === undefined ? '(none)' : JSON.stringify(type)} is ignored: the bytes decide [D10]`, async () => {
      const headers: Headers = type === undefined ? [] : [['Content-Type', type]];
      await using client = await target().client();
      assertReply(await client.call('POST', '/api/work-items', { headers, body: '{"a":1}' }), 201, '[]');
      assertReply(await client.call('PUT', '/api/work-items/5', { headers, body: ' [1] ' }), 200, succeeded);
      assert.deepEqual(
        target().backend.requests.map((call) => [call.body.toString(), call.header('content-type')]),
        [
          ['{"a":1}', 'application/json'],
          [' [1] ', 'application/json'],
        ],
      );
      await target().withoutBackendCall(async () => {
        const { failure } = operation(2);
        assertReply(await client.call('POST', '/api/work-items', { headers, body: 'a=1' }), 500, failure);
        const update = await client.call('PUT', '/api/work-items/5', { headers, body: '{' });
        assertReply(update, 500, operation(4).failure);
      });
    });
  }

  test('two Content-Type headers are ignored [D10]', async (context) => {
    if (target().kind === 'http2') {
      context.skip("Node's client cannot send this field twice");
      return;
    }
    const headers: Headers = [['Content-Type', 'text/plain'], ['Content-Type', 'application/json']]; // prettier-ignore
    assertReply(await target().call('PUT', '/api/work-items/5', { headers, body: '{}' }), 200, succeeded);
  });

  for (const encoding of ['gzip', 'identity', 'nonsense']) {
    test(`Content-Encoding: ${encoding} is ignored: JSON is accepted, compressed bytes are not JSON [D10]`, async () => {
      const headers: Headers = [['Content-Encoding', encoding]];
      assertReply(await target().call('PUT', '/api/work-items/5', { headers, body: '{"a":1}' }), 200, succeeded);
      const call = await target().backend.nextRequest();
      assert.equal(call.body.toString(), '{"a":1}');
      assert.equal(call.header('content-encoding'), undefined);
      await target().withoutBackendCall(async () => {
        const reply = await target().call('PUT', '/api/work-items/5', { headers, body: gzipSync('{"a":1}') });
        assertReply(reply, 500, operation(4).failure);
      });
    });
  }

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
      for (const [method, path, status] of [
        ['POST', '/api/work-items', 201],
        ['PUT', '/api/work-items/5', 200],
      ] as const) {
        for (const [framing, bytes] of framings(method, path, jsonOfLength(1000))) {
          test(`${method}: a body of exactly the limit passes, ${framing} [D11]`, async () => {
            await using client = await target().connect();
            client.send(bytes);
            assert.equal((await client.reply()).status, status);
            assert.equal((await target().backend.nextRequest()).body.toString(), jsonOfLength(1000));
          });
        }

        for (const [name, body] of [
          ['JSON', jsonOfLength(1001)],
          ['not JSON', '{'.repeat(1001)],
          ['far over the limit', jsonOfLength(500_000)],
        ] as const) {
          for (const [framing, bytes] of framings(method, path, body)) {
            test(`${method}: a body over the limit is 413 and the backend is not called, ${name}, ${framing} [D11]`, async () => {
              await using client = await target().connect();
              await target().withoutBackendCall(async () => {
                client.send(bytes);
                assertReply(await client.reply(), 413, tooLarge);
              });
              await assertNextIsSafe(client);
            });
          }
        }

        test(`${method}: a length over the limit is refused before the body arrives [D11]`, async () => {
          await using client = await target().connect();
          await target().withoutBackendCall(async () => {
            client.send(requestBytes(method, path, { headers: [['Content-Length', '100000000000']] }));
            assertReply(await client.reply(), 413, tooLarge);
          });
        });

        test(`${method}: a length over the limit is refused without 100 Continue [D11]`, async (context) => {
          if (isBeyondRequest(context, target(), 'the host sends 100 Continue')) return;
          await using client = await target().connect();
          client.send(
            requestBytes(method, path, {
              headers: [
                ['Content-Length', '1001'],
                ['Expect', '100-continue'],
              ],
            }),
          );
          // Node sends 100 Continue before the gateway gets the request.
          if (['plugin', 'node'].includes(target().kind)) assert.equal((await client.reply()).status, 100);
          assertReply(await client.reply(), 413, tooLarge);
        });
      }

      for (const [framing, bytes] of framings('PUT', '/api/work-items/abc', jsonOfLength(1001))) {
        test(`an invalid id is 400 even if the body is over the limit, ${framing} [D9, D11]`, async () => {
          await using client = await target().connect();
          client.send(bytes);
          assertReply(await client.reply(), 400, invalidId);
          await assertNextIsSafe(client);
        });
      }

      for (const [method, path] of [
        ['GET', '/api/work-items'],
        ['GET', '/api/work-items/5'],
        ['HEAD', '/api/work-items/5'],
        ['DELETE', '/api/work-items/5'],
        ['OPTIONS', '/api/work-items'],
      ] as const) {
        for (const body of ['not JSON', smuggled]) {
          for (const [framing, bytes] of framings(method, path, body)) {
            test(`a body on ${method} ${path} is dropped and changes nothing: ${body.slice(0, 10)}, ${framing} [D11]`, async () => {
              await using client = await target().connect();
              client.send(bytes);
              const reply = await client.reply({ hasBody: method !== 'HEAD' });
              assert.equal(reply.status, method === 'OPTIONS' ? 204 : 200);
              if (method !== 'OPTIONS') {
                const call = await target().backend.nextRequest();
                assert.equal(call.method, method === 'HEAD' ? 'GET' : method);
                assert.equal(call.body.length, 0);
                assert.equal(call.header('content-length'), undefined);
              }
              await assertNextIsSafe(client);
              assert.ok(!target().backend.requests.some((call) => call.target.endsWith('666')));
            });
          }
        }

        for (const [framing, bytes] of framings(method, path, 'x'.repeat(200_000))) {
          test(`${method} ${path} with a body over the limit is answered, and the connection is closed, ${framing} [D11]`, async () => {
            await using client = await target().connect();
            client.send(bytes);
            const reply = await client.reply({ hasBody: method !== 'HEAD' });
            assert.equal(reply.status, method === 'OPTIONS' ? 204 : 200);
            if (target().kind !== 'fetch') await client.closed();
          });
        }
      }

      for (const [method, path] of [
        ['GET', '/api/work-items'],
        ['DELETE', '/api/work-items/5'],
      ] as const) {
        for (const [framing, bytes] of framings(method, path, 'x'.repeat(1000))) {
          test(`${method} ${path} with a body of exactly the limit keeps its connection, ${framing} [D11]`, async () => {
            await using client = await target().connect();
            client.send(bytes);
            const reply = await client.reply();
            assert.equal(reply.status, 200);
            assert.deepEqual(reply.header('connection'), 'keep-alive');
            assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
          });
        }
      }

      test('the rest of a body that arrives after the reply is dropped; if the body exceeds the limit, the connection closes [D11]', async (context) => {
        if (isBeyondRequest(context, target(), 'the host closes connections')) return;
        const begun = Buffer.concat([
          requestBytes('GET', '/api/work-items', { headers: chunkedHeader }),
          chunk('x'.repeat(600)),
        ]);
        await using inside = await target().connect();
        inside.send(begun);
        assertReply(await inside.reply(), 200, '[]');
        inside.send(Buffer.concat([chunk('x'.repeat(400)), lastChunk]));
        assertReply(await inside.call('GET', '/api/work-items'), 200, '[]');

        await using beyond = await target().connect();
        beyond.send(begun);
        assertReply(await beyond.reply(), 200, '[]');
        beyond.send(chunk('x'.repeat(401)));
        // Sends continuously: otherwise the host's own time limit would close the connection.
        const sendOn = async (): Promise<void> => {
          while (beyond.isOpen) await beyond.sendPieces([chunk('x')]);
        };
        await within(sendOn(), 'the connection is closed');
      });

      for (const method of ['PUT', 'DELETE'] as const) {
        test(`${method} with a body far over the limit gets its reply, and then the connection ends without a reset [D11]`, async () => {
          await using client = await target().connect();
          client.send(requestBytes(method, '/api/work-items/5', { body: 'x'.repeat(5_000_000) }));
          assert.equal((await client.reply()).status, method === 'PUT' ? 413 : 200);
          if (target().kind !== 'fetch') assert.equal(await client.closed(), 'end');
        });
      }
    },
    { requestBytesMax: 1000 },
    { kinds: ['in-process', 'plugin', 'fetch', 'node'] },
  );
});
