// Heads of requests over HTTP/2: they count as held bytes, and a stream that keeps one is refused or ended in time. D39.

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
// As many fields as are allowed, four of them those that every request has.
const named = fieldsMax - 4;

/** 100 heads that never end, each with one field of 150 bytes named as often as is allowed: one byte each. */
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

/** The codes of the streams that have been reset. */
function resets(client: FrameClient): number[] {
  return client.frames
    .filter(({ type }) => type === frameTypes.resetStream)
    .map(({ payload }) => payload.readUInt32BE(0));
}

describe('heads over HTTP/2 that are held', { skip: noHttp2 }, () => {
  test('a connection holds heads up to its limit, further streams are refused, and all is given back [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    client.send(bomb());
    await poll(() => resets(client).length > 0, 'streams are refused');
    // Replies come in order, so that all heads before this one have been looked at.
    client.send(headers(2 * streams + 1, requestFields('GET', '/none')));
    await client.receives(({ stream }) => stream === 2 * streams + 1, 'an answer to the last');
    const codes = resets(client);
    assert.ok(codes.length > streams / 3, `${codes.length} are refused`);
    assert.deepEqual(new Set(codes), new Set([errorCodes.refusedStream]));
    const held = server.gateway.budget.bytes;
    assert.ok(held > headBytesMax / 2 && held <= headBytesMax, `${held} bytes are held`);
    await using other = await server.connect();
    assertReply(await other.call('GET', item), 200, '{"id":5}');
    client.socket.destroy();
    await poll(() => server.gateway.budget.bytes === 0, 'all of it is given back');
    assert.deepEqual(server.told.bugs, []);
  });

  test('all connections together hold heads up to BUFFERED_BYTES_MAX [D39]', async () => {
    const bufferedBytesMax = 2.5 * headBytesMax;
    await using server = await serveHttp2InProcess({ bufferedBytesMax });
    const clients = await Promise.all(Array.from({ length: 6 }, () => FrameClient.begin(server.port)));
    for (const client of clients) client.send(bomb());
    await poll(() => clients.every((client) => resets(client).length > streams / 3), 'streams are refused');
    const held = server.gateway.budget.bytes;
    assert.ok(held > 2 * headBytesMax && held <= bufferedBytesMax, `${held} bytes are held`);
    for (const client of clients) client.socket.destroy();
    await poll(() => server.gateway.budget.bytes === 0, 'all of it is given back');
  });

  test('100 streams with ordinary heads, with a token of 2 KB, are all served at once [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    const others = Array.from({ length: 20 }, (_, index) => [`x-field-${index}`, 'x'.repeat(40)] as const);
    const fields = requestFields('PUT', item, [...others, ['authorization', `Bearer ${'x'.repeat(2048)}`]]);
    const numbers = Array.from({ length: streams }, (_, index) => 1 + 2 * index);
    client.send(...numbers.map((stream) => headers(stream, fields, flags.endHeaders)));
    client.send(
      ...numbers.map((stream) => frame(frameTypes.data, flags.endStream, stream, Buffer.from('{}'))),
    );
    await poll(() => server.told.ended.length === streams, 'all have ended');
    assert.ok(server.told.ended.every(({ status }) => status === 200));
    assert.deepEqual(resets(client), []);
    await poll(() => server.gateway.budget.bytes === 0, 'all of it is given back');
  });

  test('a head of 96 fields is 431, and of more its stream is reset before it is made [D39]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    client.send(
      headers(
        1,
        requestFields(
          'GET',
          item,
          Array.from({ length: 92 }, () => ['x-a', ''] as const),
        ),
      ),
    );
    await client.receives(({ type, stream }) => type === frameTypes.data && stream === 1, 'the reply');
    assert.deepEqual(
      server.told.malformed.map(({ status }) => status),
      [431],
    );
    client.send(
      headers(
        3,
        requestFields(
          'GET',
          item,
          Array.from({ length: 93 }, () => ['x-a', ''] as const),
        ),
      ),
    );
    assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
    assert.equal(server.backend.requests.length, 0);
  });

  test('a head may have REQUEST_HEAD_BYTES_MAX bytes, four for each field among them, and no more [D27, D39]', async () => {
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

  test('a host that differs from the authority in capitals alone is the same [RFC 9110, 4.2.3]', async () => {
    await using server = await serveHttp2InProcess();
    await using client = await FrameClient.begin(server.port);
    client.send(headers(1, requestFields('GET', item, [['host', 'Gateway.LOCALHOST']])));
    await client.receives(({ type, stream }) => type === frameTypes.data && stream === 1, 'the reply');
    assert.deepEqual(
      server.told.ended.map(({ status }) => status),
      [200],
    );
  });

  test('a reply of which the client takes nothing is reset within 6 s, whatever REPLY_STALL_TIMEOUT_MS is [D39]', async () => {
    await using server = await serveHttp2InProcess({ replyStallTimeoutMs: 60_000 });
    server.backend.answers(answer('{"id":5}'));
    await using client = await FrameClient.begin(server.port, [[settingIds.initialWindowSize, 0]]);
    // The second is refused without a backend call: its reply is stuck as well.
    client.send(headers(1, requestFields('GET', item)), headers(3, requestFields('GET', '/none')));
    assert.equal(await client.resetCode(1), errorCodes.cancel);
    assert.equal(await client.resetCode(3), errorCodes.cancel);
    await poll(() => server.gateway.budget.bytes === 0, 'the budget is given back');
  });
});
