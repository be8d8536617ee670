// One HTTP/2 connection with a scripted handler: its limits, its times, and the ways in which a stream can end. The clock
// advances only when a test says so. D35, D39.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import { headBytesMax, serveHttp2 } from '../../packages/core/hosts/http2/http2.ts';
import { PacedSocket } from '../../packages/core/hosts/http2/paced-socket.ts';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { currentTurn } from '../../packages/core/http1/turns.ts';
import { poll } from '../helpers/changes.ts';
import { longFrame } from '../helpers/hostile-frames.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import * as frames from '../helpers/http2-frames.ts';
import { data, errorCodes, flags, FrameClient, frameTypes, get, put, windowUpdate } from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { openPair } from '../helpers/socket-pairs.ts';
import { createHandler, noLimits, stopClock, turns, type Script } from './served-connections.ts';

checkHttp2States();

const sliceBytes = 16_384;
const largestWindow = 2 ** 31 - 1;

interface Options extends Partial<ServerLimits> {
  readonly budget?: BufferBudget;
  /** The window of the client's streams; default: 65,535 bytes. */
  readonly window?: number;
}

async function open(t: TestContext, script: Script, { budget = new BufferBudget(1e9), window, ...limits }: Options) {
  const clock = stopClock(t);
  const { handler, request, ...told } = createHandler(script);
  const { socket, client: peer } = await openPair(t);
  const connection = serveHttp2({ ...noLimits, ...limits }, { ...handler, budget })(socket);
  socket.setNoDelay().resume();
  const client = new FrameClient(peer.resume());
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
    request,
    /** Asserts that the connection is cut when `ms` have passed, and not before. */
    assertCutAfter: (ms: number) => {
      pass(ms - 1);
      assert.equal(socket.destroyed, false);
      pass(1);
      assert.equal(socket.destroyed, true);
    },
    /** Sends bytes, and waits until the connection has read them. */
    send: async (...parts: readonly Uint8Array[]) => {
      sent ||= socket.bytesRead;
      sent += Buffer.concat(parts).length;
      client.send(...parts);
      await poll(() => socket.bytesRead >= sent, 'the frames are read');
      await turns(3);
    },
    /** Sends a GET on stream 1. Returns the request. */
    get: async () => {
      client.send(get(1));
      return await request(0);
    },
    /** Waits until this number of streams is open. */
    left: (count: number) => poll(() => connection.streams === count, `${count} open streams`),
    count: (type: number, stream: number) =>
      client.frames.filter((each) => each.type === type && each.stream === stream).length,
    begin: () => client.begin(window === undefined ? [] : [[frames.settingIds.initialWindowSize, window]]),
  };
}

/** Like `open`, and exchanges the settings. */
async function begin(t: TestContext, script: Script = {}, options: Options = {}) {
  const opened = await open(t, script, options);
  await opened.begin();
  return opened;
}

/** Makes `socket` appear to have an unsent byte. */
function setUnsent(socket: Socket, hasUnsent: boolean): void {
  if (hasUnsent) Object.defineProperty(socket, 'writableLength', { value: 1, configurable: true });
  else Reflect.deleteProperty(socket, 'writableLength');
}

const replies: Script = { onStart: (received) => received.reply('ok') };
const hold: Script = { onStart: ({ transport }) => transport.holdBody() };

