// No client makes others wait by what it sends: requests sent ahead and bodies in tiny pieces are taken in turns, and
// what waits is bytes. Seen in turns of the event loop, not in time. D58.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { describe, test } from 'node:test';
import Fastify from 'fastify';
import { gatewayServerOptions, workItemGateway } from '../../src/index.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, invalidId, methodNotAllowed, succeeded } from '../helpers/expected.ts';
import { bytesOf, chunk, RawClient, request, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind, ScriptedBackend } from '../helpers/scripted-backend.ts';

const readBytesMax = 65_536;

/** A gateway in this process, in a server with its options or in anyone's, and what it does in each turn of the loop. */
async function serve({ ownServer = true } = {}) {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('[]'));
  const app = Fastify(ownServer ? gatewayServerOptions() : {});
  const sockets: Socket[] = [];
  app.server.on('connection', (socket: Socket) => sockets.push(socket));
  const requests: IncomingMessage[] = [];
  let answered = 0;
  let answeredInTurn = 0;
  let mostInTurn = 0;
  let turns = 0;
  const countTurn = (): void => {
    turns += 1;
    mostInTurn = Math.max(mostInTurn, answeredInTurn);
    answeredInTurn = 0;
    ticker = setImmediate(countTurn);
  };
  let ticker = setImmediate(countTurn);
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    requests.push(raw);
    done();
  });
  await app.register(workItemGateway, {
    backendUrl: backend.url,
    observer: {
      onCallEnd: () => {
        answered += 1;
        answeredInTurn += 1;
      },
      onMalformed: () => undefined,
      onStall: () => undefined,
      onBug: (error) => {
        throw error;
      },
    },
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  return {
    app,
    backend,
    port,
    sockets,
    /** As Node has made them. */
    requests,
    answered: () => answered,
    /** The most requests that were answered in one turn of the event loop. */
    mostInTurn: () => mostInTurn,
    turns: () => turns,
    [Symbol.asyncDispose]: async () => {
      clearImmediate(ticker);
      app.server.closeAllConnections();
      await app.close();
      await backend.stop();
    },
  };
}

const refusals: [string, Buffer, number][] = [
  ['a bad id', requestBytes('GET', '/api/work-items/a'), 400],
  ['OPTIONS', requestBytes('OPTIONS', '/api/work-items'), 204],
  ['a method that the path does not have', requestBytes('PATCH', '/api/work-items/1'), 405],
  ['an unknown path, as short as can be', Buffer.from('GET / HTTP/1.1\r\nHost:\r\n\r\n'), 404],
  ['a body that is not JSON', requestBytes('POST', '/api/work-items', { body: '{' }), 500],
  ['a bad id with a body', requestBytes('PUT', '/api/work-items/a', { body: '\n\n\r\n\r\n' }), 400],
  [
    'a body in chunks that is not JSON',
    Buffer.concat([
      requestBytes('POST', '/api/work-items', { headers: [['Transfer-Encoding', 'chunked']] }),
      chunk('{'),
      bytesOf('0\r\n\r\n'),
    ]),
    500,
  ],
];

describe('of requests sent ahead at most 16 are answered in one turn of the event loop', () => {
  for (const [what, bytes, status] of refusals) {
    test(what, async () => {
      await using server = await serve();
      await using client = await RawClient.open(server.port);
      const count = 2000;
      client.send(Buffer.concat(Array.from({ length: count }, () => bytes)));
      for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, status);
      assert.equal(server.answered(), count);
      assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
      // It is read on as ever.
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    });
  }

  test('in the order in which they were sent, whatever they are', async () => {
    await using server = await serve();
    await using client = await RawClient.open(server.port);
    const kinds = [
      ['GET', '/api/work-items/a', {}, 400],
      ['GET', '/api/work-items/1', {}, 200],
      ['PUT', '/api/work-items/1', { body: '[1,\r\n\r\n\n\n2]' }, 200],
      ['PUT', '/api/work-items/1', { body: '[1' }, 500],
      ['OPTIONS', '/api/work-items', {}, 204],
      ['DELETE', '/api/work-items/x', { body: 'x'.repeat(3000) }, 400],
    ] as const;
    const count = 1200;
    const all = Array.from({ length: count }, (_, index) => {
      const [method, path, options] = kinds[index % kinds.length] ?? assert.fail();
      return requestBytes(method, path, { ...options, headers: [['X-Request-Id', `r${index}`]] });
    });
    client.send(Buffer.concat(all));
    for (let index = 0; index < count; index += 1) {
      const reply = await client.reply();
      assert.deepEqual(
        [reply.status, reply.header('x-request-id')],
        [kinds[index % kinds.length]?.[3], `r${index}`],
      );
    }
    assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
  });

  test('and of many connections those of a few', async () => {
    await using server = await serve();
    const clients = await Promise.all(Array.from({ length: 30 }, () => RawClient.open(server.port)));
    const count = 500;
    const bytes = Buffer.concat(
      Array.from({ length: count }, () => requestBytes('GET', '/api/work-items/a')),
    );
    for (const client of clients) client.send(bytes);
    await Promise.all(
      clients.map(async (client) => {
        for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
        client.destroy();
      }),
    );
    // One of each connection as it comes, and 15 of each of the four whose turn it is.
    assert.ok(server.mostInTurn() <= 4 * 15 + clients.length, `${server.mostInTurn()} in one turn`);
  });

  test("in anyone's server, too", async () => {
    await using server = await serve({ ownServer: false });
    await using client = await RawClient.open(server.port);
    const count = 2000;
    client.send(Buffer.concat(Array.from({ length: count }, () => requestBytes('GET', '/api/work-items/a'))));
    for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
    assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
    assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
  });

  test('those that have waited for an answer, too', async () => {
    await using server = await serve();
    const gate = createGate();
    server.backend.answersOnce(behind(gate, answer('[]')));
    await using client = await RawClient.open(server.port);
    const count = 200;
    client.send(requestBytes('GET', '/api/work-items'));
    client.send(Buffer.concat(Array.from({ length: count }, () => requestBytes('GET', '/api/work-items/a'))));
    await server.backend.nextRequest();
    gate.open();
    assertReply(await client.reply(), 200, '[]');
    for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
    assert.ok(server.mostInTurn() <= 16, `${server.mostInTurn()} in one turn`);
  });
});

