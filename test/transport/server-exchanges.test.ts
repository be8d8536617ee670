// The server side of HTTP/1.1 on real sockets: requests and replies, the last reply of a connection, clients or handlers that
// end it, and what is read ahead. D11, D21, D27, D28, D58. The simulated worlds explore the order of such events.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';
import { queueForTurn, TurnShare } from '../../packages/core/http1/turns.ts';
import { poll } from '../helpers/changes.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import {
  assertEnds,
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
  TurnCounter,
  turns,
  type Received,
  type Script,
} from './served-connections.ts';

const hold: Script = { onStart: (received) => received.transport.holdBody() };

describe('requests and replies', () => {
  test('each request starts after the reply to the previous one, and after its handler has returned [D27]', async (t) => {
    const log: string[] = [];
    const { client, received, request } = await serveOne(t, {
      onStart: (each) => log.push(`${each.head.target} starts`),
    });
    client.send(join(get('/0'), requestBytes('PUT', '/1', { body: 'two' }), get('/2')));
    for (const index of [0, 1, 2]) {
      const current = await request(index);
      await turn();
      assert.equal(received.at(-1), current, 'no later request has started');
      current.reply(`${index}`);
      log.push(`/${index} is done`);
      await assertReplies(client, `${index}`);
    }
    assert.deepEqual(log, ['/0 starts', '/0 is done', '/1 starts', '/1 is done', '/2 starts', '/2 is done']);
    assert.deepEqual([received[1]?.events, received[1]?.body], [['start', 'body', 'end', 'taken'], 'two']);
  });

  test('a body arrives unchanged, and the memory of its pieces is not overwritten later', async (t) => {
    const { client, exchange, request } = await serveOne(t);
    const body = 'abcdefghijklmnopqrstuvwxyz'.repeat(1_154);
    const chunks = Array.from(body.matchAll(/[^]{1,7}/g), ([data]) => `${data.length}\r\n${data}\r\n`);
    client.send(join(put('/1', 'chunked'), ...chunks, '0\r\n\r\n', get('/2')));
    const received = await request(0);
    await poll(() => received.events.includes('end'), 'the whole body');
    await exchange(client, 0, '1');
    await exchange(client, 1, '2');
    assert.equal(received.body, body);
  });

  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  for (const [what, method, status, pieces, length] of [
    ['a body with every byte value, in two pieces', 'GET', 200, [everyByte.subarray(0, 99), everyByte.subarray(99)], '256'],
    ['a body in large pieces', 'GET', 200, [1, 2, 3].map((byte) => Buffer.alloc(20_000, byte)), '60000'],
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
      assert.deepEqual([reply.header('x-request-id'), reply.header('keep-alive')], ['caf\u00e9', 'timeout=59']);
      assert.match(reply.header('date') ?? '', /^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/);
      client.send(get('/next'));
      await exchange(client, 1, 'next');
      assert.deepEqual(received.events, ['start', 'taken']);
    });
  } // prettier-ignore

  test('100 Continue is sent once, when the handler reads the body, and only to HTTP/1.1 clients that expect it', async (t) => {
    const { client, request } = await serveOne(t);
    const expecting = (version: string) =>
      `PUT /1 HTTP/${version}\r\nHost: x\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n`;
    for (const [index, version] of ['1.1', '1.0'].entries()) {
      client.send(expecting(version));
      const received = await request(index);
      received.transport.readBody();
      received.transport.readBody();
      if (version === '1.1') assert.equal((await client.reply()).status, 100);
      client.send('ab');
      await poll(() => received.events.includes('end'), 'its body');
      received.reply(version);
      await assertReplies(client, version);
    }
    // Without a 100 the client may omit the body. The server cannot tell where the next request begins, so it closes the
    // connection.
    client.send(expecting('1.1'));
    (await request(2)).reply('no', { status: 417 });
    await assertLastReply(client, 417);
  });
});

