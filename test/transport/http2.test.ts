// HTTP/2 as a carrier of calls: the same replies, limits, deadlines and cancellations as over HTTP/1.1, each on a stream of
// its own. D39, with D21, D24, D27, D33, D35.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { createGate, poll, within } from '../helpers/changes.ts';
import {
  assertHeaders,
  assertReply,
  badRequest,
  headersTooLarge,
  methodNotAllowed,
  operation,
  operations,
  requestTimeout,
  succeeded,
  tooLarge,
} from '../helpers/expected.ts';
import { Http2Client, serveHttp2InProcess, noHttp2 } from '../helpers/http2-client.ts';
import {
  errorCodes,
  FrameClient,
  flags,
  frame,
  frameTypes,
  headers,
  preface,
  requestFields,
  resetStream,
  settings,
  settingIds,
  windowUpdate,
  type Fields,
} from '../helpers/http2-frames.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, behind, timeout, type Exchange } from '../helpers/scripted-backend.ts';

const run = promisify(execFile);
const collection = '/api/work-items';
const item = '/api/work-items/5';
/** "At once", with room for a busy machine. */
const atOnceMs = 1000;

function hasCommand(name: string): Promise<boolean> {
  return run(name, ['--version']).then(
    () => true,
    () => false,
  );
}
const noCurl = (await hasCommand('curl')) ? false : 'there is no curl on this machine';
const noNghttp = (await hasCommand('nghttp')) ? false : 'there is no nghttp on this machine';

/** A JSON text of exactly so many bytes. */
function jsonOfLength(length: number): string {
  return `"${'x'.repeat(length - 2)}"`;
}

