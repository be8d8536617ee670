// The ledger counts what clients make the gateway hold, as allocated, and is back at 0 when they have gone [D69].

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { BufferBudget } from '../../packages/core/body/budget.ts';
import type { ClientConnection } from '../../packages/core/http1/client-connection.ts';
import { queueForTurn, TurnShare } from '../../packages/core/http1/turns.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, unavailable } from '../helpers/expected.ts';
import { startGateway, type Settings } from '../helpers/gateway.ts';
import { noHttp2 } from '../helpers/http2-client.ts';
import { flags, FrameClient, headers, requestFields, settingIds, windowUpdate } from '../helpers/http2-frames.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { turns } from './served-connections.ts';

// Each connection holds this much uncounted.
const free = 4_096;
const item = '/api/work-items/5';
const get = `GET ${item} HTTP/1.1\r\nHost: x\r\n\r\n`;
const put = (fields: string): string => `PUT ${item} HTTP/1.1\r\nHost: x\r\n${fields}\r\n\r\n`;

async function serve(settings: Settings = {}, host: 'http1' | 'http2' = 'http1') {
  const server = await startGateway({ host, settings });
  const { budget } = server.gateway;
  /** Waits until the bytes that are counted are as `isSo` says. */
  const counts = (isSo: (bytes: number) => boolean, expected: string) =>
    poll(() => isSo(budget.bytes), expected, 60_000);
  return { ...server, budget, counts, countsNothing: () => counts((bytes) => bytes === 0, 'nothing counts') };
}

type Served = Awaited<ReturnType<typeof serve>>;

/** Sends a call that the backend answers when the gate opens, then `ahead`. */
async function sendAhead(server: Served, client: RawClient, ahead: string) {
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('{"id":5}')));
  const before = server.backend.requests.length;
  client.send(get);
  await server.backend.until(() => server.backend.requests.length > before, 'the call');
  client.send(ahead);
  return gate;
}

