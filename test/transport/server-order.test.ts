// The server side of HTTP/1.1 on real sockets: the order of requests and replies, and the last reply of a connection.
// D27.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import {
  assertEchoes,
  assertLastReply,
  assertReplies,
  echo,
  get,
  gets,
  join,
  put,
  serve,
  serveOne,
  turn,
  turns,
} from './served-connections.ts';

test('requests are answered in order, and each starts after the reply to the previous request [D27]', async (t) => {
  const { client, exchange, received, request } = await serveOne(t);
  client.send(join(get('/1'), requestBytes('PUT', '/2', { body: 'two' }), get('/3')));
  for (const [index, target] of ['/1', '/2', '/3'].entries()) {
    const current = await request(index);
    await turn();
    assert.equal(received.at(-1), current, 'no later request has started');
    assert.equal(current.head.target, target);
    await exchange(client, index, target);
  }
  assert.deepEqual(received[1]?.events, ['start', 'body', 'end', 'taken']);
  assert.equal(received[1].body, 'two');
});

test('the next request starts after the handler of the previous request has returned', async (t) => {
  const log: string[] = [];
  const { client, request } = await serveOne(t, { onStart: (each) => log.push(`${each.head.target} starts`) });
  client.send(gets(2));
  const first = await request(0);
  first.reply('0');
  log.push('/0 is done');
  await request(1);
  assert.deepEqual(log, ['/0 starts', '/0 is done', '/1 starts']);
});

test('5,000 pipelined requests do not overflow the stack, and another client is served between them', async (t) => {
  const { connect, received } = await serve(t, echo);
  const hog = await connect();
  const count = 5_000;
  hog.send(gets(count));
  const other = await connect();
  assert.equal((await other.call('GET', '/other')).text, '/other');
  assert.ok(received.length < count, `${received.length} requests came first`);
  await assertEchoes(hog, count);
});

test('requests that arrive in arbitrary pieces are all served, although together they exceed the read-ahead limit', async (t) => {
  const { client } = await serveOne(t, echo);
  const count = 500;
  const all = gets(count, [['X-Padding', 'x'.repeat(2_000)]]);
  const size = 9_973;
  await client.sendPieces(
    Array.from({ length: Math.ceil(all.length / size) }, (_, index) => all.subarray(index * size, (index + 1) * size)),
  );
  await assertEchoes(client, count);
  assert.equal((await client.call('GET', '/last')).text, '/last');
});

describe('replies', () => {
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const large = [1, 2, 3].map((byte) => Buffer.alloc(20_000, byte));

  for (const [what, method, status, pieces, length] of [
    ['a body with every byte value', 'GET', 200, [everyByte], '256'],
    ['a body in two pieces', 'GET', 200, [everyByte.subarray(0, 100), everyByte.subarray(100)], '256'],
    ['a large body', 'GET', 200, [Buffer.alloc(100_000, 'b')], '100000'],
    ['a body in large pieces', 'GET', 200, large, '60000'],
    ['an empty body', 'GET', 200, [], '0'],
    ['a reply to HEAD, which has no body', 'HEAD', 200, [Buffer.from('four')], '4'],
    ['a 204, which has neither body nor length', 'GET', 204, [], undefined],
  ] as const) {
    test(`${what} reaches the client unchanged, with the request id, and "taken" is reported once`, async (t) => {
      const { client, exchange, request } = await serveOne(t);
      client.send(requestBytes(method, '/', { headers: [['X-Request-Id', 'caf\u00e9']] }));
      const received = await request(0);
      received.reply('', { status, pieces });
      const reply = await client.reply({ hasBody: method !== 'HEAD' });
      assert.deepEqual([reply.status, reply.header('content-length')], [status, length]);
      assert.ok(reply.body.equals(method === 'HEAD' ? Buffer.alloc(0) : Buffer.concat(pieces)));
      assert.equal(reply.header('x-request-id'), 'caf\u00e9');
      assert.match(reply.header('date') ?? '', /^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/);
      assert.equal(reply.header('keep-alive'), 'timeout=59');
      client.send(get('/next'));
      await exchange(client, 1, 'next');
      assert.deepEqual(received.events, ['start', 'taken']);
    });
  }

  for (const count of [1, 3]) {
    test(`"taken" is reported only after the client has read a reply of ${count} x 20 MB`, async (t) => {
      const { client, connection, request } = await serveOne(t);
      client.send(get('/1'));
      const first = await request(0);
      client.pause();
      const pieces = Array.from({ length: count }, (_, index) => Buffer.alloc(20_000_000, String(index)));
      first.reply('', { pieces });
      await turns(20);
      assert.deepEqual(first.events, ['start']);
      client.resume();
      assert.ok((await client.reply()).body.equals(Buffer.concat(pieces)));
      await poll(() => connection.socket.writableLength === 0, 'all bytes are sent');
      await turns(5);
      assert.deepEqual(first.events, ['start', 'taken']);
    });
  }

  test('a second reply to a request, or a reply after the client has left, throws', async (t) => {
    const { client, request } = await serveOne(t);
    const throws = (reply: () => void): void => assert.throws(reply, /has been answered, or its client has left/);
    client.send(get('/1'));
    const first = await request(0);
    first.reply('1');
    throws(() => first.reply('again'));
    client.send(get('/2'));
    const second = await request(1);
    client.reset();
    await poll(() => second.events.includes('gone'), 'the reset');
    throws(() => second.reply('2'));
  });
});

