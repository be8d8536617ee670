// One HTTP/2 connection with a scripted handler: its limits, its times, and the ways in which a stream can end. The clock
// advances only when a test says so. D35, D39.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { ServerHttp2Stream } from 'node:http2';
import { describe, test, type TestContext } from 'node:test';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { headBytesMax, serveHttp2 } from '../../packages/core/hosts/http2/http2.ts';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { poll } from '../helpers/changes.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import {
  errorCodes,
  flags,
  frame,
  FrameClient,
  frameTypes,
  headers,
  preface,
  requestFields,
  resetStream,
  settingIds,
  settings,
  windowUpdate,
  type Fields,
} from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { createHandler, noLimits, stopClock, turns, type Script } from './served-connections.ts';
import { openPair } from '../helpers/socket-pairs.ts';

checkHttp2States();

const closedWindow = [[settingIds.initialWindowSize, 0]] as const;
const sliceBytes = 16_384;

function get(stream: number, others: Fields = []): Buffer {
  return headers(stream, requestFields('GET', '/', others));
}

/** The head of a PUT whose body follows. */
function put(stream: number, others: Fields = []): Buffer {
  return headers(stream, requestFields('PUT', '/', others), flags.endHeaders);
}

function data(stream: number, length: number, frameFlags = 0): Buffer {
  return frame(frameTypes.data, frameFlags, stream, Buffer.alloc(length, 'x'));
}

async function open(
  t: TestContext,
  script: Script = {},
  limits: Partial<ServerLimits> = {},
  budget = new BufferBudget(1e9),
) {
  const clock = stopClock(t);
  const { handler, ...told } = createHandler(script);
  const pair = await openPair(t);
  const { socket } = pair;
  const connection = serveHttp2({ ...noLimits, ...limits }, { ...handler, budget })(socket);
  socket.resume();
  const client = new FrameClient(pair.client.resume());
  let sent = 0;
  return {
    ...told,
    client,
    socket,
    connection,
    budget,
    clock,
    /** Advances the clock, and enforces the time limits. */
    pass: (ms: number) => {
      clock.now += ms;
      connection.checkTime(clock.now);
    },
    /** Sends `frames`, and waits until the connection has read them. */
    send: async (...frames: readonly Uint8Array[]) => {
      sent ||= socket.bytesRead;
      sent += Buffer.concat(frames).length;
      client.send(...frames);
      await poll(() => socket.bytesRead >= sent, 'the frames are read');
      await turns(3);
    },
    framesOf: (stream: number, type: number) =>
      client.frames.filter((each) => each.stream === stream && each.type === type),
  };
}

/** Like `open`, and exchanges the settings. */
async function begin(t: TestContext, script: Script = {}, limits: Partial<ServerLimits> = {}, budget?: BufferBudget) {
  const opened = await open(t, script, limits, budget);
  await opened.client.begin();
  return opened;
}

/** Calls `act` with each stream that node:http2 creates, so that a test can break it. */
function withEachStream(t: TestContext, act: (stream: ServerHttp2Stream) => void): void {
  const channel = 'http2.server.stream.created';
  const onStream = (message: unknown) => act((message as { stream: ServerHttp2Stream }).stream);
  subscribe(channel, onStream);
  t.after(() => unsubscribe(channel, onStream));
}

const replies: Script = { onStart: (received) => received.reply('ok') };

