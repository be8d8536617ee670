// Hostile frames over HTTP/2: each connection ends or is served, costs a limited amount of memory, leaves nothing, and other
// clients are served meanwhile. D39, D33, D58.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { attackAtRandom, brokenHead, endings, longFrame, openHostile } from '../helpers/hostile-frames.ts';
import { type Http2Client, noHttp2 } from '../helpers/http2-client.ts';
import * as frames from '../helpers/http2-frames.ts';
import { data, errorCodes, flags, frame, FrameClient, frameTypes, get, put, repeat } from '../helpers/http2-frames.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { accounted, rememberHeld } from '../helpers/leftovers.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { turns } from './served-connections.ts';

checkHttp2States();

const item = '/api/work-items/5';
const megabyte = 1_048_576;
const whole = flags.endHeaders | flags.endStream;
const limits = { replyStallTimeoutMs: 1_000, backendTimeoutMs: 1_000, backendIdleTimeoutMs: 100 };
const start = () => startGateway({ host: 'http2', settings: limits });

let server: Awaited<ReturnType<typeof start>>;
let good: Http2Client;
before(async () => {
  if (noHttp2 !== false) return;
  server = await start();
  good = await server.connect();
});
after(async () => {
  if (noHttp2 !== false) return;
  good.destroy();
  await server[Symbol.asyncDispose]();
});

async function assertServed(): Promise<void> {
  assertReply(await good.call('GET', item), 200, '{"id":5}');
}

/** Runs `attack` while another client makes valid calls, which must be served. Afterwards the gateway holds what it held before. */
async function attacked(attack: () => Promise<void>): Promise<void> {
  await assertServed();
  const assertHeld = rememberHeld(server);
  const state = { isOver: false };
  const attacking = attack().finally(() => (state.isOver = true));
  while (!state.isOver) await assertServed();
  await attacking;
  await assertHeld();
  await assertServed();
  assert.deepEqual(server.told.bugs, []);
  assert.equal(new Set(server.told.stalled).size, server.told.stalled.length, 'no stall is reported twice');
}

/** Runs `attack` on a connection that has exchanged settings. The memory of this process grows by less than 100 MB. */
function attackedBy(attack: (client: FrameClient) => Promise<void>): Promise<void> {
  return attacked(async () => {
    await using client = await FrameClient.begin(server.port);
    const from = process.memoryUsage().rss;
    await attack(client);
    // Garbage counts, too.
    const bytes = process.memoryUsage().rss - from;
    assert.ok(bytes < 100 * megabyte, `grew by ${bytes} bytes`);
  });
}

const unknown = frame(0x77, 0, 0, Buffer.alloc(1));
const priority = (on: number) => frame(frameTypes.priority, 0, 1, Buffer.of(0, 0, 0, on, 1));
const continuation = (payload: Buffer) => repeat(frame(frameTypes.continuation, 0, 1, payload), 4);
const rows: [name: string, frames: Buffer, more?: (round: number) => Buffer, rounds?: number][] = [
  ['a frame over the largest allowed size', data(1, 20_000)],
  ['a frame that announces 16 MB', Buffer.of(0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1)],
  ['DATA on an idle stream', data(5, 5)],
  ['DATA on stream 0', data(0, 5)],
  ['HEADERS on an even stream id', get(2, item)],
  ['HEADERS on stream 0', get(0, item)],
  ['CONTINUATION without HEADERS', frame(frameTypes.continuation, flags.endHeaders, 1, Buffer.alloc(5))],
  ['another frame within a head', Buffer.concat([frames.headers(1, frames.requestFields('GET', item), 0), frames.ping])],
  ['fields that cannot be decoded', brokenHead(1)],
  ['an index beyond the header table', frame(frameTypes.headers, whole, 1, Buffer.of(0x80 | 100))],
  ['PUSH_PROMISE', frame(frameTypes.pushPromise, flags.endHeaders, 1, Buffer.alloc(10))],
  ['SETTINGS of a wrong length', frame(frameTypes.settings, 0, 0, Buffer.alloc(5))],
  ['SETTINGS with 33 entries', frames.settings(Array.from({ length: 33 }, () => [frames.settingIds.initialWindowSize, 1] as const))],
  ['SETTINGS with a window that is too large', frames.settings([[frames.settingIds.initialWindowSize, 2 ** 31]])],
  ['PING of a wrong length', frame(frameTypes.ping, 0, 0, Buffer.alloc(7))],
  ['a window update of 0', frames.windowUpdate(0, 0)],
  ['window updates beyond the largest window', repeat(frames.windowUpdate(0, 2 ** 31 - 1), 2)],
  ['a reset of an idle stream', frames.resetStream(7, 0)],
  ['GOAWAY with an error', frame(frameTypes.goAway, 0, 0, Buffer.of(0, 0, 0, 0, 0, 0, 0, 2))],
  ['padding that is longer than its frame', frame(frameTypes.headers, flags.padded | flags.endHeaders, 1, Buffer.of(200, 0))],
  // A window update of 0 is a stream error, so the gateway must reset the stream [RFC 9113, 6.9].
  ['streams that the gateway must reset (CVE-2025-8671)', Buffer.alloc(0), (round) => Buffer.concat([get(1 + 2 * round, '/nope'), frames.windowUpdate(1 + 2 * round, 0)]), 5_000],
  ['60,000 PRIORITY', Buffer.alloc(0), () => repeat(priority(0), 3_000), 20],
  ['60,000 frames of an unknown type', Buffer.alloc(0), () => repeat(unknown, 3_000), 20],
  ['50,000 empty DATA frames', put(1, item), () => repeat(data(1, 0), 1_000), 50],
  ...[Buffer.alloc(0), Buffer.alloc(1), frames.fieldBlock([['x-a', 'x'.repeat(15_980)]])].map(
    (payload): (typeof rows)[number] => [`endless CONTINUATION frames of ${payload.length} bytes`, frames.headers(1, frames.requestFields('GET', item), flags.endStream), () => continuation(payload), 1_000],
  ),
]; // prettier-ignore