describe('a reply before the body ends', () => {
  for (const [what, script, first, rest, events] of [
    ['that is arriving', {}, 'abcd', 'efgh', ['start', 'body', 'taken']],
    ['that has arrived and is held', hold, 'abcdefgh', '', ['start', 'taken']],
  ] as const) {
    test(`drops a body ${what}, and the next request is served`, async (t) => {
      const { client, connection, exchange, request } = await serveOne(t, script);
      const bytes = put('/1', 8) + first;
      client.send(bytes);
      const received = await request(0);
      await poll(() => connection.socket.bytesRead === bytes.length, 'all has been read');
      received.reply('early');
      assert.equal((await client.reply()).header('connection'), 'keep-alive');
      received.transport.holdBody();
      client.send(join(rest, get('/2')));
      await exchange(client, 1, '2');
      assert.deepEqual(received.events, events);
    });
  }

  for (const [what, length, served] of [
    ['of the largest allowed size', 100, ['/1', '/2', '/3']],
    ['one byte over the limit', 101, ['/1']],
  ] as const) {
    test(`to two requests with a body ${what}: ${served.length} of 3 requests are served [D11]`, async (t) => {
      const script: Script = { onStart: (each) => each.reply(each.head.target) };
      const { client, received } = await serveOne(t, script, { requestBytesMax: 100 });
      const body = 'x'.repeat(length);
      client.send(join(put('/1', length), body, put('/2', length), body, get('/3', [['Connection', 'close']])));
      assert.equal(await client.closed(), 'end');
      assert.deepEqual(received.map(({ head }) => head.target), served); // prettier-ignore
    });
  }

  for (const rest of ['hellox', undefined]) {
    test(`is the last one if the body is ${rest === undefined ? 'cut off' : 'malformed'} [D27]`, async (t) => {
      const { client, exchange, refused, faults } = await serveOne(t);
      client.send(`${put('/1', 'chunked')}5\r\n`);
      await exchange(client, 0, 'early');
      if (rest === undefined) client.end();
      else client.send(join(rest, get('/2')));
      await assertEnds(client);
      assert.deepEqual([refused, faults], [[], []]);
    });
  }
});

