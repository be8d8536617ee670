// What a client's connection holds of what is sent ahead, when its socket is read no further and when again, and whose
// turn it is. Over real sockets. D21, D27, D28, D33, D35, D58.

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';
import { ServerConnection } from '../../packages/core/http1/server-connection.ts';
import { queueForTurn, type TurnTaker } from '../../packages/core/http1/turns.ts';
import { poll } from '../helpers/changes.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { echo, get, serve, turn, TurnCounter } from '../helpers/served-connections.ts';

const heldBytesMax = 65_536;

/** Sends in pieces that are each read by themselves. */
async function sendSlowly(client: RawClient, socket: Socket, bytes: Buffer, size = 8_000): Promise<void> {
  for (let at = 0; at < bytes.length; at += size) {
    const piece = bytes.subarray(at, at + size);
    const expected = socket.bytesRead + piece.length;
    client.send(piece);
    await poll(() => socket.bytesRead >= expected, 'the piece is read');
  }
}

/** Requests for /1, /2 and so on. */
function requests(count: number, paddingBytes = 0): Buffer {
  return Buffer.concat(
    Array.from({ length: count }, (_, index) =>
      get(`/${index + 1}`, [['X-Padding', 'x'.repeat(paddingBytes)]]),
    ),
  );
}

function afterMicrotasks(act: () => void, rounds = 10): void {
  queueMicrotask(
    rounds === 1
      ? act
      : () => {
          afterMicrotasks(act, rounds - 1);
        },
  );
}

// What is held.

test('of what comes in small reads 64 KiB are held, and the socket is read on when all are taken [D58]', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  const { socket } = connection;
  client.send(get('/0'));
  await request(0);
  const count = 70;
  const all = requests(count, 1_000);
  await sendSlowly(client, socket, all.subarray(0, heldBytesMax - 1));
  assert.equal(socket.isPaused(), false, 'one byte more may be held');
  await sendSlowly(client, socket, all.subarray(heldBytesMax - 1, heldBytesMax));
  assert.equal(socket.isPaused(), true);
  (await request(0)).reply('/0');
  await request(1);
  await turn();
  assert.equal(socket.isPaused(), true, 'some of it is still held');
  const held = Math.floor((heldBytesMax * count) / all.length);
  for (let index = 1; index <= held; index += 1) (await request(index)).reply(`/${index}`);
  await poll(() => !socket.isPaused(), 'it is read on');
  client.send(all.subarray(heldBytesMax));
  for (let index = held + 1; index <= count; index += 1) (await request(index)).reply(`/${index}`);
  for (let index = 0; index <= count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
});

test('what is sent ahead in many small pieces takes no more memory than its size some times [D58]', async (t) => {
  const { connectBoth, request, received } = await serve(t);
  const { client, connection } = await connectBoth();
  client.send(get('/0'));
  await request(0);
  const all = requests(100, 100);
  let bytesTaken = 0;
  const allocate = Buffer.allocUnsafeSlow.bind(Buffer);
  const mock = t.mock.method(Buffer, 'allocUnsafeSlow', (size: number) => {
    bytesTaken += size;
    // Whoever takes far too much must not get it.
    return allocate(Math.min(size, 4 * all.length));
  });
  await sendSlowly(client, connection.socket, all, 100);
  mock.mock.restore();
  assert.ok(bytesTaken > 0 && bytesTaken <= 4 * all.length, `${bytesTaken} for ${all.length}`);
  for (let index = 0; index <= 100; index += 1) (await request(index)).reply(`/${index}`);
  for (let index = 0; index <= 100; index += 1) assert.equal((await client.reply()).text, `/${index}`);
  assert.equal(received.length, 101);
});

test('requests are taken where they are held: none of them has those after it copied [D58]', async (t) => {
  const memories = new Set<ArrayBufferLike>();
  const { connect } = await serve(t, {
    onBody: (_, piece) => memories.add(piece.buffer),
    onBodyEnd: (each) => {
      queueMicrotask(() => {
        each.reply(each.head.target);
      });
    },
  });
  const client = await connect();
  const count = 1_000;
  const targets = Array.from({ length: count }, (_, index) => `/${index}`);
  client.send(Buffer.concat(targets.map((target) => requestBytes('PUT', target, { body: 'b' }))));
  for (const target of targets) assert.equal((await client.reply()).text, target);
  // Its read or two, and what is held of each.
  assert.ok(memories.size <= 4, `${memories.size} memories`);
});