test('what is sent ahead of a slow reply is 16 requests, and one read of bytes', async () => {
  await using server = await serve();
  const gate = createGate();
  server.backend.answersOnce(behind(gate, answer('[]')));
  await using client = await RawClient.open(server.port);
  const first = requestBytes('GET', '/api/work-items');
  client.send(first);
  await server.backend.nextRequest();
  const short = Buffer.from('GET / HTTP/1.1\r\nHost:\r\n\r\n');
  const count = 100_000;
  client.send(Buffer.concat(Array.from({ length: count }, () => short)));
  const [socket] = server.sockets;
  assert.ok(socket);
  await poll(() => socket.bytesRead > first.length, 'they come');
  // As long as others are served, so would these have been taken.
  for (let round = 0; round < 50; round += 1) await request(server.port, 'OPTIONS', '/api/work-items');
  assert.ok(server.requests.length - 50 <= 17, `${server.requests.length - 50} were taken`);
  assert.ok(socket.bytesRead - first.length <= readBytesMax, `${socket.bytesRead} bytes were read`);
  assert.equal(socket.readableLength, 0);
  gate.open();
  assertReply(await client.reply(), 200, '[]');
  for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, 404);
});

describe('bodies', () => {
  const head = requestBytes('PUT', '/api/work-items/5', { headers: [['Transfer-Encoding', 'chunked']] });

  test('in chunks of one byte are taken in turns', async () => {
    await using server = await serve();
    const count = 10_000;
    await using client = await RawClient.open(server.port);
    const from = server.turns();
    client.send(Buffer.concat([head, bytesOf('1\r\n1\r\n'.repeat(count)), bytesOf('0\r\n\r\n')]));
    assertReply(await client.reply(), 200, succeeded);
    const turns = server.turns() - from;
    assert.ok(turns > count / 32, `${count} chunks in ${turns} turns`);
    assert.ok(server.backend.requests[0]?.body.equals(Buffer.alloc(count, '1')));
  });

  test('in chunks of one byte that no operation takes, too', async () => {
    await using server = await serve();
    const count = 10_000;
    await using client = await RawClient.open(server.port);
    const from = server.turns();
    const chunked = requestBytes('GET', '/api/work-items/x', { headers: [['Transfer-Encoding', 'chunked']] });
    client.send(Buffer.concat([chunked, bytesOf('1\r\n1\r\n'.repeat(count)), bytesOf('0\r\n\r\n')]));
    client.send(requestBytes('PATCH', '/api/work-items'));
    assertReply(await client.reply(), 400, invalidId);
    assertReply(await client.reply(), 405, methodNotAllowed, ['allow']);
    assert.ok(server.turns() - from > count / 32, `${count} chunks in ${server.turns() - from} turns`);
  });

  test('behind a slow reply are bytes until it is their turn, and not a thousand pieces', async () => {
    for (const split of [0, 1]) {
      await using server = await serve();
      const gate = createGate();
      server.backend.answersOnce(behind(gate, answer('[]')));
      await using client = await RawClient.open(server.port);
      client.send(requestBytes('GET', '/api/work-items'));
      await server.backend.nextRequest();
      const count = 10_000;
      const bytes = Buffer.concat([head, bytesOf('1\r\n1\r\n'.repeat(count)), bytesOf('0\r\n\r\n')]);
      await client.sendPieces([bytes.subarray(0, split * head.length), bytes.subarray(split * head.length)]);
      await poll(() => server.requests.length === 2, 'its head has come');
      for (let round = 0; round < 50; round += 1) await request(server.port, 'OPTIONS', '/api/work-items');
      assert.ok(
        (server.requests[1]?.readableLength ?? 0) <= 32,
        `${server.requests[1]?.readableLength} pieces`,
      );
      gate.open();
      assertReply(await client.reply(), 200, '[]');
      assertReply(await client.reply(), 200, succeeded);
      assert.ok(server.backend.requests[1]?.body.equals(Buffer.alloc(count, '1')));
    }
  });

  test('with a length are taken as they come, whatever their lines', async () => {
    await using server = await serve();
    const body = Buffer.from(`[${'\n\r\n1,'.repeat(200_000)}1]`);
    await using client = await RawClient.open(server.port);
    const from = server.turns();
    assertReply(await client.call('PUT', '/api/work-items/5', { body }), 200, succeeded);
    assert.ok(server.turns() - from < 3000, `${server.turns() - from} turns`);
    assert.ok(server.backend.requests[0]?.body.equals(body));
  });
});

