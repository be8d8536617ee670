// Request heads over HTTP/2: the limits on the size of one head and on the bytes of all buffered heads. D39.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { headBytesMax } from '../../packages/core/hosts/http2/http2.ts';
import { fieldsMax } from '../../packages/core/hosts/http2/http2-head.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { noHttp2, serveHttp2InProcess } from '../helpers/http2-client.ts';
import {
  errorCodes,
  fieldBlock,
  firstOfTable,
  flags,
  frame,
  FrameClient,
  frameTypes,
  headers,
  indexedField,
  requestFields,
  settingIds,
} from '../helpers/http2-frames.ts';
import { answer } from '../helpers/scripted-backend.ts';

const item = '/api/work-items/5';
const streams = 100;
// The number of fields that a request may add to its four pseudo-header fields.
const named = fieldsMax - 4;

/** 100 requests without their bodies. Each repeats a 150-byte field up to the limit, with one byte per repetition. */
function bomb(fields = named, method = 'POST'): Buffer {
  const start = fieldBlock(requestFields(method, '/api/work-items'));
  const ends = method === 'GET' ? flags.endStream : 0;
  return Buffer.concat(
    Array.from({ length: streams }, (_, index) =>
      frame(
        frameTypes.headers,
        flags.endHeaders | ends,
        1 + 2 * index,
        Buffer.concat([start, index === 0 ? indexedField('x-a', 'x'.repeat(150)) : firstOfTable(fields)]),
      ),
    ),
  );
}

/** The error codes of the streams that have been reset. */
function resets(client: FrameClient): number[] {
  return client.frames
    .filter(({ type }) => type === frameTypes.resetStream)
    .map(({ payload }) => payload.readUInt32BE(0));
}

describe('heads over HTTP/2', { skip: noHttp2 }, () => {
  test('heads of one connection are buffered up to its limit, further streams are refused, and all memory is released [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    client.send(bomb());
    await poll(() => resets(client).length > 0, 'streams are refused');
    // When this request is answered, the gateway has read all heads before it.
    client.send(headers(2 * streams + 1, requestFields('GET', '/none')));
    await client.receives(({ stream }) => stream === 2 * streams + 1, 'the reply to the last request');
    const codes = resets(client);
    assert.ok(codes.length > streams / 3, `${codes.length} streams are refused`);
    assert.deepEqual(new Set(codes), new Set([errorCodes.refusedStream]));
    const held = server.gateway.budget.bytes;
    assert.ok(held > headBytesMax / 2 && held <= headBytesMax, `${held} bytes are buffered`);
    await using other = await server.connect();
    assertReply(await other.call('GET', item), 200, '{"id":5}');
    client.socket.destroy();
    await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
    assert.deepEqual(server.told.bugs, []);
  });

  test('heads of all connections together are buffered up to BUFFERED_BYTES_MAX [D39]', async () => {
    const bufferedBytesMax = 2.5 * headBytesMax;
    await using server = await serveHttp2InProcess({ bufferedBytesMax });
    const clients = await Promise.all(Array.from({ length: 6 }, () => FrameClient.begin(server.port)));
    for (const client of clients) client.send(bomb());
    await poll(() => clients.every((client) => resets(client).length > streams / 3), 'streams are refused');
    const held = server.gateway.budget.bytes;
    assert.ok(held > 2 * headBytesMax && held <= bufferedBytesMax, `${held} bytes are buffered`);
    for (const client of clients) client.socket.destroy();
    await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
  });

  test('100 streams with ordinary heads and a token of 2 KB are all served at once [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    const others = Array.from({ length: 20 }, (_, index) => [`x-field-${index}`, 'x'.repeat(40)] as const);
    const fields = requestFields('PUT', item, [...others, ['authorization', `Bearer ${'x'.repeat(2048)}`]]);
    const numbers = Array.from({ length: streams }, (_, index) => 1 + 2 * index);
    client.send(...numbers.map((stream) => headers(stream, fields, flags.endHeaders)));
    client.send(
      ...numbers.map((stream) => frame(frameTypes.data, flags.endStream, stream, Buffer.from('{}'))),
    );
    await poll(() => server.told.ended.length === streams, 'all calls have ended');
    assert.ok(server.told.ended.every(({ status }) => status === 200));
    assert.deepEqual(resets(client), []);
    await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
  });

  test('a head of 96 fields is 431, and a head of 97 resets its stream [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    const fields = (count: number) => Array.from({ length: count }, () => ['x-a', ''] as const);
    client.send(headers(1, requestFields('GET', item, fields(92))));
    await client.replies(1);
    assert.deepEqual(
      server.told.malformed.map(({ status }) => status),
      [431],
    );
    client.send(headers(3, requestFields('GET', item, fields(93))));
    assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
    assert.equal(server.backend.requests.length, 0);
  });

  test('a head has at most REQUEST_HEAD_BYTES_MAX bytes, counting four extra bytes for each field [D27, D39]', async () => {
    await using server = await serveHttp2InProcess({ requestHeadBytesMax: 2000 });
    await using client = await server.connect();
    const fields = requestFields('GET', item, [['x-a', '']]);
    const bytes = fields.reduce((sum, [name, value]) => sum + name.length + value.length + 4, 0);
    for (const [length, status] of [
      [2000 - bytes, 200],
      [2001 - bytes, 431],
    ] as const) {
      const reply = await client.call('GET', item, { headers: [['x-a', 'x'.repeat(length)]] });
      assert.equal(reply.status, status);
    }
  });

  test('the host field may differ from :authority in upper and lower case [RFC 9110, 4.2.3]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    client.send(headers(1, requestFields('GET', item, [['host', 'Gateway.LOCALHOST']])));
    await client.replies(1);
    assert.deepEqual(
      server.told.ended.map(({ status }) => status),
      [200],
    );
  });

  test('a stream whose reply the client does not accept is reset within 6 s, even with a larger REPLY_STALL_TIMEOUT_MS [D39]', async () => {
    await using server = await serveHttp2InProcess({ replyStallTimeoutMs: 60_000 });
    server.backend.answers(answer('{"id":5}'));
    await using client = await FrameClient.begin(server.port, [[settingIds.initialWindowSize, 0]]);
    // The second request is 404 without a backend call; its reply is blocked as well.
    client.send(headers(1, requestFields('GET', item)), headers(3, requestFields('GET', '/none')));
    assert.equal(await client.resetCode(1), errorCodes.cancel);
    assert.equal(await client.resetCode(3), errorCodes.cancel);
    await poll(() => server.gateway.budget.bytes === 0, 'the budget is released');
  });
});
