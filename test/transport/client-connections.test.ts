// The connections of clients by themselves: whose turn it is, when one rests or is quiet, and which of them make room
// for a newcomer. D26, D27, D33, D35.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'node:test';
import { ClientConnection, type Turn } from '../../src/gateway/client-connection.ts';
import { ClientConnections } from '../../src/gateway/client-connections.ts';
import { gatewayServerOptions, workItemGateway } from '../../src/index.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, badRequest } from '../helpers/expected.ts';
import { Fastify } from '../helpers/fastify.ts';
import { RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, ScriptedBackend } from '../helpers/scripted-backend.ts';

const noLimit = { max: 1000, restMsMax: 1_000_000 };

/** A server that reads what comes and answers nothing. */
async function serve({ max, restMsMax } = noLimit) {
  const connections = new ClientConnections(max, restMsMax);
  let shedCount = 0;
  connections.onShed = () => {
    shedCount += 1;
  };
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => undefined).resume();
    sockets.push(socket);
    connections.admit(socket);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    connections,
    shedCount: () => shedCount,
    sockets,
    /** A client, and our end of its connection. */
    connect: async () => {
      const { port } = server.address() as AddressInfo;
      const index = sockets.length;
      const client = await RawClient.open(port);
      await poll(() => sockets.length > index, 'the connection has come');
      const socket = sockets[index];
      assert.ok(socket);
      return { client, connection: ClientConnection.of(socket) };
    },
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A turn that ends when it is told to; `log` gets what happens to it. */
function createTurn(name = '', log: string[] = []): Turn {
  return {
    start: () => log.push(`${name} starts`),
    leave: () => log.push(`${name} is left`),
  };
}

test('turns start in order, each when the one before it has finished [D27]', async () => {
  await using server = await serve();
  const { connection } = await server.connect();
  const log: string[] = [];
  const [first, second, third] = ['1', '2', '3'].map((name) => createTurn(name, log)) as [Turn, Turn, Turn];
  connection.enqueue(first);
  assert.equal(connection.newest, first);
  connection.enqueue(second);
  connection.enqueue(third);
  assert.equal(connection.newest, third);
  assert.deepEqual(log, ['1 starts']);
  connection.finish(second);
  assert.deepEqual(log, ['1 starts'], 'a turn that is not the current one ends nothing');
  connection.finish(first);
  await poll(() => log.length === 2, 'the second starts, when others have had their turn [D58]');
  assert.equal(connection.newest, third);
  connection.finish(second);
  await poll(() => log.length === 3, 'the third starts');
  connection.finish(third);
  assert.deepEqual(log, ['1 starts', '2 starts', '3 starts']);
  assert.equal(connection.newest, undefined);
});

test('a turn that comes while those before it start waits behind all of them [D27]', async () => {
  await using server = await serve();
  const { connection } = await server.connect();
  const log: string[] = [];
  const late = createTurn('late', log);
  const second: Turn = {
    start: () => {
      log.push('2 starts');
      connection.finish(second);
      connection.enqueue(late);
    },
    leave: () => undefined,
  };
  const first = createTurn('1', log);
  const third = createTurn('3', log);
  connection.enqueue(first);
  connection.enqueue(second);
  connection.enqueue(third);
  connection.finish(first);
  await poll(() => log.length === 3, 'the third starts');
  connection.finish(third);
  await poll(() => log.length === 4, 'the late one starts');
  assert.deepEqual(log, ['1 starts', '2 starts', '3 starts', 'late starts']);
});

test('behind the last turn nothing starts, and close drops what waits [D27]', async () => {
  await using server = await serve();
  const { connection } = await server.connect();
  const log: string[] = [];
  const [first, last, never] = ['1', '2', '3'].map((name) => createTurn(name, log)) as [Turn, Turn, Turn];
  connection.enqueue(first);
  connection.enqueueLast(last);
  connection.enqueue(never);
  connection.finish(first);
  await poll(() => log.length === 2, 'the last one starts');
  connection.finish(last);

  const other = (await server.connect()).connection;
  other.enqueue(first);
  other.enqueue(never);
  other.close();
  other.finish(first);
  other.enqueue(never);
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(log, ['1 starts', '2 starts', '1 starts']);
});

