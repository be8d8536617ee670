// Memory over HTTP/2: limits on heads, and on bodies that wait for a guard, per connection and not per stream. D39, D58.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Admission, Guard } from '../../packages/core/call/guard.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import {
  errorCodes,
  flags,
  frame,
  FrameClient,
  frameTypes,
  headers,
  requestFields,
  resetStream,
  settingIds,
  windowUpdate,
} from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { accounted } from '../helpers/leftovers.ts';

checkHttp2States();

const item = '/api/work-items/5';
const streams = 100;
// Idle connections to the backend count as held.
const settings = { backendIdleTimeoutMs: 300 };

/** The error codes of the streams that have been reset. */
function resets(client: FrameClient): number[] {
  return client.frames
    .filter(({ type }) => type === frameTypes.resetStream)
    .map(({ payload }) => payload.readUInt32BE(0));
}

const admitted: Admission = { isAdmitted: true, identity: undefined };
/** How many calls another client makes while the guard waits. Meanwhile an unlimited gateway would read all bodies. */
const rounds = 100;
/** Initial window of a connection and of a stream, in bytes [RFC 9113, 6.9.2]. */
const firstWindow = 65_535;
/** Limit on the bytes that the gateway reads ahead from one client [D58]. */
const aheadMax = 65_536;

async function serveGuarded() {
  const gate = createGate();
  const asked = { count: 0 };
  const guard: Guard = {
    admit: async ({ head }) => {
      asked.count += 1;
      if (head.method === 'PUT') await gate.opened;
      return admitted;
    },
  };
  return { ...accounted(await startGateway({ host: 'http2', guards: [guard], settings })), gate, asked };
}

/** Total bytes that the gateway's window updates allow on the stream `of`, or on the connection if `of` is 0. */
function allowed(client: FrameClient, of = 0): number {
  return client.frames
    .filter(({ type, stream }) => type === frameTypes.windowUpdate && stream === of)
    .reduce((sum, { payload }) => sum + payload.readUInt32BE(0), firstWindow);
}

const pieceBytes = 16_000;

/** Opens the streams, and sends one piece of each body as soon as the connection's window allows. */
class Sender {
  readonly #client: FrameClient;
  #sent = 0;
  #pieces = 0;

  constructor(client: FrameClient) {
    this.#client = client;
    client.send(
      ...Array.from({ length: streams }, (_, index) =>
        headers(1 + 2 * index, requestFields('PUT', item), flags.endHeaders),
      ),
    );
  }

  get sent(): number {
    return this.#sent;
  }

  /** Returns true when all pieces have been sent. */
  sendMore(): boolean {
    while (this.#pieces < streams && this.#sent + pieceBytes <= allowed(this.#client)) {
      const stream = 1 + 2 * (this.#pieces % streams);
      this.#client.send(frame(frameTypes.data, 0, stream, Buffer.alloc(pieceBytes, ' ')));
      this.#pieces += 1;
      this.#sent += pieceBytes;
    }
    return this.#pieces === streams;
  }

  /** Ends all bodies. */
  end(): void {
    this.#client.send(
      ...Array.from({ length: streams }, (_, index) =>
        frame(frameTypes.data, flags.endStream, 1 + 2 * index, Buffer.from('{}')),
      ),
    );
  }
}

