// The server side of HTTP/1.1 on real sockets: clients that send a FIN or a reset, connections cut by the handler, and
// errors thrown by the handler. D21, D27, D28.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
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
  turns,
  type Received,
} from './served-connections.ts';

/** Complete writes, each with a body of one byte. */
const writes = (count: number) => join(...Array.from({ length: count }, (_, index) => `${put(`/${index}`, 1)}b`));

describe('a client that sends its FIN [D21]', () => {
  test('before or during a request is disconnected, and `gone` is reported once, before the close', async (t) => {
    const states: boolean[] = [];
    const { server, connect, connectBoth, request } = await serve(t, {
      onGone: () => states.push(connection.socket.destroyed),
    });
    const idle = await connect();
    idle.end();
    assert.equal(await idle.closed(), 'end');
    await poll(() => server.size === 0, 'the first connection has closed');
    const { client, connection } = await connectBoth();
    client.send(get('/1'));
    const first = await request(0);
    client.end();
    assert.equal(await client.closed(), 'end');
    await poll(() => server.size === 0, 'both connections have closed');
    assert.deepEqual(first.events, ['start', 'gone']);
    assert.deepEqual(states, [false]);
  });

  for (const [what, rest] of [
    ['another complete request', get('/2')],
    ['an empty line', '\r\n'],
    ['half a request', 'GET /2 HT'],
    ['malformed bytes', '\0'],
  ] as const) {
    test(`during a read, after ${what}, is reported as gone, and no waiting request starts`, async (t) => {
      const { client, request, received, refused } = await serveOne(t);
      client.send(join(get('/1'), rest));
      const first = await request(0);
      client.end();
      await poll(() => first.events.includes('gone'), 'the end');
      await assertEnds(client);
      assert.deepEqual([received.length, refused.length], [1, 0]);
    });
  }

  for (const [what, begun, status] of [
    ['a head', 'GET / HT', 400],
    ['a body', `${put('/', 5)}ab`, 200],
    ['chunks', `${put('/', 'chunked')}1\r\na\r\n`, 200],
  ] as const) {
    test(`within ${what} gets the replies to all earlier writes, and then a last reply [D27]`, async (t) => {
      for (const ahead of [0, 1, 2, 3]) {
        const { client, exchange, refused, received } = await serveOne(t, {
          onBroken: (each) => each.reply('cut off'),
        });
        client.send(join(writes(ahead), begun));
        client.end();
        for (let index = 0; index < ahead; index += 1) await exchange(client, index, `${index}`);
        await assertLastReply(client, status);
        assert.equal(refused.length, what === 'a head' ? 1 : 0);
        if (what !== 'a head') assert.equal(received.at(-1)?.events.includes('malformed'), true);
      }
    });
  }

  for (const method of ['GET', 'HEAD']) {
    test(`after a write, a ${method} and another write is reported as gone during the ${method}`, async (t) => {
      const { client, connection, exchange, request, received } = await serveOne(t);
      client.send(join(writes(1), `${method} /1 HTTP/1.1\r\nHost: x\r\n\r\n`, writes(1)));
      client.end();
      await poll(() => connection.socket.readableEnded, 'the FIN');
      await exchange(client, 0, '0');
      const second = await request(1);
      await poll(() => second.events.includes('gone'), 'the end of the read');
      await assertEnds(client);
      assert.equal(received.length, 2);
    });
  }

  test('after complete writes is reported as gone during the last of them', async (t) => {
    const { client, connection, exchange, request } = await serveOne(t);
    client.send(writes(3));
    client.end();
    await poll(() => connection.socket.readableEnded, 'the FIN');
    for (const index of [0, 1]) await exchange(client, index, `${index}`);
    assert.deepEqual((await request(2)).events, ['start', 'body', 'end', 'gone']);
    await assertEnds(client);
  });

  test('after a write and malformed bytes gets the reply, and then a refusal', async (t) => {
    const { connectBoth, exchange, request, refused } = await serve(t);
    for (const [index, rest] of ['\0', 'nonsense\r\n\r\n', 'GET /2 HT'].entries()) {
      const { client, connection } = await connectBoth();
      client.send(join(writes(1), rest));
      client.end();
      const first = await request(index);
      await poll(() => connection.socket.readableEnded, 'the FIN');
      await exchange(client, index, '1');
      await assertLastReply(client, 400);
      assert.deepEqual(first.events, ['start', 'body', 'end', 'taken']);
    }
    assert.deepEqual(refused.at(-1), { kind: 'incomplete-request', reason: 'an incomplete request' });
  });

  test('gets the reply to a malformed body even if the handler replies later', async (t) => {
    const { connectBoth, exchange, request } = await serve(t);
    for (const ahead of [0, 1]) {
      const { client, connection } = await connectBoth();
      client.send(join(writes(ahead), put('/1', 'chunked'), 'none\r\n'));
      client.end();
      if (ahead > 0) {
        await request(ahead);
        await poll(() => connection.socket.readableEnded, 'the FIN');
        await exchange(client, ahead, 'ahead');
      }
      const broken = await request(2 * ahead);
      await poll(() => connection.socket.readableEnded, 'the FIN');
      await turns(5);
      broken.reply('broken', { status: 400 });
      await assertLastReply(client, 400, 'broken');
      assert.deepEqual(broken.events, ['start', 'malformed', 'taken']);
    }
  });

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
    const { client, connection, request } = await serveOne(t, { onStart: (each) => each.transport.holdBody() });
    client.send(`${put('/1', 5)}hello`);
    client.end();
    const first = await request(0);
    await poll(() => connection.socket.readableEnded, 'the FIN');
    await turns(5);
    assert.deepEqual(first.events, ['start']);
    first.transport.readBody();
    await poll(() => first.events.includes('gone'), 'the end');
    assert.deepEqual(first.events, ['start', 'body', 'end', 'gone']);
    assert.equal(first.body, 'hello');
    assert.equal(await client.closed(), 'end');
  });

  test('is reported as gone, even if other requests wait for their turn', async (t) => {
    const { client, connection, request, received } = await serveOne(t, {
      onStart: (each) => {
        if (each.head.target === '/0') each.reply('/0');
      },
    });
    client.send(gets(3));
    const second = await request(1);
    assert.equal(connection.socket.isPaused(), false, 'the server still reads');
    client.end();
    await poll(() => second.events.includes('gone'), 'the end');
    await assertReplies(client, '/0');
    assert.equal(await client.closed(), 'end');
    assert.equal(received.length, 2);
  });
});