test('when the client leaves, the current turn is told once and those that wait never start [D21]', async () => {
  await using server = await serve();
  const { client, connection } = await server.connect();
  const log: string[] = [];
  const [current, waiting] = ['1', '2'].map((name) => createTurn(name, log)) as [Turn, Turn];
  connection.enqueue(current);
  connection.enqueue(waiting);
  client.reset();
  await poll(() => connection.isClosing, 'the client has left');
  connection.finish(current);
  connection.enqueue(waiting);
  assert.deepEqual(log, ['1 starts', '1 is left']);
  assert.equal(connection.isClosing, true);
});

test('a connection rests from its opening or its last turn on, and not while one is under way or waits', async () => {
  await using server = await serve();
  const { connection } = await server.connect();
  const openedBy = performance.now();
  assert.ok(connection.restsSince(openedBy + 500) >= 500);
  assert.ok(connection.restsSince(openedBy + 500) < 30_000);
  const turn = createTurn();
  connection.enqueue(turn);
  assert.equal(connection.restsSince(performance.now() + 500), 0);
  const finishedFrom = performance.now();
  connection.finish(turn);
  assert.ok(connection.restsSince(finishedFrom + 500) <= 500, 'from the end of the turn');
  assert.ok(connection.restsSince(performance.now() + 500) >= 500);
  // A reply that the client has not taken is work too.
  connection.socket.write(Buffer.alloc(20_000_000));
  assert.equal(connection.restsSince(performance.now() + 500), 0);
});

test('a connection is quiet when nothing is under way and nothing has come since the last turn [D33]', async () => {
  await using server = await serve();
  const { client, connection } = await server.connect();
  const now = performance.now();
  assert.equal(connection.isQuiet(60_000, now), false, 'not yet for a minute');
  assert.equal(connection.isQuiet(0, now), true);
  assert.equal(connection.isQuiet(0, now + 60_000), false, 'not before the moment that is asked from');
  const turn = createTurn();
  connection.enqueue(turn);
  assert.equal(connection.isQuiet(0, now), false, 'a turn is under way');
  connection.finish(turn);
  assert.equal(connection.isQuiet(0, now), true);
  client.send('G');
  await poll(() => connection.socket.bytesRead > 0, 'the first byte of a request');
  assert.equal(connection.isQuiet(0, now), false, 'a request has begun to come');
  connection.enqueue(turn);
  connection.finish(turn);
  assert.equal(connection.isQuiet(0, now), true, 'it has been answered');
  connection.socket.write(Buffer.alloc(20_000_000));
  assert.equal(connection.isQuiet(0, now), false, 'its reply is on the way');
});

test('one connection more than there may be is closed when none of them rests, and that is told once a second [D26]', async () => {
  await using server = await serve({ max: 3, restMsMax: 1_000_000 });
  let told = 0;
  server.connections.onFull = () => {
    told += 1;
  };
  const clients = [await server.connect(), await server.connect(), await server.connect()];
  assert.equal(told, 0);
  assert.equal(server.shedCount(), 0);
  for (const { connection } of clients) connection.enqueue(createTurn());
  for (let count = 1; count <= 5; count += 1) {
    const { client } = await server.connect();
    await client.closed();
    assert.equal(server.shedCount(), count);
    assert.equal(server.connections.size, 3);
  }
  assert.equal(told, 1);
  assert.ok(clients.every(({ client }) => client.isOpen));
  // One that goes makes room.
  clients[0]?.client.destroy();
  await poll(() => server.connections.size === 2, 'one has gone');
  const newcomer = await server.connect();
  newcomer.connection.enqueue(createTurn());
  assert.ok(newcomer.client.isOpen);
  assert.equal(server.connections.size, 3);
  assert.equal(server.shedCount(), 5);
  assert.deepEqual(
    [...server.connections].map(({ socket }) => socket.destroyed),
    [false, false, false],
  );
  await poll(async () => {
    await (await server.connect()).client.closed();
    return told === 2;
  }, 'told again');
});