describe('a connection is closed, and leaves nothing, after', { skip: noHttp2 }, () => {
  for (const [name, frames, more, rounds = 0] of rows) {
    test(name, () =>
      attackedBy(async (client) => {
        client.send(frames);
        for (let round = 0; round < rounds && client.isOpen; round += 1) await client.sent(more?.(round) ?? frames);
        await client.closed();
      }),
    );
  }

  for (const [name, bytes] of [
    ['an HTTP/1.1 request', Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.padEnd(64))],
    ['noise', Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 167 + 13) % 256))],
  ] as const) {
    test(`${name} instead of the preface`, () =>
      attacked(async () => {
        await using client = await FrameClient.open(server.port);
        client.send(bytes);
        await client.closed();
      }));
  }

  test('more than 200 resets at once (rapid reset, CVE-2023-44487), and every read is cancelled', () =>
    attackedBy(async (client) => {
      const pair = (stream: number) => Buffer.concat([get(stream, '/api/work-items'), frames.resetStream(stream, errorCodes.cancel)]); // prettier-ignore
      for (let stream = 1; stream < 20_000 && client.isOpen; stream += 100) {
        await client.sent(...Array.from({ length: 50 }, (_, index) => pair(stream + 2 * index)));
      }
      await client.closed();
      assert.ok(client.goAway !== undefined && client.goAway.code !== errorCodes.noError, 'an error code');
      assert.ok(client.goAway.lastStream < 2 * 600, `stopped at ${client.goAway.lastStream}`);
    }));
});

describe('a connection is served, and leaves nothing, after', { skip: noHttp2 }, () => {
  const window = frames.settings([[frames.settingIds.initialWindowSize, 65_535]]);
  for (const [name, one, reads] of [
    ['SETTINGS', window, true],
    ['SETTINGS', window, false],
    ['PING', frames.ping, true],
    ['PING', frames.ping, false],
    ['WINDOW_UPDATE', frames.windowUpdate(0, 1), true],
  ] as const) {
    test(`60,000 ${name}${reads ? '' : ', unless it is closed because it reads nothing'}`, () =>
      attackedBy(async (client) => {
        const countLast = () => server.told.ended.filter(({ path }) => path === '/last').length;
        const before = countLast();
        if (!reads) client.socket.pause();
        for (let round = 0; round < 20 && client.isOpen; round += 1) await client.sent(repeat(one, 3_000));
        client.send(get(1, '/last'));
        const isClosed = () => !reads && server.clients.size === 1;
        await poll(() => countLast() > before || isClosed(), 'the last request is answered');
      }));
  }

  test('heads that are reset in the same read; no bug is recorded [D28]', () =>
    attackedBy(async (client) => {
      const parts = Array.from({ length: 120 }, (_, index) => {
        const stream = 1 + 2 * index;
        const expecting = put(stream, item, [['expect', '100-continue']]);
        const head = [get(stream, '/none'), get(stream, '/api/work-items/none'), expecting][index % 3] ?? frames.ping;
        return [head, frames.resetStream(stream, index < 60 ? errorCodes.cancel : errorCodes.noError)];
      });
      client.send(...parts.flat(), get(241, '/last'));
      await client.replies(241);
      await poll(() => server.told.ended.filter(({ path }) => path !== item).length >= 81, 'the calls have ended');
      assert.ok(!server.told.ended.some(({ outcome }) => outcome === 'bug'));
    }));

  test('a compression bomb (each byte stands for a field of 4,000 bytes), which is refused', () =>
    attackedBy(async (client) => {
      const start = frames.fieldBlock(frames.requestFields('GET', item));
      const large = frames.indexedField('x-large', 'x'.repeat(4_000));
      client.send(frame(frameTypes.headers, whole, 1, Buffer.concat([start, large])));
      await client.replies(1);
      for (let stream = 3; stream < 200 && client.isOpen; stream += 2) {
        await client.sent(
          frame(frameTypes.headers, whole, stream, Buffer.concat([start, frames.firstOfTable(16_000)])),
        );
      }
      assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
    }));

  test('60 replies of 1 MB that its window blocks; they stay within the budget', async () => {
    const settings = { ...limits, bufferedBytesMax: 20 * megabyte };
    await using small = accounted(await startGateway({ host: 'http2', settings }));
    small.backend.answers(answer(`"${'x'.repeat(megabyte)}"`));
    await using client = await FrameClient.begin(small.port, frames.closedWindow);
    client.send(...Array.from({ length: 60 }, (_, index) => get(1 + 2 * index, item)));
    await poll(() => small.told.ended.length === 60, 'all calls have ended');
    assert.ok(small.gateway.budget.bytes <= 20 * megabyte, `${small.gateway.budget.bytes} bytes buffered`);
    // The number of refused calls varies, because replies that are dropped meanwhile make room for other calls.
    assert.ok(small.told.ended.some(({ status }) => status !== 200), 'some calls were refused'); // prettier-ignore
    await poll(() => small.gateway.budget.bytes === 0, 'all memory is released');
    small.backend.answers(answer('{"id":5}'));
    await using other = await small.connect();
    assertReply(await other.call('GET', item), 200, '{"id":5}');
  });
});