describe('HTTP/2', { skip: noHttp2 }, () => {
  for (const { name, method, path, options, backendTarget, status, body } of operations) {
    test(`operation ${name}: the reply has the bytes and headers of D24, and no more [D39]`, async () => {
      await using server = await serveHttp2InProcess();
      await using client = await server.connect();
      const reply = await client.call(method, path, options);
      assertReply(reply, status, body);
      const names = reply.headers.map(([header]) => header);
      assert.ok(!names.includes('connection') && !names.includes('keep-alive'));
      assert.match(
        reply.header('date') ?? '',
        /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/,
      );
      const call = await server.backend.nextRequest();
      assert.equal(
        `${call.method} ${call.target} ${call.body.toString()}`,
        `${method} ${backendTarget} ${String(options.body ?? '')}`,
      );
    });
  }

  test('a client that knows no h2 is served HTTP/1.1 on the same port [D39]', async () => {
    await using server = await serveHttp2InProcess();
    for (const protocols of [undefined, ['http/1.1'], ['http/1.0']]) {
      await using client = await RawClient.openSecure(server.port, {
        rejectUnauthorized: false,
        ...(protocols && { ALPNProtocols: protocols }),
      });
      assertReply(await client.call('GET', item), 200, '{"id":5}');
    }
  });

  test('h2c is not spoken: neither with prior knowledge nor by an upgrade [D39]', async () => {
    await using server = await serveHttp2InProcess();
    // Without TLS nothing is answered; with TLS and HTTP/1.1 agreed on, the preface is no request.
    await using plain = await RawClient.open(server.port);
    plain.send(Buffer.concat([preface, settings()]));
    await plain.closed();
    assert.equal(plain.bytesReceived, 0);
    await using agreed = await RawClient.openSecure(server.port, {
      rejectUnauthorized: false,
      ALPNProtocols: ['http/1.1'],
    });
    agreed.send(Buffer.concat([preface, settings()]));
    assert.notEqual((await agreed.reply()).status, 101);
    await using upgrading = await RawClient.openSecure(server.port, { rejectUnauthorized: false });
    const reply = await upgrading.call('GET', item, {
      headers: [['Connection', 'Upgrade, HTTP2-Settings'], ['Upgrade', 'h2c'], ['HTTP2-Settings', 'AAMAAABkAAQCAAAAAAIAAAAA']], // prettier-ignore
    });
    assertReply(reply, 200, '{"id":5}');
  });

  test('HEAD is as GET without the body, and ends nothing else [D7]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await server.connect();
    for (const [path, status, length] of [
      [item, 200, '8'],
      ['/api/work-items/abc', 400, '29'],
      ['/nowhere', 404, '21'],
    ] as const) {
      const reply = await client.call('HEAD', path);
      assert.deepEqual(
        [reply.status, reply.body.length, reply.header('content-length')],
        [status, 0, length],
      );
    }
    assertReply(await client.call('GET', item), 200, '{"id":5}');
  });

  test('OPTIONS is 204 without a length [D6]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await server.connect();
    const reply = await client.call('OPTIONS', collection);
    assert.equal(reply.status, 204);
    assertHeaders(reply, ['allow']);
  });

  test('a valid request id is kept, a trace context goes on, and nothing else does [D12, D25]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await server.connect();
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const reply = await client.call('GET', item, {
      headers: [
        ['x-request-id', 'mine-1'],
        ['traceparent', traceparent],
        ['cookie', 'a=secret'],
        ['cookie', 'b=secret'],
        ['authorization', 'Bearer secret'],
        ['te', 'trailers'],
        ['x-forwarded-for', '192.0.2.1'],
      ],
    });
    assert.equal(reply.header('x-request-id'), 'mine-1');
    const call = await server.backend.nextRequest();
    assert.deepEqual([call.header('x-request-id'), call.header('traceparent')], ['mine-1', traceparent]);
    assert.doesNotMatch(call.head, /secret|192\.0\.2\.1|trailers/);
  });

  test('calls of one connection are made side by side, and each reply comes when it is ready [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await server.connect();
    const gate = createGate();
    server.backend.answersOnce(behind(gate, answer('"slow"')));
    const slow = client.call('GET', collection);
    await server.backend.nextRequest();
    assertReply(await client.call('PUT', item, { body: '{}' }), 200, succeeded);
    gate.open();
    assertReply(await slow, 200, '"slow"');
  });

  describe('bodies', () => {
    test('a body of 10 MB comes whole, whatever its pieces are [D11, D14]', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await server.connect();
      const body = jsonOfLength(10_000_000);
      assertReply(await client.call('PUT', item, { body }), 200, succeeded);
      assert.ok((await server.backend.nextRequest()).body.equals(Buffer.from(body)));
      const { stream, reply } = client.begin('POST', collection);
      for (const piece of ['{"a"', ':', '"\u00e9"', '}', ' ']) stream.write(piece);
      stream.end();
      assertReply(await reply, 201, '{"id":5}');
      assert.equal((await server.backend.nextRequest()).body.toString(), '{"a":"\u00e9"} ');
    });

    test('a reply of 20 MB comes whole, and its memory is given back [D14]', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await server.connect();
      const body = jsonOfLength(20_000_000);
      server.backend.answers(answer(body));
      const replies = await Promise.all([client.call('GET', collection), client.call('GET', item)]);
      for (const reply of replies) assertReply(reply, 200, body);
      await poll(() => server.gateway.budget.bytes === 0, 'the budget is given back');
    });

    test('100 Continue is sent when the body is wanted, and not before [RFC 9110, 10.1.1]', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await server.connect();
      const { stream, reply } = client.begin('PUT', item, { headers: [['expect', '100-continue']] });
      await within(new Promise((resolve) => stream.once('continue', resolve)), 'the 100');
      stream.end('{}');
      assertReply(await reply, 200, succeeded);
      const refused = client.begin('PUT', '/api/work-items/abc', { headers: [['expect', '100-continue']] });
      refused.stream.once('continue', () => assert.fail('a body that nobody wants is not invited'));
      assertReply(await refused.reply, 400, '{"error":"Invalid ID format"}');
      const unknown = await client.call('PUT', item, { headers: [['expect', 'wonders']], body: '{}' });
      assertReply(unknown, 417, '{"error":"Expectation failed"}');
    });

    test('one over the limit is 413, and ends its stream but not its connection [D11]', async () => {
      await using server = await serveHttp2InProcess({ requestBytesMax: 1000 });
      await using client = await server.connect();
      const announced = client.begin('PUT', item, { headers: [['content-length', '1001']] });
      assertReply(await announced.reply, 413, tooLarge);
      const counted = client.begin('POST', collection);
      counted.stream.write(jsonOfLength(1001));
      assertReply(await counted.reply, 413, tooLarge);
      assert.equal(server.backend.requests.length, 0);
      assertReply(await client.call('PUT', item, { body: jsonOfLength(1000) }), 200, succeeded);
      assert.ok(client.isOpen);
    });

    test('one behind its reply is dropped up to the limit, and past it the stream is reset without an error [D11]', async () => {
      await using server = await serveHttp2InProcess({ requestBytesMax: 1000 });
      await using client = await FrameClient.begin(server.port);
      const data = (stream: number, length: number, isLast = false) =>
        frame(frameTypes.data, isLast ? flags.endStream : 0, stream, Buffer.alloc(length, 'x'));
      client.send(
        headers(1, requestFields('GET', item), flags.endHeaders),
        headers(3, requestFields('GET', item), flags.endHeaders),
      );
      await client.receives((each) => each.type === frameTypes.data && each.stream === 3, 'the second reply');
      client.send(data(1, 600), data(1, 400, true), data(3, 600), data(3, 401));
      assert.equal(await client.resetCode(3), errorCodes.noError);
      assert.ok(!client.frames.some((each) => each.type === frameTypes.resetStream && each.stream === 1));
      await poll(() => [...server.clients][0]?.restsSince(performance.now() + 1) !== 0, 'no stream is open');
    });

    for (const [how, code] of [
      ['without an error', errorCodes.noError],
      ['with one', errorCodes.cancel],
    ] as const) {
      for (const [method, path, bytes] of [
        ['PUT', item, '12'],
        ['DELETE', item, ''],
        ['POST', collection, '{}'],
      ] as const) {
        test(`${method}: a client that resets its stream ${how} before the body is whole causes no backend call [D11, D21]`, async () => {
          await using server = await serveHttp2InProcess();
          await using client = await FrameClient.begin(server.port);
          client.send(
            headers(1, requestFields(method, path), flags.endHeaders),
            frame(frameTypes.data, 0, 1, Buffer.from(bytes)),
            resetStream(1, code),
          );
          client.send(headers(3, requestFields('GET', item)));
          await client.receives(
            (each) => each.type === frameTypes.data && each.stream === 3,
            'the next reply',
          );
          assert.deepEqual(
            server.backend.requests.map((each) => each.method),
            ['GET'],
          );
          await poll(
            () => server.told.ended.some(({ outcome }) => outcome === 'client-gone'),
            'it is said that the client left',
          );
        });
      }
    }

    for (const [method, path] of [
      ['PUT', item],
      ['DELETE', item],
      ['POST', collection],
    ] as const) {
      test(`${method}: one that is shorter than its content-length is reset, and nothing is sent [RFC 9113, 8.1.1]`, async () => {
        await using server = await serveHttp2InProcess();
        await using client = await FrameClient.begin(server.port);
        client.send(
          headers(1, requestFields(method, path, [['content-length', '5']]), flags.endHeaders),
          frame(frameTypes.data, flags.endStream, 1, Buffer.from('{}')),
          headers(3, requestFields('GET', item)),
        );
        assert.equal(await client.resetCode(1), errorCodes.protocolError);
        await client.receives((each) => each.type === frameTypes.data && each.stream === 3, 'the next reply');
        assert.deepEqual(
          server.backend.requests.map((each) => each.method),
          ['GET'],
        );
      });

      test(`${method}: one that is longer than its content-length is reset, nothing is sent, and the others go on [RFC 9113, 8.1.1]`, async () => {
        await using server = await serveHttp2InProcess();
        const gate = createGate();
        server.backend.answers(behind(gate, answer('{"id":5}')));
        await using client = await FrameClient.begin(server.port);
        const ofTwo = requestFields(method, path, [['content-length', '2']]);
        client.send(headers(1, requestFields('GET', item)), headers(3, ofTwo, flags.endHeaders));
        await poll(() => server.backend.requests.length === 1, 'the first call is made');
        client.send(
          frame(frameTypes.data, 0, 3, Buffer.from('{}')),
          frame(frameTypes.data, flags.endStream, 3, Buffer.from(' ')),
          headers(5, ofTwo, flags.endHeaders),
          frame(frameTypes.data, flags.endStream, 5, Buffer.from('{}   ')),
          headers(7, ofTwo, flags.endHeaders),
          frame(
            frameTypes.data,
            flags.endStream | flags.padded,
            7,
            Buffer.from([1, ...Buffer.from('{} '), 0]),
          ),
          headers(9, ofTwo, flags.endHeaders),
          frame(
            frameTypes.data,
            flags.endStream | flags.padded,
            9,
            Buffer.from([2, ...Buffer.from('{}'), 0, 0]),
          ),
        );
        for (const stream of [3, 5, 7])
          assert.equal(await client.resetCode(stream), errorCodes.protocolError);
        gate.open();
        for (const stream of [1, 9])
          await client.receives(
            (each) => each.type === frameTypes.data && each.stream === stream,
            `the reply on ${stream}`,
          );
        assert.equal(client.goAway, undefined);
        assert.deepEqual(
          server.backend.requests.map((each) => each.method),
          ['GET', method],
        );
        await poll(() => server.gateway.budget.bytes === 0, 'nothing is held');
      });
    }
  });

  describe('heads that two parsers could read differently', () => {
    const plain = (others: Fields): Fields => requestFields('GET', item, others);
    // Those that the library lets through are ours to refuse, in JSON [D27].
    const refused: [name: string, fields: Fields, status: number, body: string][] = [
      ['a host that is another than the authority', plain([['host', 'other.localhost']]), 400, badRequest],
      ['an authority that is none', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'a,b'], [':path', item]], 400, badRequest],
      ['a fragment', requestFields('GET', `${item}#a`), 400, badRequest],
      ['a byte above ASCII in the path', requestFields('GET', `${item}\xe9`), 400, badRequest],
      ['a method in small letters', requestFields('get', item), 400, badRequest],
      ['a method of 65 letters', requestFields('G'.repeat(65), item), 400, badRequest],
      ['a scheme that is none of ours', [[':method', 'GET'], [':scheme', 'ftp'], [':authority', 'a'], [':path', item]], 400, badRequest],
      ['a head over the limit', plain([['x-a', 'x'.repeat(16_384)]]), 431, headersTooLarge],
      ['too many fields', plain(Array.from({ length: 90 }, (_, index) => [`x-${index}`, ''] as const)), 431, headersTooLarge],
      ['CONNECT', [[':method', 'CONNECT'], [':authority', 'host:443']], 405, methodNotAllowed],
    ]; // prettier-ignore
    for (const [name, fields, status, body] of refused) {
      test(`${name}: ${status}, and no backend call [D27]`, async () => {
        await using server = await serveHttp2InProcess();
        await using client = await Http2Client.open(server.port);
        const stream = client.session.request(fields.flat(), { endStream: true });
        const pieces: Buffer[] = [];
        let got = 0;
        stream.on('response', (response) => { got = Number(response[':status']); }).on('data', (piece: Buffer) => pieces.push(piece)); // prettier-ignore
        await within(
          new Promise((resolve, reject) => stream.once('close', resolve).once('error', reject)),
          'the reply',
        );
        assert.deepEqual([got, Buffer.concat(pieces).toString()], [status, body]);
        assert.equal(server.backend.requests.length, 0);
        assertReply(await client.call('GET', item), 200, '{"id":5}');
      });
    }

    for (const [name, frameFlags] of [
      ['that ends there', flags.endHeaders | flags.endStream],
      ['that waits for its tunnel', flags.endHeaders],
    ] as const) {
      test(`a CONNECT ${name} gets its reply, and the connection goes on without GOAWAY [D6, D39]`, async () => {
        await using server = await serveHttp2InProcess();
        await using client = await FrameClient.begin(server.port);
        const fields: Fields = [
          [':method', 'CONNECT'],
          [':authority', 'host:443'],
        ];
        for (const stream of [1, 5]) {
          client.send(headers(stream, fields, frameFlags), headers(stream + 2, requestFields('GET', item)));
          for (const each of [stream, stream + 2])
            await client.receives(
              (got) => got.type === frameTypes.data && got.stream === each,
              `the reply on ${each}`,
            );
        }
        assert.equal(client.goAway, undefined);
        assert.deepEqual(
          server.told.ended.map(({ status }) => status),
          [405, 200, 405, 200],
        );
        await poll(
          () => [...server.clients][0]?.restsSince(performance.now() + 1) !== 0,
          'no stream is open',
        );
      });
    }

    // RFC 9113, 8.1.1: a stream error of PROTOCOL_ERROR.
    const malformed: [name: string, fields: Fields][] = [
      ['two host fields', [[':method', 'GET'], [':scheme', 'https'], [':path', item], ['host', 'a'], ['host', 'a']]],
      ['no host at all', [[':method', 'GET'], [':scheme', 'https'], [':path', item]]],
      ['two authorities', [[':authority', 'a'], ...plain([])]],
      ['a pseudo-header field behind a field', [['x-a', '1'], ...plain([])]],
      ['a pseudo-header field that is none', [[':wonder', '1'], ...plain([])]],
      ['an authority with a user', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'me@host'], [':path', item]]],
      ['no path', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'a']]],
      ['an empty path', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'a'], [':path', '']]],
      ['no method', [[':scheme', 'https'], [':authority', 'a'], [':path', item]]],
      ['two methods', [[':method', 'PUT'], ...plain([])]],
      ['a name in capitals', plain([['X-A', '1']])],
      ['connection', plain([['connection', 'close']])],
      ['keep-alive', plain([['keep-alive', 'timeout=1']])],
      ['proxy-connection', plain([['proxy-connection', 'close']])],
      ['transfer-encoding', plain([['transfer-encoding', 'chunked']])],
      ['upgrade', plain([['upgrade', 'h2c']])],
      ['te that is not trailers', plain([['te', 'gzip']])],
      ['a transfer-encoding of nothing', plain([['transfer-encoding', '']])],
      ['two paths', [[':path', '/api/work-items/6'], ...plain([])]],
      ['two schemes', [[':scheme', 'http'], ...plain([])]],
      ['a status', [[':status', '200'], ...plain([])]],
      ['OPTIONS * with another method', requestFields('GET', '*')],
      ['a path that does not begin with a slash', requestFields('GET', 'api/work-items/5')],
      ['a path with an authority', requestFields('GET', 'https://gateway.localhost/api/work-items/5')],
      ['CONNECT with a path', [[':method', 'CONNECT'], [':authority', 'a:443'], [':path', item]]],
      ['CONNECT with a scheme', [[':method', 'CONNECT'], [':scheme', 'https'], [':authority', 'a:443']]],
      ['two lengths', plain([['content-length', '0'], ['content-length', '0']])],
      ['a length that is none', plain([['content-length', '1x']])],
      // RFC 9113, 8.2.1. The library drops these, and serves the rest.
      ['NUL in a value', plain([['x-request-id', 'a\0']])],
      ['CR and LF in a value', plain([['x-b', 'a\r\nx-request-id: b']])],
      ['LF in a value', plain([['x-b', 'a\nb']])],
      ['0x01 in a value', [...requestFields('DELETE', item), ['sec-fetch-site', 'cross-site\x01']]],
      ['DEL in a value', plain([['x-b', 'a\x7f']])],
      ['a space before a value', plain([['traceparent', ' 1']])],
      ['a tab behind a value', plain([['x-b', '1\t']])],
      ['a name of nothing', plain([['', '1']])],
      ['a space in a name', plain([['x y', '1']])],
      ['a colon in a name', plain([['x:y', '1']])],
      ['a byte above ASCII in a name', plain([['x\xe9', '1']])],
      ['a host with a user', plain([['host', 'me@gateway.localhost']])],
      ['two authorization fields, one with NUL', plain([['authorization', 'Bearer a'], ['authorization', 'Bearer b\0']])],
      ['a path with a space', requestFields('GET', '/api/work-items/5 x')],
      ['extended CONNECT', [[':method', 'CONNECT'], [':protocol', 'websocket'], [':scheme', 'https'], [':authority', 'a'], [':path', item]]],
    ]; // prettier-ignore
    for (const [name, fields] of malformed) {
      test(`${name}: the stream is refused, the connection goes on, and no backend call [D27]`, async () => {
        await using server = await serveHttp2InProcess();
        await using client = await FrameClient.begin(server.port);
        client.send(headers(1, fields), headers(3, requestFields('GET', collection)));
        assert.equal(await client.resetCode(1), errorCodes.protocolError);
        await client.receives((each) => each.type === frameTypes.data && each.stream === 3, 'the next reply');
        assert.deepEqual(
          server.backend.requests.map((each) => each.target),
          ['/api/WorkItem'],
        );
      });
    }
  });

  describe('trailers [RFC 9113, 8.1]', () => {
    for (const [name, trailers, frameFlags] of [
      ['a pseudo-header field', [[':path', '/api/work-items/6']], flags.endStream],
      ['a method', [[':method', 'DELETE']], flags.endStream],
      ['a length', [['content-length', '9']], flags.endStream],
      ['a field of a connection', [['transfer-encoding', 'chunked']], flags.endStream],
      ['a name in capitals', [['X-A', '1']], flags.endStream],
      ['NUL', [['x-a', '\0']], flags.endStream],
      ['no end of the stream', [['x-a', '1']], 0],
    ] as const) {
      test(`${name} in them: the stream is reset, the connection goes on, and no backend call`, async () => {
        await using server = await serveHttp2InProcess();
        await using client = await FrameClient.begin(server.port);
        client.send(
          headers(1, requestFields('PUT', item), flags.endHeaders),
          frame(frameTypes.data, 0, 1, Buffer.from('{}')),
          headers(1, trailers, flags.endHeaders | frameFlags),
          headers(3, requestFields('GET', collection)),
        );
        assert.equal(await client.resetCode(1), errorCodes.protocolError);
        await client.receives((each) => each.type === frameTypes.data && each.stream === 3, 'the next reply');
        assert.deepEqual(
          server.backend.requests.map((each) => each.method),
          ['GET'],
        );
        await poll(() => server.gateway.inFlight === 0, 'nothing is left in flight');
      });
    }
  });

  test('OPTIONS * is a path that there is not, and a second head of a stream is no request [D5, D27]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    client.send(headers(1, requestFields('OPTIONS', '*')));
    await client.receives((each) => each.type === frameTypes.data && each.stream === 1, 'the reply');
    assert.deepEqual(
      server.told.ended.map(({ status }) => status),
      [404],
    );
    // Of a stream that has ended: the library drops it [RFC 9113, 5.1].
    client.send(headers(1, requestFields('PUT', item)), headers(3, requestFields('GET', item)));
    await client.receives((each) => each.type === frameTypes.data && each.stream === 3, 'the next reply');
    assert.deepEqual(
      server.backend.requests.map((each) => each.method),
      ['GET'],
    );
  });

  describe('a client that goes away [D21]', () => {
    const leavings: [name: string, leave: (client: FrameClient) => void][] = [
      ['resets its stream', (client) => { client.send(resetStream(1, errorCodes.cancel)); }],
      ['resets its stream without an error', (client) => { client.send(resetStream(1, errorCodes.noError)); }],
      ['closes its connection', (client) => { client.socket.destroy(); }],
      ['sends its FIN', (client) => { client.socket.end(); }],
    ]; // prettier-ignore
    for (const [how, leave] of leavings) {
      for (const method of ['GET', 'HEAD', 'DELETE']) {
        test(`${method}: one that ${how} while the backend works: a read is cancelled, a write runs on`, async () => {
          await using server = await serveHttp2InProcess();
          await using client = await FrameClient.begin(server.port);
          const gate = createGate();
          const { promise: taken, resolve } = Promise.withResolvers<Exchange>();
          server.backend.answersOnce(async (exchange) => {
            resolve(exchange);
            await behind(gate, answer('{}'))(exchange);
          });
          client.send(headers(1, requestFields(method, item)));
          const exchange = await within(taken, 'the backend call');
          leave(client);
          if (method === 'DELETE') {
            await using other = await server.connect();
            assertReply(await other.call('GET', item), 200, '{"id":5}');
            assert.equal(exchange.isClosed, false);
            gate.open();
          } else {
            await within(exchange.closed, 'the backend connection is closed', atOnceMs);
          }
          await poll(
            () => server.told.ended.some(({ outcome }) => outcome === 'client-gone'),
            'it is said that the client left',
          );
          assert.deepEqual(server.told.bugs, []);
          assert.equal(server.gateway.inFlight, 0);
        });
      }
    }

    test('one that leaves in the middle of a large reply: its memory is given back', async () => {
      await using server = await serveHttp2InProcess();
      server.backend.answers(answer(jsonOfLength(5_000_000)));
      for (const leave of [
        (client: FrameClient) => {
          client.send(resetStream(1, errorCodes.cancel));
        },
        (client: FrameClient) => {
          client.socket.destroy();
        },
      ]) {
        // prettier-ignore
        await using client = await FrameClient.begin(server.port);
        client.send(headers(1, requestFields('GET', item)));
        await client.receives((each) => each.type === frameTypes.data, 'the reply begins');
        assert.ok(server.gateway.budget.bytes > 0);
        leave(client);
        await poll(() => server.gateway.budget.bytes === 0, 'the budget is given back');
      }
    });
  });

  describe('deadlines [D35]', () => {
    const lateMs = 1000;
    async function took(act: () => Promise<unknown>): Promise<number> {
      const from = performance.now();
      await act();
      return performance.now() - from;
    }
    function assertTook(ms: number, limitMs: number): void {
      assert.ok(ms >= limitMs * 0.9 && ms <= limitMs + lateMs, `${ms} ms instead of ${limitMs} ms`);
    }

    for (const [name, bytes] of [
      ['nothing', []],
      ['half a preface', [preface.subarray(0, 10)]],
      ['a preface and settings', [preface, settings()]],
      ['half a head', [preface, settings(), headers(1, requestFields('GET', item)).subarray(0, 20)]],
      [
        'a head that goes on for ever',
        [preface, settings(), headers(1, requestFields('GET', item), flags.endStream)],
      ],
    ] as const) {
      test(`a connection that sends ${name} is closed after REQUEST_HEADERS_TIMEOUT_MS`, async () => {
        await using server = await serveHttp2InProcess({ requestHeadersTimeoutMs: 400 });
        await using client = await FrameClient.open(server.port);
        client.send(...bytes);
        assertTook(await took(() => client.closed()), 400);
      });
    }

    test('half a head on a connection that has had requests is not waited for any longer', async () => {
      await using server = await serveHttp2InProcess({ requestHeadersTimeoutMs: 400 });
      await using client = await FrameClient.begin(server.port);
      client.send(headers(1, requestFields('GET', item)));
      await client.receives((each) => each.type === frameTypes.data, 'the reply');
      client.send(headers(3, requestFields('GET', item)).subarray(0, 20));
      assertTook(await took(() => client.closed()), 400);
    });

    test('an idle connection gets GOAWAY after IDLE_TIMEOUT_MS, and is closed', async () => {
      await using server = await serveHttp2InProcess({ idleTimeoutMs: 500 });
      await using client = await FrameClient.begin(server.port);
      client.send(headers(1, requestFields('GET', item)));
      await client.receives((each) => each.type === frameTypes.data, 'the reply');
      // PINGs are no requests.
      client.send(frame(frameTypes.ping, 0, 0, Buffer.alloc(8)));
      assertTook(await took(() => client.receives((each) => each.type === frameTypes.goAway, 'GOAWAY')), 500);
      assert.deepEqual(client.goAway, { lastStream: 1, code: errorCodes.noError });
      await client.closed();
    });

    test('a connection whose client does not close after GOAWAY is cut a second later', async () => {
      await using server = await serveHttp2InProcess({ idleTimeoutMs: 300 });
      await using client = await FrameClient.begin(server.port);
      // It reads no end, and so sends none.
      client.socket.pause();
      await poll(() => server.clients.size === 0, 'the connection is closed', 5000);
    });

    test('a body that does not come is 408 after REQUEST_TIMEOUT_MS, and the other streams go on', async () => {
      await using server = await serveHttp2InProcess({ requestTimeoutMs: 400 });
      await using client = await server.connect();
      const { stream, reply } = client.begin('PUT', item);
      stream.write('{');
      assertTook(await took(async () => { assertReply(await reply, 408, requestTimeout); }), 400); // prettier-ignore
      assertReply(await client.call('GET', item), 200, '{"id":5}');
    });

    test('a stream that takes nothing of its reply is reset after REPLY_STALL_TIMEOUT_MS, and the others are served', async () => {
      await using server = await serveHttp2InProcess({ replyStallTimeoutMs: 500 });
      server.backend.answers(answer(jsonOfLength(500_000)));
      await using client = await FrameClient.begin(server.port, [[settingIds.initialWindowSize, 0]]);
      client.send(headers(1, requestFields('GET', item)), headers(3, requestFields('GET', item)));
      await client.receives(
        (each) => each.type === frameTypes.headers && each.stream === 1,
        'the head of the reply',
      );
      const ms = await took(async () => {
        // The other takes a little now and then.
        const taking = setInterval(() => { client.send(windowUpdate(3, 20_000)); }, 100); // prettier-ignore
        assert.equal(await client.resetCode(1), errorCodes.cancel);
        clearInterval(taking);
      });
      assertTook(ms, 500);
      assert.equal(server.told.stalled.length, 1);
      client.send(windowUpdate(3, 1_000_000), windowUpdate(0, 1_000_000));
      await client.receives(
        (each) => each.type === frameTypes.data && each.stream === 3 && each.flags === 1,
        'the other reply',
      );
      await poll(() => server.gateway.budget.bytes === 0, 'the budget is given back');
    });

    test('a client that reads nothing from its socket is disconnected after REPLY_STALL_TIMEOUT_MS', async () => {
      await using server = await serveHttp2InProcess({ replyStallTimeoutMs: 500 });
      server.backend.answers(answer(jsonOfLength(30_000_000)));
      await using client = await FrameClient.begin(server.port, [
        [settingIds.initialWindowSize, 2 ** 31 - 1],
      ]);
      client.socket.pause();
      client.send(windowUpdate(0, 2 ** 30), headers(1, requestFields('GET', item)));
      await poll(() => server.told.ended.length === 1, 'the reply is handed over');
      await poll(() => server.clients.size === 0, 'the connection is closed');
      assert.equal(server.told.stalled.length, 1);
      await poll(() => server.gateway.budget.bytes === 0, 'the budget is given back');
    });

    test('the deadline of the backend is that of HTTP/1.1 [D19]', async () => {
      await using server = await serveHttp2InProcess({ backendTimeoutMs: 300 });
      server.backend.answers(timeout);
      await using client = await server.connect();
      const ms = await took(async () => { assertReply(await client.call('GET', item), 500, operation(3).failure); }); // prettier-ignore
      assertTook(ms, 300);
    });
  });

  describe('the end [D33]', () => {
    test('a drain says GOAWAY, serves what is in flight and what comes all the same, and closes', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await FrameClient.begin(server.port);
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('"late"')));
      client.send(headers(1, requestFields('GET', item)));
      await server.backend.nextRequest();
      const drained = server.drain(AbortSignal.timeout(8000));
      await client.receives((each) => each.type === frameTypes.goAway, 'GOAWAY');
      assert.deepEqual(client.goAway, { lastStream: 2 ** 31 - 1, code: errorCodes.noError });
      // On its way before the client knew.
      client.send(headers(3, requestFields('GET', collection)));
      await client.receives(
        (each) => each.type === frameTypes.data && each.stream === 3,
        'the reply that came late',
      );
      gate.open();
      await client.receives(
        (each) => each.type === frameTypes.data && each.stream === 1,
        'the reply in flight',
      );
      await within(drained, 'the drain is over');
      await client.closed();
      assert.deepEqual(client.goAway, { lastStream: 3, code: errorCodes.noError });
    });

    test('a library that keeps to the standard loses nothing in a drain under load', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await server.connect();
      const replies: Promise<unknown>[] = [];
      const keep = (reply: Promise<unknown>): void => {
        // Looked at when all have come.
        reply.catch(() => undefined);
        replies.push(reply);
      };
      for (let index = 0; index < 50; index += 1) keep(client.call('GET', item));
      const drained = server.drain(AbortSignal.timeout(8000));
      while (client.isOpen) {
        keep(client.call('PUT', item, { body: '{}' }));
        await new Promise((resolve) => setImmediate(resolve));
      }
      const settled = await within(Promise.allSettled(replies), 'all replies');
      await within(drained, 'the drain is over');
      // What the library had not sent when it heard of the end it refuses by itself: that may be sent elsewhere.
      const refused = settled.filter((each) => each.status === 'rejected');
      for (const { reason } of refused) assert.match(String(reason), /REFUSED_STREAM|GOAWAY/);
      assert.equal(
        server.backend.requests.length,
        settled.length - refused.length,
        'every call that was made has its reply',
      );
      assert.ok(settled.length - refused.length >= 50);
    });

    test('a drain cuts what is left when its time is over', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await FrameClient.begin(server.port);
      server.backend.answersOnce(timeout);
      client.send(headers(1, requestFields('GET', item)));
      await server.backend.nextRequest();
      await within(server.drain(AbortSignal.timeout(300)), 'the drain gives up');
      server.clients.closeAll();
      await client.closed();
      await poll(() => server.told.ended.length === 1, 'the call has ended');
    });

    test('a client that says GOAWAY has its replies first', async () => {
      await using server = await serveHttp2InProcess();
      await using client = await FrameClient.begin(server.port);
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('"late"')));
      client.send(headers(1, requestFields('GET', item)), frame(frameTypes.goAway, 0, 0, Buffer.alloc(8)));
      await server.backend.nextRequest();
      gate.open();
      await client.receives(
        (each) => each.type === frameTypes.data && each.stream === 1,
        'the reply in flight',
      );
      await client.closed();
    });
  });

  describe('the number of connections [D26]', () => {
    test('a connection counts once, and one without an open stream makes room for a new one', async () => {
      await using server = await serveHttp2InProcess({ connectionsMax: 1 });
      await using first = await FrameClient.begin(server.port);
      first.send(headers(1, requestFields('GET', item)));
      await first.receives((each) => each.type === frameTypes.data, 'the reply');
      assert.equal(server.clients.size, 1);
      await poll(
        () => ([...server.clients][0]?.restsSince(performance.now()) ?? 0) >= 1000,
        'it has rested for a second',
      );
      await using second = await server.connect();
      assertReply(await second.call('GET', item), 200, '{"id":5}');
      await first.closed();
    });

    test('one with a stream in flight is not closed for a new one', async () => {
      await using server = await serveHttp2InProcess({ connectionsMax: 1 });
      await using first = await server.connect();
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('"late"')));
      const late = first.call('GET', item);
      await server.backend.nextRequest();
      await poll(
        () => [...server.clients].every((each) => each.restsSince(performance.now() + 5000) === 0),
        'it works',
      );
      await assert.rejects(Http2Client.open(server.port));
      gate.open();
      assertReply(await late, 200, '"late"');
    });
  });

  test('curl --http2 gets what it asks for', { skip: noCurl }, async () => {
    await using server = await serveHttp2InProcess();
    const url = `https://127.0.0.1:${server.port}`;
    const curl = async (...args: string[]) => (await run('curl', ['-sk', '--http2', '-m', '8', '-w', ' %{http_version} %{http_code}', ...args])).stdout; // prettier-ignore
    assert.equal(await curl(`${url}${item}`), '{"id":5} 2 200');
    assert.equal(await curl('-X', 'PUT', '-d', '{}', `${url}${item}`), `${succeeded} 2 200`);
    assert.equal(await curl('-d', '{', `${url}${collection}`), `${operation(2).failure} 2 500`);
    assert.equal(await curl('-I', '-o', '/dev/null', `${url}${item}`), ' 2 200');
    assert.equal(await curl('--http1.1', `${url}${item}`), '{"id":5} 1.1 200');
  });

  test('nghttp sends a body of 5 MB, and fetches on one connection', { skip: noNghttp }, async () => {
    await using server = await serveHttp2InProcess();
    const url = `https://127.0.0.1:${server.port}${item}`;
    const { stdout } = await run('nghttp', ['-nv', '-m', '20', url], { maxBuffer: 2 ** 26 });
    assert.equal(stdout.match(/:status: 200/g)?.length, 20);
    assert.equal(server.backend.requests.length, 20);
  });
});
