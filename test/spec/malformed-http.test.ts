// Sends raw bytes that are malformed HTTP, or that two parsers could read differently [D27]: the malformed requests of
// test/vectors/http, and others. Runs only in-process, because the command has the same parser.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  assertReply,
  badRequest,
  headersTooLarge,
  invalidId,
  methodNotAllowed,
  operation,
  succeeded,
} from '../helpers/expected.ts';
import { chunk, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget, type Target } from '../helpers/targets.ts';
import { malformed } from '../wire/http-vectors.ts';

const host = 'Host: gateway.test\r\n';
const list = 'GET /api/work-items HTTP/1.1\r\n';
const update = 'PUT /api/work-items/5 HTTP/1.1\r\n';
const chunkedUpdate = `${update}${host}Transfer-Encoding: chunked\r\n\r\n`;
const smuggled = `GET /api/work-items/666 HTTP/1.1\r\n${host}\r\n`;

/** A PUT with these header lines and this body. */
function put(lines: string, body = '{"a":1}'): string {
  return `${update}${host}${lines}\r\n\r\n${body}`;
}

/** A GET with these header lines. */
function get(lines: string): string {
  return `${list}${lines}\r\n\r\n`;
}

/** Sends `bytes`. Asserts a 400 in JSON, a closed connection and no backend call. */
async function assertRefused(target: Target, bytes: string): Promise<Reply> {
  return await target.withoutBackendCall(async () => {
    await using client = await target.connect();
    client.send(bytes);
    const reply = await client.reply();
    assertReply(reply, 400, badRequest);
    await client.closed(2000);
    assert.equal(client.unread.length, 0, 'nothing follows the 400');
    return reply;
  });
}

