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
  notFound,
  operation,
  succeeded,
} from '../helpers/expected.ts';
import { chunk, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { forEachTarget } from '../helpers/targets.ts';
import { malformed } from '../wire/http-vectors.ts';

const host = 'Host: gateway.test\r\n';
const list = 'GET /api/work-items HTTP/1.1\r\n';
const update = 'PUT /api/work-items/5 HTTP/1.1\r\n';
const chunkedUpdate = `${update}${host}Transfer-Encoding: chunked\r\n\r\n`;
const smuggled = `GET /api/work-items/666 HTTP/1.1\r\n${host}\r\n`;
const get = (lines: string) => `${list}${lines}\r\n\r\n`;
const put = (lines: string, body = '{"a":1}') => `${update}${host}${lines}\r\n\r\n${body}`;
const manyFields = 'a:\r\n'.repeat(2500);

forEachTarget((target) => {
  /** Sends `bytes`. Asserts the reply, a closed connection and no backend call. */
  const assertRefused = (bytes: string, statuses: Readonly<Record<number, string>>) =>
    target().withoutBackendCall(async () => {
      await using client = await target().connect();
      client.send(bytes);
      const reply = await client.reply();
      assertReply(reply, reply.status, statuses[reply.status] ?? 'another status');
      await client.closed();
      assert.equal(client.unread.length, 0, 'nothing follows the reply');
    });

  const requests = malformed.filter(({ role }) => role === 'requests').map(({ what, bytes }) => [what, bytes] as const);
  for (const [what, bytes] of [
    ...requests,
    ['a method of 100 KB', `${'A'.repeat(100_000)} /api/work-items HTTP/1.1\r\n${host}\r\n`],
    ['an extension of 40 KB', `${chunkedUpdate}7;${'a'.repeat(40_000)}\r\n{"a":1}\r\n0\r\n\r\n`],
    ['two hosts before another request', get('Host: a\r\nHost: b') + smuggled],
    ['an invalid length before another request', put('Content-Length: +7') + smuggled],
    ['an invalid chunk before another request', `${chunkedUpdate}zz\r\n${smuggled}`],
  ] as const) {
    test(`${what}: 400 in JSON, the connection closes, and the backend is not called [D27]`, () =>
      assertRefused(bytes, { 400: badRequest }));
  }

  for (const [what, bytes] of [
    ['one large header', get(`${host}X-Extra: ${'x'.repeat(100_000)}`)],
    ['many headers', get(`${host}${'X-Extra: 1\r\n'.repeat(10_000)}X: 1`)],
    ['a long path', `GET /api/work-items/${'1'.repeat(100_000)} HTTP/1.1\r\n${host}\r\n`],
    ['a long header name', get(`${host}${'x'.repeat(100_000)}: 1`)],
    ['many trailers', `${chunkedUpdate}7\r\n{"a":1}\r\n0\r\n${'X: 1\r\n'.repeat(10_000)}\r\n`],
  ] as const) {
    test(`a request over the size limit is 431 in JSON, and the connection closes: ${what} [D27]`, () =>
      assertRefused(bytes, { 431: headersTooLarge }));
  }

  test('a second Host or framing header after 2,500 other headers is refused [D27]', async () => {
    const either = { 400: badRequest, 431: headersTooLarge };
    await assertRefused(get(`${host}${manyFields}Host: b`), either);
    await assertRefused(put(`Content-Length: 7\r\n${manyFields}Transfer-Encoding: chunked`), either);
  });

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
    ['an offer of HTTP/2', get(`${host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA`)],
    ...[
      ['', 'http://gateway.test/api/work-items'], [' with a port', 'http://gateway.test:80/api/work-items'],
      [' of another host', 'http://elsewhere.test/api/work-items'], [' with a query', 'http://gateway.test/api/work-items?x=/y'],
      [' with its scheme in capitals', 'HTTP://GATEWAY.TEST/api/work-items'],
    ].map(([what = '', form]) => [`an absolute-form target${what}`, `GET ${form} HTTP/1.1\r\n${host}\r\n`] as const),
  ] as const) {
    test(`a well-formed request is served: ${name} [D27]`, async () => {
      await using client = await target().connect();
      client.send(bytes);
      assertReply(await client.reply(), 200, '[]');
      await target().settle();
      const calls = target().backend.requests.map((call) => `${call.method} ${call.target}`);
      assert.deepEqual(calls, ['GET /api/WorkItem', 'GET /api/WorkItem'], 'its call, and the call of settle()');
    });
  } // prettier-ignore

  test('a well-formed chunked body is served: leading zeros, extensions, trailers, chunks of one byte [D27]', async () => {
    await using client = await target().connect();
    for (const body of [
      '0007\r\n{"a":1}\r\n000\r\n\r\n',
      '7;a;b=c;d="e;f"\r\n{"a":1}\r\n0;last\r\n\r\n',
      '7\r\n{"a":1}\r\n0\r\nX-Trailer: 1\r\nHost: b\r\n\r\n',
      `${Array.from('{"a":1}', (character) => chunk(character).toString()).join('')}0\r\n\r\n`,
    ]) {
      client.send(chunkedUpdate + body);
      assertReply(await client.reply(), 200, succeeded);
      assert.equal((await target().backend.nextRequest()).body.toString(), '{"a":1}');
    }
    assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
  });

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
        assert.deepEqual([reply.status, reply.text], [405, methodNotAllowed]);
        await client.closed();
        assert.equal(client.unread.length, 0);
      }
    });
  });

  test('Expect other than 100-continue is 417 in JSON, and the backend is not called [D27]', async () => {
    await target().withoutBackendCall(async () => {
      for (const expectation of ['x', '200-ok', '100-continue, x', '100']) {
        const options = { headers: [['Expect', expectation]] as const, body: '{}' };
        const reply = await target().call('PUT', '/api/work-items/5', options);
        assertReply(reply, 417, '{"error":"Expectation failed"}');
      }
    });
  });

  test('Expect: 100-continue gets 100 Continue before the body is sent; in HTTP/1.0 it is ignored [D27]', async () => {
    await using client = await target().connect();
    for (const expectation of ['100-continue', '100-Continue']) {
      const head = `${update}${host}Content-Length: 2\r\nExpect: ${expectation}\r\n\r\n`;
      client.send(head);
      assert.equal((await client.reply()).status, 100);
      client.send('{}');
      assertReply(await client.reply(), 200, succeeded);
      assert.equal((await target().backend.nextRequest()).header('expect'), undefined);
      // A client need not wait for 100 Continue.
      client.send(`${head}{}`);
      const first = await client.reply();
      assertReply(first.status === 100 ? await client.reply() : first, 200, succeeded);
      await target().backend.nextRequest();
    }
    client.send(`PUT /api/work-items/5 HTTP/1.0\r\n${host}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}`);
    assertReply(await client.reply(), 200, succeeded);
    await client.closed();
  });

  for (const [before, status, body] of [
    [`${update}${host}Content-Length: 2\r\n\r\n{}`, 200, succeeded],
    [`${list}${host}\r\n`, 200, '[]'],
    [`GET /nope HTTP/1.1\r\n${host}\r\n`, 404, notFound],
  ] as const) {
    test(`after ${before.split(' HTTP')[0]} in one packet, malformed bytes are 400 and an unknown method is 405 [D6, D27]`, async () => {
      const twoHosts = get('Host: a\r\nHost: b') + smuggled;
      const malformedBytes = ['xx', 'BAD\r\n\r\n', '\0\x01\x02\r\n\r\n', 'B'.repeat(20_000), twoHosts];
      const methods = ['MISSING', 'X', 'POS', 'DELET', 'GETS'].map((method) => `${method} /api/work-items HTTP/1.1\r\n${host}\r\n`);
      for (const bytes of [...malformedBytes, ...methods]) {
        await using client = await target().connect();
        client.send(before + bytes);
        assertReply(await client.reply(), status, body);
        const second = await client.reply();
        if (methods.includes(bytes)) {
          assertReply(second, 405, methodNotAllowed, ['allow']);
          assert.equal(second.header('allow'), 'GET, HEAD, POST, OPTIONS');
        } else {
          assertReply(second, 400, badRequest);
          await client.closed();
          assert.equal(client.unread.length, 0);
        }
      }
    });
  } // prettier-ignore

  test('targets in other forms: an unknown method is 405 on a known path, a target without an operation is 404 [D5, D6, D27]', async () => {
    for (const [line, status] of [
      ['MISSING http://x/api/work-items', 405],
      ['MISSING https://x/api/work-items', 405],
      ['MISSING http://x', 404],
      ['MISSING http://x/nope', 404],
      ['MISSING ftp://x/api/work-items', 400],
      ['MISSING http://x/api/work-items#a', 400],
      ['OPTIONS *', 404],
      ['GET http://x', 404],
      ['GET http://x?/api/work-items', 404],
      ['GET http://x/', 404],
    ] as const) {
      await using client = await target().connect();
      client.send(`${line} HTTP/1.1\r\n${host}\r\n`);
      assert.equal((await client.reply()).status, status, line);
      if (status === 400) await client.closed();
      else assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    }
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