describe('the last reply [D27]', () => {
  for (const [what, bytes, expected] of [
    ['Connection: close', 'GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 'close'],
    ['HTTP/1.0', 'GET /last HTTP/1.0\r\n\r\n', 'close'],
    ['HTTP/1.0 and keep-alive', 'GET /last HTTP/1.0\r\nConnection: keep-alive\r\n\r\n', 'keep-alive'],
    [
      'an offer to upgrade',
      'GET /last HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n',
      'keep-alive',
    ],
    ['an expectation and no body', 'GET /last HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n', 'close'],
  ] as const) {
    test(`a request with ${what} is answered with Connection: ${expected}`, async (t) => {
      const { connect, received } = await serve(t, echo);
      for (const ahead of [0, 2]) {
        received.length = 0;
        const client = await connect();
        client.send(join(gets(ahead), bytes, get('/after')));
        await assertEchoes(client, ahead);
        if (expected === 'close') {
          await assertLastReply(client, 200, '/last');
          assert.equal(received.length, ahead + 1);
        } else {
          assert.equal((await client.reply()).header('connection'), expected);
          await assertReplies(client, '/after');
        }
      }
    });
  }

  test('bytes after the last request are ignored, even if they are malformed', async (t) => {
    const { connect, refused, received, faults } = await serve(t, {
      onStart: (each) => each.reply('last', { closes: true }),
    });
    for (const bytes of [
      `${put('/1', 'chunked')}not a chunk\r\n`,
      `${put('/1', 'chunked')}1\r\na\r\n0\r\nno trailer\r\n`,
      `${put('/1', 3)}abcnot HTTP`,
    ]) {
      const client = await connect();
      client.send(bytes);
      await assertLastReply(client, 200, 'last');
    }
    assert.deepEqual([refused, faults, received.length], [[], [], 3]);
  });

  for (const [what, bytes, status] of [
    ['bytes that are not HTTP', 'BLAH\0\r\n\r\n', 400],
    ['two lengths', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n', 400],
    ['a head that is too large', `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(2_000)}`, 431],
  ] as const) {
    test(`requests before ${what} are answered; then the client gets ${status}, and the connection closes`, async (t) => {
      const { connect, refused } = await serve(t, echo, { requestHeadBytesMax: 1_000 });
      for (const count of [0, 1, 2, 3, 40]) {
        const client = await connect();
        client.send(join(gets(count), bytes, get('/never')));
        await assertEchoes(client, count);
        await assertLastReply(client, status);
      }
      assert.equal(refused.length, 5);
    });
  }

  test('a head that becomes malformed in a later piece is refused', async (t) => {
    const { client, connection, refused } = await serveOne(t);
    client.send('GET /1 HT');
    await poll(() => connection.socket.bytesRead > 0, 'a part of a head');
    client.send('ML\r\n\r\n');
    await assertLastReply(client, 400);
    assert.equal(refused.length, 1);
  });

  test('a refusal is sent after the reply to the previous request', async (t) => {
    const { client, exchange, request, refused } = await serveOne(t);
    client.send(join(get('/1'), 'nonsense\r\n\r\n'));
    await request(0);
    await turns(20);
    assert.deepEqual(refused, []);
    await exchange(client, 0, '1');
    await assertLastReply(client, 400);
  });

  test('a refusal closes its connection, even if the handler sets `closes` to false', async (t) => {
    const { client } = await serveOne(t, { refusalCloses: false });
    client.send('nonsense\r\n\r\n');
    await assertLastReply(client, 400);
  });

  test('a malformed body is reported after all earlier replies, and no later request is served', async (t) => {
    for (const ahead of [0, 1, 2, 3]) {
      const { client, exchange, received } = await serveOne(t, {
        onBroken: (each) => each.reply('broken', { status: 400 }),
      });
      client.send(join(gets(ahead), put('/5', 'chunked'), '1\r\na\r\nnone\r\n', get('/never')));
      for (let index = 0; index < ahead; index += 1) await exchange(client, index, `${index}`);
      await assertLastReply(client, 400, 'broken');
      assert.equal(received.length, ahead + 1);
      assert.deepEqual(received.at(-1)?.events, ['start', 'body', 'malformed', 'taken']);
    }
  });

  test('no other request starts before the reply to a malformed body, and the connection closes after this reply', async (t) => {
    const { client, request, received } = await serveOne(t);
    client.send(`${put('/5', 'chunked')}none\r\n`);
    const broken = await request(0);
    await poll(() => broken.events.includes('malformed'), 'the flaw is reported');
    client.send(get('/never'));
    await turns(20);
    broken.reply('broken', { status: 400 });
    await assertLastReply(client, 400);
    assert.equal(received.length, 1);
  });
});