test('requests sent ahead are the same requests wherever the bytes are split', async () => {
  await using server = await serve();
  const bytes = Buffer.concat([
    bytesOf('\r\n'),
    requestBytes('PUT', '/api/work-items/1', { body: '[\r\n\r\n1]' }),
    requestBytes('GET', '/api/work-items/a'),
    requestBytes('POST', '/api/work-items', { headers: [['Transfer-Encoding', 'chunked']] }),
    chunk('['),
    chunk('\r\n\r\n\n\n'),
    chunk('1]'),
    bytesOf('0\r\nTrailer: 1\r\n\r\n'),
    requestBytes('DELETE', '/api/work-items/2', { body: 'GET / HTTP/1.1\r\nHost: x\r\n\r\n' }),
    requestBytes('GET', '/api/work-items/3'),
  ]);
  const expected = [200, 400, 201, 200, 200];
  for (let split = 1; split < bytes.length; split += 1) {
    await using client = await RawClient.open(server.port);
    await client.sendPieces([bytes.subarray(0, split), bytes.subarray(split)]);
    const statuses: number[] = [];
    while (statuses.length < expected.length) statuses.push((await client.reply()).status);
    assert.deepEqual(statuses, expected, `split at ${split}`);
    const calls = server.backend.requests.splice(0);
    assert.deepEqual(
      calls.map(({ method, target, body }) => `${method} ${target} ${body.toString()}`),
      [
        'PUT /api/WorkItem/1 [\r\n\r\n1]',
        'POST /api/WorkItem [\r\n\r\n\n\n1]',
        'DELETE /api/WorkItem/2 ',
        'GET /api/WorkItem/3 ',
      ],
    );
  }
});

test('a client that leaves while its requests wait for their turn costs nothing more', async () => {
  await using server = await serve();
  const bytes = Buffer.concat(Array.from({ length: 2000 }, () => requestBytes('GET', '/api/work-items/a')));
  for (let round = 0; round < 20; round += 1) {
    const client = await RawClient.open(server.port);
    client.send(bytes);
    await client.receives(1);
    if (round % 2 === 0) client.destroy();
    else client.reset();
  }
  await poll(() => server.sockets.every(({ destroyed }) => destroyed), 'all have gone');
  const answered = server.answered();
  assertReply(await request(server.port, 'GET', '/api/work-items'), 200, '[]');
  assert.equal(server.answered(), answered + 1);
});

test("a host's own protocol gets its bytes on a connection that has had requests", async () => {
  await using server = await serve();
  server.app.server.on('upgrade', (_request, socket: Socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\n\r\n');
    socket.pipe(socket);
  });
  await using client = await RawClient.open(server.port);
  assertReply(await client.call('GET', '/api/work-items/a'), 400, invalidId);
  client.send(requestBytes('GET', '/', { headers: [['Connection', 'upgrade'], ['Upgrade', 'echo']] })); // prettier-ignore
  assert.equal((await client.reply()).status, 101);
  const text = `${'\n'.repeat(100)}GET /api/work-items HTTP/1.1\r\n\r\n${'x'.repeat(1000)}`;
  client.send(text);
  await poll(() => client.unread.length === text.length, 'all of it comes back');
  assert.equal(client.unread.toString(), text);
  assert.equal(server.backend.requests.length, 0);
  client.end();
  const [socket] = server.sockets;
  if (socket?.destroyed === false) await once(socket, 'close');
});