test('a reset is reported once, at any point of a request, and no waiting request starts [D21]', async (t) => {
  const { server, connect, request, received, faults } = await serve(t);
  const begun = [get('/1'), gets(2), `${put('/', 5)}ab`];
  for (const [index, bytes] of begun.entries()) {
    const client = await connect();
    client.send(bytes);
    const current = await request(index);
    client.reset();
    await poll(() => current.events.includes('gone'), 'the reset');
    assert.equal(current.events.filter((event) => event === 'gone').length, 1);
  }
  for (const bytes of ['', 'GET / HT']) {
    const client = await connect();
    client.send(bytes);
    client.reset();
  }
  await poll(() => server.size === 0, 'no connection is counted');
  assert.equal(received.length, begun.length);
  assert.deepEqual(faults, []);
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
    if (hasNoReply) assert.equal(client.unread.length, 0);
  });
}

describe('an error thrown by the handler closes its connection, is reported once, and affects no other connection [D28]', () => {
  const theFault = new Error('a fault of the handler');
  const fault = (): never => {
    throw theFault;
  };

  for (const [hook, bytes] of [
    ['onStart', get('/1')],
    ['onBody', requestBytes('PUT', '/1', { body: 'b' })],
    ['onBodyEnd', requestBytes('PUT', '/1', { body: 'b' })],
    ['onBroken', `${put('/', 'chunked')}x`],
    ['onRefuse', 'nonsense\r\n\r\n'],
  ] as const) {
    test(`in ${hook}`, async (t) => {
      let isFaulty = true;
      const { connect, faults, server } = await serve(t, {
        ...echo,
        [hook]: (received: Received) => {
          if (isFaulty) fault();
          else if (hook === 'onStart' || hook === 'onBodyEnd') echo[hook]?.(received);
        },
      });
      const other = await connect();
      const client = await connect();
      client.send(bytes);
      await client.closed();
      assert.equal(client.unread.length, 0);
      await poll(() => server.size === 1, 'the connection is no longer counted');
      assert.deepEqual(faults, [theFault]);
      isFaulty = false;
      assert.equal((await other.call('GET', '/2')).text, '/2');
    });
  }

  test('in onStart of a pipelined request', async (t) => {
    const { client, exchange, faults, server } = await serveOne(t, {
      onStart: ({ head }) => {
        if (head.target === '/1') fault();
      },
    });
    client.send(gets(2));
    await exchange(client, 0, '0');
    await client.closed();
    await poll(() => server.size === 0, 'the connection is no longer counted');
    assert.deepEqual(faults, [theFault]);
  });

  for (const [what, script, bytes, end] of [
    ['in refuse, after a FIN', { onRefuse: fault }, 'GET / HT', 'FIN'],
    ['in onBroken, after a FIN', { onBroken: fault }, `${put('/', 5)}ab`, 'FIN'],
    ['in onGone, after a FIN', { onGone: fault }, get('/1'), 'FIN'],
    ['in onGone, after a reset', { onGone: fault }, get('/1'), 'reset'],
    ['in refuse, after the timeout of a head', { onRefuse: fault }, 'GET / HT', 'timeout'],
    ['in onBroken, after the timeout of a body', { onBroken: fault }, `${put('/', 5)}ab`, 'timeout'],
  ] as const) {
    test(what, async (t) => {
      const { client, connection, faults, server } = await serveOne(t, script);
      client.send(bytes);
      await poll(() => connection.socket.bytesRead === bytes.length, 'the bytes are read');
      if (end === 'FIN') client.end();
      else if (end === 'reset') client.reset();
      else connection.checkTime(performance.now() + 60_000);
      await client.closed();
      assert.equal(client.unread.length, 0);
      await poll(() => server.size === 0, 'the connection is no longer counted');
      assert.deepEqual(faults, [theFault]);
    });
  }
});