describe('times of a connection', { skip: noHttp2 }, () => {
  const limits = { requestHeadersTimeoutMs: 400, idleTimeoutMs: 5_000 };

  for (const [name, frames] of [
    ['nothing', [Buffer.alloc(0)]],
    ['half a preface', [preface.subarray(0, 10)]],
    ['a preface and settings', [preface, settings()]],
  ] as const) {
    test(`a connection that sends ${name} is closed after requestHeadersTimeoutMs, and not before [D35]`, async (t) => {
      const { client, socket, send, pass } = await open(t, {}, limits);
      await send(...frames);
      pass(399);
      assert.equal(socket.destroyed, false);
      pass(1);
      assert.equal(socket.destroyed, true);
      await client.closed();
    });
  }

  test('the time limit of a head starts at its first byte, and later bytes of the head do not restart the limit [D35]', async (t) => {
    const { client, socket, send, pass, clock, connection } = await begin(t, replies, limits);
    await send(get(1));
    await client.replies(1);
    clock.now += 1_000;
    const head = get(3);
    await send(head.subarray(0, 12));
    clock.now += 300;
    await send(head.subarray(12, 20));
    pass(99);
    assert.equal(socket.destroyed, false);
    // The rest of this head, and the beginning of the next head, which has its own time limit.
    await send(Buffer.concat([head.subarray(20), get(5).subarray(0, 20)]));
    await client.replies(3);
    pass(399);
    assert.equal(socket.destroyed, false);
    pass(1);
    assert.ok(connection.isQuiet(0, 0), 'the connection has ended');
    await client.closed();
    assert.equal(socket.destroyed, true);
  });

  test('an idle connection gets GOAWAY at idleTimeoutMs, and is cut 1,000 ms later if its client stays [D35]', async (t) => {
    const { client, socket, send, pass, connection } = await begin(t, replies, limits);
    await send(get(1));
    await client.replies(1);
    await poll(() => connection.streams === 0, 'the stream has closed');
    pass(4_999);
    // A PING is not a request: the connection stays idle.
    await send(frame(frameTypes.ping, 0, 0, Buffer.alloc(8)));
    assert.equal(connection.isQuiet(0, 0), false);
    client.socket.pause();
    pass(1);
    assert.equal(connection.isQuiet(0, 0), true);
    await turns(5);
    pass(999);
    assert.equal(socket.destroyed, false);
    pass(1);
    assert.equal(socket.destroyed, true);
    client.socket.resume();
    await client.closed();
    assert.deepEqual(client.goAway, { lastStream: 1, code: errorCodes.noError });
  });

  test('GOAWAY is sent once, even if announceEnd is called again, and the connection ends after 1,000 ms without a stream [D33]', async (t) => {
    const { client, send, pass, connection, request } = await begin(t, {}, limits);
    connection.announceEnd?.();
    connection.announceEnd?.();
    await client.receives(({ type }) => type === frameTypes.goAway, 'GOAWAY');
    await send(get(1));
    (await request(0)).reply('ok', { drains: true });
    await client.replies(1);
    await poll(() => connection.streams === 0, 'the stream has closed');
    assert.equal(client.frames.filter(({ type }) => type === frameTypes.goAway).length, 1);
    pass(999);
    assert.equal(connection.isQuiet(0, 0), false);
    pass(1);
    assert.equal(connection.isQuiet(0, 0), true);
    await client.closed();
    connection.announceEnd?.();
    assert.deepEqual(client.goAway, { lastStream: 1, code: errorCodes.noError });
  });

  test('the last GOAWAY is sent 1,000 ms after the first, however long the connection was idle before [D33]', async (t) => {
    const { client, send, pass, connection, request } = await begin(t, {}, { idleTimeoutMs: 60_000 });
    pass(30_000);
    connection.announceEnd?.();
    pass(250);
    pass(749);
    assert.equal(connection.isQuiet(0, 0), false);
    // The client sent this request before it received GOAWAY.
    await send(get(1));
    (await request(0)).reply('ok');
    await client.replies(1);
    pass(1);
    assert.equal(connection.isQuiet(0, 0), true);
    await client.closed();
    assert.deepEqual(client.goAway, { lastStream: 1, code: errorCodes.noError });
  });

  test('after the last GOAWAY no new call starts, open streams continue, and the connection ends after them [D65]', async (t) => {
    const { client, socket, send, pass, connection, request, received } = await begin(t, {}, { idleTimeoutMs: 60_000 });
    await send(get(1), put(3));
    const [late, body] = [await request(0), await request(1)];
    connection.announceEnd?.();
    await send(get(5));
    (await request(2)).reply('ok');
    await client.replies(5);
    pass(1_000);
    await client.receives(({ type, payload }) => type === frameTypes.goAway && payload.readUInt32BE(0) === 5, 'GOAWAY');
    for (const stream of [7, 9, 11]) await send(get(stream));
    pass(1_000);
    await send(data(3, 5, flags.endStream));
    await poll(() => body.events.includes('end'), 'the body');
    pass(5_000);
    assert.deepEqual([received.length, connection.streams, connection.isQuiet(0, 0)], [3, 2, false]);
    for (const each of [late, body]) each.reply('ok');
    await client.replies(1, 3);
    await poll(() => connection.streams === 0, 'the streams have closed');
    await poll(() => socket.destroyed, 'the connection has closed');
    assert.deepEqual(received.map(({ events }) => events.at(-1)), ['taken', 'taken', 'taken']); // prettier-ignore
  });

  test('after the last GOAWAY a stream is refused even if node:http2 accepts it [D65]', async (t) => {
    withEachStream(t, ({ session }) => {
      if (session !== undefined) session.close = () => undefined;
    });
    const { client, send, pass, connection, received } = await begin(t);
    await send(get(1));
    connection.announceEnd?.();
    pass(1_000);
    await send(get(3));
    assert.equal(await client.resetCode(3), errorCodes.refusedStream);
    assert.deepEqual([received.length, connection.streams], [1, 1]);
  });

  test('a rest of a body that is dropped does not delay the end: its stream is reset after the last GOAWAY [D33]', async (t) => {
    const { client, send, pass, connection, framesOf } = await begin(t, replies);
    await send(put(1));
    await client.replies(1);
    connection.announceEnd?.();
    pass(999);
    await turns(3);
    assert.equal(framesOf(1, frameTypes.resetStream).length, 0);
    pass(1);
    pass(0);
    assert.equal(await client.resetCode(1), errorCodes.noError);
    await client.closed();
  });

  for (const isQueued of [false, true]) {
    test(`a stream that does not close within 1,000 ms of its reset ends the connection${isQueued ? ', once the socket has no unsent bytes' : ''}, and its stall is reported once [D39]`, async (t) => {
      withEachStream(t, (stream) => {
        stream.close = () => undefined;
      });
      const { client, socket, send, pass, request } = await open(t, {}, { replyStallTimeoutMs: 60_000 });
      await client.begin(closedWindow);
      await send(get(1));
      const received = await request(0);
      received.reply('x');
      await turns(3);
      pass(5_000);
      assert.deepEqual(received.events, ['start', 'stall']);
      if (isQueued) {
        Object.defineProperty(socket, 'writableLength', { value: 1, configurable: true });
        pass(0);
        pass(2_000);
        assert.equal(socket.destroyed, false);
        Reflect.deleteProperty(socket, 'writableLength');
      }
      pass(200);
      pass(999);
      assert.equal(socket.destroyed, false);
      pass(1);
      assert.equal(socket.destroyed, true);
      await poll(() => received.events.includes('taken'), 'the reply is released');
      assert.deepEqual(received.events, ['start', 'stall', 'taken']);
    });
  }

  test('a session that no longer reads ends its connection after 1,000 ms, counted while the socket has no unsent bytes [D39]', async (t) => {
    const { client, socket, send, pass, request } = await open(t);
    await client.begin(closedWindow);
    await send(get(1));
    const received = await request(0);
    received.reply('x');
    // After GOAWAY and a frame that is too long, node:http2 reads nothing, and does not close the session.
    await send(frame(frameTypes.goAway, 0, 0, Buffer.alloc(8)), Buffer.of(0x40, 1, 0, 0, 0, 0, 0, 0, 3));
    Object.defineProperty(socket, 'writableLength', { value: 1, configurable: true });
    pass(0);
    pass(2_000);
    Reflect.deleteProperty(socket, 'writableLength');
    pass(0);
    pass(999);
    assert.equal(socket.destroyed, false);
    pass(1);
    assert.equal(socket.destroyed, true);
    await poll(() => received.events.includes('taken'), 'the reply is released');
    assert.deepEqual(received.events, ['start', 'taken']);
  });

  test('a stream that node:http2 does not close with its socket is forgotten: its memory is released and "gone" reported', async (t) => {
    withEachStream(t, (stream) => {
      stream._destroy = () => undefined;
    });
    const { client, send, request, budget, connection, faults } = await begin(t);
    await send(get(1), get(3));
    const [first, second] = [await request(0), await request(1)];
    first.reply('ok');
    await client.replies(1);
    client.socket.destroy();
    await poll(() => budget.bytes === 0, 'all memory is released');
    assert.deepEqual([connection.streams, faults], [0, []]);
    assert.deepEqual([first.events, second.events], [['start', 'taken'], ['start', 'gone']]); // prettier-ignore
  });

  test('a session that has failed, and whose client reads nothing, ends after replyStallTimeoutMs [D35]', async (t) => {
    const { client, socket, send, pass, request } = await begin(t, {}, { requestHeadersTimeoutMs: 400 });
    await send(windowUpdate(0, 2 ** 30), get(1));
    client.socket.pause();
    // The head that follows is incomplete.
    await send(settings([[settingIds.initialWindowSize, 2 ** 30]]), get(3).subarray(0, 20));
    (await request(0)).reply('x'.repeat(20_000_000));
    await poll(() => socket.writableLength > 0, 'the socket has unsent bytes');
    pass(400);
    await turns(5);
    assert.equal(socket.destroyed, false);
    pass(1_000);
    pass(59_000);
    await poll(() => socket.destroyed, 'the connection is closed');
  });

  test('a reply whose last bytes the client is still reading is not cut after the last GOAWAY [D33]', async (t) => {
    const { client, socket, send, pass, request, connection } = await begin(t);
    await send(settings([[settingIds.initialWindowSize, 2 ** 30]]), windowUpdate(0, 2 ** 30), get(1));
    client.socket.pause();
    (await request(0)).reply('ok');
    Object.defineProperty(socket, 'writableLength', { value: 1, configurable: true });
    await poll(() => connection.streams === 0, 'the stream has closed');
    connection.announceEnd?.();
    for (const ms of [1_000, 1_000, 5_000]) pass(ms);
    assert.deepEqual([socket.destroyed, connection.isQuiet(0, 0)], [false, false]);
    Reflect.deleteProperty(socket, 'writableLength');
    pass(999);
    assert.equal(socket.destroyed, false);
    pass(1);
    assert.equal(socket.destroyed, true);
  });

  test('a reply of a gateway that is stopping announces the end of the connection [D33]', async (t) => {
    const { client, send, request } = await begin(t);
    await send(get(1), get(3));
    (await request(0)).reply('ok', { drains: true });
    await client.receives(({ type }) => type === frameTypes.goAway, 'GOAWAY');
    assert.deepEqual(client.goAway, { lastStream: 2 ** 31 - 1, code: errorCodes.noError });
    (await request(1)).reply('ok');
    await client.replies(1, 3);
  });

  test('the idle time begins when the connection opens, and again when its last stream closes', async (t) => {
    const { client, send, connection, clock, request } = await begin(t);
    assert.equal(connection.idleMs(clock.now + 5), 5);
    await send(get(1), get(3));
    const both = [await request(0), await request(1)];
    assert.deepEqual([connection.streams, connection.idleMs(clock.now + 5)], [2, 0]);
    both[0]?.reply('ok');
    await poll(() => connection.streams === 1, 'one stream is left');
    assert.equal(connection.idleMs(clock.now + 5), 0);
    clock.now += 100;
    both[1]?.reply('ok');
    await poll(() => connection.streams === 0, 'no stream is left');
    assert.equal(connection.idleMs(clock.now + 5), 5);
    // An open connection is never quiet, because a request may be arriving.
    assert.equal(connection.isQuiet(0, 0), false);
    client.send(frame(frameTypes.goAway, 0, 0, Buffer.alloc(8)));
    await poll(() => connection.isQuiet(0, 0), 'the connection has ended');
    const from = clock.now;
    clock.now += 500;
    assert.deepEqual(
      [connection.isQuiet(500, 0), connection.isQuiet(501, 0), connection.isQuiet(400, from + 100)],
      [true, false, true],
    );
    assert.equal(connection.isQuiet(401, from + 100), false);
  });
});