test('those that rest longest make room, a thirty-second of all at once; those at work never do [D26]', async () => {
  await using server = await serve({ max: 64, restMsMax: 1_000_000 });
  const clients: Awaited<ReturnType<typeof server.connect>>[] = [];
  for (let count = 0; count < 64; count += 1) clients.push(await server.connect());
  const turn = createTurn();
  // Two rest since later than those that came after them.
  for (const each of clients.slice(2, 4)) {
    each.connection.enqueue(turn);
    each.connection.finish(turn);
  }
  // The first is at work, and the second has been until now.
  clients[0]?.connection.enqueue(turn);
  await poll(
    () =>
      clients.every(
        ({ connection }, index) => index === 0 || connection.restsSince(performance.now()) > 1_000,
      ),
    'all of them have rested for long enough',
  );
  clients[1]?.connection.enqueue(turn);
  clients[1]?.connection.finish(turn);
  let newcomer: RawClient | undefined;
  await poll(async () => {
    const { client } = await server.connect();
    if (server.shedCount() > 0 && server.sockets.at(-1)?.destroyed === false) newcomer = client;
    return newcomer !== undefined;
  }, 'a newcomer is let in');
  await clients[4]?.client.closed();
  await clients[5]?.client.closed();
  const open = clients.map(({ connection }) => !connection.socket.destroyed);
  assert.deepEqual(open.slice(0, 7), [true, true, true, true, false, false, true]);
  assert.equal(server.connections.size, 63);
  assert.ok(newcomer?.isOpen);
});

test('a connection that rests for too long is closed, one that is at work is not, also later on [D35]', async () => {
  await using server = await serve({ max: 10, restMsMax: 200 });
  for (let round = 0; round < 2; round += 1) {
    const resting = await server.connect();
    const busy = await server.connect();
    const turn = createTurn();
    busy.connection.enqueue(turn);
    const openedAt = performance.now();
    await resting.client.closed();
    assert.ok(performance.now() - openedAt > 150);
    await poll(() => server.connections.size === 1, 'it has closed');
    assert.ok(busy.client.isOpen);
    busy.connection.finish(turn);
    await busy.client.closed();
    await poll(() => server.connections.size === 0, 'nobody is left');
  }
  assert.equal(server.shedCount(), 0, 'this is not for want of room');
});

test('requests that are sent ahead are not all taken in before they have their turn [D27]', async () => {
  const backend = await ScriptedBackend.start();
  const app = Fastify(gatewayServerOptions());
  try {
    let taken = 0;
    app.addHook('onRequest', (_request, _reply, done) => {
      taken += 1;
      done();
    });
    await app.register(workItemGateway, { backendUrl: backend.url });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const { port } = app.server.address() as AddressInfo;
    const gate = createGate();
    backend.answers(answer('[]')).answersOnce(behind(gate, answer('[]')));
    const count = 4000;
    await using client = await RawClient.open(port);
    const padding = 'x'.repeat(500);
    for (let index = 0; index < count; index += 1) {
      client.send(
        requestBytes('GET', '/api/work-items', {
          headers: [
            ['X-Request-Id', `ahead-${index}`],
            ['X-Padding', padding],
          ],
        }),
      );
    }
    await backend.nextRequest();
    // As long as others are served, so would these have been taken.
    for (let round = 0; round < 50; round += 1) await request(port, 'GET', '/nowhere');
    assert.ok(taken - 50 < count / 4, `${taken - 50} of ${count} were taken`);
    gate.open();
    for (let index = 0; index < count; index += 1) {
      const reply = await client.reply();
      assert.equal(reply.status, 200);
      assert.equal(reply.header('x-request-id'), `ahead-${index}`);
    }
  } finally {
    app.server.closeAllConnections();
    await app.close();
    await backend.stop();
  }
});