describe('over HTTP/1.1', () => {
  test('requests sent ahead count, at most 68 KiB of them for each connection, until they are read [D58, D69]', async () => {
    await using server = await serve();
    const clients = await Promise.all([server.connect(), server.connect(), server.connect()]);
    const gates = [];
    for (const client of clients) gates.push(await sendAhead(server, client, get.repeat(5_000)));
    await server.counts((bytes) => bytes >= 3 * (60_000 - free), 'all of them count');
    assert.ok(server.budget.bytes <= 3 * (69_632 - free), String(server.budget.bytes));
    for (const gate of gates) gate.open();
    for (const client of clients) {
      assert.equal((await client.reply()).status, 200);
      client.destroy();
    }
    await server.countsNothing();
  });

  test('bytes sent ahead in many small pieces are held without an object for each piece [D58]', async () => {
    await using server = await serve();
    await using client = await server.connect();
    const gate = await sendAhead(server, client, '');
    const [connection] = server.clients;
    assert.ok(connection);
    for (let piece = 0; piece < 2_000; piece += 1) client.send(get.slice(0, 10));
    await poll(() => connection.socket.bytesRead > free, 'the buffer is full');
    assert.equal(connection.socket.readableLength, 0);
    client.destroy();
    gate.open();
    await server.countsNothing();
  });

  for (const [size, end] of [
    [1_500, 'leaves'],
    [15_500, 'reads'],
  ] as const) {
    test(`unread replies of ${size} bytes count until the client ${end} [D69]`, async () => {
      await using server = await serve();
      server.backend.answers(answer(JSON.stringify('x'.repeat(size - 2))));
      const client = connect(server.port, '127.0.0.1');
      // More replies than the buffers of the OS hold.
      client.write(get.repeat(Math.ceil(8_000_000 / size)));
      await server.counts((bytes) => bytes > 65_536, 'the replies and the requests ahead count');
      if (end === 'reads') client.resume();
      else client.destroy();
      await server.countsNothing();
      if (end === 'reads') {
        // The memory of a large reply counts once, whatever was copied before.
        server.backend.answers(answer(JSON.stringify('x'.repeat(8_000_000))));
        client.pause().write(get);
        await server.counts((bytes) => bytes > 8_000_000, 'the large reply counts');
        for (const each of server.clients) each.checkTime(performance.now());
        assert.ok(server.budget.bytes < 8_020_000, String(server.budget.bytes));
      }
      client.destroy();
    });
  }

  const long = 'a'.repeat(15_000);
  for (const [what, text, least, most] of [
    ['half a head', `GET ${item} HTTP/1.1\r\nHost: x\r\nX-A: ${long}`, 15_000 - free, Infinity],
    ['half of the trailers', `${put('Transfer-Encoding: chunked')}0\r\nX-A: ${long}`, 15_000 - free, Infinity],
    ['the head of half a body', put(`Content-Length: 9\r\nAuthorization: ${long}`), 15_000 - free, Infinity],
    // A small part of a read keeps no 64 KiB in memory.
    [
      'half a body after 60 KB of empty lines',
      `${'\r\n'.repeat(30_000)}${put('Content-Length: 90000')}${'1'.repeat(4_097)}`,
      4_097,
      10_000,
    ],
  ] as const) {
    // prettier-ignore
    test(`${what} counts until the client leaves [D69]`, async () => {
      await using server = await serve();
      const client = await server.connect();
      client.send(text);
      await server.counts((bytes) => bytes >= least, 'it counts');
      assert.ok(server.budget.bytes < most, String(server.budget.bytes));
      client.destroy();
      await server.countsNothing();
    });
  }

  test('half a head counts no longer after its 408, although the connection stays open for a while [D69]', async () => {
    await using server = await serve();
    const client = await server.connect();
    client.send(`GET ${item} HTTP/1.1\r\nHost: x\r\nX-A: ${long}`);
    await server.counts((bytes) => bytes > 0, 'it counts');
    const [connection] = server.clients;
    for (const after of [60_000, 0]) connection?.checkTime(performance.now() + after);
    assert.deepEqual([server.budget.bytes, connection?.socket.destroyed], [0, false]);
    client.destroy();
  });

  test('a connection that closes while it waits for its turn counts nothing afterwards [D69]', async (t) => {
    await using server = await serve();
    t.mock.method(TurnShare.prototype, 'wait', (connection: ClientConnection) => {
      // The connection closes before the turns of these have ended.
      for (let count = 0; count < 5; count += 1) queueForTurn({ takeTurn: () => undefined });
      queueForTurn(connection);
      connection.socket.destroy();
    });
    const client = await server.connect();
    client.send(put(`Content-Length: 900000\r\nAuthorization: ${long}`) + '1'.repeat(900_000));
    await client.closed();
    await turns(10);
    assert.equal(server.budget.bytes, 0);
  });

  test('BUFFERED_BYTES_MAX is the largest memory that a body may take: with one byte less, the same body is 503 [D26]', async () => {
    const body = JSON.stringify('x'.repeat(9_998));
    for (const [bufferedBytesMax, status] of [
      [body.length, 200],
      [body.length - 1, 503],
    ] as const) {
      await using server = await serve({ bufferedBytesMax });
      await using client = await server.connect();
      client.send(put(`Content-Length: ${body.length}`));
      const [connection] = server.clients;
      await poll(() => (connection?.socket.bytesRead ?? 0) > 0, 'the head is read');
      client.send(body);
      assert.equal((await client.reply()).status, status);
    }
  });
});