describe('times of a stream', { skip: noHttp2 }, () => {
  test('a body that is incomplete at requestTimeoutMs is reported once, and its stream is reset after the reply [D35]', async (t) => {
    const { client, send, pass, request } = await begin(t, {}, { requestTimeoutMs: 400 });
    await send(put(1), data(1, 5));
    const received = await request(0);
    pass(399);
    assert.deepEqual(received.events, ['start', 'body']);
    pass(1);
    pass(1_000);
    assert.deepEqual(received.events, ['start', 'body', 'timeout']);
    received.reply('late', { closes: true });
    assert.equal(await client.resetCode(1), errorCodes.noError);
    await client.replies(1);
    assert.deepEqual(received.events, ['start', 'body', 'timeout', 'taken']);
  });

  test('the rest of a body after its reply must arrive by requestTimeoutMs, or the stream is reset [D35]', async (t) => {
    const { client, send, pass, framesOf, connection } = await begin(t, replies, { requestTimeoutMs: 400 });
    await send(put(1), put(3));
    await client.replies(1, 3);
    await send(data(3, 5, flags.endStream));
    await poll(() => connection.streams === 1, 'the stream with a whole body has closed');
    pass(399);
    await turns(3);
    assert.equal(framesOf(1, frameTypes.resetStream).length, 0);
    pass(1);
    assert.equal(await client.resetCode(1), errorCodes.noError);
    assert.equal(framesOf(3, frameTypes.resetStream).length, 0);
  });

  for (const [replyStallTimeoutMs, ms] of [
    [60_000, 5_000],
    [400, 400],
  ] as const) {
    test(`with a limit of ${replyStallTimeoutMs} ms, the stream of a reply that the client does not read is reset after ${ms} ms [D39]`, async (t) => {
      const { client, send, pass, request, budget, connection } = await open(t, {}, { replyStallTimeoutMs });
      await client.begin(closedWindow);
      // The second head is refused, so the handler gets no request for it.
      await send(get(1), get(3, [['host', 'other']]));
      const received = await request(0);
      received.reply('x'.repeat(100));
      pass(ms - 1);
      assert.deepEqual(received.events, ['start']);
      pass(1);
      assert.deepEqual(received.events, ['start', 'stall']);
      for (const stream of [1, 3]) assert.equal(await client.resetCode(stream), errorCodes.cancel);
      await poll(() => received.events.length === 3, 'the bytes of the reply are released');
      assert.deepEqual(received.events, ['start', 'stall', 'taken']);
      assert.deepEqual([budget.bytes, connection.streams], [0, 0]);
    });
  }

  test('after the first slice of a reply, the stall timeout is replyStallTimeoutMs, and begins again with each slice [D35]', async (t) => {
    const { client, send, pass, clock, request, framesOf } = await open(t, {}, { replyStallTimeoutMs: 7_000 });
    await client.begin(closedWindow);
    await send(get(1));
    const received = await request(0);
    received.reply('x'.repeat(4 * sliceBytes));
    for (const slices of [1, 2]) {
      clock.now += 4_000;
      client.send(windowUpdate(1, sliceBytes));
      await poll(() => framesOf(1, frameTypes.data).length >= slices, 'a slice');
      await turns(3);
      pass(0);
    }
    pass(6_999);
    assert.deepEqual(received.events, ['start']);
    pass(1);
    assert.deepEqual(received.events, ['start', 'stall']);
    assert.equal(await client.resetCode(1), errorCodes.cancel);
  });

  test('while the socket has unsent bytes, its streams do not count as stalled [D35]', async (t) => {
    const { client, socket, send, pass, request } = await open(t, {}, { replyStallTimeoutMs: 1_000 });
    await client.begin([[settingIds.initialWindowSize, 2 ** 31 - 1]]);
    await send(windowUpdate(0, 2 ** 30), get(1));
    client.socket.pause();
    const received = await request(0);
    received.reply('x'.repeat(20_000_000));
    await poll(() => socket.writableLength > 0, 'the socket has unsent bytes');
    pass(4_000);
    assert.deepEqual(received.events, ['start']);
  });
});