describe('times of a connection', { skip: noHttp2 }, () => {
  const limits = { requestHeadersTimeoutMs: 400, idleTimeoutMs: 5_000 };

  for (const [name, bytes] of [
    ['nothing', Buffer.alloc(0)],
    ['half a preface', frames.preface.subarray(0, 10)],
    ['a preface and settings', Buffer.concat([frames.preface, frames.settings()])],
  ] as const) {
    test(`a connection that sends ${name} is closed after requestHeadersTimeoutMs, and not before [D35]`, async (t) => {
      const { client, send, assertCutAfter } = await open(t, {}, limits);
      await send(bytes);
      assertCutAfter(400);
      await client.closed();
    });
  }

  test('the time limit of a head starts at its first byte, and later bytes of the head do not restart the limit [D35]', async (t) => {
    const { client, send, pass, clock, connection } = await begin(t, replies, limits);
    await send(get(1));
    await client.replies(1);
    clock.now += 1_000;
    const head = get(3);
    await send(head.subarray(0, 12));
    clock.now += 300;
    await send(head.subarray(12, 20));
    pass(99);
    // The rest of this head, and the beginning of the next head, which has its own time limit.
    await send(head.subarray(20), get(5).subarray(0, 20));
    await client.replies(3);
    pass(399);
    assert.equal(connection.isQuiet(0, 0), false);
    pass(1);
    assert.ok(connection.isQuiet(0, 0), 'the connection has ended');
    await client.closed();
  });

  test('an idle connection gets GOAWAY at idleTimeoutMs, and is cut 1,000 ms later if its client stays [D35]', async (t) => {
    const { client, send, pass, assertCutAfter, connection, left } = await begin(t, replies, limits);
    await send(get(1));
    await left(0);
    pass(4_999);
    // A PING is not a request: the connection stays idle.
    await send(frames.ping);
    assert.equal(connection.isQuiet(0, 0), false);
    client.socket.pause();
    pass(1);
    assert.deepEqual([connection.isQuiet(0, 0), connection.isQuiet(1, 0)], [true, false]);
    await turns(5);
    assertCutAfter(1000);
    client.socket.resume();
    await client.closed();
    assert.deepEqual(client.goAway, { lastStream: 1, code: errorCodes.noError });
  });

  test('a reply of a gateway that stops announces the end once; 1,000 ms later no new call starts, and open streams continue [D33, D65]', async (t) => {
    const { client, socket, send, pass, connection, request, received, count, left } = await begin(t);
    pass(30_000);
    await send(get(1), put(3), get(5));
    const [late, body, early] = [await request(0), await request(1), await request(2)];
    early.reply('ok', { drains: true });
    await client.receives(({ type }) => type === frameTypes.goAway, 'GOAWAY');
    connection.announceEnd?.();
    assert.deepEqual(client.goAway, { lastStream: largestWindow, code: errorCodes.noError });
    pass(250);
    // The client sent this request before it received GOAWAY.
    await send(get(7));
    (await request(3)).reply('ok');
    await client.replies(5, 7);
    pass(749);
    assert.equal(count(frameTypes.goAway, 0), 1);
    pass(1);
    await poll(() => client.goAway?.lastStream === 7, 'the last GOAWAY');
    for (const stream of [9, 11, 13]) await send(get(stream));
    pass(1_000);
    await send(data(3, 5, flags.endStream));
    await poll(() => body.events.includes('end'), 'the body');
    pass(5_000);
    assert.deepEqual([received.length, connection.streams, connection.isQuiet(0, 0)], [4, 2, false]);
    for (const each of [late, body]) each.reply('ok');
    await client.replies(1, 3);
    await left(0);
    await poll(() => socket.destroyed, 'the connection has closed');
    connection.announceEnd?.();
    assert.deepEqual(received.map(({ events }) => events.at(-1)), Array(4).fill('taken')); // prettier-ignore
  });

  test('a rest of a body that is dropped does not delay the end: its stream is reset after the last GOAWAY [D33]', async (t) => {
    const { client, send, pass, connection, count } = await begin(t, replies);
    await send(put(1));
    await client.replies(1);
    connection.announceEnd?.();
    pass(999);
    await turns(3);
    assert.equal(count(frameTypes.resetStream, 1), 0);
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
      const channel = 'http2.server.stream.created';
      const onStream = (message: unknown) => {
        if (isStuckStream) (message as { stream: ServerHttp2Stream }).stream.close = () => undefined;
      };
      subscribe(channel, onStream);
      t.after(() => unsubscribe(channel, onStream));
      const { client, socket, send, pass, assertCutAfter, ...opened } = await begin(t, {}, { window: 0 });
      const received = await opened.get();
      received.reply('x');
      await turns(3);
      // After GOAWAY and a frame that is too long, node:http2 reads nothing, and does not close the session.
      if (isStuckStream) {
        pass(5_000);
      } else {
        await send(get(3), frames.goAway, longFrame);
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
    const options = { requestHeadersTimeoutMs: 400, replyStallTimeoutMs: 1_000, window: largestWindow };
    const { client, socket, send, pass, ...opened } = await begin(t, {}, options);
    await send(windowUpdate(0, 2 ** 30));
    const received = await opened.get();
    client.socket.pause();
    received.reply('x'.repeat(20_000_000));
    await poll(() => socket.writableLength > 0, 'the socket has unsent bytes');
    pass(4_000);
    assert.deepEqual(received.events, ['start'], 'its stream does not count as stalled');
    // An incomplete head.
    await send(get(3).subarray(0, 20));
    pass(400);
    await turns(5);
    assert.equal(socket.destroyed, false);
    pass(60_000);
    // The leap of the clock looks like a pause of the process, so the limit is put off by a second [D19].
    await poll(() => {
      pass(1_000);
      return socket.destroyed;
    }, 'the connection is closed');
  });

  test('a reply whose last bytes the client is still reading is not cut after the last GOAWAY [D33]', async (t) => {
    const { client, socket, pass, assertCutAfter, connection, left, ...opened } = await begin(t);
    const received = await opened.get();
    client.socket.pause();
    received.reply('ok');
    setUnsent(socket, true);
    await left(0);
    connection.announceEnd?.();
    for (const ms of [1_000, 1_000, 5_000]) pass(ms);
    assert.deepEqual([socket.destroyed, connection.isQuiet(0, 0)], [false, false]);
    setUnsent(socket, false);
    assertCutAfter(1000);
  });

  test('the idle time begins when the connection opens, and again when its last stream closes', async (t) => {
    const { send, connection, clock, request, left } = await begin(t);
    const idleMs = () => connection.idleMs(clock.now + 5);
    assert.equal(idleMs(), 5);
    await send(get(1), get(3));
    for (const index of [0, 1]) {
      assert.equal(idleMs(), 0);
      clock.now += 100;
      (await request(index)).reply('ok');
      await left(1 - index);
    }
    // An open connection is never quiet, because a request may be arriving.
    assert.deepEqual([idleMs(), connection.isQuiet(0, 0)], [5, false]);
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
    const { client, send, pass, count, left } = await begin(t, replies, { requestTimeoutMs: 400 });
    await send(put(1), put(3));
    await client.replies(1, 3);
    await send(data(3, 5, flags.endStream));
    await left(1);
    pass(399);
    await turns(3);
    assert.equal(count(frameTypes.resetStream, 1), 0);
    pass(1);
    assert.equal(await client.resetCode(1), errorCodes.noError);
    assert.equal(count(frameTypes.resetStream, 3), 0);
  });

  for (const [replyStallTimeoutMs, ms] of [
    [60_000, 5_000],
    [400, 400],
  ] as const) {
    test(`with a limit of ${replyStallTimeoutMs} ms, the stream of a reply that the client does not read is reset after ${ms} ms [D39]`, async (t) => {
      const { client, send, pass, request, budget, left } = await begin(t, {}, { replyStallTimeoutMs, window: 0 });
      // The second head is refused, so the handler gets no request for it.
      await send(get(1), get(3, '/', [['host', 'other']]));
      const received = await request(0);
      received.reply('x'.repeat(100));
      pass(ms - 1);
      assert.deepEqual(received.events, ['start']);
      pass(1);
      for (const stream of [1, 3]) assert.equal(await client.resetCode(stream), errorCodes.cancel);
      await poll(() => received.events.length === 3, 'the bytes of the reply are released');
      assert.deepEqual(received.events, ['start', 'stall', 'taken']);
      await left(0);
      assert.equal(budget.bytes, 0);
    });
  }

  test('after the first slice of a reply, the stall timeout is replyStallTimeoutMs, and begins again with each slice [D35]', async (t) => {
    const { client, pass, clock, count, ...opened } = await begin(t, {}, { replyStallTimeoutMs: 7_000, window: 0 });
    const received = await opened.get();
    received.reply('x'.repeat(4 * sliceBytes));
    for (const slices of [1, 2]) {
      clock.now += 4_000;
      client.send(windowUpdate(1, sliceBytes));
      await poll(() => count(frameTypes.data, 1) >= slices, 'a slice');
      await turns(3);
      pass(0);
    }
    pass(6_999);
    assert.deepEqual(received.events, ['start']);
    pass(1);
    assert.deepEqual(received.events, ['start', 'stall']);
    assert.equal(await client.resetCode(1), errorCodes.cancel);
  });
});

describe('limits of a connection', { skip: noHttp2 }, () => {
  // An open stream counts as 8,192 bytes, plus 128 bytes for each of its five fields, plus the text of the fields.
  const heldBytes = 16_384;
  const textBytes = frames.requestFields('GET', '/').flat().join('').length + 'x'.length;
  const withField = (stream: number, length: number) => get(stream, '/', [['x', 'x'.repeat(length)]]);
  const head = (stream: number, more = 0) => withField(stream, heldBytes - 8_192 - 5 * 128 - textBytes + more);

  test('heads can fill the memory of a connection to its last byte, and a stream that closes makes room for another [D39]', async (t) => {
    const { client, send, received, budget, left } = await begin(t);
    const all = headBytesMax / heldBytes;
    const accepted = (count: number) => poll(() => received.length === count, `${count} heads are accepted`, 20_000);
    for (let index = 0; index < all - 1; index += 1) client.send(head(1 + 2 * index));
    await accepted(all - 1);
    await send(head(2 * all - 1, 1));
    assert.equal(await client.resetCode(2 * all - 1), errorCodes.refusedStream);
    assert.equal(budget.bytes, headBytesMax - heldBytes);
    await send(head(2 * all + 1));
    await accepted(all);
    assert.equal(budget.bytes, headBytesMax);
    await send(frames.resetStream(1, errorCodes.cancel));
    await left(all - 1);
    await send(head(2 * all + 3));
    await accepted(all + 1);
    client.socket.destroy();
    await left(0);
    await poll(() => budget.bytes === 0, 'all memory is released');
  });

  test('heads can fill the memory of all connections to its last byte, and a head with one byte more is refused [D39]', async (t) => {
    const { client, send, received, budget } = await begin(t, {}, { budget: new BufferBudget(2 * heldBytes) });
    await send(head(1), head(3, 1), head(5), get(7));
    for (const stream of [3, 7]) assert.equal(await client.resetCode(stream), errorCodes.refusedStream);
    assert.deepEqual([received.length, budget.bytes], [2, 2 * heldBytes]);
  });

  for (const acknowledges of [true, false]) {
    test(`100 streams with ordinary heads and tokens of 2 KB can be open; one more ends the connection of a client that ${acknowledges ? 'acknowledges' : 'ignores'} the settings [D39]`, async (t) => {
      const { client, send, received, left, ...opened } = await open(t, {}, {});
      if (acknowledges) await opened.begin();
      else client.send(frames.preface, frames.settings());
      const others = Array.from({ length: 20 }, (_, index) => [`x-field-${index}`, 'x'.repeat(40)] as const);
      const fields = [...others, ['authorization', `Bearer ${'x'.repeat(2_048)}`] as const];
      await send(...Array.from({ length: 100 }, (_, index) => get(1 + 2 * index, '/', fields)));
      await left(100);
      client.send(get(201));
      if (acknowledges) {
        await client.closed();
        assert.deepEqual(client.goAway, { lastStream: 199, code: errorCodes.protocolError });
      } else {
        assert.equal(await client.resetCode(201), errorCodes.refusedStream);
        client.socket.destroy();
      }
      await left(0);
      assert.equal(received.length, 100);
    });
  }

  const fields = (count: number) => Array.from({ length: count - 4 }, () => ['x-a', ''] as const);
  const largest = 2 * 1_024 + 32 * 80 - 5 * 32 - textBytes;
  for (const [name, first, second, limit] of [
    ['of 96 fields is 431, and the stream of a head of 97 fields', get(1, '/', fields(96)), get(3, '/', fields(97)), '80 fields'],
    ['over the limit is 431, and the stream of a head over twice the limit plus 32 bytes for each of 80 fields', withField(1, largest), withField(3, largest + 1), '1024 bytes'],
  ] as const) {
    test(`a head ${name} is reset [D39]`, async (t) => {
      const { client, send, refused } = await begin(t, {}, { requestHeadBytesMax: 1_024 });
      await send(first, second);
      assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
      await client.replies(1);
      assert.deepEqual(refused, [{ kind: 'head-too-large', reason: `a head of more than ${limit}` }]);
    });
  } // prettier-ignore

  test('after the reply, up to requestBytesMax of a body is dropped; one byte more resets the stream with NO_ERROR [D11]', async (t) => {
    const { client, send, count, left, received } = await begin(t, replies, { requestBytesMax: 1_000 });
    await send(put(1), put(3));
    await client.replies(1, 3);
    await send(data(1, 600), data(1, 400), data(3, 600), data(3, 401));
    assert.equal(await client.resetCode(3), errorCodes.noError);
    await left(1);
    await send(data(1, 0, flags.endStream));
    await left(0);
    assert.equal(count(frameTypes.resetStream, 1), 0);
    for (const { events } of received) assert.deepEqual(events, ['start', 'taken']);
  });
});

// Some releases of Node 26 pause the stream below during each write.
test('input that arrives while node:http2 has paused is passed on when node:http2 resumes [D58]', async (t) => {
  const { socket, client } = await openPair(t);
  const passed: Buffer[] = [];
  const paced = new PacedSocket(socket.resume(), () => 0).on('data', (bytes: Buffer) => passed.push(bytes)).pause();
  client.write(frames.preface);
  await poll(() => socket.bytesRead === frames.preface.length, 'the bytes are read');
  await turns(3);
  assert.deepEqual(passed, []);
  paced.resume();
  await poll(() => Buffer.concat(passed).equals(frames.preface), 'the bytes are passed on');
});

test('the time for which node:http2 has not read begins again with each pause [D39]', async (t) => {
  const { socket } = await openPair(t);
  const paced = new PacedSocket(socket, () => 0).pause();
  assert.deepEqual([paced.unreadFor(1_000), paced.unreadFor(1_999)], [0, 999]);
  paced.resume();
  await once(paced, 'resume');
  assert.equal(paced.pause().unreadFor(2_000), 0);
});

describe('input in one turn of the event loop [D58]', { skip: noHttp2 }, () => {
  const heads = (length: number) =>
    Array.from({ length: 40 }, (_, index) => get(1 + 2 * index, '/', [['x', 'x'.repeat(length)]]));
  const pieces = Array.from({ length: 2_000 }, (_, index) => data(1, String(index % 10)));

  // The first turn begins when the bytes arrive. The connection's own turn follows in the same iteration of the event loop.
  for (const [name, atOnce, inOwn, all, event] of [
    ['heads', 4, 12, heads(0), 'onStart'],
    ['heads of 1,500 bytes', 2, 3, heads(1_500), 'onStart'],
    ['frames', 64, 256, [put(1), ...pieces, data(1, 0, flags.endStream)], 'onBody'],
  ] as const) {
    test(`at most ${atOnce} ${name} are read, and then ${inOwn} in each turn of the connection`, async (t) => {
      const perTurn = new Map<number, number>();
      const count = () => perTurn.set(currentTurn(), (perTurn.get(currentTurn()) ?? 0) + 1);
      const { send, received } = await begin(t, { [event]: count });
      await turns(3);
      await send(...all);
      const isOver = () => received.length === 40 || received[0]?.events.at(-1) === 'end';
      await poll(isOver, 'all is read');
      const [first = 0, ...others] = perTurn.values();
      assert.ok(first <= atOnce + inOwn && Math.max(...others) === inOwn, [first, ...others].join(' '));
      if (event === 'onBody') assert.equal(received[0]?.body, '0123456789'.repeat(200));
    });
  }
});

describe('bodies that are not read yet [D58]', { skip: noHttp2 }, () => {
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

  test('the body of a stream that its client resets is released, and other streams are served', async (t) => {
    const { client, send, request, budget, pass } = await begin(t, hold);
    const head = put(1, '/', [['expect', '100-continue']]);
    const piece = data(1, 16_000);
    await send(head, put(3), piece, piece, piece, data(3, 16_000), frames.resetStream(1, errorCodes.noError));
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
    const { client, send, request } = await begin(t, {}, { window: 0 });
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
  const { fieldBlock, indexedField } = frames;
  const request = fieldBlock(frames.requestFields('GET', '/'));
  const many = Array.from({ length: 66 }, (_, index) => indexedField(`x-${index}`, ''));
  for (const [name, ...parts] of [
    ['literal fields, some of them empty', request, fieldBlock([['a', '1'], ['b', '']])],
    ['names and values of more than 126 bytes', request, fieldBlock([['a', 'x'.repeat(127)], ['b'.repeat(300), 'x'.repeat(300)]])],
    ['an index of one byte', request, Buffer.of(0x90)],
    ['an index of two bytes', request, ...many, Buffer.of(0xff, 0x00)],
    ['a name with an index of one byte', request, Buffer.of(0x5f, 1, 0x61), Buffer.of(0x50, 1, 0x61)],
    ['a name with an index of two bytes', request, Buffer.of(0x0f, 0x2b, 1, 0x61, 0x1f, 0x2b, 1, 0x61), indexedField('x', ''), indexedField('y', ''), Buffer.of(0x7f, 0x00, 1, 0x61)],
    ['a literal name that is never indexed', request, Buffer.of(0x10, 1, 0x61, 1, 0x62)],
    ['Huffman-coded text', request, Buffer.of(0x00, 0x81, 0x1f, 0x81, 0x1f)],
    ['updates of the table size, which are not fields', Buffer.of(0x20, 0x3f, 0xe1, 0x1f), request],
  ] as [string, ...Buffer[]][]) {
    test(`are all counted in a head with ${name}, in any frames and in pieces of any size`, async (t) => {
      const { client, send } = await begin(t, replies);
      const block = Buffer.concat(parts);
      const middle = block.length >> 1;
      const { endStream, endHeaders, padded, priority } = flags;
      const paddedBlock = Buffer.concat([Buffer.of(7), Buffer.alloc(5, 0x82), block, Buffer.alloc(7, 0x82)]);
      let stream = -1;
      for (const forms of [
        [[frameTypes.headers, endHeaders | endStream, block]],
        [[frameTypes.headers, endHeaders | endStream | padded | priority, paddedBlock]],
        [[frameTypes.headers, endStream, block.subarray(0, middle)], [frameTypes.continuation, endHeaders, block.subarray(middle)]],
      ] as const) {
        for (const size of [1, 1_000]) {
          stream += 2;
          const bytes = Buffer.concat(forms.map(([type, flag, payload]) => frames.frame(type, flag, stream, payload)));
          for (let at = 0; at < bytes.length; at += size) await send(bytes.subarray(at, at + size));
          await client.replies(stream);
        }
      }
    });
  } // prettier-ignore
});

describe('bodies and replies of a stream', { skip: noHttp2 }, () => {
  for (const sizes of [[1], [sliceBytes], [sliceBytes + 1], [3 * sliceBytes], [5, 40_000, 1], [2 * sliceBytes, 1, 1]]) {
    test(`a reply in pieces of ${sizes.join(', ')} bytes arrives unchanged, and "taken" is reported once [D14]`, async (t) => {
      const { client, count, left, ...opened } = await begin(t);
      const received = await opened.get();
      const pieces = sizes.map((size, index) => Buffer.alloc(size, 'abc'.charAt(index)));
      received.reply('', { pieces });
      await client.receives(({ type, flags: each }) => type === frameTypes.data && each === flags.endStream, 'its end');
      await left(0);
      assert.ok(client.bodyOf(1).equals(Buffer.concat(pieces)));
      assert.deepEqual(received.events, ['start', 'taken']);
      assert.equal(count(frameTypes.resetStream, 1), 0);
    });
  }

  for (const [name, method, text] of [
    ['a reply to HEAD', 'HEAD', 'ok'],
    ['an empty reply', 'GET', ''],
  ] as const) {
    test(`${name} ends its stream with the head, and needs no window`, async (t) => {
      const { client, send, request, left, count } = await begin(t, {}, { window: 0 });
      await send(frames.headers(1, frames.requestFields(method, '/')));
      const received = await request(0);
      received.reply(text);
      assert.deepEqual(received.events, ['start', 'taken']);
      const head = await client.receives(({ stream, type }) => stream === 1 && type === frameTypes.headers, 'the head');
      assert.equal(head.flags, flags.endHeaders | flags.endStream);
      await left(0);
      assert.equal(count(frameTypes.data, 1), 0);
    });
  }

  test('a held body reaches the handler after readBody, which also sends one 100 Continue if the client expects it [RFC 9110, 10.1.1]', async (t) => {
    const { client, send, request, count } = await begin(t, hold);
    const expecting = [['expect', '100-continue']] as const;
    await send(put(1), data(1, 5, flags.endStream), put(3, '/', expecting), get(5, '/', expecting));
    const all = [await request(0), await request(1), await request(2)];
    await turns(5);
    for (const { events } of all) assert.deepEqual(events, ['start']);
    for (const { transport } of [...all, ...all]) transport.readBody();
    await client.receives(({ stream, type }) => stream === 3 && type === frameTypes.headers, 'the 100');
    await send(data(3, 5, flags.endStream));
    for (const each of all) each.reply('ok');
    await client.replies(1, 3, 5);
    assert.deepEqual(all.map(({ body }) => body), ['xxxxx', 'xxxxx', '']); // prettier-ignore
    for (const { events } of all.slice(0, 2)) assert.deepEqual(events, ['start', 'body', 'end', 'taken']);
    assert.deepEqual([1, 3, 5].map((stream) => count(frameTypes.headers, stream)), [1, 2, 1]); // prettier-ignore
  });

  for (const [name, others, closes] of [
    ['with `closes`', [], true],
    ['instead of the 100 Continue that the client expects', [['expect', '100-continue']], false],
  ] as const) {
    test(`a reply ${name} arrives complete before its stream is reset with NO_ERROR [RFC 9113, 8.1]`, async (t) => {
      const { client, send, request } = await begin(t, hold);
      await send(put(1, '/', others));
      (await request(0)).reply('x'.repeat(4 * sliceBytes), { closes });
      // The reply is larger than the initial window of the connection.
      client.send(windowUpdate(1, sliceBytes), windowUpdate(0, sliceBytes));
      assert.equal(await client.resetCode(1), errorCodes.noError);
      assert.equal(client.bodyOf(1).length, 4 * sliceBytes);
    });
  }

  test('a stream that the handler cuts is reset with INTERNAL_ERROR, and "gone" is reported', async (t) => {
    const { client, budget, ...opened } = await begin(t);
    const received = await opened.get();
    received.transport.cut();
    assert.equal(await client.resetCode(1), errorCodes.internalError);
    assert.deepEqual([received.events, budget.bytes], [['start', 'gone'], 0]);
  });
});

describe('a client that leaves [D21]', { skip: noHttp2 }, () => {
  for (const [when, head, isReplied, events] of [
    ['before the reply', get(1), false, ['start', 'gone']],
    ['before the first byte of its body', put(1), false, ['start', 'gone']],
    ['before its body is complete', Buffer.concat([put(1), data(1, 5)]), false, ['start', 'body', 'gone']],
    ['before it has read the reply', get(1), true, ['start', 'taken']],
    ['before it has read the reply, with an incomplete body', put(1), true, ['start', 'taken']],
  ] as const) {
    for (const [how, leave] of [
      ['resets its stream with CANCEL', (client: FrameClient<Socket>) => client.send(frames.resetStream(1, errorCodes.cancel))],
      ['resets its stream with NO_ERROR', (client) => client.send(frames.resetStream(1, errorCodes.noError))],
      ['closes its connection', ({ socket }) => socket.destroy()],
      ['half-closes its connection', ({ socket }) => socket.end()],
    ] as [string, (client: FrameClient<Socket>) => void][]) {
      test(`if the client ${how} ${when}, the handler gets ${events.join(', ')}, and all memory is released`, async (t) => {
        const { client, send, request, budget, connection, faults } = await begin(t, {}, { window: 0 });
        await send(head);
        const received = await request(0);
        if (isReplied) received.reply('x'.repeat(3 * sliceBytes));
        assert.ok(budget.bytes > 0);
        leave(client);
        await poll(() => received.events.length === events.length, 'the handler gets its last event');
        await turns(5);
        assert.deepEqual(received.events, events);
        assert.deepEqual([budget.bytes, connection.streams, faults], [0, 0, []]);
      });
    } // prettier-ignore
  }
});

describe('a fault of the handler [D28]', { skip: noHttp2 }, () => {
  const fault = new Error('broken');
  const fail = () => {
    throw fault;
  };
  for (const [event, ...bytes] of [
    ['onStart', get(1)],
    ['onBody', put(1), data(1, 5)],
    ['onBodyEnd', put(1), data(1, 0, flags.endStream)],
    ['onBroken', put(1)],
    ['onGone', put(1), frames.resetStream(1, errorCodes.cancel)],
    ['onRefuse', get(1, '/', [['host', 'other']])],
  ] as const) {
    test(`in ${event} ends its own stream, and other streams are served`, async (t) => {
      const { client, send, pass, faults, budget, left, received } = await begin(t, { [event]: fail }, { requestTimeoutMs: 400 }); // prettier-ignore
      await send(...bytes);
      if (event === 'onBroken') pass(400);
      await poll(() => faults.length > 0, 'the fault is reported');
      if (event !== 'onGone') assert.equal(await client.resetCode(1), errorCodes.internalError);
      await left(0);
      assert.equal(budget.bytes, 0);
      if (event === 'onStart') return;
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
