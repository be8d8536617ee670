// One HTTP/2 connection with a scripted handler: its limits, its times, and the ways in which a stream can end. The clock
// advances only when a test says so. D35, D39.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { headBytesMax, serveHttp2 } from '../../packages/core/hosts/http2/http2.ts';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { currentTurn } from '../../packages/core/http1/turns.ts';
import { poll } from '../helpers/changes.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import {
  closedWindow,
  data,
  errorCodes,
  fieldBlock,
  type Fields,
  flags,
  frame,
  FrameClient,
  frameTypes,
  get,
  goAway,
  headers,
  indexedField,
  ping,
  preface,
  put,
  requestFields,
  resetStream,
  settingIds,
  settings,
  windowUpdate,
} from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { brokenHead, longFrame } from '../helpers/hostile-frames.ts';
import { createHandler, noLimits, stopClock, turns, type Script } from './served-connections.ts';
import { openPair } from '../helpers/socket-pairs.ts';

checkHttp2States();

const sliceBytes = 16_384;

interface Options extends Partial<ServerLimits> {
  readonly budget?: BufferBudget;
}

async function open(t: TestContext, script: Script = {}, { budget = new BufferBudget(1e9), ...limits }: Options = {}) {
  const clock = stopClock(t);
  const { handler, ...told } = createHandler(script);
  const pair = await openPair(t);
  const { socket } = pair;
  const connection = serveHttp2({ ...noLimits, ...limits }, { ...handler, budget })(socket);
  socket.setNoDelay().resume();
  const client = new FrameClient(pair.client.resume());
  /** Advances the clock, and enforces the time limits. */
  const pass = (ms: number) => {
    clock.now += ms;
    connection.checkTime(clock.now);
  };
  let sent = 0;
  return {
    ...told,
    client,
    socket,
    connection,
    budget,
    clock,
    pass,
    /** Asserts that the connection is cut when `ms` have passed, and not before. */
    assertCutAfter: (ms: number) => {
      pass(ms - 1);
      assert.equal(socket.destroyed, false);
      pass(1);
      assert.equal(socket.destroyed, true);
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
async function begin(t: TestContext, script?: Script, options?: Options) {
  const opened = await open(t, script, options);
  await opened.client.begin();
  return opened;
}

/** Like `begin`, with a client that accepts no byte of a reply. */
async function beginClosed(t: TestContext, options?: Options) {
  const opened = await open(t, {}, options);
  await opened.client.begin(closedWindow);
  return opened;
}

/** Calls `act` with each stream that node:http2 creates, so that a test can break it. */
function withEachStream(t: TestContext, act: (stream: ServerHttp2Stream) => void): void {
  const channel = 'http2.server.stream.created';
  const onStream = (message: unknown) => act((message as { stream: ServerHttp2Stream }).stream);
  subscribe(channel, onStream);
  t.after(() => unsubscribe(channel, onStream));
}

/** Makes `socket` appear to have an unsent byte. */
function setUnsent(socket: Socket, hasUnsent: boolean): void {
  if (hasUnsent) Object.defineProperty(socket, 'writableLength', { value: 1, configurable: true });
  else Reflect.deleteProperty(socket, 'writableLength');
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
      const { client, send, assertCutAfter } = await open(t, {}, limits);
      await send(...frames);
      assertCutAfter(400);
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
    const { client, send, pass, assertCutAfter, connection } = await begin(t, replies, limits);
    await send(get(1));
    await client.replies(1);
    await poll(() => connection.streams === 0, 'the stream has closed');
    pass(4_999);
    // A PING is not a request: the connection stays idle.
    await send(ping);
    assert.equal(connection.isQuiet(0, 0), false);
    client.socket.pause();
    pass(1);
    assert.equal(connection.isQuiet(0, 0), true);
    await turns(5);
    assertCutAfter(1000);
    client.socket.resume();
    await client.closed();
    assert.deepEqual(client.goAway, { lastStream: 1, code: errorCodes.noError });
  });

  test('GOAWAY is sent once, and the last GOAWAY 1,000 ms later, however long the connection was idle before [D33]', async (t) => {
    const { client, send, pass, connection, request } = await begin(t, {}, { idleTimeoutMs: 60_000 });
    pass(30_000);
    connection.announceEnd?.();
    connection.announceEnd?.();
    await client.receives(({ type }) => type === frameTypes.goAway, 'GOAWAY');
    pass(250);
    // The client sent this request before it received GOAWAY.
    await send(get(1));
    (await request(0)).reply('ok', { drains: true });
    await client.replies(1);
    await poll(() => connection.streams === 0, 'the stream has closed');
    assert.equal(client.frames.filter(({ type }) => type === frameTypes.goAway).length, 1);
    pass(749);
    assert.equal(connection.isQuiet(0, 0), false);
    pass(1);
    assert.equal(connection.isQuiet(0, 0), true);
    await client.closed();
    connection.announceEnd?.();
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

  for (const [name, isStuckStream, events] of [
    ['a stream that node:http2 does not close', true, ['start', 'stall', 'taken']],
    ['a session that reads nothing more', false, ['start', 'taken']],
  ] as const) {
    test(`${name} ends its connection after 1,000 ms, counted while the socket has no unsent bytes [D39]`, async (t) => {
      if (isStuckStream) withEachStream(t, (stream) => (stream.close = () => undefined));
      const { client, socket, send, pass, assertCutAfter, request } = await beginClosed(t);
      await send(get(1));
      const received = await request(0);
      received.reply('x');
      await turns(3);
      // After GOAWAY and a frame that is too long, node:http2 reads nothing, and does not close the session.
      if (isStuckStream) {
        pass(5_000);
      } else {
        await send(goAway, longFrame);
        for (let round = 0; round < 100; round += 1) {
          client.send(Buffer.alloc(5_000));
          await turns(2);
        }
        assert.ok(socket.bytesRead < 100_000, `${socket.bytesRead} bytes are read`);
      }
      setUnsent(socket, true);
      pass(0);
      pass(2_000);
      assert.equal(socket.destroyed, false);
      setUnsent(socket, false);
      pass(0);
      assertCutAfter(1_000);
      await poll(() => received.events.includes('taken'), 'the reply is released');
      assert.deepEqual(received.events, events);
    });
  }

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
    // The leap of the clock looks like a pause of the process, so the limit is put off by a second [D19].
    await poll(() => {
      pass(1_000);
      return socket.destroyed;
    }, 'the connection is closed');
  });

  test('a reply whose last bytes the client is still reading is not cut after the last GOAWAY [D33]', async (t) => {
    const { client, socket, send, pass, assertCutAfter, request, connection } = await begin(t);
    await send(settings([[settingIds.initialWindowSize, 2 ** 30]]), windowUpdate(0, 2 ** 30), get(1));
    client.socket.pause();
    (await request(0)).reply('ok');
    setUnsent(socket, true);
    await poll(() => connection.streams === 0, 'the stream has closed');
    connection.announceEnd?.();
    for (const ms of [1_000, 1_000, 5_000]) pass(ms);
    assert.deepEqual([socket.destroyed, connection.isQuiet(0, 0)], [false, false]);
    setUnsent(socket, false);
    assertCutAfter(1000);
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

  test('announcing the end of a connection that node:http2 is closing does no harm [D33]', async (t) => {
    const { client, socket, connection } = await begin(t);
    socket.once('finish', () => connection.announceEnd?.());
    client.send(brokenHead(1));
    await client.closed();
    assert.equal(socket.writableFinished, true);
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
    client.send(goAway);
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

  test('requestTimeoutMs stands still while the handler holds the body back [D35]', async (t) => {
    const hold: Script = { onStart: ({ transport }) => transport.holdBody() };
    const { send, pass, request } = await begin(t, hold, { requestTimeoutMs: 400 });
    await send(put(1));
    const { events, transport } = await request(0);
    for (const [passed, expected] of [
      [60_000, ['start']],
      [399, ['start']],
      [1, ['start', 'timeout']],
    ] as const) {
      pass(passed);
      assert.deepEqual(events, expected);
      transport.readBody();
    }
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
      const { client, send, pass, request, budget, connection } = await beginClosed(t, { replyStallTimeoutMs });
      // The second head is refused, so the handler gets no request for it.
      await send(get(1), get(3, '/', [['host', 'other']]));
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
    const { client, send, pass, clock, request, framesOf } = await beginClosed(t, { replyStallTimeoutMs: 7_000 });
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
  const head = (stream: number, more = 0): Buffer => get(stream, '/', [['x', 'x'.repeat(rest + more)]]);
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
    const { client, send, received, budget, connection } = await begin(
      t,
      {},
      { budget: new BufferBudget(2 * heldBytes) },
    );
    await send(head(1), head(3, 1), head(5), get(7));
    assert.deepEqual([await client.resetCode(3), await client.resetCode(7)], [7, 7]);
    assert.deepEqual([received.length, budget.bytes, connection.streams], [2, 2 * heldBytes, 2]);
  });

  for (const acknowledges of [true, false]) {
    test(`100 streams with ordinary heads and tokens of 2 KB can be open; one more ends the connection of a client that ${acknowledges ? 'acknowledges' : 'ignores'} the settings [D39]`, async (t) => {
      const { client, send, received, connection } = await open(t);
      if (acknowledges) await client.begin();
      else client.send(preface, settings());
      const others = Array.from({ length: 20 }, (_, index) => [`x-field-${index}`, 'x'.repeat(40)] as const);
      const fields: Fields = [...others, ['authorization', `Bearer ${'x'.repeat(2_048)}`]];
      await send(...Array.from({ length: 100 }, (_, index) => get(1 + 2 * index, '/', fields)));
      await poll(() => received.length === 100, 'all streams are accepted');
      assert.equal(connection.streams, 100);
      client.send(get(201));
      if (acknowledges) {
        await client.closed();
        assert.deepEqual(client.goAway, { lastStream: 199, code: errorCodes.protocolError });
      } else {
        assert.equal(await client.resetCode(201), errorCodes.refusedStream);
        client.socket.destroy();
      }
      await poll(() => connection.streams === 0, 'all streams have closed');
      assert.equal(received.length, 100);
    });
  }

  test('a head of 96 fields is 431, and the stream of a head of 97 fields is reset [D39]', async (t) => {
    const { client, send, refused } = await begin(t);
    const fields = (count: number) => Array.from({ length: count }, () => ['x-a', ''] as const);
    await send(get(1, '/', fields(92)), get(3, '/', fields(93)));
    assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
    await client.replies(1);
    assert.deepEqual(refused, [{ kind: 'head-too-large', reason: 'a head of more than 80 fields' }]);
  });

  test('a head over the limit is 431; if a head exceeds twice the limit plus 32 bytes for each of 80 fields, its stream is reset [D39]', async (t) => {
    const { client, send, refused } = await begin(t, {}, { requestHeadBytesMax: 1_024 });
    const used = requestFields('GET', '/').flat().join('').length + 5 * 32 + 'x'.length;
    const largest = 2 * 1_024 + 32 * 80 - used;
    await send(get(1, '/', [['x', 'x'.repeat(largest)]]), get(3, '/', [['x', 'x'.repeat(largest + 1)]]));
    assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
    await client.replies(1);
    assert.deepEqual(refused, [{ kind: 'head-too-large', reason: 'a head of more than 1024 bytes' }]);
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

/** Counts calls in each turn of the event loop. */
function countTurns(): { count: () => void; perTurn: Map<number, number> } {
  const perTurn = new Map<number, number>();
  const count = () => perTurn.set(currentTurn(), (perTurn.get(currentTurn()) ?? 0) + 1);
  return { count, perTurn };
}

/**
 * Asserts that each turn has at most `inOwn` calls. The first turn may have `atOnce` more: it begins when the bytes arrive, and
 * the connection's own turn follows in the same iteration of the event loop.
 */
function assertTurns(perTurn: Map<number, number>, atOnce: number, inOwn: number): void {
  const [first = 0, ...others] = perTurn.values();
  assert.ok(first <= atOnce + inOwn && Math.max(...others) === inOwn, [first, ...others].join(' '));
}

describe('input in one turn of the event loop [D58]', { skip: noHttp2 }, () => {
  for (const [name, length, atOnce, inOwn] of [
    ['heads', 0, 4, 12],
    ['heads of 1,500 bytes', 1_500, 2, 3],
  ] as const) {
    test(`at most ${atOnce} ${name} are read, and then ${inOwn} in each turn of the connection`, async (t) => {
      const { count, perTurn } = countTurns();
      const { send, received } = await begin(t, { onStart: count });
      await turns(3);
      const others: Fields = [['x', 'x'.repeat(length)]];
      await send(...Array.from({ length: 40 }, (_, index) => get(1 + 2 * index, '/', others)));
      await poll(() => received.length === 40, 'all requests have started');
      assertTurns(perTurn, atOnce, inOwn);
    });
  }

  test('at most 64 frames are read, and then 256 in each turn of the connection', async (t) => {
    const { count, perTurn } = countTurns();
    const { send, request } = await begin(t, { onBody: count });
    const digits = Array.from({ length: 2_000 }, (_, index) => String(index % 10));
    await send(put(1), ...digits.map((digit) => data(1, digit)), data(1, 0, flags.endStream));
    const received = await request(0);
    await poll(() => received.events.includes('end'), 'the body');
    assert.equal(received.body, digits.join(''));
    assertTurns(perTurn, 64, 256);
  });
});

describe('bodies that are not read yet [D58]', { skip: noHttp2 }, () => {
  const hold: Script = { onStart: ({ transport }) => transport.holdBody() };
  const numbers = [1, 3, 5, 7, 9];

  /** The number of bytes that `client` may send on `stream`, or on the connection. */
  function allowed(client: FrameClient<Socket>, stream = 0): number {
    return client.frames
      .filter((each) => each.stream === stream && each.type === frameTypes.windowUpdate)
      .reduce((sum, { payload }) => sum + payload.readUInt32BE(0), 65_535);
  }

  test('at most 64 KiB of all bodies of a connection are buffered, and the rest is read afterwards', async (t) => {
    const { client, send, request, budget, pass } = await begin(t, hold);
    await send(...numbers.map((stream) => put(stream)));
    const ofHeads = budget.bytes;
    let sent = 0;
    const sendMore = () => {
      for (; sent < 160_000 && sent + 4_000 <= allowed(client); sent += 4_000) {
        client.send(data(numbers[(sent / 4_000) % 5] ?? 0, 4_000));
      }
    };
    for (let round = 0; round < 50; round += 1) {
      sendMore();
      await turns(1);
    }
    assert.ok(sent > 65_536 && sent <= 2 * 65_536, `${sent} bytes could be sent`);
    // The bodies' bytes that were passed on, and one read that waits.
    pass(0);
    const bytes = budget.bytes - ofHeads;
    assert.ok(bytes > 60_000 && bytes <= 2 * 65_536, `${bytes} bytes count`);
    const all = await Promise.all(numbers.map((_, index) => request(index)));
    for (const { transport } of all) transport.readBody();
    await poll(() => {
      sendMore();
      return all.every(({ bodyBytes }) => bodyBytes === 32_000);
    }, 'all bodies');
  });

  test('a client that sends more than its windows allow is not read', async (t) => {
    const { client, socket, send } = await begin(t, hold);
    // Together the pieces have 64 KiB.
    await send(put(1), put(3));
    for (const [stream, bytes] of [[1, 32_000], [3, 32_000], [3, 1_536]] as const) {
      for (let left = bytes; left > 0; left -= 16_000) await send(data(stream, Math.min(left, 16_000)));
    } // prettier-ignore
    for (let round = 0; round < 100; round += 1) {
      client.send(data(1, 5_000));
      await turns(2);
    }
    assert.ok(socket.bytesRead < 3 * 65_536, `${socket.bytesRead} bytes are read`);
  });

  test('the body of a stream that its client resets is released, and other streams are served', async (t) => {
    const { client, send, request, budget, pass } = await begin(t, hold);
    const piece = data(1, 16_000);
    const head = put(1, '/', [['expect', '100-continue']]);
    await send(head, put(3), piece, piece, piece, data(3, 16_000), resetStream(1, errorCodes.noError));
    const reset = await request(0);
    // Not even `100 Continue` can be sent on this stream.
    reset.transport.readBody();
    pass(0);
    await send(data(3, 16_000), data(3, 16_000), get(5));
    (await request(2)).reply('ok');
    await client.replies(5);
    assert.equal(reset.events.at(-1), 'gone');
    client.socket.destroy();
    await poll(() => budget.bytes === 0, 'all memory is released');
  });

  test('a body is dropped and not buffered if its client does not read the early reply', async (t) => {
    const { client, send, request } = await beginClosed(t);
    await send(put(1));
    (await request(0)).reply('no');
    // Together the pieces are larger than the initial window of the stream.
    for (let bytes = 16_000; bytes <= 160_000; bytes += 16_000) {
      await poll(() => bytes <= allowed(client, 1), 'the stream may send more');
      await send(data(1, 16_000));
    }
  });
});

describe('the fields of a head [RFC 7541, 6]', { skip: noHttp2 }, () => {
  // node:http2 drops malformed fields, so that the gateway compares its fields with its own count of them.
  const request = fieldBlock(requestFields('GET', '/'));
  const many = Array.from({ length: 66 }, (_, index) => indexedField(`x-${index}`, ''));
  const blocks: [name: string, ...parts: Buffer[]][] = [
    ['literal fields, some of them empty', request, fieldBlock([['a', '1'], ['b', '']])],
    ['names and values of more than 126 bytes', request, fieldBlock([['a', 'x'.repeat(127)], ['b'.repeat(300), 'x'.repeat(300)]])],
    ['an index of one byte', request, Buffer.of(0x90)],
    ['an index of two bytes', request, ...many, Buffer.of(0xff, 0x00)],
    ['a name with an index of one byte', request, Buffer.of(0x5f, 1, 0x61), Buffer.of(0x50, 1, 0x61)],
    ['a name with an index of two bytes', request, Buffer.of(0x0f, 0x2b, 1, 0x61, 0x1f, 0x2b, 1, 0x61), indexedField('x', ''), indexedField('y', ''), Buffer.of(0x7f, 0x00, 1, 0x61)],
    ['a literal name that is never indexed', request, Buffer.of(0x10, 1, 0x61, 1, 0x62)],
    ['Huffman-coded text', request, Buffer.of(0x00, 0x81, 0x1f, 0x81, 0x1f)],
    ['updates of the table size, which are not fields', Buffer.of(0x20, 0x3f, 0xe1, 0x1f), request],
  ]; // prettier-ignore

  for (const [name, ...parts] of blocks) {
    test(`are all counted in a head with ${name}, in any frames and in pieces of any size`, async (t) => {
      const { client, send } = await begin(t, replies);
      const block = Buffer.concat(parts);
      const whole = flags.endHeaders | flags.endStream;
      const padded = Buffer.concat([Buffer.of(7), Buffer.alloc(5, 0x82), block, Buffer.alloc(7, 0x82)]);
      const middle = block.length >> 1;
      const forms: ((stream: number) => Buffer)[] = [
        (stream) => frame(frameTypes.headers, whole, stream, block),
        (stream) => frame(frameTypes.headers, whole | flags.padded | flags.priority, stream, padded),
        (stream) =>
          Buffer.concat([
            frame(frameTypes.headers, flags.endStream, stream, block.subarray(0, middle)),
            frame(frameTypes.continuation, flags.endHeaders, stream, block.subarray(middle)),
          ]),
      ];
      let stream = -1;
      for (const form of forms) {
        for (const size of [1, 1_000]) {
          const bytes = form((stream += 2));
          for (let at = 0; at < bytes.length; at += size) await send(bytes.subarray(at, at + size));
          await client.replies(stream);
        }
      }
    });
  }
});

describe('2,000 streams, one after another', { skip: noHttp2 }, () => {
  /** The size of all JavaScript objects of this process that are in use, with their buffers, in bytes. */
  async function used(): Promise<number> {
    setFlagsFromString('--expose-gc');
    const collectGarbage = runInNewContext('gc') as () => void;
    // Node frees the native part of an object only in the turn after its collection.
    for (let count = 0; count < 2; count += 1) {
      collectGarbage();
      await turns(1);
    }
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  }

  test('leave no memory in use', async (t) => {
    const { client, received } = await begin(t, { onBodyEnd: (each) => each.reply('ok') });
    // The stopped clock would remember each call.
    t.mock.restoreAll();
    client.send(windowUpdate(0, 2 ** 30));
    let ended = 0;
    const next = (stream: number) =>
      Buffer.concat([put(stream, '/', [['content-length', '1']]), data(stream, 1, flags.endStream)]);
    const sendMore = () => client.send(...Array.from({ length: 50 }, (_, index) => next(1 + 2 * (ended + index))));
    client.onFrame = ({ type, flags: each }) => {
      if (type !== frameTypes.data || (each & flags.endStream) === 0) return;
      ended += 1;
      if (ended % 50 === 0 && ended % 1_000 !== 0) sendMore();
    };
    const serve = async (until: number) => {
      sendMore();
      await poll(() => ended === until, 'all replies');
      received.length = 0;
      return await used();
    };
    const before = await serve(1_000);
    const bytes = (await serve(2_000)) - before;
    assert.ok(bytes < 100_000, `${bytes} bytes are still used`);
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
      const { client, send, request, framesOf } = await beginClosed(t);
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
    await send(put(1), data(1, 5, flags.endStream), put(3, '/', [['expect', '100-continue']]), get(5, '/', [['expect', '100-continue']])); // prettier-ignore
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
      await send(put(1, '/', others));
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
        const { client, send, request, budget, connection, faults } = await beginClosed(t);
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

  test('a request that its client resets in the same read gets no event after its reply', async (t) => {
    const { client, send, received, connection } = await begin(t, replies);
    client.send(get(1), resetStream(1, errorCodes.cancel), get(3));
    await client.replies(3);
    await send(ping);
    await poll(() => connection.streams === 0, 'both streams have closed');
    assert.deepEqual(received.map(({ events }) => events), [['start', 'taken'], ['start', 'taken']]); // prettier-ignore
  });
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
    ['onRefuse', { onRefuse: fail }, [get(1, '/', [['host', 'other']])]],
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
    const { client, send, faults } = await begin(t, {}, { budget });
    await send(get(1));
    await client.closed();
    assert.deepEqual(faults, [fault]);
  });
});