describe('limits of a connection', { skip: noHttp2 }, () => {
  // An open stream counts as 8,192 bytes, plus 128 bytes for each of its five fields, plus the text of the fields.
  const heldBytes = 16_384;
  const rest = heldBytes - 8_192 - 5 * 128 - requestFields('GET', '/').flat().join('').length - 'x'.length;
  const head = (stream: number, more = 0): Buffer => get(stream, [['x', 'x'.repeat(rest + more)]]);
  const count = headBytesMax / heldBytes;

  test('heads can fill the memory of a connection to its last byte, and a head with one byte more is refused [D39]', async (t) => {
    const { client, send, received, budget, connection } = await begin(t);
    for (let index = 0; index < count - 1; index += 1) client.send(head(1 + 2 * index));
    await poll(() => received.length === count - 1, 'all heads but the last are accepted', 20_000);
    await send(head(2 * count - 1, 1));
    assert.equal(await client.resetCode(2 * count - 1), errorCodes.refusedStream);
    assert.equal(budget.bytes, headBytesMax - heldBytes);
    await send(head(2 * count + 1));
    await poll(() => received.length === count, 'the last head is accepted');
    assert.deepEqual([budget.bytes, connection.streams], [headBytesMax, count]);
    // A stream that closes makes room for another stream.
    await send(resetStream(1, errorCodes.cancel));
    await poll(() => connection.streams === count - 1, 'a stream has closed');
    await send(head(2 * count + 3));
    await poll(() => received.length === count + 1, 'another head is accepted');
    client.socket.destroy();
    await poll(() => budget.bytes === 0, 'all memory is released');
    assert.equal(connection.streams, 0);
  });

  test('heads can fill the memory of all connections to its last byte, and a head with one byte more is refused [D39]', async (t) => {
    const { client, send, received, budget, connection } = await begin(t, {}, {}, new BufferBudget(2 * heldBytes));
    await send(head(1), head(3, 1), head(5), get(7));
    assert.deepEqual([await client.resetCode(3), await client.resetCode(7)], [7, 7]);
    assert.deepEqual([received.length, budget.bytes, connection.streams], [2, 2 * heldBytes, 2]);
  });

  test('100 streams can be open at the same time; one more stream ends the connection [RFC 9113, 5.1.2]', async (t) => {
    const { client, send, received, connection } = await begin(t);
    await send(...Array.from({ length: 100 }, (_, index) => get(1 + 2 * index)));
    await poll(() => received.length === 100, 'all streams are accepted');
    assert.equal(connection.streams, 100);
    await send(get(201));
    await client.closed();
    assert.deepEqual(client.goAway, { lastStream: 199, code: errorCodes.protocolError });
    await poll(() => connection.streams === 0, 'all streams have closed');
    assert.equal(received.length, 100);
  });

  test('a head over the limit is 431; if a head exceeds twice the limit plus 32 bytes for each of 80 fields, its stream is reset [D39]', async (t) => {
    const { client, send, refused } = await begin(t, {}, { requestHeadBytesMax: 1_024 });
    const used = requestFields('GET', '/').flat().join('').length + 5 * 32 + 'x'.length;
    const largest = 2 * 1_024 + 32 * 80 - used;
    await send(get(1, [['x', 'x'.repeat(largest)]]), get(3, [['x', 'x'.repeat(largest + 1)]]));
    assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
    await client.replies(1);
    assert.deepEqual(refused, [{ kind: 'head-too-large', reason: 'a head of more than 1024 bytes' }]);
  });

  test('SETTINGS can have 32 entries; SETTINGS with 33 entries end the connection [D39]', async (t) => {
    const { client, send } = await begin(t, replies);
    const entries = (length: number) => settings(Array.from({ length }, () => [settingIds.initialWindowSize, 65_535]));
    await send(entries(32), get(1));
    await client.replies(1);
    client.send(entries(33));
    await client.closed();
  });

  test('after the reply, up to requestBytesMax of a body is dropped; one byte more resets the stream with NO_ERROR [D11]', async (t) => {
    const { client, send, framesOf, connection, received } = await begin(t, replies, { requestBytesMax: 1_000 });
    await send(put(1), put(3));
    await client.replies(1, 3);
    await send(data(1, 600), data(1, 400), data(3, 600), data(3, 401));
    assert.equal(await client.resetCode(3), errorCodes.noError);
    assert.equal(framesOf(1, frameTypes.resetStream).length, 0);
    assert.equal(connection.streams, 1);
    await send(data(1, 0, flags.endStream));
    await poll(() => connection.streams === 0, 'both streams have closed');
    for (const { events } of received) assert.deepEqual(events, ['start', 'taken']);
  });
});