test('a client that stays 60 KB ahead has each byte copied a few times at most [D58]', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  const bytesEach = get('/0', [['X-Padding', 'x'.repeat(950)]]);
  let sent = 0;
  let bytesTaken = 0;
  const allocate = Buffer.allocUnsafeSlow.bind(Buffer);
  const mock = t.mock.method(Buffer, 'allocUnsafeSlow', (size: number) => {
    bytesTaken += size;
    return allocate(size);
  });
  for (let index = 0; index < 500; index += 1) {
    const isAhead = index > 0;
    const bytes = Buffer.concat(Array.from({ length: isAhead ? 1 : 60 }, () => bytesEach));
    await sendSlowly(client, connection.socket, bytes);
    sent += bytes.length;
    (await request(index)).reply('');
    await request(index + 1);
  }
  mock.mock.restore();
  assert.ok(bytesTaken <= 4 * sent, `${bytesTaken} for ${sent}`);
});

// Behind a last reply.

for (const when of ['behind', 'before'] as const) {
  test(`what is sent ${when} a last reply is read and dropped to its end, however much it is [D27]`, async (t) => {
    const { connectBoth, request, received } = await serve(t);
    const { client, connection } = await connectBoth();
    const { socket } = connection;
    const first = get('/0', [['Connection', 'close']]);
    const more = requests(1_000, 1_000);
    client.send(first);
    const last = await request(0);
    if (when === 'before') {
      // In small reads: it is what is held that has the socket paused, and no turn comes that would read on.
      await sendSlowly(client, socket, more.subarray(0, heldBytesMax));
      assert.equal(socket.isPaused(), true);
      client.send(more.subarray(heldBytesMax));
    }
    last.reply('/0');
    assert.equal((await client.reply()).text, '/0');
    assert.equal(await client.closed(), 'end');
    if (when === 'behind') client.send(more);
    await poll(() => socket.bytesRead === first.length + more.length, 'all of it is read');
    await poll(() => connection.isQuiet(0, 0), 'nothing of it is held');
    assert.equal(received.length, 1);
  });
}

// Whose turn it is.

test('a client that sends one request at a time has its socket read on at once [D58]', async (t) => {
  const wasPaused: boolean[] = [];
  const { connectBoth } = await serve(t, {
    onStart: (each) => {
      each.reply(each.head.target);
      // Before anybody else has a turn.
      process.nextTick(() => wasPaused.push(connection.socket.isPaused()));
    },
  });
  const { client, connection } = await connectBoth();
  for (const target of ['/1', '/2']) assert.equal((await client.call('GET', target)).text, target);
  assert.deepEqual(wasPaused, [false, false]);
});