describe('heads over HTTP/2', { skip: noHttp2 }, () => {
  test('100 simultaneous streams with ordinary heads and tokens of 2 KB are all served [D39]', async () => {
    await using server = accounted(await startGateway({ host: 'http2', settings }));
    await using client = await FrameClient.begin(server.port);
    const others = Array.from({ length: 20 }, (_, index) => [`x-field-${index}`, 'x'.repeat(40)] as const);
    const fields = requestFields('PUT', item, [...others, ['authorization', `Bearer ${'x'.repeat(2048)}`]]);
    const numbers = Array.from({ length: streams }, (_, index) => 1 + 2 * index);
    client.send(...numbers.map((stream) => headers(stream, fields, flags.endHeaders)));
    client.send(...numbers.map((stream) => frame(frameTypes.data, flags.endStream, stream, Buffer.from('{}'))));
    await poll(() => server.told.ended.length === streams, 'all calls have ended');
    assert.ok(server.told.ended.every(({ status }) => status === 200));
    assert.deepEqual(resets(client), []);
    await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
  });

  test('a head of 96 fields is 431, and the stream of a head of 97 fields is reset [D39]', async () => {
    await using server = accounted(await startGateway({ host: 'http2', settings }));
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
});

describe('bodies that wait for a guard', { skip: noHttp2 }, () => {
  test('while guards decide, at most 64 KiB of all bodies of a connection are buffered [D58]', async () => {
    await using server = await serveGuarded();
    const { gate, asked } = server;
    await using client = await FrameClient.begin(server.port);
    const sender = new Sender(client);
    await poll(() => asked.count === streams, 'the guard is called for each stream');
    const ofHeads = server.gateway.budget.bytes;
    sender.sendMore();
    // Proves that no further byte is read: reading would take far fewer turns of the event loop than these calls.
    await using other = await server.connect();
    for (let round = 0; round < rounds; round += 1) {
      assertReply(await other.call('GET', item), 200, '{"id":5}');
      sender.sendMore();
    }
    assert.ok(sender.sent <= firstWindow + aheadMax, `${sender.sent} bytes could be sent`);
    // The bodies' bytes that were passed on, and one read that waits.
    assert.ok(
      server.gateway.budget.bytes <= ofHeads + 2 * aheadMax,
      `${server.gateway.budget.bytes - ofHeads} bytes count`,
    );
    gate.open();
    await poll(() => sender.sendMore(), 'the rest can be sent');
    sender.end();
    await poll(
      () => server.told.ended.filter(({ status }) => status === 200).length >= streams + rounds,
      'each request is answered',
    );
    assert.equal(server.backend.requests.filter(({ method }) => method === 'PUT').length, streams);
    assert.deepEqual(server.told.bugs, []);
  });

  test('resetting a stream releases its buffered body, and other streams are served [D58]', async () => {
    await using server = await serveGuarded();
    const { gate, asked } = server;
    await using client = await FrameClient.begin(server.port);
    const fill = frame(frameTypes.data, 0, 1, Buffer.alloc(pieceBytes, ' '));
    client.send(headers(1, requestFields('PUT', item), flags.endHeaders), fill, fill, fill, fill);
    await poll(() => asked.count === 1, 'the guard is called');
    client.send(resetStream(1, errorCodes.cancel), headers(3, requestFields('GET', item)));
    await client.replies(3);
    gate.open();
    await poll(() => server.told.ended.length === 2, 'both calls have ended');
    assert.deepEqual(server.told.ended.map(({ outcome }) => outcome).sort(), ['client-gone', 'ok']);
  });

  test('if a client sends its body without reading the early reply, the body is dropped and not buffered [D58]', async () => {
    await using server = accounted(
      await startGateway({ host: 'http2', settings: { ...settings, requestBytesMax: 1000 } }),
    );
    await using client = await FrameClient.begin(server.port, [[settingIds.initialWindowSize, 0]]);
    const tooLong = requestFields('PUT', item, [['content-length', '1000000']]);
    client.send(headers(1, tooLong, flags.endHeaders));
    await client.receives(({ type, stream }) => type === frameTypes.headers && stream === 1, 'the head of the 413');
    // Together the pieces are larger than the stream's initial window.
    for (let pieces = 0; pieces < 20; pieces += 1) {
      await poll(() => pieces * pieceBytes + pieceBytes <= allowed(client, 1), 'the stream may send more');
      await client.sent(frame(frameTypes.data, 0, 1, Buffer.alloc(pieceBytes, ' ')));
    }
    client.send(windowUpdate(1, 100));
    assert.equal(await client.resetCode(1), errorCodes.noError);
  });
});