describe('bodies and replies of a stream', { skip: noHttp2 }, () => {
  for (const sizes of [[1], [sliceBytes], [sliceBytes + 1], [3 * sliceBytes], [5, 40_000, 1], [2 * sliceBytes, 1, 1]]) {
    test(`a reply in pieces of ${sizes.join(', ')} bytes arrives unchanged, and "taken" is reported once [D14]`, async (t) => {
      const { client, send, request, framesOf, connection } = await begin(t);
      await send(get(1));
      const received = await request(0);
      const pieces = sizes.map((size, index) => Buffer.alloc(size, 'abc'.charAt(index)));
      received.reply('', { pieces });
      await client.receives(({ type, flags: each }) => type === frameTypes.data && each === flags.endStream, 'its end');
      await poll(() => connection.streams === 0, 'the stream has closed');
      const bytes = Buffer.concat(framesOf(1, frameTypes.data).map(({ payload }) => payload));
      assert.ok(bytes.equals(Buffer.concat(pieces)));
      assert.deepEqual(received.events, ['start', 'taken']);
      assert.equal(client.frames.filter(({ type }) => type === frameTypes.resetStream).length, 0);
    });
  }

  for (const [name, method, text] of [
    ['a reply to HEAD', 'HEAD', 'ok'],
    ['an empty reply', 'GET', ''],
  ] as const) {
    test(`${name} ends its stream with the head, and needs no window`, async (t) => {
      const { client, send, request, framesOf } = await open(t);
      await client.begin(closedWindow);
      await send(headers(1, requestFields(method, '/')));
      const received = await request(0);
      received.reply(text);
      assert.deepEqual(received.events, ['start', 'taken']);
      await client.receives(({ stream, type }) => stream === 1 && type === frameTypes.headers, 'the head');
      assert.deepEqual(
        framesOf(1, frameTypes.headers).map((each) => each.flags),
        [flags.endHeaders | flags.endStream],
      );
      assert.equal(framesOf(1, frameTypes.data).length, 0);
    });
  }

  test('a held body reaches the handler after readBody, which also sends one 100 Continue if the client expects it [RFC 9110, 10.1.1]', async (t) => {
    const { client, send, request, framesOf } = await begin(t, { onStart: ({ transport }) => transport.holdBody() });
    await send(put(1), data(1, 5, flags.endStream), put(3, [['expect', '100-continue']]), get(5, [['expect', '100-continue']])); // prettier-ignore
    const [plain, expecting, bodyless] = [await request(0), await request(1), await request(2)];
    await turns(5);
    for (const { events } of [plain, expecting, bodyless]) assert.deepEqual(events, ['start']);
    for (const { transport } of [plain, expecting, expecting, bodyless]) transport.readBody();
    await client.receives(({ stream, type }) => stream === 3 && type === frameTypes.headers, 'the 100');
    await send(data(3, 5, flags.endStream));
    await poll(() => expecting.events.length === 3, 'the body');
    for (const each of [plain, expecting]) {
      assert.deepEqual([each.events, each.body], [['start', 'body', 'end'], 'xxxxx']);
    }
    for (const each of [plain, expecting, bodyless]) each.reply('ok');
    await client.replies(1, 3, 5);
    assert.deepEqual(
      [1, 3, 5].map((stream) => framesOf(stream, frameTypes.headers).length),
      [1, 2, 1],
    );
    assert.equal(client.frames.filter(({ type }) => type === frameTypes.resetStream).length, 0);
  });

  for (const [name, others, closes] of [
    ['with `closes`', [], true],
    ['instead of the 100 Continue that the client expects', [['expect', '100-continue']], false],
  ] as const) {
    test(`a reply ${name} arrives complete before its stream is reset with NO_ERROR [RFC 9113, 8.1]`, async (t) => {
      const { client, send, request, framesOf } = await begin(t, { onStart: ({ transport }) => transport.holdBody() });
      await send(put(1, others));
      (await request(0)).reply('x'.repeat(4 * sliceBytes), { closes });
      // The reply is larger than the initial window of the connection.
      client.send(windowUpdate(1, sliceBytes), windowUpdate(0, sliceBytes));
      assert.equal(await client.resetCode(1), errorCodes.noError);
      const bytes = framesOf(1, frameTypes.data).reduce((sum, { payload }) => sum + payload.length, 0);
      assert.equal(bytes, 4 * sliceBytes);
    });
  }

  test('a second reply is an error, and so is a reply after the client has left', async (t) => {
    const { client, send, request, connection } = await begin(t);
    await send(get(1), get(3));
    const [first, second] = [await request(0), await request(1)];
    first.reply('ok');
    const error = { message: 'the request has been answered, or its client has left' };
    assert.throws(() => first.reply('ok'), error);
    await send(resetStream(3, errorCodes.cancel));
    await poll(() => connection.streams === 0, 'both streams have closed');
    assert.throws(() => second.reply('ok'), error);
    second.transport.cut();
    await client.replies(1);
    assert.deepEqual([first.events, second.events], [['start', 'taken'], ['start', 'gone']]); // prettier-ignore
  });

  test('a stream that the handler cuts is reset with INTERNAL_ERROR, and "gone" is reported', async (t) => {
    const { client, send, request, budget } = await begin(t);
    await send(get(1));
    const received = await request(0);
    received.transport.cut();
    assert.equal(await client.resetCode(1), errorCodes.internalError);
    assert.deepEqual([received.events, budget.bytes], [['start', 'gone'], 0]);
  });
});

