// The server side of HTTP/1.1 on real sockets: order of requests and replies, bodies, the last reply of a connection, and
// clients or handlers that end it. D11, D21, D27, D28.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { allowed, seen } from '../helpers/connection-states.ts';
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
  turns,
  type Received,
  type Script,
} from './served-connections.ts';

const hold: Script = { onStart: (received) => received.transport.holdBody() };

describe('requests and replies', () => {
  test('each request starts after the reply to the previous one, and after its handler has returned [D27]', async (t) => {
    const log: string[] = [];
    const { client, exchange, received, request } = await serveOne(t, {
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
    client.send(get('/3'));
    await exchange(client, 3, '3');
  });

  test('a body arrives unchanged, and the memory of its pieces is not overwritten later', async (t) => {
    const { client, exchange, request } = await serveOne(t);
    const body = Array.from({ length: 30_000 }, (_, index) => String.fromCharCode(97 + (index % 26))).join('');
    const chunks = Array.from(body.matchAll(/[^]{1,7}/g), ([data]) => `${data.length}\r\n${data}\r\n`);
    client.send(join(put('/1', 'chunked'), ...chunks, '0\r\n\r\n', get('/2')));
    const received = await request(0);
    await poll(() => received.events.includes('end'), 'the whole body');
    assert.equal(received.body, body);
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

  test('"taken" is reported only after the client has read a reply of 3 x 20 MB', async (t) => {
    const { client, connection, request } = await serveOne(t);
    client.send(get('/1'));
    const first = await request(0);
    client.pause();
    const pieces = ['0', '1', '2'].map((fill) => Buffer.alloc(20_000_000, fill));
    first.reply('', { pieces });
    await turns(20);
    assert.deepEqual(first.events, ['start']);
    client.resume();
    assert.ok((await client.reply()).body.equals(Buffer.concat(pieces)));
    await poll(() => connection.socket.writableLength === 0, 'all bytes are sent');
    await turns(5);
    assert.deepEqual(first.events, ['start', 'taken']);
  });

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

describe('a reply before the body ends', () => {
  test('drops the rest of the body, and the next request is served', async (t) => {
    const { client, exchange, request } = await serveOne(t);
    client.send(`${put('/1', 8)}abcd`);
    const first = await request(0);
    await poll(() => first.body === 'abcd', 'a part of its body');
    first.reply('early');
    const reply = await client.reply();
    assert.deepEqual([reply.text, reply.header('connection')], ['early', 'keep-alive']);
    first.transport.holdBody();
    client.send(join('efgh', get('/2')));
    await exchange(client, 1, 'second');
    assert.deepEqual(first.events, ['start', 'body', 'taken']);
  });

  test('drops a held body that has arrived, and the next request is served', async (t) => {
    const { client, connection, exchange, request } = await serveOne(t, hold);
    const bytes = join(put('/1', 5), 'hello', get('/2'));
    client.send(bytes);
    const first = await request(0);
    await poll(() => connection.socket.bytesRead === bytes.length, 'all has been read');
    await exchange(client, 0, 'early');
    await exchange(client, 1, '2');
    assert.deepEqual(first.events, ['start', 'taken']);
  });

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

test('100 Continue is sent once, when the handler reads the body, and only to HTTP/1.1 clients that expect it', async (t) => {
  const { client, request } = await serveOne(t);
  const expecting = (version: string): string =>
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

for (const isHeld of [false, true]) {
  for (const [what, rest, end] of [
    ['is whole', '2\r\nab\r\n0\r\n\r\n', undefined],
    ['is malformed', 'none\r\n', undefined],
    ['is late', '', 'timeout'],
    ['never comes, because the client leaves', '', 'reset'],
  ] as const) {
    test(`a body ${isHeld ? 'that is held' : 'of which nothing is read'} before its 100 Continue ${what}`, async (t) => {
      const { client, connection, request } = await serveOne(t, isHeld ? hold : {});
      const head = put('/1', 'chunked').replace('\r\n\r\n', '\r\nExpect: 100-continue\r\n\r\n');
      client.send(head + rest);
      const received = await request(0);
      await poll(() => connection.socket.bytesRead === head.length + rest.length, 'all is read');
      if (end === 'timeout') connection.checkTime(performance.now() + 60_000);
      if (end === 'reset') client.reset();
      if (end === undefined && isHeld) received.transport.readBody();
      await poll(() => received.events.length > 1, 'its end');
      if (end === 'reset') return;
      const isRefused = !isHeld && what === 'is malformed';
      if (!isRefused) received.transport.readBody();
      received.reply('done');
      if (!isRefused) assert.equal((await client.reply()).status, 100);
      const reply = await client.reply();
      assert.deepEqual(
        [reply.text, reply.header('connection')],
        ['done', what === 'is whole' ? 'keep-alive' : 'close'],
      );
    });
  }
}

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

  test('a refusal follows the previous reply and closes its connection, even if the handler sets `closes` to false', async (t) => {
    const { client, exchange, request, refused } = await serveOne(t, { refusalCloses: false });
    client.send(join(get('/1'), 'nonsense\r\n\r\n', get('/never')));
    await request(0);
    await turns(20);
    assert.deepEqual(refused, []);
    await exchange(client, 0, '1');
    await assertLastReply(client, 400);
  });

  test('no other request starts before or after the reply to a malformed body', async (t) => {
    const { client, exchange, request, received } = await serveOne(t);
    client.send(join(get('/0'), put('/1', 'chunked'), '1\r\na\r\nnone\r\n', get('/never')));
    await exchange(client, 0, '0');
    const broken = await request(1);
    await poll(() => broken.events.includes('malformed'), 'the flaw is reported');
    client.send(get('/never'));
    await turns(20);
    broken.reply('broken', { status: 400 });
    await assertLastReply(client, 400, 'broken');
    assert.deepEqual([received.length, broken.events], [2, ['start', 'body', 'malformed', 'taken']]);
  });
});

describe('a client that sends its FIN [D21]', () => {
  const write = join(put('/', 1), 'b');
  const head = 'HEAD / HTTP/1.1\r\nHost: x\r\n\r\n';
  const [gone, done, goneWrite] = ['start gone', 'start body end taken', 'start body end gone'];

  // The handler replies to no read. It replies to a write after the FIN has been read.
  for (const [what, parts, events, last] of [
    ['nothing', [], [], undefined],
    ['a read', [get('/')], [gone], undefined],
    ['two reads', [get('/'), get('/')], [gone], undefined],
    ['a read and an empty line', [get('/'), '\r\n'], [gone], undefined],
    ['a read and half a request', [get('/'), 'GET /2 HT'], [gone], undefined],
    ['a read and malformed bytes', [get('/'), '\0'], [gone], undefined],
    ['half a head', ['GET / HT'], [], 400],
    ['writes and half a head', [write, write, 'GET / HT'], [done, done], 400],
    ['half a body', [put('/', 5), 'ab'], ['start body malformed taken'], 500],
    ['writes and half a body', [write, write, put('/', 5), 'ab'], [done, done, 'start body malformed taken'], 500],
    ['a write and half of the chunks', [write, put('/', 'chunked'), '1\r\na\r\n'], [done, 'start body malformed taken'], 500],
    ['a malformed body', [put('/', 'chunked'), 'none\r\n'], ['start malformed taken'], 500],
    ['a write and a malformed body', [write, put('/', 'chunked'), 'none\r\n'], [done, 'start malformed taken'], 500],
    ['a write and malformed bytes', [write, 'nonsense\r\n\r\n'], [done], 400],
    ['three writes', [write, write, write], [done, done, goneWrite], undefined],
    ['a write, a read and a write', [write, get('/'), write], [done, gone], undefined],
    ['a write, a HEAD and a write', [write, head, write], [done, gone], undefined],
  ] as const) {
    const ending = last === undefined ? 'the connection ends' : `the last reply is ${last}`;
    test(`after ${what}: replies to earlier writes arrive, then ${ending}, and nothing else starts`, async (t) => {
      const reply = async (each: Received, status: number): Promise<void> => {
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

  test('gets the replies to all pipelined requests, even if it has not read an earlier reply', async (t) => {
    const { client, connection, request } = await serveOne(t, {
      onStart: (each) => each.reply('', { pieces: [Buffer.alloc(each.head.target === '/1' ? 20_000_000 : 5, 'b')] }),
    });
    client.pause();
    client.send(get('/1'));
    await request(0);
    client.send(get('/2'));
    client.end();
    await poll(() => connection.socket.readableEnded, 'the FIN');
    client.resume();
    for (const length of [20_000_000, 5]) assert.equal((await client.reply()).body.length, length);
    assert.equal(await client.closed(), 'end');
  });

  test('after a held body is reported as gone when the handler has read the body', async (t) => {
    const { client, connection, request } = await serveOne(t, hold);
    client.send(`${put('/1', 5)}hello`);
    client.end();
    const first = await request(0);
    await poll(() => connection.socket.readableEnded, 'the FIN');
    await turns(5);
    assert.deepEqual(first.events, ['start']);
    first.transport.readBody();
    await poll(() => first.events.includes('gone'), 'the end');
    assert.deepEqual([first.events, first.body], [['start', 'body', 'end', 'gone'], 'hello']);
    assert.equal(await client.closed(), 'end');
  });
});

test('a reset is reported once, at any point of a request, and no waiting request starts [D21]', async (t) => {
  const { server, connect, request, received, faults } = await serve(t, hold);
  const begun = [get('/1'), gets(2), `${put('/', 5)}ab`];
  for (const [index, bytes] of [...begun, '', 'GET / HT'].entries()) {
    const client = await connect();
    client.send(bytes);
    const current = index < begun.length ? await request(index) : undefined;
    client.reset();
    if (current === undefined) continue;
    await poll(() => current.events.includes('gone'), 'the reset');
    assert.equal(current.events.filter((event) => event === 'gone').length, 1);
  }
  await poll(() => server.size === 0, 'no connection is counted');
  assert.deepEqual([received.length, faults], [begun.length, []]);
});

for (const [what, count] of [
  ['its handler replies and cuts the connection', 50],
  ['its handler replies later and cuts the connection', 2],
  ['its handler later cuts the connection without a reply', 2],
  ['the server closes the connection', 50],
] as const) {
  test(`a connection starts no pipelined request after ${what} [D21]`, async (t) => {
    const hasNoReply = what.endsWith('without a reply');
    const isLater = what.includes('later');
    const { client, request, server, received } = await serveOne(t, {
      onStart: (each) => {
        if (isLater) return;
        each.reply(each.head.target);
        if (what.startsWith('its')) each.transport.cut();
        else server.closeAll();
      },
    });
    client.send(gets(count));
    if (isLater) {
      const first = await request(0);
      if (!hasNoReply) first.reply('1');
      first.transport.cut();
    }
    await client.closed();
    await poll(() => server.size === 0, 'the connection has closed');
    assert.equal(received.length, 1);
    assert.equal(received[0]?.events.includes('gone'), hasNoReply);
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
    ['onBroken', `${put('/', 5)}ab`, 'timeout'],
    ['onRefuse', 'nonsense\r\n\r\n', undefined],
    ['onRefuse', 'GET / HT', 'FIN'],
    ['onRefuse', 'GET / HT', 'timeout'],
    ['onGone', get('/held'), 'FIN'],
    ['onGone', get('/held'), 'reset'],
  ] as const) {
    test(`in ${hook}, after ${JSON.stringify(String(bytes).slice(0, 12))}${end === undefined ? '' : ` and a ${end}`}`, async (t) => {
      const { connect, connectBoth, faults, server } = await serve(t, {
        onStart: (each) => {
          if (['/ahead', '/2'].includes(each.head.target)) each.reply(each.head.target);
          else if (hook === 'onStart') throw theFault;
        },
        [hook === 'onStart' ? 'none' : hook]: () => {
          throw theFault;
        },
      });
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
});

// Every transition of the table has occurred. server-times.test.ts has a late held body, held-bytes.test.ts has full memory.
after(() => {
  const elsewhere = ['held/reply > over/reply', 'whole/continue > over/continue', 'whole/reply > over/reply'];
  assert.deepEqual([...allowed.keys()].filter((each) => !seen.has(each)), elsewhere); // prettier-ignore
});