describe('when connections hold half of BUFFERED_BYTES_MAX', () => {
  const bufferedBytesMax = 400_000;

  /** Connections that hold as much as connections may, but for less than `left` bytes. */
  async function fill(server: Served, left: number) {
    const clients: RawClient[] = [];
    while (server.budget.bytes < bufferedBytesMax / 2 - left) {
      const client = await server.connect();
      const before = server.budget.bytes;
      client.send(`GET ${item} HTTP/1.1\r\nHost: x\r\nX-A: ${'a'.repeat(8_100)}`);
      await server.counts((bytes) => bytes > before, 'half a head counts');
      clients.push(client);
    }
    return clients;
  }

  test('half a head is 503, requests sent ahead are dropped after the current reply, and other clients are served [D69]', async () => {
    await using server = await serve({ bufferedBytesMax });
    const holders = await fill(server, 8_000);
    await using late = await server.connect();
    late.send(`GET ${item} HTTP/1.1\r\nHost: x\r\nX-A: ${'a'.repeat(15_000)}`);
    assertReply(await late.reply(), 503, unavailable, ['retry-after']);
    assert.equal(await late.closed(), 'end');
    await using ahead = await server.connect();
    const calls = server.backend.requests.length;
    const gate = await sendAhead(server, ahead, get.repeat(5_000));
    const [, , connection] = [...server.clients].slice(-3);
    await poll(() => (connection?.socket.bytesRead ?? Infinity) > 200_000, 'they are read and dropped');
    gate.open();
    const reply = await ahead.reply();
    assert.deepEqual([reply.status, reply.header('connection')], [200, 'close']);
    assert.equal(await ahead.closed(), 'end');
    assert.equal(server.backend.requests.length, calls + 1);
    const large = JSON.stringify('x'.repeat(100_000));
    assert.equal((await server.call('PUT', item, { body: large })).status, 200);
    for (const holder of holders) holder.destroy();
    await server.countsNothing();
  });

  for (const [room, copy] of [[50_000, 0], [100_000, 65_536 - free]] as const) {
    test(`a reply over TLS is sent whole; with room for ${room} more bytes, ${copy} of the copy of TLS count [D69]`, async () => {
      const body = JSON.stringify('x'.repeat(7_999_999));
      await using server = await startGateway({ host: 'http2', settings: { bufferedBytesMax: 8_000_000 + room } });
      server.backend.answers(answer(body));
      await using client = await RawClient.openSecure(server.port, { rejectUnauthorized: false });
      client.pause();
      client.send(get);
      const sending = () => [...server.clients].find(({ socket }) => socket.writableLength > 0);
      await poll(() => sending() !== undefined, 'the client does not read for a while');
      const connection = sending();
      connection?.checkTime(performance.now());
      assert.equal(connection?.socket.destroyed, false);
      const more = server.gateway.budget.bytes - body.length;
      assert.ok(more >= copy && more < copy + 20_000, String(more));
      client.resume();
      assert.ok((await client.reply()).body.equals(Buffer.from(body)));
    });
  } // prettier-ignore

  test('a client that does not read its replies is disconnected [D69]', async () => {
    await using server = await serve({ bufferedBytesMax });
    server.backend.answers(answer(JSON.stringify('x'.repeat(15_000))));
    const { length } = await fill(server, 8_000);
    const client = connect(server.port, '127.0.0.1').on('error', () => undefined);
    await poll(() => server.clients.size > length, 'the client is connected');
    // Sends the next calls when the last ones have been served, so that nothing is sent ahead.
    let sent = 0;
    await poll(() => {
      if (server.told.ended.length === sent) {
        client.write(get.repeat(40));
        sent += 40;
      }
      return server.clients.size === length;
    }, 'the client is disconnected');
  });
});

test(
  'over HTTP/2, open streams and unread replies count until the client leaves [D69]',
  { skip: noHttp2 },
  async () => {
    await using server = await serve({}, 'http2');
    server.backend.answers(answer(JSON.stringify('x'.repeat(15_000))));
    const client = await FrameClient.begin(server.port, [[settingIds.initialWindowSize, 2 ** 30]]);
    client.send(headers(1, requestFields('PUT', item), flags.endHeaders));
    await server.counts((bytes) => bytes > 8_000, 'the open stream counts');
    client.socket.pause();
    client.send(windowUpdate(0, 2 ** 30));
    let sent = 0;
    await server.counts((bytes) => {
      // An open stream counts 8 KB, so six streams do not suffice.
      if (bytes >= 65_536) return true;
      if (server.told.ended.length < sent) return false;
      client.send(...[3, 5, 7, 9, 11].map((id) => headers(2 * sent + id, requestFields('GET', item))));
      sent += 5;
      return false;
    }, 'unread replies count');
    client.socket.destroy();
    await server.countsNothing();
  },
);

test('the ledger takes exactly its limit, and connections hold at most half of it, and no more than is left', () => {
  const ledger = new BufferBudget(100);
  assert.ok(ledger.take(99));
  assert.ok(!ledger.isExhausted);
  assert.ok(!ledger.take(2));
  assert.ok(ledger.take(1));
  assert.ok(ledger.isExhausted);
  ledger.bytesMax = 50;
  ledger.giveBack(60);
  assert.ok(!ledger.take(11), 'the new limit');
  assert.ok(ledger.take(10));
  ledger.bytesMax = 100;
  ledger.giveBack(50);
  for (const [bytes, isHeld] of [[51, false], [50, true], [1, false], [-10, true]] as const) {
    assert.equal(ledger.hold(bytes), isHeld, String(bytes));
  } // prettier-ignore
  assert.ok(ledger.take(55));
  assert.ok(!ledger.hold(6));
  assert.ok(ledger.hold(5));
  assert.equal(ledger.bytes, 100);
});