/** A gateway in a Fastify server of its own, which counts the requests that are taken in. */
async function serveGateway() {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
  const app = Fastify(gatewayServerOptions());
  let taken = 0;
  let takenInTurn = 0;
  let mostInTurn = 0;
  app.addHook('onRequest', (_request, _reply, done) => {
    taken += 1;
    if (takenInTurn === 0) {
      setImmediate(() => {
        mostInTurn = Math.max(mostInTurn, takenInTurn);
        takenInTurn = 0;
      });
    }
    takenInTurn += 1;
    done();
  });
  await app.register(workItemGateway, { backendUrl: backend.url });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  return {
    backend,
    port,
    taken: () => taken,
    /** The most that were taken in one turn of the event loop. */
    mostInTurn: () => mostInTurn,
    [Symbol.asyncDispose]: async () => {
      app.server.closeAllConnections();
      await app.close();
      await backend.stop();
    },
  };
}

// One read of the gateway's takes 64 KiB.
const padded: [string, string][] = [['X-Padding', 'x'.repeat(900)]];

test('behind the last reply of a connection no more is taken in than in a turn [D27, D58]', async () => {
  await using server = await serveGateway();
  await using client = await RawClient.open(server.port);
  client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n');
  const more = requestBytes('GET', '/api/work-items', { headers: padded });
  for (let index = 0; index < 2_000; index += 1) client.send(more);
  assertReply(await client.reply(), 400, badRequest);
  // As long as others are served, so would these have been taken.
  for (let round = 0; round < 50; round += 1) await request(server.port, 'GET', '/nowhere');
  assert.ok(server.taken() - 50 <= 16, `${server.taken() - 50} were taken`);
  assert.equal(server.backend.requests.length, 0);
  await client.closed();
  assert.equal(client.unread.length, 0);
});

test('a client whose requests are all refused at once leaves turns to others [D58]', async () => {
  await using server = await serveGateway();
  await using client = await RawClient.open(server.port);
  const count = 2_000;
  const wrong = requestBytes('GET', '/api/work-items/nonsense', { headers: padded });
  client.send(Buffer.concat(Array.from({ length: count }, () => wrong)));
  for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, 400);
  assert.equal(server.taken(), count);
  assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
  // It is read on as ever.
  assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
});

for (const [what, bytes, status] of [
  ['bytes that are no request', 'BLAH\0\r\n\r\n', 400],
  ['a CONNECT', 'CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n', 405],
  [
    'two lengths',
    'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n',
    400,
  ],
] as const) {
  test(`behind requests that are answered at once, ${what} are answered last [D27]`, async () => {
    await using server = await serveGateway();
    for (const count of [1, 2, 3, 40]) {
      await using client = await RawClient.open(server.port);
      const ahead = Array.from({ length: count }, (_, index) =>
        requestBytes('GET', `/api/${index % 2 === 0 ? 'work-items/none' : 'nowhere'}`, { headers: [['X-Request-Id', `r${index}`]] }));
      client.send(Buffer.concat([...ahead, Buffer.from(bytes)]));
      for (let index = 0; index < count; index += 1) {
        const reply = await client.reply();
        assert.deepEqual([reply.status, reply.header('x-request-id')], [index % 2 === 0 ? 400 : 404, `r${index}`]);
      }
      const last = await client.reply();
      assert.deepEqual([last.status, last.header('connection')], [status, 'close']);
      await client.closed();
      assert.equal(client.unread.length, 0);
    }
  }); // prettier-ignore
}

