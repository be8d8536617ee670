// Calls over HTTP/2, each on its own stream. Replies, limits, deadlines and cancellations are the same as over
// HTTP/1.1. D39, with D21, D24, D27, D33, D35.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, beforeEach, describe, test } from 'node:test';
import { createGate, poll, within } from '../helpers/changes.ts';
import { assertReply, badRequest, headersTooLarge, succeeded, tooLarge } from '../helpers/expected.ts';
import { startGateway, type Settings } from '../helpers/gateway.ts';
import { Http2Client, noHttp2 } from '../helpers/http2-client.ts';
import * as frames from '../helpers/http2-frames.ts';
import { data, errorCodes, flags, FrameClient, get, headers, put, requestFields } from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';

checkHttp2States();

const collection = '/api/work-items';
const item = '/api/work-items/5';
const isGoAway = ({ type }: frames.Frame) => type === frames.frameTypes.goAway;

/** A JSON text of exactly this many bytes. */
function jsonOfLength(length: number): string {
  return `"${'x'.repeat(length - 2)}"`;
}

const start = (settings: Settings = {}) => startGateway({ host: 'http2', settings });

describe('HTTP/2', { skip: noHttp2 }, () => {
  // Tests with a limit or a drain start another server.
  let server: Awaited<ReturnType<typeof start>>;
  before(async () => {
    server = await start();
  });
  beforeEach(() => {
    server.backend.reset();
    server.backend.answers(answer('{"id":5}'));
    server.told.ended.length = 0;
  });
  after(() => server[Symbol.asyncDispose]());

  function assertCalls(...methods: readonly string[]): void {
    assert.deepEqual(server.backend.requests.map(({ method }) => method), methods); // prettier-ignore
  }

  /** Asserts that stream 1 is reset as malformed, without a backend call, and that stream 3 is served. */
  async function assertMalformed(...parts: readonly Buffer[]): Promise<void> {
    server.backend.reset();
    await using client = await FrameClient.begin(server.port);
    client.send(...parts, get(3, collection));
    assert.equal(await client.resetCode(1), errorCodes.protocolError);
    await client.replies(3);
    assertCalls('GET');
    await poll(() => server.gateway.inFlight === 0, 'nothing is left in flight');
  }

  test('a reply has a date and no connection field [D24, D39]', async () => {
    const reply = await server.call('GET', item);
    assertReply(reply, 200, '{"id":5}');
    assert.deepEqual([reply.header('connection'), reply.header('keep-alive')], [undefined, undefined]);
    assert.match(reply.header('date') ?? '', /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/);
  });

  test('h2c is refused, with prior knowledge and as an upgrade [D39]', async () => {
    // Without TLS the gateway sends no reply. Over TLS with HTTP/1.1 the preface is a malformed request.
    const preface = Buffer.concat([frames.preface, frames.settings()]);
    await using plain = await RawClient.open(server.port);
    plain.send(preface);
    await plain.closed();
    assert.equal(plain.bytesReceived, 0);
    await using agreed = await RawClient.openSecure(server.port, { rejectUnauthorized: false });
    const offer = { headers: [['Connection', 'Upgrade, HTTP2-Settings'], ['Upgrade', 'h2c'], ['HTTP2-Settings', 'AAMAAABkAAQCAAAAAAIAAAAA']] } as const; // prettier-ignore
    assertReply(await agreed.call('GET', item, offer), 200, '{"id":5}');
    agreed.send(preface);
    assertReply(await agreed.reply(), 400, badRequest);
  });

  test('the backend gets a valid request id and the trace context, and no other header of the client [D12, D25]', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const secrets = [['cookie', 'a=secret'], ['cookie', 'b=secret'], ['authorization', 'Bearer secret'], ['te', 'trailers'], ['x-forwarded-for', '192.0.2.1']] as const; // prettier-ignore
    const all = [['x-request-id', 'mine-1'], ['traceparent', traceparent], ...secrets] as const;
    const reply = await server.call('GET', item, { headers: all });
    assert.equal(reply.header('x-request-id'), 'mine-1');
    const call = await server.backend.nextRequest();
    assert.deepEqual([call.header('x-request-id'), call.header('traceparent')], ['mine-1', traceparent]);
    assert.doesNotMatch(call.head, /secret|192\.0\.2\.1|trailers/);
  });

  test('a preflight and every reply name the origin that may read it [D45]', async () => {
    const origin = 'https://app.example.com';
    await using own = await start({ corsOrigins: [origin] });
    for (const [method, status] of [['OPTIONS', 204], ['GET', 200], ['PATCH', 405]] as const) {
      const asked = { headers: [['origin', origin], ['access-control-request-method', 'PUT']] } as const;
      const reply = await own.call(method, item, asked);
      assert.deepEqual([reply.status, reply.header('access-control-allow-origin')], [status, origin]);
    } // prettier-ignore
  });

  test('calls of one connection run in parallel, and each reply is sent when it is ready [D39]', async () => {
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
    test('a body of 10 MB and a body in small pieces reach the backend unchanged [D11, D14]', async () => {
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

    test('100 Continue is sent only for a request whose body is read [RFC 9110, 10.1.1]', async () => {
      await using client = await server.connect();
      const expecting = { headers: [['expect', '100-continue']] } as const;
      const { stream, reply } = client.begin('PUT', item, expecting);
      await once(stream, 'continue', { signal: AbortSignal.timeout(10_000) });
      stream.end('{}');
      assertReply(await reply, 200, succeeded);
      const refused = client.begin('PUT', '/api/work-items/abc', expecting);
      refused.stream.once('continue', () => assert.fail('a 100 before a refusal'));
      assertReply(await refused.reply, 400, '{"error":"Invalid ID format"}');
      const unknown = await client.call('PUT', item, { headers: [['expect', 'wonders']], body: '{}' });
      assertReply(unknown, 417, '{"error":"Expectation failed"}');
    });

    test('a body over the limit is 413, and ends its stream but not its connection [D11]', async () => {
      await using own = await start({ requestBytesMax: 1000 });
      await using client = await own.connect();
      const announced = client.begin('PUT', item, { headers: [['content-length', '1001']] });
      assertReply(await announced.reply, 413, tooLarge);
      const counted = client.begin('POST', collection);
      counted.stream.write(jsonOfLength(1001));
      assertReply(await counted.reply, 413, tooLarge);
      assert.equal(own.backend.requests.length, 0);
      assertReply(await client.call('PUT', item, { body: jsonOfLength(1000) }), 200, succeeded);
    });

    for (const [method, path] of [
      ['PUT', item],
      ['DELETE', item],
      ['POST', collection],
    ] as const) {
      test(`${method}: a body shorter or longer than its content-length resets its stream without a backend call, and other streams are served [RFC 9113, 8.1.1]`, async () => {
        const head = (stream: number, length: string) =>
          headers(stream, requestFields(method, path, [['content-length', length]]), flags.endHeaders);
        await assertMalformed(head(1, '5'), data(1, '{}', flags.endStream));
        server.backend.reset();
        const gate = createGate();
        server.backend.answers(behind(gate, answer('{"id":5}')));
        await using client = await FrameClient.begin(server.port);
        client.send(get(1, item));
        await poll(() => server.backend.requests.length === 1, 'the first call is made');
        const padded = (text: string, length: number) => Buffer.from(`${String.fromCharCode(length)}${text}${'\0'.repeat(length)}`); // prettier-ignore
        client.send(
          ...[head(3, '2'), data(3, '{}'), data(3, ' ', flags.endStream)],
          ...[head(5, '2'), data(5, '{}   ', flags.endStream)],
          ...[head(7, '2'), data(7, padded('{} ', 1), flags.endStream | flags.padded)],
          ...[head(9, '2'), data(9, padded('{}', 2), flags.endStream | flags.padded)],
        );
        for (const stream of [3, 5, 7]) assert.equal(await client.resetCode(stream), errorCodes.protocolError);
        gate.open();
        await client.replies(1, 9);
        assert.equal(client.goAway, undefined);
        assertCalls('GET', method);
        await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
      });
    }
  });

  describe('heads that two parsers could read differently', () => {
    const plain = (others: frames.Fields): frames.Fields => requestFields('GET', item, others);
    // Node's HTTP/2 library accepts these heads; the gateway refuses them with a JSON reply [D27].
    const refused: [name: string, fields: frames.Fields, status: number, body: string][] = [
      ['a host other than the authority', plain([['host', 'other.localhost']]), 400, badRequest],
      ['an invalid authority', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'a,b'], [':path', item]], 400, badRequest],
      ['a fragment', requestFields('GET', `${item}#a`), 400, badRequest],
      ['a byte above ASCII in the path', requestFields('GET', `${item}\xe9`), 400, badRequest],
      ['a method in small letters', requestFields('get', item), 400, badRequest],
      ['a method of 65 letters', requestFields('G'.repeat(65), item), 400, badRequest],
      ['a scheme other than http and https', [[':method', 'GET'], [':scheme', 'ftp'], [':authority', 'a'], [':path', item]], 400, badRequest],
      ['a size over the limit', plain([['x-a', 'x'.repeat(16_384)]]), 431, headersTooLarge],
      ['too many fields', plain(Array.from({ length: 90 }, (_, index) => [`x-${index}`, ''] as const)), 431, headersTooLarge],
    ]; // prettier-ignore
    for (const [name, fields, status, body] of refused) {
      test(`a head with ${name} is ${status} without a backend call [D27]`, async () => {
        await using client = await Http2Client.open(server.port);
        const { stream, reply } = client.request(fields);
        stream.end();
        assertReply(await reply, status, body);
        assert.equal(server.backend.requests.length, 0);
        assertReply(await client.call('GET', item), 200, '{"id":5}');
      });
    }

    // A malformed head is a stream error of type PROTOCOL_ERROR [RFC 9113, 8.1.1].
    const malformed: [name: string, fields: frames.Fields][] = [
      ['two host fields', [[':method', 'GET'], [':scheme', 'https'], [':path', item], ['host', 'a'], ['host', 'a']]],
      ['no host at all', [[':method', 'GET'], [':scheme', 'https'], [':path', item]]],
      ['two authorities', [[':authority', 'a'], ...plain([])]],
      ['a pseudo-header field after a regular field', [['x-a', '1'], ...plain([])]],
      ['an unknown pseudo-header field', [[':wonder', '1'], ...plain([])]],
      ['an authority with a user', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'me@host'], [':path', item]]],
      ['no path', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'a']]],
      ['an empty path', [[':method', 'GET'], [':scheme', 'https'], [':authority', 'a'], [':path', '']]],
      ['no method', [[':scheme', 'https'], [':authority', 'a'], [':path', item]]],
      ['two methods', [[':method', 'PUT'], ...plain([])]],
      ['a name in capitals', plain([['X-A', '1']])],
      ['a connection field', plain([['connection', 'close']])],
      ['a keep-alive field', plain([['keep-alive', 'timeout=1']])],
      ['a proxy-connection field', plain([['proxy-connection', 'close']])],
      ['a transfer-encoding field', plain([['transfer-encoding', 'chunked']])],
      ['an upgrade field', plain([['upgrade', 'h2c']])],
      ['a te field whose value is not "trailers"', plain([['te', 'gzip']])],
      ['an empty transfer-encoding', plain([['transfer-encoding', '']])],
      ['two paths', [[':path', '/api/work-items/6'], ...plain([])]],
      ['two schemes', [[':scheme', 'http'], ...plain([])]],
      ['a status', [[':status', '200'], ...plain([])]],
      ['the target * and a method other than OPTIONS', requestFields('GET', '*')],
      ['a path that does not begin with a slash', requestFields('GET', 'api/work-items/5')],
      ['a path with an authority', requestFields('GET', 'https://gateway.localhost/api/work-items/5')],
      ['CONNECT and a path', [[':method', 'CONNECT'], [':authority', 'a:443'], [':path', item]]],
      ['CONNECT and a scheme', [[':method', 'CONNECT'], [':scheme', 'https'], [':authority', 'a:443']]],
      ['two content-length fields', plain([['content-length', '0'], ['content-length', '0']])],
      ['an invalid content-length', plain([['content-length', '1x']])],
      // These fields are malformed [RFC 9113, 8.2.1]. Node's HTTP/2 library drops them and accepts the rest.
      ['NUL in a value', plain([['x-request-id', 'a\0']])],
      ['CR and LF in a value', plain([['x-b', 'a\r\nx-request-id: b']])],
      ['LF in a value', plain([['x-b', 'a\nb']])],
      ['0x01 in a value', [...requestFields('DELETE', item), ['sec-fetch-site', 'cross-site\x01']]],
      ['DEL in a value', plain([['x-b', 'a\x7f']])],
      ['a space before a value', plain([['traceparent', ' 1']])],
      ['a tab after a value', plain([['x-b', '1\t']])],
      ['an empty name', plain([['', '1']])],
      ['a space in a name', plain([['x y', '1']])],
      ['a colon in a name', plain([['x:y', '1']])],
      ['a byte above ASCII in a name', plain([['x\xe9', '1']])],
      ['a host with a user', plain([['host', 'me@gateway.localhost']])],
      ['two authorization fields, one with NUL', plain([['authorization', 'Bearer a'], ['authorization', 'Bearer b\0']])],
      ['a path with a space', requestFields('GET', '/api/work-items/5 x')],
      ['extended CONNECT', [[':method', 'CONNECT'], [':protocol', 'websocket'], [':scheme', 'https'], [':authority', 'a'], [':path', item]]],
    ]; // prettier-ignore
    for (const [name, fields] of malformed) {
      test(`the stream of a head with ${name} is reset without a backend call, and the connection stays open [D27]`, async () => {
        await assertMalformed(headers(1, fields));
      });
    }

    for (const [name, trailers, frameFlags] of [
      ['a pseudo-header field', [[':path', '/api/work-items/6']], flags.endStream],
      ['a method', [[':method', 'DELETE']], flags.endStream],
      ['a content-length', [['content-length', '9']], flags.endStream],
      ['a connection-specific field', [['transfer-encoding', 'chunked']], flags.endStream],
      ['a name in capitals', [['X-A', '1']], flags.endStream],
      ['NUL', [['x-a', '\0']], flags.endStream],
      ['no END_STREAM flag', [['x-a', '1']], 0],
    ] as const) {
      test(`if trailers have ${name}, their stream is reset without a backend call, and the connection stays open [RFC 9113, 8.1]`, async () => {
        await assertMalformed(put(1, item), data(1, '{}'), headers(1, trailers, flags.endHeaders | frameFlags));
      });
    }

    test('CONNECT, also one that waits for a tunnel, gets its reply, and the connection stays open without GOAWAY [D6, D39]', async () => {
      await using client = await FrameClient.begin(server.port);
      const connect = [[':method', 'CONNECT'], [':authority', 'host:443']] as const; // prettier-ignore
      for (const [stream, frameFlags] of [[1, flags.endStream], [5, 0], [9, 0]] as const) {
        client.send(headers(stream, connect, flags.endHeaders | frameFlags), get(stream + 2, item));
        await client.replies(stream, stream + 2);
      } // prettier-ignore
      assert.equal(client.goAway, undefined);
      assert.deepEqual(server.told.ended.map(({ status }) => status), [405, 200, 405, 200, 405, 200]); // prettier-ignore
      await poll(() => [...server.clients][0]?.idleMs(performance.now() + 1) !== 0, 'no stream is open');
    });

    test('OPTIONS * is 404, and a second head on its stream is not served [D5, D27]', async () => {
      await using client = await FrameClient.begin(server.port);
      client.send(headers(1, requestFields('OPTIONS', '*')));
      await client.replies(1);
      assert.equal(server.told.ended[0]?.status, 404);
      // The stream has ended, so Node's HTTP/2 library drops the second head [RFC 9113, 5.1].
      client.send(headers(1, requestFields('PUT', item)), get(3, item));
      await client.replies(3);
      assertCalls('GET');
    });
  });

  test('a client that reads nothing from its socket is disconnected after REPLY_STALL_TIMEOUT_MS [D35]', async () => {
    await using own = await start({ replyStallTimeoutMs: 500 });
    own.backend.answers(answer(jsonOfLength(30_000_000)));
    await using client = await FrameClient.begin(own.port, [[frames.settingIds.initialWindowSize, 2 ** 31 - 1]]);
    client.socket.pause();
    client.send(frames.windowUpdate(0, 2 ** 30), get(1, item));
    await poll(() => own.told.ended.length === 1, 'the call has ended');
    await poll(() => own.clients.size === 0, 'the connection is closed');
    assert.equal(own.told.stalled.length, 1);
    await poll(() => own.gateway.budget.bytes === 0, 'the budget is released');
  });

  describe('GOAWAY [D33]', () => {
    test('a drain serves open streams, and streams opened before the client gets the GOAWAY; a client may send GOAWAY itself', async () => {
      await using own = await start();
      await using client = await FrameClient.begin(own.port);
      await using leaving = await FrameClient.begin(own.port);
      const gate = createGate();
      own.backend.answers(behind(gate, answer('"late"')));
      client.send(get(1, item));
      leaving.send(get(1, item), frames.goAway);
      await poll(() => own.backend.requests.length === 2, 'two calls');
      const drained = own.drain(AbortSignal.timeout(8000));
      await client.receives(isGoAway, 'GOAWAY');
      assert.deepEqual(client.goAway, { lastStream: 2 ** 31 - 1, code: errorCodes.noError });
      // To the server, this request looks like one that the client sent before the GOAWAY arrived.
      own.backend.answers(answer('{"id":5}'));
      client.send(get(3, collection));
      await client.replies(3);
      gate.open();
      await client.replies(1);
      await leaving.replies(1);
      await leaving.closed();
      await within(drained, 'the drain is over');
      await client.closed();
      assert.deepEqual(client.goAway, { lastStream: 3, code: errorCodes.noError });
    });

    test('a drain under load loses no call of a client that follows the standard', async () => {
      await using own = await start();
      await using client = await own.connect();
      const replies = Array.from({ length: 50 }, () => client.call('GET', item));
      const drained = own.drain(AbortSignal.timeout(8000));
      while (client.isOpen) {
        replies.push(client.call('PUT', item, { body: '{}' }));
        // Avoids an unhandled rejection. Failures are checked below.
        replies.at(-1)?.catch(() => undefined);
        await new Promise((resolve) => setImmediate(resolve));
      }
      const settled = await within(Promise.allSettled(replies), 'all replies');
      await within(drained, 'the drain is over');
      // These calls are not lost: the client's library refuses calls that it had not sent when the GOAWAY arrived.
      const refused = settled.filter((each) => each.status === 'rejected');
      for (const { reason } of refused) assert.match(String(reason), /REFUSED_STREAM|GOAWAY/);
      const calls = own.backend.requests.length;
      assert.equal(calls, settled.length - refused.length, 'every call that was made has its reply');
      assert.ok(calls >= 50);
    });
  });
});