forEachTarget((target) => {
  const requests = malformed.filter(({ role }) => role === 'requests');
  for (const { what, bytes } of [
    ...requests,
    { what: 'a method of 100 KB', bytes: `${'A'.repeat(100_000)} /api/work-items HTTP/1.1\r\n${host}\r\n` },
    { what: 'an extension of 40 KB', bytes: `${chunkedUpdate}7;${'a'.repeat(40_000)}\r\n{"a":1}\r\n0\r\n\r\n` },
  ]) {
    test(`${what} is 400 in JSON, the connection closes, and the backend is not called [D27]`, async () => {
      await assertRefused(target(), bytes);
    });
  }

  test('a request after a malformed request is not served [D27]', async () => {
    for (const bytes of [get('Host: a\r\nHost: b'), put('Content-Length: +7'), chunkedUpdate + 'zz\r\n']) {
      await assertRefused(target(), bytes + smuggled);
    }
  });

  for (const [name, bytes] of [
    ['one large header', get(`${host}X-Extra: ${'x'.repeat(100_000)}`)],
    ['many headers', get(`${host}${'X-Extra: 1\r\n'.repeat(10_000)}X: 1`)],
    ['a long path', `GET /api/work-items/${'1'.repeat(100_000)} HTTP/1.1\r\n${host}\r\n`],
    ['a long header name', get(`${host}${'x'.repeat(100_000)}: 1`)],
    ['many trailers', `${chunkedUpdate}7\r\n{"a":1}\r\n0\r\n${'X: 1\r\n'.repeat(10_000)}\r\n`],
  ] as const) {
    test(`a request over the size limit is 431 in JSON, and the connection closes: ${name} [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        client.send(bytes);
        assertReply(await client.reply(), 431, headersTooLarge);
        await client.closed();
      });
    });
  }

  for (const [name, bytes] of [
    ['Host', get(`${host}${'a:\r\n'.repeat(2500)}Host: b`)],
    ['framing header', put(`Content-Length: 7\r\n${'a:\r\n'.repeat(2500)}Transfer-Encoding: chunked`)],
  ] as const) {
    test(`a second ${name} after 2,500 other headers is refused [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        await using client = await target().connect();
        client.send(bytes);
        const { status } = await client.reply();
        assert.ok(status === 400 || status === 431, `status ${status}`);
        await client.closed();
      });
    });
  }

  const validHosts = [
    'a:65535', 'a', 'localhost', 'localhost:3000', '127.0.0.1:80', '[::1]:3000', '[2001:db8::1]',
    'A.b-c_d.example', 'xn--bcher-kva.example', 'a.example.:443', 'x:', 'x:00080', "a-_.~!$&'()*+;=b", '%61%C3%A9',
    '[2001:db8::ffff:1.2.3.4]:1',
  ]; // prettier-ignore
  for (const [name, bytes] of [
    ...validHosts.map((name) => [`Host: ${name}`, get(`Host: ${name}`)] as const),
    ['empty lines before the request', `\r\n\r\n${list}${host}\r\n`],
    ['header names in any case', `${list}hOsT: a\r\n\r\n`],
    ['a query of unusual characters', `GET /api/work-items?b:c@d//%zz"<> HTTP/1.1\r\n${host}\r\n`],
    ['no space after a colon', `${list}Host:a\r\n\r\n`],
    ['spaces and tabs around a value', `${list}Host: \t a \t \r\n\r\n`],
    ['an empty value', `${list}${host}X-Extra:\r\n\r\n`],
    ['an empty Host', `${list}Host:\r\n\r\n`],
    ['headers named by Connection', `${list}${host}Connection: Host, X-Extra\r\nX-Extra: 1\r\n\r\n`],
    ['headers for other software', `${list}${host}X-HTTP-Method-Override: DELETE\r\nX-Original-URL: /x\r\n\r\n`],
    ['a body that the operation does not use', `${list}${host}Content-Length: ${smuggled.length}\r\n\r\n${smuggled}`],
    ['a thousand empty lines before the request', `${'\r\n'.repeat(1000)}${list}${host}\r\n`],
    ['bytes above ASCII in a value', `${list}${host}X-Extra: \xe9\xff\r\n\r\n`],
    ['HTTP/1.0 with a Host', `GET /api/work-items HTTP/1.0\r\n${host}\r\n`],
    ['HTTP/1.0 without a Host', 'GET /api/work-items HTTP/1.0\r\n\r\n'],
    ['an offer to upgrade', `${list}${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`],
    [
      'an offer of HTTP/2',
      `${list}${host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n`,
    ],
    ['an absolute-form target', 'GET http://gateway.test/api/work-items HTTP/1.1\r\nHost: gateway.test\r\n\r\n'],
    [
      'an absolute-form target with a port',
      'GET http://gateway.test:80/api/work-items HTTP/1.1\r\nHost: gateway.test:80\r\n\r\n',
    ],
    [
      'an absolute-form target of another host',
      'GET http://elsewhere.test/api/work-items HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
    [
      'an absolute-form target with a query',
      'GET http://gateway.test/api/work-items?x=/y HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
    [
      'an absolute-form target with its scheme in capitals',
      'GET HTTP://GATEWAY.TEST/api/work-items HTTP/1.1\r\nHost: gateway.test\r\n\r\n',
    ],
  ] as const) {
    // prettier-ignore
    test(`a well-formed request is served: ${name} [D27]`, async () => {
      await using client = await target().connect();
      client.send(bytes);
      assertReply(await client.reply(), 200, '[]');
      await target().settle();
      const calls = target().backend.requests.map((call) => `${call.method} ${call.target}`);
      assert.deepEqual(calls, ['GET /api/WorkItem', 'GET /api/WorkItem'], 'the call of the request, then the call of settle()');
    });
  }

  for (const [name, body] of [
    ['leading zeros in a size', '0007\r\n{"a":1}\r\n000\r\n\r\n'],
    ['extensions', '7;a;b=c;d="e;f"\r\n{"a":1}\r\n0;last\r\n\r\n'],
    ['trailers', '7\r\n{"a":1}\r\n0\r\nX-Trailer: 1\r\nHost: b\r\n\r\n'],
    ['chunks of one byte', Array.from('{"a":1}', (character) => chunk(character).toString()).join('') + '0\r\n\r\n'],
  ] as const) {
    test(`a well-formed chunked body is served: ${name} [D27]`, async () => {
      await using client = await target().connect();
      client.send(chunkedUpdate + body);
      assertReply(await client.reply(), 200, succeeded);
      assert.equal((await target().backend.nextRequest()).body.toString(), '{"a":1}');
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });
  }

  test('the id in the path of an absolute-form target is used [D27]', async () => {
    await using client = await target().connect();
    client.send(`PUT http://gateway.test/api/work-items/%31%32?x HTTP/1.1\r\n${host}Content-Length: 2\r\n\r\n{}`);
    assertReply(await client.reply(), 200, succeeded);
    assert.equal((await target().backend.nextRequest()).target, '/api/WorkItem/12');
    client.send(`GET http://gateway.test/api/work-items/abc HTTP/1.1\r\n${host}\r\n`);
    assertReply(await client.reply(), 400, invalidId);
  });

  test('CONNECT is 405 in JSON and opens no tunnel [D27]', async () => {
    await target().withoutBackendCall(async () => {
      for (const authority of ['gateway.test:80', `127.0.0.1:${target().backend.port}`, 'gateway.test']) {
        await using client = await target().connect();
        client.send(`CONNECT ${authority} HTTP/1.1\r\nHost: gateway.test\r\n\r\n${smuggled}`);
        const reply = await client.reply();
        assert.equal(reply.status, 405);
        assert.equal(reply.text, methodNotAllowed);
        await client.closed();
        assert.equal(client.unread.length, 0);
      }
    });
  });

  for (const expectation of ['x', '200-ok', '100-continue, x', '100']) {
    test(`Expect: ${expectation} is 417 in JSON, and the backend is not called [D27]`, async () => {
      await target().withoutBackendCall(async () => {
        const reply = await target().call('PUT', '/api/work-items/5', {
          headers: [['Expect', expectation]],
          body: '{}',
        });
        assertReply(reply, 417, '{"error":"Expectation failed"}');
      });
    });
  }

  for (const expectation of ['100-continue', '100-Continue']) {
    test(`Expect: ${expectation} gets 100 Continue before the body is sent [D27]`, async () => {
      await using client = await target().connect();
      client.send(`${update}${host}Content-Length: 2\r\nExpect: ${expectation}\r\n\r\n`);
      assert.equal((await client.reply()).status, 100);
      client.send('{}');
      assertReply(await client.reply(), 200, succeeded);
      const call = await target().backend.nextRequest();
      assert.equal(call.header('expect'), undefined);
      client.send(`${list}${host}\r\n`);
      assertReply(await client.reply(), 200, '[]');
    });
  }

  test('Expect: 100-continue in HTTP/1.0 is ignored [D27]', async () => {
    await using client = await target().connect();
    client.send(`PUT /api/work-items/5 HTTP/1.0\r\n${host}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}`);
    assertReply(await client.reply(), 200, succeeded);
    await client.closed();
  });

  for (const [before, status, body] of [
    [`${update}${host}Content-Length: 2\r\n\r\n{}`, 200, succeeded],
    [`${list}${host}\r\n`, 200, '[]'],
    [`GET /nope HTTP/1.1\r\n${host}\r\n`, 404, '{"error":"Not found"}'],
  ] as const) {
    const twoHosts = get('Host: a\r\nHost: b') + smuggled;
    for (const garbage of ['xx', 'BAD\r\n\r\n', '\0\x01\x02\r\n\r\n', 'B'.repeat(20_000), twoHosts]) {
      test(`${JSON.stringify(garbage.slice(0, 10))} after ${before.split(' HTTP')[0]} in one packet is 400 [D27]`, async () => {
        await using client = await target().connect();
        client.send(before + garbage);
        assertReply(await client.reply(), status, body);
        assertReply(await client.reply(), 400, badRequest);
        await client.closed();
        assert.equal(client.unread.length, 0);
      });
    }
    for (const method of ['MISSING', 'X', 'POS', 'DELET', 'GETS']) {
      test(`the unknown method ${method} after ${before.split(' HTTP')[0]} in one packet is 405 [D6]`, async () => {
        await using client = await target().connect();
        client.send(`${before}${method} /api/work-items HTTP/1.1\r\n${host}\r\n`);
        assertReply(await client.reply(), status, body);
        const reply = await client.reply();
        assert.equal(reply.status, 405);
        assert.equal(reply.header('allow'), 'GET, HEAD, POST, OPTIONS');
      });
    }
  }

  for (const [requestTarget, status] of [
    ['http://x/api/work-items', 405],
    ['https://x/api/work-items', 405],
    ['http://x', 404],
    ['http://x/nope', 404],
    ['ftp://x/api/work-items', 400],
    ['http://x/api/work-items#a', 400],
  ] as const) {
    test(`the unknown method MISSING with the target ${requestTarget} is ${status} [D6, D27]`, async () => {
      await using client = await target().connect();
      client.send(`MISSING ${requestTarget} HTTP/1.1\r\n${host}\r\n`);
      assert.equal((await client.reply()).status, status);
      if (status === 400) {
        await client.closed();
      } else {
        assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
      }
    });
  }

  for (const line of ['OPTIONS *', 'GET http://x', 'GET http://x?/api/work-items', 'GET http://x/']) {
    test(`${line} has no operation and is 404 [D5, D27]`, async () => {
      const [method = '', requestTarget = ''] = line.split(' ');
      assertReply(await target().call(method, requestTarget), 404, '{"error":"Not found"}');
    });
  }

  test('a body sent without waiting for 100 Continue is served [D27]', async () => {
    await using client = await target().connect();
    client.send(`${update}${host}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}`);
    const first = await client.reply();
    assertReply(first.status === 100 ? await client.reply() : first, 200, succeeded);
  });

  test('100 pipelined requests of every kind get 100 replies in order [D27]', async () => {
    target().backend.answers((exchange) => answer(JSON.stringify(exchange.request.target))(exchange));
    await using client = await target().connect();
    const kinds = [
      [requestBytes('GET', '/api/work-items/1'), 200, '"/api/WorkItem/1"'],
      [requestBytes('PUT', '/api/work-items/2', { body: '{}' }), 200, succeeded],
      [requestBytes('GET', '/api/work-items/x'), 400, invalidId],
      [requestBytes('POST', '/api/work-items', { body: '[1]' }), 201, '"/api/WorkItem"'],
      [requestBytes('PUT', '/api/work-items/3', { body: '{' }), 500, operation(4).failure],
      [requestBytes('DELETE', '/api/work-items/4'), 200, succeeded],
    ] as const;
    const wanted = Array.from({ length: 100 }, (_, index) => kinds[index % kinds.length] ?? kinds[0]);
    client.send(Buffer.concat(wanted.map(([bytes]) => bytes)));
    for (const [, status, body] of wanted) assertReply(await client.reply(), status, body);
  });
}, {}, { kinds: ['in-process'] }); // prettier-ignore