test('a last reply is whole however much comes behind its request: the connection is not reset [D27]', async () => {
  await using server = await serveGateway();
  const body = Buffer.alloc(1_000_000, '1');
  server.backend.answers(answer(body));
  const more = Buffer.concat(Array.from({ length: 20_000 }, () => requestBytes('GET', '/api/work-items')));
  for (let round = 0; round < 10; round += 1) {
    await using client = await RawClient.open(server.port);
    client.send(requestBytes('GET', '/api/work-items', { headers: [['Connection', 'close']] }));
    client.send(more);
    assert.ok((await client.reply()).body.equals(body));
    assert.equal(await client.closed(), 'end');
  }
  assert.equal(server.backend.requests.length, 10);
});

for (const ahead of [1, 2, 3]) {
  test(`a body that breaks off behind ${ahead} that wait is 400 when its turn has come [D27]`, async () => {
    const backend = await ScriptedBackend.start();
    const app = Fastify(gatewayServerOptions());
    try {
      await app.register(workItemGateway, { backendUrl: backend.url });
      await app.listen({ host: '127.0.0.1', port: 0 });
      const gate = createGate();
      backend.answers(answer('[]')).answersOnce(behind(gate, answer('[]')));
      await using client = await RawClient.open((app.server.address() as AddressInfo).port);
      for (let index = 0; index < ahead; index += 1) client.send(requestBytes('GET', '/api/work-items'));
      client.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n');
      await backend.nextRequest();
      gate.open();
      for (let index = 0; index < ahead; index += 1) assertReply(await client.reply(), 200, '[]');
      assertReply(await client.reply(), 400, badRequest);
      await client.closed();
      assert.equal(client.unread.length, 0);
      assert.equal(backend.requests.length, ahead);
    } finally {
      app.server.closeAllConnections();
      await app.close();
      await backend.stop();
    }
  });
}

test('a client that takes nothing of its reply is cut when the time for that has passed [D35]', async () => {
  const backend = await ScriptedBackend.start();
  const app = Fastify(gatewayServerOptions());
  try {
    await app.register(workItemGateway, { backendUrl: backend.url, replyStallTimeoutMs: 200 });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const { port } = app.server.address() as AddressInfo;
    const openCount = async () =>
      await new Promise<number>((resolve) => {
        app.server.getConnections((_error, count) => {
          resolve(count);
        });
      });
    // More than both ends' socket buffers hold.
    backend.answers(answer(Buffer.alloc(30_000_000, '1')));
    await using stalled = await RawClient.open(port);
    stalled.send(requestBytes('GET', '/api/work-items'));
    await stalled.receives(1);
    stalled.pause();
    await poll(async () => (await openCount()) === 0, 'it is cut');
  } finally {
    app.server.closeAllConnections();
    await app.close();
    await backend.stop();
  }
});

test('a client that sends requests ahead and takes no reply has a few replies put together for it, and the others later [D26]', async () => {
  const length = 2_000_000;
  const count = 40;
  const backend = await ScriptedBackend.start();
  backend.answers(answer(Buffer.alloc(length, '1')));
  const app = Fastify(gatewayServerOptions());
  await app.register(workItemGateway, { backendUrl: backend.url, bufferedBytesMax: 10 * length });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  try {
    await using hog = await RawClient.open(port);
    hog.pause();
    hog.send(requestBytes('GET', '/api/work-items').toString().repeat(count));
    // Each of these takes as long as one of the hog's would.
    for (let round = 0; round < 2 * count; round += 1) {
      assert.equal((await request(port, 'GET', '/api/work-items')).status, 200, `call ${round}`);
    }
    const taken = backend.requests.length - 2 * count;
    assert.ok(taken >= 1 && taken < count / 2, `${taken} of the hog's calls were made`);
    hog.resume();
    for (let round = 0; round < count; round += 1) {
      const reply = await hog.reply();
      assert.deepEqual([reply.status, reply.body.length], [200, length]);
    }
  } finally {
    await app.close();
    await backend.stop();
  }
});