describe('a client that leaves [D21]', { skip: noHttp2 }, () => {
  const whens: [name: string, head: Buffer, isReplied: boolean, events: string[]][] = [
    ['before the reply', get(1), false, ['start', 'gone']],
    ['before the first byte of its body', put(1), false, ['start', 'gone']],
    ['before its body is complete', Buffer.concat([put(1), data(1, 5)]), false, ['start', 'body', 'gone']],
    ['before it has read the reply', get(1), true, ['start', 'taken']],
    ['before it has read the reply, with an incomplete body', put(1), true, ['start', 'taken']],
  ];
  const hows: [name: string, leave: (client: FrameClient<never>) => void][] = [
    ['resets its stream with CANCEL', (client) => client.send(resetStream(1, errorCodes.cancel))],
    ['resets its stream with NO_ERROR', (client) => client.send(resetStream(1, errorCodes.noError))],
    ['closes its connection', ({ socket }: FrameClient) => socket.destroy()],
    ['half-closes its connection', ({ socket }: FrameClient) => socket.end()],
  ];
  for (const [when, head, isReplied, events] of whens) {
    for (const [how, leave] of hows) {
      test(`if the client ${how} ${when}, the handler gets ${events.join(', ')}, and all memory is released`, async (t) => {
        const { client, send, request, budget, connection, faults } = await open(t);
        await client.begin(closedWindow);
        await send(head);
        const received = await request(0);
        if (isReplied) received.reply('x'.repeat(3 * sliceBytes));
        assert.ok(budget.bytes > 0);
        leave(client as FrameClient<never>);
        await poll(() => received.events.length === events.length, 'the handler gets its last event');
        await turns(5);
        assert.deepEqual(received.events, events);
        assert.deepEqual([budget.bytes, connection.streams, faults], [0, 0, []]);
      });
    }
  }
});

