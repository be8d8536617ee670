// Attacks over HTTP/2. Each costs a limited amount of memory and work, and other clients are served meanwhile. D39,
// D58.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { startGateway, type Settings } from '../helpers/gateway.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import { checkHttp2States } from '../helpers/http2-states.ts';
import { accounted } from '../helpers/leftovers.ts';
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
  resetStream,
  settingIds,
  settings,
  windowUpdate,
} from '../helpers/http2-frames.ts';
import { answer, timeout } from '../helpers/scripted-backend.ts';

checkHttp2States();

const item = '/api/work-items/5';
type Server = Awaited<ReturnType<typeof startGateway<'http2'>>>;
const megabyte = 1_048_576;

/** Starts a gateway whose disposal asserts that an attack has left nothing. */
async function start(settings: Settings = {}): Promise<Server> {
  return accounted(await startGateway({ host: 'http2', settings: { backendIdleTimeoutMs: 300, ...settings } }));
}

/** Makes valid calls, one after another, while `attack` runs; each must be served. Returns the number of calls. */
async function servedWhile(
  server: Server,
  attack: (attacker: FrameClient) => Promise<unknown>,
  open = (port: number) => FrameClient.begin(port),
): Promise<number> {
  const attacking = { isOver: false };
  await using attacker = await open(server.port);
  await using client = await server.connect();
  const attacked = attack(attacker).finally(() => {
    attacking.isOver = true;
  });
  let calls = 0;
  do {
    assertReply(await client.call('GET', item), 200, '{"id":5}');
    calls += 1;
  } while (!attacking.isOver);
  await attacked;
  attacker.socket.destroy();
  assertReply(await client.call('GET', item), 200, '{"id":5}');
  assert.deepEqual(server.told.bugs, []);
  return calls;
}

/** Growth of this process's memory during `act`, in bytes. Garbage counts. */
async function growth(act: () => Promise<unknown>): Promise<number> {
  const before = process.memoryUsage().rss;
  await act();
  return process.memoryUsage().rss - before;
}

