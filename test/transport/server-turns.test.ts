// The server side of HTTP/1.1 on real sockets: how much of pipelined requests is buffered, when a socket is paused and
// resumed, and how connections share event-loop turns. D27, D28, D58.

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';
import { ClientConnection } from '../../packages/core/http1/client-connection.ts';
import { queueForTurn, type TurnTaker } from '../../packages/core/http1/turns.ts';
import { poll } from '../helpers/changes.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import {
  assertEchoes,
  assertEnds,
  assertReplies,
  echo,
  get,
  gets,
  put,
  serveOne,
  turn,
  TurnCounter,
  turns,
  type Received,
} from './served-connections.ts';

const heldBytesMax = 4_096;

/** Sends each piece of `bytes` after the server has read the previous piece. */
async function sendSlowly(client: RawClient, socket: Socket, bytes: Buffer, size = 8_000): Promise<void> {
  for (let at = 0; at < bytes.length; at += size) {
    const piece = bytes.subarray(at, at + size);
    const expected = socket.bytesRead + piece.length;
    client.send(piece);
    await poll(() => socket.bytesRead >= expected, 'the piece is read');
  }
}

function padded(count: number, paddingBytes: number): Buffer {
  return gets(count, [['X-Padding', 'x'.repeat(paddingBytes)]]);
}

// Buffered bytes.

test('when 4 KiB sent ahead are stored, the socket is paused until all of them are consumed [D58]', async (t) => {
  const { client, connection, request } = await serveOne(t);
  const { socket } = connection;
  const count = 71;
  const all = padded(count, 100);
  const firstBytes = all.length / count;
  client.send(all.subarray(0, firstBytes));
  await request(0);
  const rest = all.subarray(firstBytes);
  await sendSlowly(client, socket, rest.subarray(0, heldBytesMax - 1), 500);
  assert.equal(socket.isPaused(), false, 'one more byte may be stored');
  await sendSlowly(client, socket, rest.subarray(heldBytesMax - 1, heldBytesMax));
  assert.equal(socket.isPaused(), true);
  (await request(0)).reply('/0');
  await request(1);
  await turn();
  assert.equal(socket.isPaused(), true, 'some bytes are still stored');
  const held = Math.floor(heldBytesMax / firstBytes);
  for (let index = 1; index <= held; index += 1) (await request(index)).reply(`/${index}`);
  await poll(() => !socket.isPaused(), 'the socket resumes');
  client.send(rest.subarray(heldBytesMax));
  for (let index = held + 1; index < count; index += 1) (await request(index)).reply(`/${index}`);
  await assertEchoes(client, count);
});

test('no further requests start while a client reads nothing; all start once the client reads again [D58]', async (t) => {
  const { client, received } = await serveOne(t, {
    onStart: (each) => each.reply('', { pieces: [Buffer.alloc(1_000_000, each.head.target)] }),
  });
  client.pause();
  const count = 50;
  client.send(gets(count));
  let startedBefore = -1;
  await poll(async () => {
    const isSettled = received.length > 0 && received.length === startedBefore;
    startedBefore = received.length;
    await turns(20);
    return isSettled;
  }, 'no more are started');
  assert.ok(received.length < count / 2, `${received.length} were started`);
  client.resume();
  for (let index = 0; index < count; index += 1) {
    assert.ok((await client.reply()).text.startsWith(`/${index}/`));
  }
});

test('bytes that arrive while a connection waits for its turn are read after its buffered bytes [D27]', async (t) => {
  const { client, connection, received } = await serveOne(t, {
    onStart: (each) => {
      if (received.length === 1) {
        // Emits bytes before the connection's turn, although its socket is paused.
        setImmediate(() => connection.socket.emit('data', get('/late')));
      }
      each.reply(each.head.target);
    },
  });
  client.send(gets(3));
  await assertReplies(client, '/0', '/1', '/2', '/late');
  assert.deepEqual(
    received.map(({ head }) => head.target),
    ['/0', '/1', '/2', '/late'],
  );
});

for (const when of ['after its reply', 'before its reply, in small reads', 'before its reply, all together'] as const) {
  test(`all bytes after the last request, sent ${when}, are read and dropped, without a reset [D27]`, async (t) => {
    const { client, connection, request, received } = await serveOne(t);
    const { socket } = connection;
    const first = get('/0', [['Connection', 'close']]);
    const more = padded(when === 'before its reply, all together' ? 20_000 : 1_000, 1_000);
    client.send(first);
    const last = await request(0);
    if (when === 'before its reply, in small reads') {
      // The full buffer pauses the socket, and no pending turn resumes it.
      await sendSlowly(client, socket, more.subarray(0, heldBytesMax), 1_000);
      assert.equal(socket.isPaused(), true);
      client.send(more.subarray(heldBytesMax));
    } else if (when === 'before its reply, all together') {
      client.send(more);
      await poll(() => socket.isPaused(), 'the socket is paused');
      await turns(10);
    }
    last.reply('/0');
    await assertReplies(client, '/0');
    await assertEnds(client);
    if (when === 'after its reply') client.send(more);
    await poll(() => socket.bytesRead === first.length + more.length, 'all of it is read');
    await poll(() => connection.isQuiet(0, 0), 'nothing is buffered');
    assert.equal(received.length, 1);
  });
}

// Memory for pipelined requests.