describe('a fault of the handler [D28]', { skip: noHttp2 }, () => {
  const fault = new Error('broken');
  const fail = () => {
    throw fault;
  };
  for (const [name, script, frames] of [
    ['onStart', { onStart: fail }, [get(1)]],
    ['onBody', { onBody: fail }, [put(1), data(1, 5)]],
    ['onBodyEnd', { onBodyEnd: fail }, [put(1), data(1, 0, flags.endStream)]],
    ['onBroken', { onBroken: fail }, [put(1)]],
    ['onGone', { onGone: fail }, [put(1), resetStream(1, errorCodes.cancel)]],
    ['onRefuse', { onRefuse: fail }, [get(1, [['host', 'other']])]],
  ] as const) {
    test(`in ${name} ends its own stream, and other streams are served`, async (t) => {
      const own = script as Script;
      const { client, send, pass, faults, budget, connection, received } = await begin(t, own, { requestTimeoutMs: 400 }); // prettier-ignore
      await send(...frames);
      if (name === 'onBroken') pass(400);
      await poll(() => faults.length > 0, 'the fault is reported');
      if (name !== 'onGone') assert.equal(await client.resetCode(1), errorCodes.internalError);
      await poll(() => connection.streams === 0, 'the stream has closed');
      assert.equal(budget.bytes, 0);
      if (name === 'onStart') return;
      await send(get(3));
      received.at(-1)?.reply('ok');
      await client.replies(3);
      assert.deepEqual(faults, [fault]);
    });
  }

  test('outside of a request ends the connection', async (t) => {
    const budget = Object.assign(new BufferBudget(1e9), { take: fail });
    const { client, send, faults } = await begin(t, {}, {}, budget);
    await send(get(1));
    await client.closed();
    assert.deepEqual(faults, [fault]);
  });
});