/** The size of all JavaScript objects of this process that are in use, with their buffers, in bytes. */
async function used(): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  // Node frees the native part of an object only in the turn after its collection.
  for (let count = 0; count < 2; count += 1) {
    collectGarbage();
    await new Promise(setImmediate);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Sends `frames` this many times, or until the gateway closes the connection. */
async function flood(client: FrameClient, frames: (round: number) => Buffer, times: number): Promise<void> {
  for (let round = 0; round < times && client.isOpen; round += 1) await client.sent(frames(round));
}

// The smallest record size that OpenSSL can be set to.
const recordBytes = 512;

function repeat(bytes: Uint8Array, count: number): Buffer {
  return Buffer.concat(Array.from({ length: count }, () => bytes));
}

describe('attacks over HTTP/2', { skip: noHttp2 }, () => {
  test('rapid reset, CVE-2023-44487: the connection ends after 200 resets, and every read is cancelled', async () => {
    await using server = await start();
    server.backend.answersOnce();
    await servedWhile(server, async (client) => {
      const request = requestFields('GET', '/api/work-items');
      await flood(
        client,
        (round) => Buffer.concat(Array.from({ length: 50 }, (_, index) => {
          const stream = 1 + 2 * (50 * round + index);
          return Buffer.concat([headers(stream, request), resetStream(stream, errorCodes.cancel)]);
        })), // prettier-ignore
        200,
      );
      await client.closed();
      assert.ok(client.goAway !== undefined && client.goAway.code !== errorCodes.noError, 'an error code');
      assert.ok(client.goAway.lastStream < 2 * 600, `stopped at ${client.goAway.lastStream}`);
    });
    await poll(() => server.gateway.inFlight === 0, 'nothing is left in flight');
  });

  // The reset arrives in the same piece as the head, so the stream is closed before the reply.
  for (const { name, request, ends } of [
    { name: 'an unknown path', request: requestFields('GET', '/none'), ends: true },
    { name: 'an invalid id', request: requestFields('GET', '/api/work-items/none'), ends: true },
    {
      name: 'a body that waits for 100 Continue',
      request: requestFields('PUT', item, [['expect', '100-continue']]),
      ends: false,
    },
  ]) {
    for (const code of [errorCodes.cancel, errorCodes.noError]) {
      test(`if a request with ${name} is reset with code ${code} right after its head, no bug is recorded [D28]`, async () => {
        await using server = await start();
        await using client = await FrameClient.begin(server.port);
        const head = flags.endHeaders | (ends ? flags.endStream : 0);
        const streams = Array.from({ length: 20 }, (_, index) => 1 + 2 * index);
        client.send(
          ...streams.map((stream) => Buffer.concat([headers(stream, request, head), resetStream(stream, code)])),
          headers(41, requestFields('GET', item)),
        );
        await client.replies(41);
        await poll(() => server.told.ended.length === 21, 'all calls have ended');
        assert.deepEqual(server.told.bugs, []);
        assert.ok(!server.told.ended.some(({ outcome }) => outcome === 'bug'));
      });
    }
  }

  const list = requestFields('GET', '/api/work-items');
  const emptyData = repeat(frame(frameTypes.data, 0, 1), 1000);
  const continuation = (payload: Buffer) => repeat(frame(frameTypes.continuation, 0, 1, payload), 4);
  const floods: [name: string, first: Buffer, frames: (round: number) => Buffer, times: number][] = [
    [
      // A window update of 0 is a stream error, so the gateway must reset the stream [RFC 9113, 6.9].
      'CVE-2025-8671: 5,000 streams that the gateway must reset',
      Buffer.alloc(0),
      (round) => Buffer.concat([headers(1 + 2 * round, list), windowUpdate(1 + 2 * round, 0)]),
      5000,
    ],
    ['50,000 empty DATA frames', headers(1, requestFields('PUT', item), flags.endHeaders), () => emptyData, 50],
    ...[
      [0, Buffer.alloc(0)] as const,
      [1, Buffer.alloc(1)] as const,
      [16_000, fieldBlock([['x-a', 'x'.repeat(15_980)]])] as const,
    ].map(([size, payload]): (typeof floods)[number] => [
      `endless CONTINUATION frames of ${size} bytes`,
      headers(1, requestFields('GET', item), flags.endStream),
      () => continuation(payload),
      1000,
    ]),
  ];
  for (const [name, first, frames, times] of floods) {
    test(`${name} end the connection`, async () => {
      await using server = await start();
      await servedWhile(server, async (client) => {
        client.send(first);
        await flood(client, frames, times);
        await client.closed();
      });
      await poll(() => server.gateway.inFlight === 0, 'nothing is left in flight');
    });
  }

  test('of 150 simultaneous streams, 100 cause calls at most, and the others are refused', async () => {
    await using server = await start();
    for (const hasSettings of [true, false]) {
      await using good = await server.connect();
      assertReply(await good.call('GET', item), 200, '{"id":5}');
      const before = server.backend.requests.length;
      server.backend.answers(timeout);
      // The limit also applies to a client that never acknowledges the settings.
      await using client = hasSettings ? await FrameClient.begin(server.port) : await FrameClient.open(server.port);
      if (!hasSettings) client.send(Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), settings());
      const all = Array.from({ length: 150 }, (_, index) => headers(1 + 2 * index, requestFields('GET', item)));
      client.send(...all);
      await Promise.race([client.closed(), poll(() => server.backend.requests.length >= before + 100, '100 calls')]);
      assert.ok(server.gateway.inFlight <= 100, `${server.gateway.inFlight} in flight`);
      client.socket.destroy();
      await poll(() => server.gateway.inFlight === 0, 'nothing is left in flight');
      server.backend.answers(answer('{"id":5}'));
    }
  });

  for (const [name, one, reads] of [
    ['SETTINGS', settings([[settingIds.initialWindowSize, 65_535]]), true],
    ['SETTINGS', settings([[settingIds.initialWindowSize, 65_535]]), false],
    ['PING', frame(frameTypes.ping, 0, 0, Buffer.alloc(8)), true],
    ['PING', frame(frameTypes.ping, 0, 0, Buffer.alloc(8)), false],
    ['PRIORITY', frame(frameTypes.priority, 0, 1, Buffer.of(0, 0, 0, 0, 1)), true],
    ['WINDOW_UPDATE', windowUpdate(0, 1), true],
    ['frames of an unknown type', frame(0x77, 0, 0, Buffer.alloc(1)), true],
  ] as const) {
    test(`during a flood of 60,000 ${name} from a client that ${reads ? 'reads' : 'reads nothing'}, memory use is limited, and other clients are served`, async () => {
      await using server = await start();
      const bytes = await growth(() =>
        servedWhile(server, async (client) => {
          if (!reads) client.socket.pause();
          await flood(client, () => repeat(one, 3000), 20);
          client.send(headers(1, requestFields('GET', '/last')));
          await poll(() => server.told.ended.some(({ path }) => path === '/last') || server.clients.size === 1, 'the last request is answered, or the connection is closed'); // prettier-ignore
        }),
      );
      assert.ok(bytes < 100 * megabyte, `grew by ${bytes} bytes`);
    });
  }

  test('other clients are served between one-byte DATA frames', async () => {
    await using server = await start();
    const clients = await Promise.all(Array.from({ length: 10 }, () => FrameClient.begin(server.port)));
    const one = frame(frameTypes.data, 0, 1, Buffer.from(' '));
    const bytes = repeat(one, 8_000);
    const calls = await servedWhile(server, async () => {
      await Promise.all(
        clients.map(async (client) => {
          client.send(headers(1, requestFields('PUT', item), flags.endHeaders));
          await client.sent(bytes, frame(frameTypes.data, flags.endStream, 1, Buffer.from('x')));
          await client.replies(1);
        }),
      );
    });
    // At 256 frames a turn, the 80,000 frames take more than 300 turns. A call takes only a few turns.
    assert.ok(calls >= 10, `${calls} calls`);
    for (const client of clients) client.socket.destroy();
  });

  test('a compression bomb (each byte stands for a field of 4,000 bytes) is refused at the limit, and memory use stays small', async () => {
    await using server = await start();
    const bytes = await growth(() =>
      servedWhile(server, async (client) => {
        const start = fieldBlock(requestFields('GET', item));
        const large = indexedField('x-large', 'x'.repeat(4000));
        client.send(frame(frameTypes.headers, flags.endHeaders | flags.endStream, 1, Buffer.concat([start, large])));
        await client.replies(1);
        for (let stream = 3; stream < 400 && client.isOpen; stream += 2) {
          const bomb = Buffer.concat([start, firstOfTable(16_000)]);
          await client.sent(frame(frameTypes.headers, flags.endHeaders | flags.endStream, stream, bomb));
        }
        if (client.isOpen) assert.equal(await client.resetCode(3), errorCodes.enhanceYourCalm);
      }),
    );
    assert.ok(bytes < 100 * megabyte, `grew by ${bytes} bytes`);
    assert.ok(!server.backend.requests.some(({ headers: each }) => each.some(([name]) => name === 'x-large')));
  });

  // prettier-ignore
  for (const [name, bytes] of [
    ['an HTTP/1.1 request instead of the preface', Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.padEnd(64))],
    ['noise instead of the preface', Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 167 + 13) % 256))],
    ['a frame over the largest allowed size', frame(frameTypes.data, 0, 1, Buffer.alloc(20_000))],
    ['a frame that announces 16 MB', Buffer.of(0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1)],
    ['DATA on an idle stream', frame(frameTypes.data, 0, 5, Buffer.alloc(5))],
    ['DATA on stream 0', frame(frameTypes.data, 0, 0, Buffer.alloc(5))],
    ['HEADERS on an even stream id', headers(2, requestFields('GET', item))],
    ['HEADERS on stream 0', headers(0, requestFields('GET', item))],
    ['CONTINUATION without HEADERS', frame(frameTypes.continuation, flags.endHeaders, 1, Buffer.alloc(5))],
    ['another frame within a head', Buffer.concat([headers(1, requestFields('GET', item), 0), frame(frameTypes.ping, 0, 0, Buffer.alloc(8))])],
    ['fields that cannot be decoded', frame(frameTypes.headers, flags.endHeaders | flags.endStream, 1, Buffer.of(0xff, 0xff, 0xff, 0xff, 0xff, 0xff))],
    ['an index beyond the header table', frame(frameTypes.headers, flags.endHeaders | flags.endStream, 1, Buffer.of(0x80 | 100))],
    ['PUSH_PROMISE', frame(frameTypes.pushPromise, flags.endHeaders, 1, Buffer.alloc(10))],
    ['SETTINGS of a wrong length', frame(frameTypes.settings, 0, 0, Buffer.alloc(5))],
    ['SETTINGS with 100 entries', settings(Array.from({ length: 100 }, () => [settingIds.initialWindowSize, 1] as const))],
    ['SETTINGS with a window that is too large', settings([[settingIds.initialWindowSize, 2 ** 31]])],
    ['PING of a wrong length', frame(frameTypes.ping, 0, 0, Buffer.alloc(7))],
    ['a window update of 0', windowUpdate(0, 0)],
    ['window updates beyond the largest window', Buffer.concat([windowUpdate(0, 2 ** 31 - 1), windowUpdate(0, 2 ** 31 - 1)])],
    ['a reset of an idle stream', resetStream(7, 0)],
    ['GOAWAY with an error', frame(frameTypes.goAway, 0, 0, Buffer.of(0, 0, 0, 0, 0, 0, 0, 2))],
    ['padding that is longer than its frame', frame(frameTypes.headers, 0x8 | flags.endHeaders, 1, Buffer.of(200, 0))],
  ] as const) {
    // prettier-ignore
    test(`${name} closes the connection, and other clients are served`, async () => {
      await using server = await start();
      const attack = async (client: FrameClient) => {
        client.send(bytes);
        await client.closed(3000);
      };
      await servedWhile(server, attack, (port) => (name.endsWith('the preface') ? FrameClient.open(port) : FrameClient.begin(port)));
      await poll(() => server.gateway.inFlight === 0, 'nothing is left in flight');
    });
  }

  test('replies blocked by a window of 0 stay within the budget, and their memory is released', async () => {
    await using server = await start({ replyStallTimeoutMs: 2000, bufferedBytesMax: 20 * megabyte });
    const large = `"${'x'.repeat(megabyte)}"`;
    server.backend.answers(answer(large));
    await using client = await FrameClient.begin(server.port, [[settingIds.initialWindowSize, 0]]);
    client.send(...Array.from({ length: 60 }, (_, index) => headers(1 + 2 * index, requestFields('GET', item))));
    await poll(() => server.told.ended.length === 60, 'all calls have ended');
    assert.ok(server.gateway.budget.bytes <= 20 * megabyte, `${server.gateway.budget.bytes} bytes buffered`);
    const overloaded = server.told.ended.filter(({ status }) => status !== 200).length;
    // The number of refused calls varies, because replies that are dropped meanwhile make room for other calls.
    assert.ok(overloaded > 0, 'some calls were refused');
    await poll(() => server.gateway.budget.bytes === 0, 'all memory is released');
    server.backend.answers(answer('{"id":5}'));
    await using good = await server.connect();
    assertReply(await good.call('GET', item), 200, '{"id":5}');
  });

  test('50,000 streams, one after another on one connection: memory is released, and other clients are served', async () => {
    await using server = await start();
    await servedWhile(server, async (client) => {
      client.send(windowUpdate(0, 2 ** 30));
      const request = fieldBlock(requestFields('GET', '/x'));
      let ended = 0;
      client.onFrame = ({ type, flags: each }) => {
        if (type === frameTypes.data && (each & flags.endStream) !== 0) ended += 1;
      };
      const before = await used();
      for (let count = 0; count < 50_000; count += 50) {
        await client.sent(...Array.from({ length: 50 }, (_, index) => frame(frameTypes.headers, flags.endHeaders | flags.endStream, 1 + 2 * (count + index), request))); // prettier-ignore
        await poll(() => ended >= count || !client.isOpen, 'the earlier replies');
        server.told.ended.length = 0;
      }
      assert.ok(client.isOpen, 'the connection is open');
      const bytes = (await used()) - before;
      assert.ok(bytes < 10 * megabyte, `${bytes} bytes are still used`);
    });
    assert.ok(server.clients.size <= 2);
  });

  for (const [how, padding] of [
    ['many requests in each TLS record', 0],
    [
      'only one request in each TLS record',
      recordBytes + 200 - headers(1, requestFields('GET', '/x', [['x', '1'.repeat(200)]])).length,
    ],
  ] as const) {
    test(`at most 16 requests of one connection start in one event-loop turn, with ${how} [D58]`, async () => {
      await using server = await start();
      let inTurn = 0;
      let most = 0;
      let seen = 0;
      const countTurn = (): void => {
        inTurn = server.told.ended.length - seen;
        seen = server.told.ended.length;
        most = Math.max(most, inTurn);
        ticker = setImmediate(countTurn);
      };
      let ticker = setImmediate(countTurn);
      await using client = await FrameClient.begin(server.port);
      assert.ok(client.socket.setMaxSendFragment(recordBytes));
      for (let round = 0; round < 20; round += 1) {
        const before = server.told.ended.length;
        client.send(
          ...Array.from({ length: 100 }, (_, index) =>
            headers(1 + 2 * (100 * round + index), requestFields('GET', '/x', [['x', '1'.repeat(padding)]])),
          ),
        );
        await poll(() => server.told.ended.length === before + 100, 'all requests are answered');
        await client.receives(
          (each) => each.stream === 1 + 2 * (100 * round + 99) && each.type === frameTypes.data,
          'the last reply',
        );
      }
      clearImmediate(ticker);
      assert.ok(most <= 16, `${most} in one turn`);
    });
  }
});