test('1,000 requests that arrive together are read from at most four buffers [D58]', async (t) => {
  const memories = new Set<ArrayBufferLike>();
  const { client } = await serveOne(t, {
    onBody: (_, piece) => memories.add(piece.buffer),
    onBodyEnd: (each) => queueMicrotask(() => each.reply(each.head.target)),
  });
  const targets = Array.from({ length: 1_000 }, (_, index) => `/${index}`);
  client.send(Buffer.concat(targets.map((target) => requestBytes('PUT', target, { body: 'b' }))));
  await assertReplies(client, ...targets);
  assert.ok(memories.size <= 4, `${memories.size} buffers`);
});

// Event-loop turns.

function afterMicrotasks(act: () => void, rounds = 10): void {
  queueMicrotask(rounds === 1 ? act : () => afterMicrotasks(act, rounds - 1));
}

const atOnce = (reply: () => void): void => reply();
for (const [how, create, defer] of [
  ['answered at once', get, atOnce],
  ['answered at once, with a body', (target: string) => requestBytes('PUT', target, { body: 'b' }), atOnce],
  ['answered in a microtask', get, queueMicrotask],
  ['answered after ten microtasks', get, afterMicrotasks],
  ['answered with process.nextTick', get, (reply: () => void) => process.nextTick(reply)],
] satisfies [string, (target: string) => Buffer, (reply: () => void) => void][]) {
  test(`at most 16 pipelined requests start in one event-loop turn if they are ${how} [D58]`, async (t) => {
    const started = new TurnCounter();
    const answer = (each: Received): void => defer(() => each.reply(each.head.target));
    const { client, received } = await serveOne(t, {
      onStart: (each) => {
        started.count();
        if (each.head.bodyLength === 0) answer(each);
      },
      onBodyEnd: answer,
    });
    const targets = Array.from({ length: 300 }, (_, index) => `/${index}`);
    client.send(Buffer.concat(targets.map((target) => create(target))));
    await assertReplies(client, ...targets);
    await turn();
    assert.equal(received.length, targets.length);
    assert.equal(Math.max(...started.perTurn), 16, `${started.perTurn.join()} in a turn`);
  });
}

test('at most two reads of a body are passed to the handler in one event-loop turn [D58]', async (t) => {
  let bytesBefore = 0;
  let isCounting = false;
  const perTurn: number[] = [];
  const { client, request } = await serveOne(t, {
    onBody: (each) => {
      if (isCounting) return;
      isCounting = true;
      setImmediate(() => {
        isCounting = false;
        perTurn.push(each.bodyBytes - bytesBefore);
        bytesBefore = each.bodyBytes;
      });
    },
  });
  const size = 900_000;
  client.send(put('/', size) + 'b'.repeat(size));
  const each = await request(0);
  await poll(() => each.events.includes('end'), 'the body');
  assert.equal(each.bodyBytes, size);
  // Two reads: one arrives in this turn, the other had arrived before the socket was paused.
  assert.ok(Math.max(...perTurn) <= 2 * 65_536, `${Math.max(...perTurn)} bytes in one turn`);
});

test('at most 64 reads of a body are passed to the handler in one event-loop turn [D58]', async (t) => {
  let pieces = 0;
  const { client, connection, request } = await serveOne(t, { onBody: () => (pieces += 1) });
  const body = Array.from({ length: 200 }, (_, index) => String(index % 10)).join('');
  client.send('PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n\r\n');
  const received = await request(0);
  await turn();
  for (const digit of body) connection.socket.emit('data', Buffer.from(digit));
  assert.equal(pieces, 64);
  assert.ok(connection.socket.isPaused(), 'nothing more is read');
  await poll(() => received.body.length === 200, 'the whole body');
  assert.equal(received.body, body);
  assert.equal(connection.socket.isPaused(), false);
});

test('the socket of a client that sends one request at a time is not paused [D58]', async (t) => {
  const wasPaused: boolean[] = [];
  const { client, connection } = await serveOne(t, {
    onStart: (each) => {
      each.reply(each.head.target);
      // Runs before any other connection has a turn.
      process.nextTick(() => wasPaused.push(connection.socket.isPaused()));
    },
  });
  for (const target of ['/1', '/2']) assert.equal((await client.call('GET', target)).text, target);
  assert.deepEqual(wasPaused, [false, false]);
});

test('a connection that has both new reads and buffered bytes waits for one turn at a time [D58]', async (t) => {
  const { client, connection } = await serveOne(t, echo);
  assert.ok(connection instanceof ClientConnection);
  const taken: string[] = [];
  const takeTurn = connection.takeTurn.bind(connection);
  t.mock.method(connection, 'takeTurn', () => {
    taken.push('connection');
    takeTurn();
  });
  let isOver = false;
  const other: TurnTaker = {
    takeTurn: () => {
      taken.push('other');
      if (!isOver) queueForTurn(other);
    },
  };
  queueForTurn(other);
  // Enough bytes that a single read can fill a turn.
  const count = 3_000;
  client.send(padded(count, 1_000));
  await assertEchoes(client, count);
  isOver = true;
  assert.ok(taken.includes('connection'));
  assert.equal(
    taken.some((each, index) => each === 'connection' && taken[index - 1] === each),
    false,
    'two turns in a row while the other taker waits',
  );
});

test('a reader that consumes nothing causes an error and a close, not an endless loop [D28]', async (t) => {
  const { client, connect, faults } = await serveOne(t, echo);
  let calls = 0;
  const mock = t.mock.method(RequestReader.prototype, 'read', (_bytes: Buffer, from: number) => {
    calls += 1;
    assert.ok(calls < 100, 'an endless loop');
    return from;
  });
  client.send(get('/1'));
  await client.closed();
  mock.mock.restore();
  assert.deepEqual(faults.map(String), ['Error: the reader consumed nothing']);
  assert.equal((await (await connect()).call('GET', '/2')).text, '/2');
});