test('of more than may be held, too, 16 requests have their turn at a time [D58]', async (t) => {
  const turns = new TurnCounter();
  const { connectBoth, request } = await serve(t, {
    onStart: (each) => {
      turns.count();
      if (each.head.target !== '/0') each.reply(each.head.target);
    },
  });
  const { client, connection } = await connectBoth();
  client.send(get('/0'));
  const first = await request(0);
  const count = 150;
  await sendSlowly(client, connection.socket, requests(count, 450));
  assert.equal(connection.socket.isPaused(), true);
  first.reply('/0');
  for (let index = 0; index <= count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
  await turn();
  assert.ok(Math.max(...turns.perTurn) <= 16, `${turns.perTurn.join()} in a turn`);
});

for (const [how, defer] of [
  ['in a microtask', queueMicrotask],
  [
    'after ten microtasks',
    (reply) => {
      afterMicrotasks(reply);
    },
  ],
  [
    'with process.nextTick',
    (reply: () => void) => {
      process.nextTick(reply);
    },
  ],
] satisfies [string, (reply: () => void) => void][]) {
  test(`of requests that are answered ${how}, 16 have their turn at a time [D58]`, async (t) => {
    const turns = new TurnCounter();
    const { connect } = await serve(t, {
      onStart: (each) => {
        turns.count();
        defer(() => {
          each.reply(each.head.target);
        });
      },
    });
    const client = await connect();
    const count = 500;
    client.send(requests(count));
    for (let index = 1; index <= count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
    await turn();
    assert.ok(Math.max(...turns.perTurn) <= 16, `${turns.perTurn.join()} in a turn`);
  });
}

test('a connection waits for one turn at a time, be it for what it reads or for what it holds [D58]', async (t) => {
  const { connectBoth } = await serve(t, echo);
  const { client, connection } = await connectBoth();
  assert.ok(connection instanceof ServerConnection);
  const turns: string[] = [];
  const takeTurn = connection.takeTurn.bind(connection);
  t.mock.method(connection, 'takeTurn', () => {
    turns.push('connection');
    takeTurn();
  });
  let isOver = false;
  const other: TurnTaker = {
    takeTurn: () => {
      turns.push('other');
      if (!isOver) queueForTurn(other);
    },
  };
  queueForTurn(other);
  // Large enough for reads that are a turn's worth by themselves.
  const count = 3_000;
  client.send(requests(count, 1_000));
  for (let index = 1; index <= count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
  isOver = true;
  assert.ok(turns.includes('connection'));
  assert.equal(
    turns.some((each, index) => each === 'connection' && turns[index - 1] === each),
    false,
    'two turns while another waits',
  );
});

test('what comes while a connection waits for its turn goes behind what it holds [D27]', async (t) => {
  const targets: string[] = [];
  const { connectBoth, received } = await serve(t, {
    onStart: (each) => {
      targets.push(each.head.target);
      if (received.length === 1) {
        // Before its turn, though its socket is paused.
        setImmediate(() => connection.socket.emit('data', get('/late')));
      }
      each.reply(each.head.target);
    },
  });
  const { client, connection } = await connectBoth();
  client.send(requests(3));
  for (const target of ['/1', '/2', '/3', '/late']) assert.equal((await client.reply()).text, target);
  assert.deepEqual(targets, ['/1', '/2', '/3', '/late']);
});

test('a client that says that it has ended has gone, also behind requests that had to wait for a turn [D21]', async (t) => {
  const { connectBoth, request, received } = await serve(t, {
    onStart: (each) => {
      if (each.head.target === '/1') each.reply('/1');
    },
  });
  const { client, connection } = await connectBoth();
  client.send(requests(3));
  const second = await request(1);
  assert.equal(connection.socket.isPaused(), false, 'little is held');
  client.end();
  await poll(() => second.events.includes('gone'), 'it is told');
  assert.equal((await client.reply()).text, '/1');
  assert.equal(await client.closed(), 'end');
  assert.equal(received.length, 2);
});

test('a reader that takes nothing is a fault of its connection, and no loop without an end [D28]', async (t) => {
  const { connect, faults } = await serve(t, echo);
  const client = await connect();
  let calls = 0;
  const mock = t.mock.method(RequestReader.prototype, 'read', (_bytes: Buffer, from: number) => {
    calls += 1;
    assert.ok(calls < 100, 'a loop without an end');
    return from;
  });
  client.send(get('/1'));
  await client.closed();
  mock.mock.restore();
  assert.deepEqual(faults.map(String), ['Error: the reader takes nothing']);
  assert.equal((await (await connect()).call('GET', '/2')).text, '/2');
});

// Times.

test('no connection is closed as one that rests while its requests wait for their turn [D35]', async (t) => {
  const seen: unknown[] = [];
  const count = 50;
  const { connectBoth, received } = await serve(t, {
    onStart: (each) => {
      if (received.length === 1) {
        // Before the next turn begins.
        setImmediate(() => {
          connection.checkTime(performance.now() + 600_000);
          seen.push(received.length < count, connection.socket.destroyed);
        });
      }
      each.reply(each.head.target);
    },
  });
  const { client, connection } = await connectBoth();
  client.send(requests(count));
  for (let index = 1; index <= count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
  assert.deepEqual(seen, [true, false]);
});

test('no connection is closed as one that rests while its client takes a reply [D35]', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  client.pause();
  client.send(get('/1'));
  const size = 20_000_000;
  (await request(0)).reply('', { pieces: [Buffer.alloc(size)] });
  connection.checkTime(performance.now() + 600_000);
  assert.equal(connection.socket.destroyed, false);
  client.resume();
  assert.equal((await client.reply()).body.length, size);
});

test(
  'a body, a last reply and a rest have their time to the millisecond [D33, D35]',
  { timeout: 30_000 },
  async (t) => {
    let now = 10_000;
    t.mock.method(performance, 'now', () => now);
    const { connectBoth, request } = await serve(t, {}, { requestTimeoutMs: 800 });
    const { client, connection } = await connectBoth();
    assert.equal(connection.isQuiet(500, 0), false);
    now += 499;
    assert.equal(connection.isQuiet(500, 0), false);
    now += 1;
    assert.equal(connection.isQuiet(500, 0), true);
    client.send('PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab');
    const first = await request(0);
    connection.checkTime(10_799);
    assert.equal(first.events.includes('timeout'), false);
    connection.checkTime(10_800);
    assert.equal(first.events.includes('timeout'), true);
    first.reply('late', { status: 408 });
    assert.equal((await client.reply()).status, 408);
    await poll(() => connection.socket.writableLength === 0, 'it is taken');
    connection.checkTime(now + 4_999);
    assert.equal(connection.socket.destroyed, false);
    connection.checkTime(now + 5_000);
    assert.equal(connection.socket.destroyed, true);
  },
);