// node:http2 neither ends these connections nor reads from them, so that it does not see that a client has left.
const closed = frames.settings(frames.closedWindow);
const zeros = Buffer.alloc(20);
const stuck: [name: string, first: Buffer[], later: Buffer][] = [
  ['a frame that is too long after GOAWAY', [closed, get(1), frames.goAway, longFrame], zeros],
  ['fields that cannot be decoded after GOAWAY', [closed, get(1), frames.goAway, brokenHead(3)], zeros],
  ['two GOAWAYs with a frame that is too long between them', [closed, get(1), frames.goAway, longFrame, frames.goAway], frames.goAway],
  ['a body that does not end, and fields that cannot be decoded', [closed, put(1, item), frames.goAway, brokenHead(3)], zeros],
  ['a frame that is too long after a reset', [closed, get(1), get(3), frames.goAway, frames.resetStream(1, 8), longFrame], zeros],
  ['a window that is too large', [closed, get(1), frames.goAway, frames.windowUpdate(0, 2 ** 31 - 1)], frames.ping],
  ['a stream that depends on itself', [closed, get(1), frames.goAway, priority(1), longFrame], frames.ping],
]; // prettier-ignore

describe('connections that node:http2 would leave open', { skip: noHttp2 }, () => {
  /** Opens a connection for each row and each of `ends`. Returns the clients by name. */
  async function open(port: number, rowsOf: typeof stuck, ends: readonly (typeof endings)[number][]) {
    const all = rowsOf.flatMap((row) => ends.map((ending) => [...row, ending] as const));
    return await Promise.all(
      all.map(async ([name, first, later, ending]) => {
        const client = await openHostile(port);
        client.send(frames.preface, ...first);
        for (let round = 0; round < 2; round += 1) {
          await turns(20);
          client.send(later);
        }
        await turns(20);
        client.end(ending);
        return { name: `${name}, ${ending}`, port: client.carrier.localPort, client };
      }),
    );
  }

  test('end, however their clients leave', () =>
    attacked(async () => {
      const opened = await open(server.port, stuck, endings);
      const ports = () => new Set([...server.clients].map(({ socket }) => socket.remotePort));
      await poll(() => server.clients.size === 1, 'all connections have ended').catch(() => undefined);
      assert.deepEqual(opened.filter(({ port }) => ports().has(port)).map(({ name }) => name), []); // prettier-ignore
      for (const { client } of opened) client[Symbol.dispose]();
    }));

  test('do not delay a drain [D33]', async () => {
    await using drained = await start();
    const others: typeof stuck = [
      [
        'a body that does not end',
        [frames.settings(), frames.headers(1, frames.requestFields('GET', '/nope'), flags.endHeaders)],
        zeros,
      ],
      ['nothing', [frames.settings()], Buffer.alloc(0)],
      ['half a head', [frames.settings(), get(1).subarray(0, 20)], Buffer.alloc(0)],
      ['a closed window', [closed, get(1)], frames.ping],
    ];
    const opened = await open(drained.port, [...stuck, ...others], ['stay']);
    await poll(() => drained.told.ended.length >= 8, 'the calls have ended');
    const signal = AbortSignal.timeout(10_000);
    await drained.drain(signal);
    assert.deepEqual([signal.aborted, drained.clients.size], [false, 0]);
    for (const { client } of opened) client[Symbol.dispose]();
  });

  // Each run has other connections.
  test('are among 40 random hostile connections, which end and leave nothing', () =>
    attackAtRandom(Date.now() % 1_000_000, 1));
});