describe('the last reply [D27]', () => {
  for (const [what, bytes, expected] of [
    ['Connection: close', 'GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 'close'],
    ['HTTP/1.0', 'GET /last HTTP/1.0\r\n\r\n', 'close'],
    ['HTTP/1.0 and keep-alive', 'GET /last HTTP/1.0\r\nConnection: keep-alive\r\n\r\n', 'keep-alive'],
    ['an offer to upgrade', 'GET /last HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n', 'keep-alive'],
    ['an expectation and no body', 'GET /last HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n', 'close'],
  ] as const) {
    test(`a request with ${what} is answered with Connection: ${expected}`, async (t) => {
      const { client, received } = await serveOne(t, echo);
      client.send(join(get('/0'), bytes, get('/after')));
      await assertReplies(client, '/0');
      if (expected === 'close') {
        await assertLastReply(client, 200, '/last');
        assert.equal(received.length, 2);
      } else {
        assert.equal((await client.reply()).header('connection'), expected);
        await assertReplies(client, '/after');
      }
    });
  } // prettier-ignore

  for (const bytes of [`${put('/1', 'chunked')}not a chunk\r\n`, `${put('/1', 3)}abcnot HTTP`]) {
    test(`malformed bytes after the last request are ignored: ${JSON.stringify(bytes.slice(-12))}`, async (t) => {
      const { client, refused, received, faults } = await serveOne(t, {
        onStart: (each) => each.reply('last', { closes: true }),
      });
      client.send(bytes);
      await assertLastReply(client, 200, 'last');
      assert.deepEqual([refused, faults, received.length], [[], [], 1]);
    });
  }

  test('a refusal follows the previous reply and closes its connection, even if the handler sets `closes` to false', async (t) => {
    const { client, exchange, request, refused } = await serveOne(t, { refusalCloses: false });
    client.send(join(get('/1'), 'nonsense\r\n\r\n', get('/never')));
    await request(0);
    await turns(20);
    assert.deepEqual(refused, []);
    await exchange(client, 0, '1');
    await assertLastReply(client, 400);
  });

  test('20 MB after the last request are read and dropped, without a reset', async (t) => {
    const { client, connection, request, received } = await serveOne(t);
    const first = get('/0', [['Connection', 'close']]);
    const more = Buffer.alloc(20_000_000, get('/1'));
    client.send(join(first, more));
    const last = await request(0);
    await poll(() => connection.socket.isPaused(), 'the socket is paused');
    // Its turn passes, so that the socket stays paused until the reply.
    await turns(5);
    last.reply('/0');
    await assertLastReply(client, 200, '/0');
    await poll(() => connection.socket.bytesRead === first.length + more.length, 'all of it is read');
    assert.equal(received.length, 1);
  });
});

test('bytes that arrive after the last reply, while the connection waits for its turn, do not keep it open', async (t) => {
  t.mock.method(TurnShare.prototype, 'countRead', () => false);
  const { client, connection, request } = await serveOne(t);
  client.send(get('/'));
  (await request(0)).reply('/', { closes: true });
  for (let count = 0; count < 2; count += 1) connection.socket.emit('data', Buffer.from('late'));
  connection.checkTime(performance.now() + 5_000);
  assert.ok(connection.socket.destroyed);
});

describe('a client that sends its FIN [D21]', () => {
  const write = join(put('/', 1), 'b');
  const head = 'HEAD / HTTP/1.1\r\nHost: x\r\n\r\n';
  const [gone, done, goneWrite] = ['start gone', 'start body end taken', 'start body end gone'];

  // The handler replies to no read. It replies to a write after the FIN has been read.
  for (const [what, parts, events, last] of [
    ['nothing', [], [], undefined],
    ['a read and half a request', [get('/'), 'GET /2 HT'], [gone], undefined],
    ['half a head', ['GET / HT'], [], 400],
    ['writes and half a head', [write, write, 'GET / HT'], [done, done], 400],
    ['half a body', [put('/', 5), 'ab'], ['start body malformed taken'], 500],
    ['writes and half a body', [write, write, put('/', 5), 'ab'], [done, done, 'start body malformed taken'], 500],
    ['three writes', [write, write, write], [done, done, goneWrite], undefined],
    ['a write, a HEAD and a write', [write, head, write], [done, gone], undefined],
  ] as const) {
    const ending = last === undefined ? 'the connection ends' : `the last reply is ${last}`;
    test(`after ${what}: replies to earlier writes arrive, then ${ending}, and nothing else starts`, async (t) => {
      const reply = async (each: Received, status: number) => {
        await poll(() => connection.socket.readableEnded, 'the FIN');
        await turns(3);
        if (!each.events.includes('gone')) each.reply('', { status });
      };
      const { client, connection, received } = await serveOne(t, {
        onBodyEnd: (each) => void reply(each, 200),
        onBroken: (each) => void reply(each, 500),
      });
      client.send(join(...parts));
      client.end();
      const earlier = events.filter((each) => each === done).length;
      for (let count = 0; count < earlier; count += 1) assert.equal((await client.reply()).status, 200);
      if (last === undefined) await assertEnds(client);
      else await assertLastReply(client, last);
      await poll(() => connection.socket.destroyed, 'the connection has closed');
      assert.deepEqual(received.map((each) => each.events.join(' ')), events); // prettier-ignore
    });
  } // prettier-ignore
});

for (const [what, isLater, isReplied] of [
  ['replies and cuts the connection', false, true],
  ['later cuts the connection without a reply', true, false],
] as const) {
  test(`a connection starts no pipelined request after its handler ${what} [D21]`, async (t) => {
    const cut = (each: Received): void => {
      if (isReplied) each.reply(each.head.target);
      each.transport.cut();
    };
    const { client, request, server, received } = await serveOne(t, isLater ? {} : { onStart: cut });
    client.send(gets(50));
    if (isLater) cut(await request(0));
    await client.closed();
    await poll(() => server.size === 0, 'the connection has closed');
    assert.equal(received.length, 1);
    assert.equal(received[0]?.events.includes('gone'), !isReplied);
  });
}

describe('an error thrown by the handler closes its connection, is reported once, and affects no other connection [D28]', () => {
  const theFault = new Error('a fault of the handler');
  const write = requestBytes('PUT', '/1', { body: 'b' });
  for (const [hook, bytes, end] of [
    ['onStart', get('/1'), undefined],
    ['onStart', join(get('/ahead'), get('/1')), undefined],
    ['onBody', write, undefined],
    ['onBodyEnd', write, undefined],
    ['onBroken', `${put('/', 'chunked')}x`, undefined],
    ['onBroken', `${put('/', 5)}ab`, 'FIN'],
    ['onRefuse', 'nonsense\r\n\r\n', undefined],
    ['onRefuse', 'GET / HT', 'timeout'],
    ['onGone', get('/held'), 'reset'],
  ] as const) {
    test(`in ${hook}, after ${JSON.stringify(String(bytes).slice(0, 12))} and ${end ?? 'nothing else'}`, async (t) => {
      const fail = () => {
        throw theFault;
      };
      const onStart = (each: Received) => {
        if (['/ahead', '/2'].includes(each.head.target)) each.reply(each.head.target);
        else if (hook === 'onStart') fail();
      };
      const { connect, connectBoth, faults, server } = await serve(t, { [hook]: fail, onStart });
      const other = await connect();
      const { client, connection } = await connectBoth();
      client.send(bytes);
      await poll(() => connection.socket.bytesRead === bytes.length, 'the bytes are read');
      if (end === 'FIN') client.end();
      else if (end === 'reset') client.reset();
      else if (end === 'timeout') connection.checkTime(performance.now() + 60_000);
      await client.closed();
      if (!bytes.includes('/ahead')) assert.equal(client.unread.length, 0);
      await poll(() => server.size === 1, 'the connection is no longer counted');
      assert.deepEqual(faults, [theFault]);
      assert.equal((await other.call('GET', '/2')).text, '/2');
    });
  }

  test('a reader that consumes nothing is such an error, not an endless loop', async (t) => {
    const { client, faults } = await serveOne(t, echo);
    const { mock } = t.mock.method(RequestReader.prototype, 'read', (_bytes: Buffer, from: number) => {
      assert.ok(mock.callCount() < 100, 'an endless loop');
      return from;
    });
    client.send(get('/1'));
    await client.closed();
    assert.deepEqual(faults.map(String), ['Error: the reader consumed nothing']);
  });
});

describe('requests that are sent ahead [D58]', () => {
  test('when 4 KiB are stored, the socket is paused until all of them are consumed', async (t) => {
    const { client, connection, request } = await serveOne(t);
    const { socket } = connection;
    const each = get('/', [['X-Padding', 'x'.repeat(100)]]);
    client.send(each);
    await request(0);
    for (const [size, isPaused] of [[4_095, false], [1, true]] as const) {
      const expected = socket.bytesRead + size;
      client.send(Buffer.alloc(4_096, each).subarray(socket.bytesRead - each.length, expected - each.length));
      await poll(() => socket.bytesRead === expected, 'the bytes are read');
      assert.equal(socket.isPaused(), isPaused);
    } // prettier-ignore
    const stored = Math.floor(4_096 / each.length);
    for (let index = 0; index <= stored; index += 1) {
      assert.equal(socket.isPaused(), true, 'some bytes are still stored');
      (await request(index)).reply(`${index}`);
      await turn();
    }
    await poll(() => !socket.isPaused(), 'the socket resumes');
  });

  test('no further requests start while a client reads nothing; all start once the client reads again', async (t) => {
    const { client, received } = await serveOne(t, {
      onStart: (each) => each.reply('', { pieces: [Buffer.alloc(1_000_000, each.head.target)] }),
    });
    client.pause();
    client.send(gets(50));
    let before = -1;
    await poll(async () => {
      const isSettled = received.length > 0 && received.length === before;
      before = received.length;
      await turns(20);
      return isSettled;
    }, 'no more are started');
    assert.ok(received.length < 25, `${received.length} were started`);
    client.resume();
    for (let index = 0; index < 50; index += 1) assert.ok((await client.reply()).text.startsWith(`/${index}/`));
  });

  test('1,000 requests that arrive together are read from at most four buffers', async (t) => {
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

  test('at most two reads of 64 KiB, or 64 small ones, are passed to the handler in one event-loop turn', async (t) => {
    const counter = new TurnCounter();
    const { client, connection, request } = await serveOne(t, { onBody: (_, { length }) => counter.count(length) });
    const size = 900_000;
    client.send(put('/', size) + 'b'.repeat(size - 200));
    const each = await request(0);
    await poll(() => each.bodyBytes === size - 200, 'most of the body');
    // Two reads: one arrives in this turn, the other had arrived before the socket was paused.
    assert.ok(counter.most <= 2 * 65_536, `${counter.most} bytes in one turn`);
    await turns(3);
    for (let count = 0; count < 200; count += 1) connection.socket.emit('data', Buffer.from('b'));
    assert.deepEqual([counter.inTurn, connection.socket.isPaused()], [64, true]);
    // The connection is queued once, so that the next turn is that of another connection.
    let isNext = false;
    queueForTurn({ takeTurn: () => (isNext = true) });
    await turns(3);
    assert.ok(isNext, 'another connection has its turn');
    await poll(() => each.events.includes('end'), 'the whole body');
    assert.equal(connection.socket.isPaused(), false);
  });
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
