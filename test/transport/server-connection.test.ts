// The server's side of HTTP/1.1 over real sockets, with a handler that does what a test tells it: whose turn it is, what is
// read when, replies before the end of a body, last replies, times, and which connections make room. D11, D26, D27, D33,
// D35, D58.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Connection } from '../../packages/core/http1/connection.ts';
import { poll } from '../helpers/changes.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { echo, get, serve, turn, TurnCounter, type Script } from '../helpers/served-connections.ts';

const theFault = new Error('a fault of the handler');

function fault(): never {
  throw theFault;
}

test('a request behind a last one never starts [D27]', async (t) => {
  const { connect, received } = await serve(t, echo);
  const client = await connect();
  // The first is taken as it comes, the others in a turn of their own.
  client.send(Buffer.concat([get('/1'), get('/2'), get('/3', [['Connection', 'close']]), get('/4')]));
  for (const target of ['/1', '/2', '/3']) assert.equal((await client.reply()).text, target);
  assert.equal(await client.closed(), 'end');
  assert.equal(client.unread.length, 0);
  assert.equal(received.length, 3);
});

test('of a body two reads at most have their turn at a time, however much has come [D58]', async (t) => {
  let bytesBefore = 0;
  let isCounting = false;
  const perTurn: number[] = [];
  const { connect, request } = await serve(t, {
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
  const client = await connect();
  const size = 900_000;
  client.send(`PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n${'b'.repeat(size)}`);
  const each = await request(0);
  await poll(() => each.events.includes('end'), 'the body');
  assert.equal(each.bodyBytes, size);
  // One as it comes, and one that had come before its reading was paused.
  assert.ok(Math.max(...perTurn) <= 2 * 65_536, `${Math.max(...perTurn)} bytes in one turn`);
});

test('behind a last reply nothing more is read, be it malformed: there is one reply [D27]', async (t) => {
  const { connect, refused, received, faults } = await serve(t, {
    onStart: (each) => {
      each.reply('last', { closes: true });
    },
  });
  for (const behind of [
    'Transfer-Encoding: chunked\r\n\r\nnot a chunk\r\n',
    'Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nno trailer\r\n',
    'Content-Length: 3\r\n\r\nabcnot HTTP',
  ]) {
    const client = await connect();
    client.send(`PUT /1 HTTP/1.1\r\nHost: x\r\n${behind}`);
    const reply = await client.reply();
    assert.deepEqual([reply.status, reply.text, reply.header('connection')], [200, 'last', 'close']);
    assert.equal(await client.closed(), 'end');
    assert.equal(client.unread.length, 0);
  }
  assert.deepEqual(refused, []);
  assert.deepEqual(faults, []);
  assert.equal(received.length, 3);
});

for (const [what, create] of [
  ['without a body', (index: number) => get(`/${index}`)],
  ['with a body', (index: number) => requestBytes('PUT', `/${index}`, { body: 'b' })],
] as const) {
  test(`of requests ${what} that are answered at once, 16 have their turn at a time [D58]`, async (t) => {
    const turns = new TurnCounter();
    const count = 200;
    const { connect, received } = await serve(t, {
      ...echo,
      onStart: (each) => {
        turns.count();
        echo.onStart?.(each);
      },
    });
    const client = await connect();
    client.send(Buffer.concat(Array.from({ length: count }, (_, index) => create(index))));
    for (let index = 0; index < count; index += 1) {
      assert.equal((await client.reply()).text.split(' ')[0], `/${index}`);
    }
    await turn();
    assert.equal(received.length, count);
    assert.ok(Math.max(...turns.perTurn) <= 16, `${Math.max(...turns.perTurn)} in one turn`);
  });
}

test('behind a body that is cut off for its length no request is taken [D11]', async (t) => {
  const { connect, received } = await serve(
    t,
    {
      onStart: (each) => {
        each.reply('early', { status: 413 });
      },
    },
    { requestBytesMax: 100 },
  );
  const client = await connect();
  client.send(
    Buffer.concat([requestBytes('PUT', '/1', { body: 'x'.repeat(101) }), requestBytes('DELETE', '/2')]),
  );
  await client.closed();
  assert.deepEqual(
    received.map(({ head }) => head.target),
    ['/1'],
  );
});

test('requests are answered in order, each started when the one before it has been answered [D27]', async (t) => {
  const { connect, received, request } = await serve(t);
  const client = await connect();
  client.send(Buffer.concat([get('/1'), requestBytes('PUT', '/2', { body: 'two' }), get('/3')]));
  for (const target of ['/1', '/2', '/3']) {
    const current = await request(Number(target[1]) - 1);
    await turn();
    assert.equal(received.at(-1), current, 'nothing behind it has started');
    assert.equal(current.head.target, target);
    current.reply(target);
    assert.equal((await client.reply()).text, target);
  }
  assert.deepEqual(received[1]?.events, ['start', 'body', 'end', 'taken']);
  assert.equal(received[1].body, 'two');
});

test('a reply is whole before the next request starts, and what the handler does behind it comes first', async (t) => {
  const log: string[] = [];
  const { connect, request } = await serve(t, {
    onStart: (each) => log.push(`${each.head.target} starts`),
  });
  const client = await connect();
  client.send(Buffer.concat([get('/1'), get('/2')]));
  const first = await request(0);
  first.reply('1');
  log.push('/1 is done');
  await request(1);
  assert.deepEqual(log, ['/1 starts', '/1 is done', '/2 starts']);
});

test('thousands of requests sent ahead and answered at once exhaust no stack, and others have their turns', async (t) => {
  const { connect, received } = await serve(t, echo);
  const hog = await connect();
  const count = 5_000;
  hog.send(Buffer.concat(Array.from({ length: count }, (_, index) => get(`/${index}`))));
  const other = await connect();
  assert.equal((await other.call('GET', '/other')).text, '/other');
  assert.ok(received.length < count, `${received.length} came first`);
  for (let index = 0; index < count; index += 1) assert.equal((await hog.reply()).text, `/${index}`);
});

test('of what is sent ahead 64 KiB are held, then the socket is read no further until they are taken [D58]', async (t) => {
  const { connectBoth, request, received } = await serve(t);
  const { client, connection } = await connectBoth();
  const filler = get('/', [['X-Padding', 'x'.repeat(900)]]);
  client.send(get('/first'));
  const first = await request(0);
  const sent = 20_000_000;
  client.send(Buffer.concat(Array.from({ length: Math.ceil(sent / filler.length) }, () => filler)));
  await poll(() => connection.socket.isPaused(), 'it is paused');
  for (let round = 0; round < 50; round += 1) await turn();
  // Up to one read more than it holds.
  assert.ok(
    connection.socket.bytesRead <= 2 * 65_536 + filler.length,
    `${connection.socket.bytesRead} were read`,
  );
  assert.equal(received.length, 1);
  first.reply('first');
  assert.equal((await client.reply()).text, 'first');
  await request(1);
});

test('a client that takes nothing has no more requests started, and all of them when it reads on [D58]', async (t) => {
  const { connect, received } = await serve(t, {
    onStart: (each) => {
      each.reply('', { pieces: [Buffer.alloc(1_000_000, each.head.target)] });
    },
  });
  const client = await connect();
  client.pause();
  const count = 50;
  client.send(Buffer.concat(Array.from({ length: count }, (_, index) => get(`/${index}`))));
  let startedBefore = -1;
  await poll(async () => {
    const isSettled = received.length > 0 && received.length === startedBefore;
    startedBefore = received.length;
    for (let round = 0; round < 20; round += 1) await turn();
    return isSettled;
  }, 'no more are started');
  assert.ok(received.length < count / 2, `${received.length} were started`);
  client.resume();
  for (let index = 0; index < count; index += 1) {
    assert.ok((await client.reply()).text.startsWith(`/${index}/`));
  }
});

test('a socket that was paused for what was sent ahead is read again to the last byte', async (t) => {
  const { connect } = await serve(t, echo);
  const client = await connect();
  const padding: [string, string][] = [['X-Padding', 'x'.repeat(2_000)]];
  const count = 500;
  const all = Buffer.concat(Array.from({ length: count }, (_, index) => get(`/${index}`, padding)));
  // Cut anywhere, so that heads are split between reads.
  const pieces = Array.from({ length: Math.ceil(all.length / 9_973) }, (_, index) =>
    all.subarray(index * 9_973, (index + 1) * 9_973),
  );
  await client.sendPieces(pieces);
  for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
  assert.equal((await client.call('GET', '/last')).text, '/last');
});

test('a body comes as it was sent, in pieces whose memory stays as it is', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  const body = Array.from({ length: 30_000 }, (_, index) => String.fromCharCode(97 + (index % 26))).join('');
  const chunked = Array.from(body.matchAll(/[^]{1,7}/g), ([data]) => `${data.length}\r\n${data}\r\n`).join(
    '',
  );
  client.send(
    `PUT /1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${chunked}0\r\n\r\n${get('/2').toString()}`,
  );
  const received = await request(0);
  await poll(() => received.events.includes('end'), 'it is whole');
  assert.equal(received.body, body);
  received.reply('1');
  (await request(1)).reply('2');
  assert.equal((await client.reply()).text, '1');
  assert.equal((await client.reply()).text, '2');
  assert.equal(received.body, body);
});

test('behind a reply that comes before the end of its body the rest is dropped, and the next request is served', async (t) => {
  const { connect, request, received } = await serve(t);
  const client = await connect();
  client.send('PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\nabcd');
  const first = await request(0);
  await poll(() => first.body === 'abcd', 'a part of its body');
  first.reply('early');
  const reply = await client.reply();
  assert.deepEqual([reply.text, reply.header('connection')], ['early', 'keep-alive']);
  client.send('efghGET /2 HTTP/1.1\r\nHost: x\r\n\r\n');
  (await request(1)).reply('second');
  assert.equal((await client.reply()).text, 'second');
  assert.deepEqual(first.events, ['start', 'body', 'taken']);
  assert.equal(received.length, 2);
});

test('an early reply reaches a client that sends a body over the limit and reads only then: no reset [D11]', async (t) => {
  const { port, received } = await serve(
    t,
    {
      onStart: (each) => {
        each.reply('early', { status: 400 });
      },
    },
    { requestBytesMax: 1_000 },
  );
  for (let round = 0; round < 5; round += 1) {
    const client = await RawClient.open(port);
    client.pause();
    client.send(requestBytes('PUT', '/1', { body: Buffer.alloc(3_000_000, 'x') }));
    await poll(() => received.length > round, 'it has come');
    client.resume();
    assert.equal((await client.reply()).status, 400);
    assert.equal(await client.closed(), 'end');
    client.destroy();
  }
});

for (const [what, behind] of [
  ['is broken', 'x'],
  ['does not end', undefined],
] as const) {
  test(`an early reply whose body then ${what} is the only one, and the connection ends [D27]`, async (t) => {
    const { connect, request, refused, faults } = await serve(t);
    const client = await connect();
    client.send('PUT /1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n');
    (await request(0)).reply('early');
    assert.equal((await client.reply()).text, 'early');
    if (behind === undefined) client.end();
    else client.send(`hello${behind}${get('/2').toString()}`);
    assert.equal(await client.closed(), 'end');
    assert.equal(client.unread.length, 0);
    assert.deepEqual([refused, faults], [[], []]);
  });
}

test('100 Continue is sent when the body is asked for, once, and to nobody who did not ask', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  const expecting = (version: string): string =>
    `PUT /1 HTTP/${version}\r\nHost: x\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n`;
  client.send(expecting('1.1'));
  const first = await request(0);
  first.transport.readBody();
  first.transport.readBody();
  assert.equal((await client.reply()).status, 100);
  client.send('ab');
  await poll(() => first.events.includes('end'), 'its body');
  first.reply('done');
  assert.equal((await client.reply()).text, 'done');

  client.send(expecting('1.0'));
  const second = await request(1);
  second.transport.readBody();
  client.send('cd');
  await poll(() => second.events.includes('end'), 'its body');
  second.reply('old');
  assert.equal((await client.reply()).text, 'old');

  // Who is refused before being asked may send the body or not: nobody can tell what comes next.
  client.send(expecting('1.1'));
  (await request(2)).reply('no', { status: 417 });
  const last = await client.reply();
  assert.deepEqual([last.status, last.header('connection')], [417, 'close']);
  assert.equal(await client.closed(), 'end');
});

test('a reply to HEAD and a 204 have no body, and 204 no length', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  client.send(requestBytes('HEAD', '/1'));
  (await request(0)).reply('four');
  const head = await client.reply({ hasBody: false });
  assert.equal(head.header('content-length'), '4');
  client.send(get('/2'));
  (await request(1)).reply('', { status: 204 });
  const empty = await client.reply();
  assert.deepEqual([empty.status, empty.header('content-length')], [204, undefined]);
  client.send(get('/3', [['X-Request-Id', 'r3']]));
  const large = Array.from({ length: 3 }, (_, index) => Buffer.alloc(20_000, String(index)));
  (await request(2)).reply('', { pieces: large });
  const reply = await client.reply();
  assert.ok(reply.body.equals(Buffer.concat(large)));
  assert.equal(reply.header('x-request-id'), 'r3');
  assert.match(reply.header('date') ?? '', /^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/);
  assert.equal(reply.header('keep-alive'), 'timeout=60');
});

for (const [what, bytes, expected] of [
  ['close', 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n', 'close'],
  ['HTTP/1.0', 'GET / HTTP/1.0\r\n\r\n', 'close'],
  ['HTTP/1.0 that wants to go on', 'GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n', 'keep-alive'],
  ['an upgrade', 'GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n', 'close'],
] as const) {
  test(`a request with ${what} gets ${expected}`, async (t) => {
    const { connect, received } = await serve(t, echo);
    const client = await connect();
    client.send(bytes + (expected === 'close' ? get('/2').toString() : ''));
    assert.equal((await client.reply()).header('connection'), expected);
    if (expected === 'close') {
      assert.equal(await client.closed(), 'end');
      assert.equal(client.unread.length, 0);
      assert.equal(received.length, 1);
    } else {
      assert.equal((await client.call('GET', '/2')).text, '/2');
    }
  });
}

for (const [what, bytes, status] of [
  ['bytes that are no request', 'BLAH\0\r\n\r\n', 400],
  ['two lengths', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n', 400],
  ['a head that is too large', `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(2_000)}`, 431],
] as const) {
  test(`behind requests that are answered, ${what} are answered last [D27]`, async (t) => {
    const { connect, refused } = await serve(t, echo, { requestHeadBytesMax: 1_000 });
    for (const count of [0, 1, 2, 3, 40]) {
      const client = await connect();
      const ahead = Array.from({ length: count }, (_, index) => get(`/${index}`));
      client.send(Buffer.concat([...ahead, Buffer.from(bytes), get('/never')]));
      for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).text, `/${index}`);
      const last = await client.reply();
      assert.deepEqual([last.status, last.header('connection')], [status, 'close']);
      assert.equal(await client.closed(), 'end');
      assert.equal(client.unread.length, 0);
    }
    assert.equal(refused.length, 5);
  });
}

test('a refusal waits for the reply before it, however slow that is [D27]', async (t) => {
  const { connect, request, refused } = await serve(t);
  const client = await connect();
  client.send(`${get('/1').toString()}nonsense\r\n\r\n`);
  const first = await request(0);
  for (let round = 0; round < 20; round += 1) await turn();
  assert.deepEqual(refused, []);
  first.reply('1');
  assert.equal((await client.reply()).text, '1');
  assert.equal((await client.reply()).status, 400);
  assert.equal(await client.closed(), 'end');
});

for (const ahead of [0, 1, 2, 3]) {
  test(`a body that breaks off behind ${ahead} requests is told when its turn has come, and what is behind it never is [D27]`, async (t) => {
    const { connect, request, received } = await serve(t, {
      onBroken: (each) => {
        each.reply('broken', { status: 400 });
      },
    });
    const client = await connect();
    for (let index = 0; index < ahead; index += 1) client.send(get(`/${index}`));
    client.send('PUT /5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nnone\r\n');
    client.send(get('/never'));
    for (let index = 0; index < ahead; index += 1) {
      (await request(index)).reply(`${index}`);
      assert.equal((await client.reply()).text, `${index}`);
    }
    const last = await client.reply();
    assert.deepEqual([last.status, last.text, last.header('connection')], [400, 'broken', 'close']);
    assert.equal(await client.closed(), 'end');
    assert.equal(received.length, ahead + 1);
    assert.deepEqual(received.at(-1)?.events, ['start', 'body', 'malformed', 'taken']);
  });
}

test('the reply to a broken body may come later: meanwhile nothing is taken, and it closes', async (t) => {
  const { connect, request, received } = await serve(t);
  const client = await connect();
  client.send('PUT /5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n');
  const broken = await request(0);
  await poll(() => broken.events.includes('malformed'), 'it is told');
  client.send(get('/never'));
  for (let round = 0; round < 20; round += 1) await turn();
  broken.reply('broken', { status: 400 });
  assert.equal((await client.reply()).header('connection'), 'close');
  assert.equal(await client.closed(), 'end');
  assert.equal(received.length, 1);
});

test('a last reply is whole however much comes behind its request: the connection is not reset [D27]', async (t) => {
  const body = Buffer.alloc(1_000_000, '1');
  const { connect } = await serve(t, {
    onStart: (each) => {
      each.reply('', { pieces: [body] });
    },
  });
  const more = Buffer.concat(Array.from({ length: 20_000 }, () => get('/more')));
  for (let round = 0; round < 5; round += 1) {
    const client = await connect();
    client.send(get('/', [['Connection', 'close']]));
    client.send(more);
    assert.ok((await client.reply()).body.equals(body));
    assert.equal(await client.closed(), 'end');
  }
});

// The client sends nothing more, or goes.

test('a client that says that it sends nothing more has gone: before a request, and while one is answered [D21]', async (t) => {
  const { server, connect, request } = await serve(t);
  const idle = await connect();
  idle.end();
  assert.equal(await idle.closed(), 'end');
  const waiting = await connect();
  waiting.send(get('/1'));
  const first = await request(0);
  waiting.end();
  await poll(() => first.events.includes('gone'), 'it is told');
  assert.equal(await waiting.closed(), 'end');
  await poll(() => server.size === 0, 'both have closed');
  assert.deepEqual(first.events, ['start', 'gone'], 'once');
});

for (const [what, begun, status] of [
  ['a head', 'GET / HT', 400],
  ['a body', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab', 200],
  ['chunks', 'PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n', 200],
] as const) {
  for (const ahead of [0, 1, 2]) {
    test(`a client that stops within ${what} behind ${ahead} requests gets all replies, and a last one [D27]`, async (t) => {
      const { connect, request, refused, received } = await serve(t, {
        onBroken: (each) => {
          each.reply('cut off');
        },
      });
      const client = await connect();
      for (let index = 0; index < ahead; index += 1) client.send(get(`/${index}`));
      client.send(begun);
      client.end();
      for (let index = 0; index < ahead; index += 1) {
        (await request(index)).reply(`${index}`);
        assert.equal((await client.reply()).text, `${index}`);
      }
      const last = await client.reply();
      assert.deepEqual([last.status, last.header('connection')], [status, 'close']);
      assert.equal(await client.closed(), 'end');
      assert.equal(refused.length, what === 'a head' ? 1 : 0);
      if (what !== 'a head') assert.equal(received.at(-1)?.events.includes('malformed'), true);
    });
  }
}

test('a client that sends complete requests ahead and nothing more has gone [D21]', async (t) => {
  const { connect, request, received } = await serve(t);
  const client = await connect();
  client.send(Buffer.concat([get('/1'), get('/2')]));
  const first = await request(0);
  client.end();
  await poll(() => first.events.includes('gone'), 'it is told');
  assert.equal(await client.closed(), 'end');
  assert.equal(received.length, 1, 'what waited is never started');
});

test('a client that resets is told once, whatever is going on, and what waits never starts [D21]', async (t) => {
  const { server, connect, request, received, faults } = await serve(t);
  const begin: readonly [string, string][] = [
    ['answering', get('/1').toString()],
    ['with requests ahead', get('/1').toString() + get('/2').toString()],
    ['within a body', 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab'],
  ];
  for (const [index, [, bytes]] of begin.entries()) {
    const client = await connect();
    client.send(bytes);
    const current = await request(index);
    client.reset();
    await poll(() => current.events.includes('gone'), 'it is told');
    assert.equal(current.events.filter((event) => event === 'gone').length, 1);
  }
  const idle = await connect();
  idle.reset();
  const inHead = await connect();
  inHead.send('GET / HT');
  inHead.reset();
  await poll(() => server.size === 0, 'all are forgotten');
  assert.equal(received.length, begin.length);
  assert.deepEqual(faults, []);
});

test('a cut closes at once, and the handler is told that the client has gone', async (t) => {
  const { connect, request, received } = await serve(t);
  const client = await connect();
  client.send(Buffer.concat([get('/1'), get('/2')]));
  const first = await request(0);
  first.transport.cut();
  await client.closed();
  await poll(() => first.events.includes('gone'), 'it is told');
  assert.equal(client.unread.length, 0);
  assert.equal(received.length, 1);
});

// Times.

const short = {
  requestHeadersTimeoutMs: 300,
  requestTimeoutMs: 800,
  idleTimeoutMs: 500,
  replyStallTimeoutMs: 300,
};

/** How long `wait` takes, at least, and at most a second more [D35]. */
async function takes(atLeastMs: number, wait: () => Promise<unknown>): Promise<void> {
  const startedAt = performance.now();
  await wait();
  const ms = performance.now() - startedAt;
  assert.ok(ms >= atLeastMs - 60, `${ms} ms`);
  assert.ok(ms < atLeastMs + 2_000, `${ms} ms`);
}

test('a connection on which no byte comes, and one that rests for too long, are closed without a word [D35]', async (t) => {
  const { connect, refused } = await serve(t, echo, short);
  const silent = await connect();
  await takes(300, () => silent.closed());
  assert.equal(silent.unread.length, 0);
  const resting = await connect();
  assert.equal((await resting.call('GET', '/1')).text, '/1');
  await takes(500, () => resting.closed());
  assert.deepEqual(refused, []);
  const onlyEmptyLines = await connect();
  assert.equal((await onlyEmptyLines.call('GET', '/1')).text, '/1');
  const sender = setInterval(() => {
    onlyEmptyLines.send('\r\n');
  }, 20);
  t.after(() => {
    clearInterval(sender);
  });
  await takes(500, () => onlyEmptyLines.closed());
});

test('a head that does not come in time is 408, each head by itself [D35]', async (t) => {
  const { connect, refused } = await serve(t, echo, short);
  const client = await connect();
  assert.equal((await client.call('GET', '/1')).text, '/1');
  client.send('GET /2 HT');
  await takes(300, async () => {
    const reply = await client.reply();
    assert.deepEqual([reply.status, reply.header('connection')], [408, 'close']);
  });
  assert.equal(await client.closed(), 'end');
  assert.deepEqual(refused, ['timeout']);
});

test('a body that does not come in time is told as such, drip by drip too, and behind an early reply it closes [D35]', async (t) => {
  const { connect, request } = await serve(
    t,
    {
      onBroken: (each) => {
        each.reply('late', { status: 408 });
      },
    },
    short,
  );
  const dripping = await connect();
  dripping.send('PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n');
  const sender = setInterval(() => {
    dripping.send('x');
  }, 20);
  t.after(() => {
    clearInterval(sender);
  });
  await takes(800, async () => {
    const reply = await dripping.reply();
    assert.deepEqual([reply.status, reply.header('connection')], [408, 'close']);
  });
  assert.deepEqual((await request(0)).events, ['start', 'body', 'timeout', 'taken']);

  const early = await connect();
  early.send('PUT /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n');
  (await request(1)).reply('early');
  assert.equal((await early.reply()).text, 'early');
  await takes(700, () => early.closed());
  assert.equal(early.unread.length, 0);
});

test(
  'each limit on time holds to the millisecond, and for each request anew [D35]',
  { timeout: 30_000 },
  async (t) => {
    const from = 10_000;
    let now = from;
    t.mock.method(performance, 'now', () => now);
    const { connectBoth, request, refused } = await serve(t, {}, short);
    const start = async () => {
      const both = await connectBoth();
      const { connection } = both;
      /** Nothing happens 1 ms before the limit, and it ends with it. */
      const endsAt = async (limit: number, what: string) => {
        connection.checkTime(limit - 1);
        await turn();
        assert.ok(both.client.isOpen && !connection.socket.destroyed, `${what}: not yet`);
        connection.checkTime(limit);
        await both.client.closed();
      };
      return { ...both, endsAt };
    };
    const silent = await start();
    await silent.endsAt(from + 300, 'nothing has come');

    // The first head has the time that its connection has, a later one its own.
    const head = await start();
    now = from + 200;
    head.client.send('GET /1 HT');
    await poll(() => !head.connection.isQuiet(0, 0), 'a part of a head');
    assert.equal(head.connection.restsSince(from + 250), 250, 'who has sent a part of a head rests');
    await head.endsAt(from + 300, 'a head');
    assert.deepEqual(refused, ['timeout']);

    now = from;
    const later = await start();
    later.client.send(get('/1'));
    now = from + 1_000;
    (await request(0)).reply('1');
    await later.client.reply();
    later.connection.checkTime(now + 499);
    assert.equal(later.connection.socket.destroyed, false);
    now = from + 1_400;
    later.client.send('GET /2 HT');
    await poll(() => !later.connection.isQuiet(0, 0), 'a part of a head');
    await later.endsAt(from + 1_700, 'a later head');

    now = from;
    const idle = await start();
    idle.client.send(get('/3'));
    now = from + 5_000;
    (await request(1)).reply('3');
    await idle.client.reply();
    await idle.endsAt(from + 5_500, 'a connection that rests');
  },
);

test('a request that is answered has had its reply: there is no second one, and none when its client has gone', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  client.send(get('/1'));
  const first = await request(0);
  first.reply('1');
  assert.throws(() => {
    first.reply('again');
  }, /has had its reply, or its client has gone/);
  client.send(get('/2'));
  const second = await request(1);
  client.reset();
  await poll(() => second.events.includes('gone'), 'it is told');
  assert.throws(() => {
    second.reply('2');
  }, /has had its reply, or its client has gone/);
});

test('small pieces of any bytes come whole and in order, as one piece does', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  for (const [index, pieces] of [[bytes], [bytes.subarray(0, 100), bytes.subarray(100)]].entries()) {
    client.send(get(`/${index}`));
    (await request(index)).reply('', { pieces });
    assert.ok((await client.reply()).body.equals(bytes));
  }
});

test('a request that is being answered has no time limit here, nor one that waits behind it [D35]', async (t) => {
  const { connect, request } = await serve(t, {}, short);
  const client = await connect();
  client.send(`${get('/1').toString()}GET /2 HTTP/1.1\r\nHo`);
  const first = await request(0);
  const startedAt = performance.now();
  await poll(() => performance.now() - startedAt > 1_200, 'longer than each limit');
  assert.ok(client.isOpen);
  first.reply('1');
  assert.equal((await client.reply()).text, '1');
  client.send('st: x\r\n\r\n');
  (await request(1)).reply('2');
  assert.equal((await client.reply()).text, '2');
});

test('a client that takes nothing of its reply is cut and told of, one that takes it slowly is not [D35]', async (t) => {
  const { connect, request, server } = await serve(t, {}, short);
  const stalled = await connect();
  stalled.send(get('/1'));
  const first = await request(0);
  stalled.pause();
  first.reply('', { pieces: [Buffer.alloc(30_000_000, '1')] });
  await poll(() => server.size === 0, 'it is cut');
  assert.ok(first.events.includes('stall'));
});

test('a client that takes nothing of a refusal is cut, too, and what stalled before it is told of [D35]', async (t) => {
  const { connect, connectBoth, request, server } = await serve(
    t,
    { refusal: Buffer.alloc(30_000_000) },
    short,
  );
  const client = await connect();
  client.pause();
  let stalledRefusals = 0;
  server.onStalledRefusal = () => (stalledRefusals += 1);
  client.send('nonsense\r\n\r\n');
  await poll(() => server.size === 1, 'it has come');
  await poll(() => server.size === 0, 'it is cut');
  assert.equal(stalledRefusals, 1);
  const { client: other, connection } = await connectBoth();
  other.send(get('/1'));
  const first = await request(0);
  // What the system does not take yet, though it is little.
  connection.socket.cork();
  first.reply('1');
  other.pause();
  other.send('nonsense\r\n\r\n');
  await poll(() => server.size === 0, 'it is cut as well');
  assert.ok(first.events.includes('stall'));
  assert.equal(stalledRefusals, 1);
});

for (const [what, closes, ms] of [
  ['its last reply slowly has the time for that, and 5 s more', true, 5_000],
  ['a reply slowly has the time for that, and then as long as a connection may rest', false, 60_000],
] as const) {
  test(`a client that takes ${what} [D35]`, async (t) => {
    let now = performance.now();
    t.mock.method(performance, 'now', () => now);
    const { connectBoth, request } = await serve(t, {}, { replyStallTimeoutMs: 1_000_000 });
    const { client, connection } = await connectBoth();
    client.send(get('/1'));
    const first = await request(0);
    client.pause();
    first.reply('', { pieces: [Buffer.alloc(30_000_000, '1')], closes });
    now += 100_000;
    connection.checkTime(now);
    assert.equal(connection.socket.destroyed, false);
    client.resume();
    assert.equal((await client.reply()).body.length, 30_000_000);
    await poll(() => connection.socket.writableLength === 0, 'it is taken');
    if (!closes) assert.equal(connection.restsSince(now), 0);
    now += ms - 100;
    connection.checkTime(now);
    assert.equal(connection.socket.destroyed, false);
    now += 200;
    connection.checkTime(now);
    assert.equal(connection.socket.destroyed, true);
  });
}

test('a client that goes on sending behind its last reply is cut after 5 s', async (t) => {
  const { connect, server } = await serve(t, echo);
  const client = await connect();
  client.send(get('/1', [['Connection', 'close']]));
  assert.equal((await client.reply()).text, '/1');
  const sender = setInterval(() => {
    client.send('more');
  }, 50);
  t.after(() => {
    clearInterval(sender);
  });
  assert.equal(await client.closed(), 'end');
  assert.equal(server.size, 1, 'its bytes are taken and dropped');
  await takes(5_000, () => poll(() => server.size === 0, 'it is cut'));
});

// Faults of the handler.

for (const [what, script, bytes] of [
  ['taking a request', { onStart: fault }, get('/1')],
  ['taking a body', { onBody: fault }, requestBytes('PUT', '/1', { body: 'b' })],
  ['the end of a body', { onBodyEnd: fault }, requestBytes('PUT', '/1', { body: 'b' })],
  [
    'a broken body',
    { onBroken: fault },
    Buffer.from('PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx'),
  ],
  ['refusing', { onRefuse: fault }, Buffer.from('nonsense\r\n\r\n')],
] as const) {
  test(`a fault in ${what} ends that connection, is told once, and harms no other [D28]`, async (t) => {
    let isFaulty = true;
    const once = Object.fromEntries(
      Object.entries(script).map(([name, act]) => [
        name,
        () => {
          if (isFaulty) act();
        },
      ]),
    );
    const { connect, faults, server } = await serve(t, { ...echo, ...once });
    const other = await connect();
    const client = await connect();
    client.send(bytes);
    await client.closed();
    assert.equal(client.unread.length, 0);
    assert.deepEqual(faults, [theFault]);
    await poll(() => server.size === 1, 'it is forgotten');
    isFaulty = false;
    if (!('onStart' in script)) assert.equal((await other.call('GET', '/2')).text, '/2');
    assert.ok(other.isOpen);
  });
}

for (const [what, script, bytes] of [
  ['refusing a head', { onRefuse: fault }, 'GET / HT'],
  ['breaking a body off', { onBroken: fault }, 'PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab'],
  ['hearing that a client has gone', { onGone: fault }, get('/1')],
] as const) {
  test(`a fault in ${what} where the client has ended ends that connection, and is told once [D28]`, async (t) => {
    const { connect, faults, server } = await serve(t, script);
    const client = await connect();
    client.send(bytes);
    client.end();
    await client.closed();
    assert.equal(client.unread.length, 0);
    await poll(() => server.size === 0, 'it is forgotten');
    assert.deepEqual(faults, [theFault]);
  });
}

test('a fault in hearing that a client has reset its connection is told once [D28]', async (t) => {
  const { connect, request, faults, server } = await serve(t, { onGone: fault });
  const client = await connect();
  client.send(get('/1'));
  await request(0);
  client.reset();
  await poll(() => server.size === 0, 'it is forgotten');
  assert.deepEqual(faults, [theFault]);
});

test('a fault in taking a request that was sent ahead ends that connection, and is told once [D28]', async (t) => {
  const { connect, request, faults, server } = await serve(t, {
    onStart: ({ head }) => {
      if (head.target === '/2') fault();
    },
  });
  const client = await connect();
  client.send(Buffer.concat([get('/1'), get('/2')]));
  (await request(0)).reply('1');
  assert.equal((await client.reply()).text, '1');
  await client.closed();
  await poll(() => server.size === 0, 'it is forgotten');
  assert.deepEqual(faults, [theFault]);
});

test('a fault in refusing what came too late ends that connection and not the process [D28, D35]', async (t) => {
  const { connect, faults } = await serve(t, { onRefuse: fault, onBroken: fault }, short);
  const inHead = await connect();
  inHead.send('GET / HT');
  await inHead.closed();
  const inBody = await connect();
  inBody.send('PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab');
  await inBody.closed();
  assert.deepEqual(faults, [theFault, theFault]);
});

// How many there may be.

test('a connection rests from its opening or its last reply on, and not while one is under way or not taken', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  const openedBy = performance.now();
  assert.ok(connection.restsSince(openedBy + 500) >= 500);
  assert.ok(connection.restsSince(openedBy + 500) < 30_000);
  client.send(get('/1'));
  const first = await request(0);
  assert.equal(connection.restsSince(performance.now() + 500), 0);
  const repliedFrom = performance.now();
  first.reply('1');
  assert.ok(connection.restsSince(repliedFrom + 500) <= 500, 'from its reply on');
  await client.reply();
  assert.ok(connection.restsSince(performance.now() + 500) >= 500);
  client.pause();
  client.send(get('/2'));
  (await request(1)).reply('', { pieces: [Buffer.alloc(20_000_000)] });
  assert.equal(connection.restsSince(performance.now() + 500), 0, 'its reply is not taken');
  client.resume();
  await client.reply();
  client.send(`${get('/3').toString()}${get('/4').toString()}`);
  await request(2);
  assert.equal(connection.restsSince(performance.now() + 500), 0);
});

test('a connection is quiet when nothing is under way and nothing of a request has come [D33]', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  const now = performance.now();
  assert.equal(connection.isQuiet(60_000, now), false, 'not yet for a minute');
  assert.equal(connection.isQuiet(0, now), true);
  assert.equal(connection.isQuiet(0, now + 60_000), false, 'not before the moment that is asked from');
  client.send('\r\n');
  await poll(() => connection.socket.bytesRead > 0, 'an empty line');
  assert.equal(connection.isQuiet(0, now), true, 'which is nothing');
  client.send('G');
  await poll(() => connection.socket.bytesRead > 2, 'the first byte of a request');
  assert.equal(connection.isQuiet(0, now), false);
  client.send('ET /1 HTTP/1.1\r\nHost: x\r\n\r\n');
  const first = await request(0);
  assert.equal(connection.isQuiet(0, now), false, 'it is being answered');
  first.reply('1');
  await client.reply();
  assert.equal(connection.isQuiet(0, now), true);
  client.pause();
  client.send(get('/2'));
  (await request(1)).reply('', { pieces: [Buffer.alloc(20_000_000)] });
  assert.equal(connection.isQuiet(0, now), false, 'its reply is on the way');
});

test('a connection whose last reply is taken is quiet, though its client does not close [D33]', async (t) => {
  const { connectBoth } = await serve(t, echo);
  const { client, connection } = await connectBoth();
  const now = performance.now();
  client.send(get('/1', [['Connection', 'close']]));
  assert.equal((await client.reply()).text, '/1');
  await poll(() => connection.isQuiet(0, now), 'it is quiet');
  assert.equal(connection.socket.destroyed, false);
});

test('a connection whose requests wait for their turn neither rests nor is quiet [D26, D33]', async (t) => {
  const from = performance.now();
  const seen: unknown[] = [];
  const { connectBoth, received } = await serve(t, {
    ...echo,
    onStart: (each) => {
      if (received.length === 1) {
        // Before the next turn begins.
        setImmediate(() => {
          seen.push(received.length < 50, connection.isQuiet(0, from), connection.restsSince(from + 60_000));
        });
      }
      echo.onStart?.(each);
    },
  });
  const { client, connection } = await connectBoth();
  client.send(Buffer.concat(Array.from({ length: 50 }, (_, index) => get(`/${index}`))));
  for (let index = 0; index < 50; index += 1) assert.equal((await client.reply()).text, `/${index}`);
  assert.deepEqual(seen, [true, false, 0]);
});

test('one connection more than there may be is closed when none rests, and that is told once a second [D26]', async (t) => {
  const { server, connect, request } = await serve(t, {}, { connectionsMax: 3 });
  let told = 0;
  let shed = 0;
  server.onFull = () => {
    told += 1;
  };
  server.onShed = () => {
    shed += 1;
  };
  const clients: RawClient[] = [];
  for (let index = 0; index < 3; index += 1) {
    const client = await connect();
    client.send(get(`/${index}`));
    await request(index);
    clients.push(client);
  }
  assert.deepEqual([told, shed], [0, 0]);
  for (let count = 1; count <= 5; count += 1) {
    await (await connect()).closed();
    assert.deepEqual([shed, server.size], [count, 3]);
  }
  assert.equal(told, 1);
  assert.ok(clients.every(({ isOpen }) => isOpen));
  // One that goes makes room.
  clients[0]?.destroy();
  await poll(() => server.size === 2, 'one has gone');
  const next = await connect();
  next.send(get('/3'));
  await request(3);
  assert.deepEqual([server.size, shed], [3, 5]);
  await poll(async () => {
    await (await connect()).closed();
    return told === 2;
  }, 'told again');
});

test('those that rest longest make room, a thirty-second of all at once; those at work never do [D26]', async (t) => {
  const { server, connectBoth, connect, request } = await serve(t, {}, { connectionsMax: 64 });
  let shed = 0;
  server.onShed = () => {
    shed += 1;
  };
  const all: Awaited<ReturnType<typeof connectBoth>>[] = [];
  for (let count = 0; count < 64; count += 1) all.push(await connectBoth());
  // The first is at work; the next two have rested for less long than those behind them.
  all[0]?.client.send(get('/0'));
  await request(0);
  for (const index of [1, 2]) {
    all[index]?.client.send(get(`/${index}`));
    (await request(index)).reply('done');
    await all[index]?.client.reply();
  }
  await poll(
    () =>
      all.every(({ connection }, index) => index === 0 || connection.restsSince(performance.now()) > 1_000),
    'they have rested for long enough',
  );
  const newcomer = await connect();
  await all[3]?.client.closed();
  await all[4]?.client.closed();
  assert.equal(shed, 2);
  assert.equal(server.size, 63);
  assert.deepEqual(
    all.slice(0, 6).map(({ connection }) => connection.socket.destroyed),
    [false, false, false, true, true, false],
  );
  newcomer.send(get('/new'));
  (await request(3)).reply('new');
  assert.equal((await newcomer.reply()).text, 'new');
});

test('a drain lets requests finish, closes those that are quiet, and ends when asked to [D33]', async (t) => {
  const { server, connect, request } = await serve(t);
  const quiet = await connect();
  const busy = await connect();
  busy.send(get('/1'));
  const first = await request(0);
  let isDone = false;
  const drained = server.drain(new AbortController().signal, () => isDone);
  await quiet.closed();
  assert.ok(busy.isOpen);
  first.reply('1', { closes: true });
  assert.equal((await busy.reply()).header('connection'), 'close');
  assert.equal(await busy.closed(), 'end');
  let hasEnded = false;
  void drained.then(() => {
    hasEnded = true;
  });
  await poll(() => server.size === 0, 'all have gone');
  await turn();
  assert.equal(hasEnded, false, 'whoever drains is not done');
  isDone = true;
  await drained;

  const stubborn = await connect();
  stubborn.send(get('/2'));
  const second = await request(1);
  const abort = new AbortController();
  const aborted = server.drain(abort.signal, () => true);
  abort.abort();
  await aborted;
  assert.ok(stubborn.isOpen);
  server.closeAll();
  await stubborn.closed();
  await poll(() => second.events.includes('gone'), 'it is told');
});

// Bodies that are held, or dropped.

/** The head of a request with a body of `length` bytes. */
function put(target: string, length: number): string {
  return `PUT ${target} HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`;
}

async function turns(count: number): Promise<void> {
  for (let round = 0; round < count; round += 1) await turn();
}

/** As much is held as may be: nothing more is read. */
async function isFull({ socket }: Connection): Promise<void> {
  await poll(async () => {
    const { bytesRead } = socket;
    // Long enough for the end of a pause that only lets others have their turn.
    await turns(5);
    return socket.isPaused() && bytesRead > 65_536 && socket.bytesRead === bytesRead;
  }, 'nothing more is read');
}

const hold: Script = {
  onStart: (received) => {
    received.transport.holdBody();
  },
};

test('a body that is held is told of when it is asked for, though nothing more comes then, and not before', async (t) => {
  const { connectBoth, request } = await serve(t, hold);
  const { client, connection } = await connectBoth();
  const bytes = `${put('/1', 5)}hello`;
  client.send(bytes);
  const first = await request(0);
  await poll(() => connection.socket.bytesRead === bytes.length, 'all has been read');
  await turns(5);
  assert.deepEqual(first.events, ['start']);
  first.transport.readBody();
  await poll(() => first.events.includes('end'), 'the body');
  assert.equal(first.body, 'hello');
  first.reply('1');
  assert.equal((await client.reply()).text, '1');
});

test('a held body whose reply comes early is dropped, and the next request is served', async (t) => {
  const { connectBoth, request } = await serve(t, hold);
  const { client, connection } = await connectBoth();
  const bytes = `${put('/1', 5)}hello${get('/2').toString()}`;
  client.send(bytes);
  const first = await request(0);
  await poll(() => connection.socket.bytesRead === bytes.length, 'all has been read');
  first.reply('early');
  assert.equal((await client.reply()).text, 'early');
  (await request(1)).reply('2');
  assert.equal((await client.reply()).text, '2');
  assert.deepEqual(first.events, ['start', 'taken']);
});

for (const [what, begun, rest] of [
  ['without a body', get('/1').toString(), ''],
  ['whose body is still to come', put('/1', 5), 'hello'],
] as const) {
  test(`who holds the body of a request ${what} behind its reply holds nothing up`, async (t) => {
    const { connect, request } = await serve(t);
    const client = await connect();
    client.send(begun);
    const first = await request(0);
    first.reply('1');
    first.transport.holdBody();
    assert.equal((await client.reply()).text, '1');
    client.send(rest + get('/2').toString());
    (await request(1)).reply('2');
    assert.equal((await client.reply()).text, '2');
  });
}

for (const [what, length, served] of [
  ['as long as a body may be', 100, ['/1', '/2']],
  ['one byte longer', 101, ['/1']],
] as const) {
  test(`behind an early reply, a body that is ${what} leaves ${served.length} served [D11]`, async (t) => {
    const { connect, received } = await serve(
      t,
      {
        onStart: (each) => {
          each.reply(each.head.target);
        },
      },
      { requestBytesMax: 100 },
    );
    const client = await connect();
    client.send(put('/1', length) + 'x'.repeat(length) + get('/2', [['Connection', 'close']]).toString());
    assert.equal(await client.closed(), 'end');
    assert.deepEqual(
      received.map(({ head }) => head.target),
      served,
    );
  });
}

test('the time for head and body together runs from the first byte of the head [D35]', async (t) => {
  const from = 10_000;
  let now = from;
  t.mock.method(performance, 'now', () => now);
  const { connectBoth, request } = await serve(t, {}, short);
  const { client, connection } = await connectBoth();
  client.send('PUT /1 HT');
  await poll(() => !connection.isQuiet(0, 0), 'a part of a head');
  now = from + 200;
  client.send('TP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n');
  const first = await request(0);
  connection.checkTime(from + 799);
  assert.deepEqual(first.events, ['start']);
  connection.checkTime(from + 800);
  assert.deepEqual(first.events, ['start', 'timeout']);
});

test('behind a body that came too late nothing starts while its reply is awaited, and what was held is dropped [D35]', async (t) => {
  const { connectBoth, request, received } = await serve(t, hold);
  const { client, connection } = await connectBoth();
  const sent = Buffer.concat([
    Buffer.from(put('/1', 5)),
    Buffer.from('hello'),
    get('/2'),
    Buffer.alloc(20_000_000, 'x'),
  ]);
  client.send(sent);
  const first = await request(0);
  await isFull(connection);
  const { bytesRead } = connection.socket;
  connection.checkTime(performance.now() + 60_000);
  assert.deepEqual(first.events, ['start', 'timeout']);
  await poll(() => connection.socket.bytesRead > bytesRead, 'it is read on');
  first.transport.readBody();
  await turns(5);
  assert.deepEqual(first.events, ['start', 'timeout']);
  first.reply('late', { status: 408 });
  const reply = await client.reply();
  assert.deepEqual([reply.status, reply.header('connection')], [408, 'close']);
  await poll(() => connection.socket.bytesRead === sent.length, 'all of it is taken');
  assert.equal(received.length, 1);
});

test('the rest of a body that came too late is dropped, and the request behind it never starts [D35]', async (t) => {
  const { connectBoth, request, received } = await serve(t);
  const { client, connection } = await connectBoth();
  client.send(put('/1', 5));
  const first = await request(0);
  connection.checkTime(performance.now() + 60_000);
  const { bytesRead } = connection.socket;
  const more = `hello${get('/2').toString()}`;
  client.send(more);
  await poll(() => connection.socket.bytesRead === bytesRead + more.length, 'it has been read');
  await turns(5);
  assert.equal(received.length, 1);
  first.reply('late', { status: 408 });
  assert.equal((await client.reply()).status, 408);
  assert.equal(await client.closed(), 'end');
  assert.deepEqual(first.events, ['start', 'timeout', 'taken']);
  assert.equal(received.length, 1);
});

test('a last reply to a client that has sent more than is held has it all taken: no reset [D27]', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  const sent = Buffer.concat([get('/1'), Buffer.alloc(20_000_000, 'x')]);
  client.send(sent);
  const first = await request(0);
  await isFull(connection);
  first.reply('last', { closes: true });
  assert.equal((await client.reply()).text, 'last');
  assert.equal(await client.closed(), 'end');
  await poll(() => connection.socket.bytesRead === sent.length, 'all of it is taken');
});

test('a head that is broken in a later piece than its first is refused', async (t) => {
  const { connectBoth, refused } = await serve(t);
  const { client, connection } = await connectBoth();
  client.send('GET /1 HT');
  await poll(() => connection.socket.bytesRead > 0, 'a part of a head');
  client.send('ML\r\n\r\n');
  assert.equal((await client.reply()).status, 400);
  assert.equal(await client.closed(), 'end');
  assert.equal(refused.length, 1);
});

// Who is told when a reply is taken.

test('a reply without a body is taken once, one to HEAD and one of no pieces', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  client.send(requestBytes('HEAD', '/1'));
  const first = await request(0);
  first.reply('four');
  await client.reply({ hasBody: false });
  client.send(get('/2'));
  const second = await request(1);
  second.reply('', { status: 204, pieces: [] });
  await client.reply();
  client.send(get('/3'));
  const third = await request(2);
  third.reply('3');
  assert.equal((await client.reply()).text, '3');
  for (const { events } of [first, second, third]) assert.deepEqual(events, ['start', 'taken']);
});

for (const count of [1, 3]) {
  test(`a large reply of ${count} pieces is taken once, when the client has taken it`, async (t) => {
    const { connectBoth, request } = await serve(t);
    const { client, connection } = await connectBoth();
    client.send(get('/1'));
    const first = await request(0);
    client.pause();
    const pieces = Array.from({ length: count }, (_, index) => Buffer.alloc(20_000_000, String(index)));
    first.reply('', { pieces });
    await turns(20);
    assert.deepEqual(first.events, ['start']);
    client.resume();
    assert.ok((await client.reply()).body.equals(Buffer.concat(pieces)));
    await poll(() => connection.socket.writableLength === 0, 'all has left');
    await turns(5);
    assert.deepEqual(first.events, ['start', 'taken']);
  });
}

test('the id of a request goes out byte for byte, whether its reply is large or small', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  for (const [index, [method, length]] of (
    [
      ['GET', 3],
      ['GET', 100_000],
      ['HEAD', 3],
    ] as const
  ).entries()) {
    client.send(requestBytes(method, `/${index}`, { headers: [['X-Request-Id', 'caf\u00e9']] }));
    (await request(index)).reply('', { pieces: [Buffer.alloc(length, 'b')] });
    const reply = await client.reply({ hasBody: method === 'GET' });
    assert.equal(reply.header('x-request-id'), 'caf\u00e9');
    assert.equal(reply.body.length, method === 'GET' ? length : 0);
  }
});

test('a refusal that nobody takes is told as one, though the reply before it was taken [D35]', async (t) => {
  const { connect, server, received } = await serve(t, { ...echo, refusal: Buffer.alloc(30_000_000) }, short);
  let stalledRefusals = 0;
  server.onStalledRefusal = () => (stalledRefusals += 1);
  const client = await connect();
  client.pause();
  client.send(`${get('/1').toString()}nonsense\r\n\r\n`);
  await poll(() => server.size === 1, 'it has come');
  await poll(() => server.size === 0, 'it is cut');
  assert.equal(stalledRefusals, 1);
  assert.deepEqual(received[0]?.events, ['start', 'taken']);
});

// The client ends, and something is left to do.

test('a client that ends while the reply to its broken body is awaited gets it [D21]', async (t) => {
  const { connectBoth, request } = await serve(t);
  for (const ahead of [0, 1]) {
    const { client, connection } = await connectBoth();
    if (ahead > 0) client.send(get('/ahead'));
    client.send('PUT /1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n');
    client.end();
    if (ahead > 0) {
      const before = await request(ahead);
      await poll(() => connection.socket.readableEnded, 'its end');
      before.reply('ahead');
      assert.equal((await client.reply()).text, 'ahead');
    }
    const broken = await request(2 * ahead);
    await poll(() => connection.socket.readableEnded, 'its end');
    await turns(5);
    broken.reply('broken', { status: 400 });
    assert.equal((await client.reply()).text, 'broken');
    assert.equal(await client.closed(), 'end');
    assert.deepEqual(broken.events, ['start', 'malformed', 'taken']);
  }
});

test('what a client has sent ahead of its end is answered, though the reply before it is still being taken [D21]', async (t) => {
  const { connectBoth, request } = await serve(t, {
    onStart: (each) => {
      each.reply('', { pieces: [Buffer.alloc(each.head.target === '/1' ? 20_000_000 : 5, 'b')] });
    },
  });
  const { client, connection } = await connectBoth();
  client.pause();
  client.send(get('/1'));
  await request(0);
  client.send(get('/2'));
  client.end();
  await poll(() => connection.socket.readableEnded, 'its end');
  client.resume();
  assert.equal((await client.reply()).body.length, 20_000_000);
  assert.equal((await client.reply()).body.length, 5);
  assert.equal(await client.closed(), 'end');
});

test('a client that ends behind a body that is held is told to have gone when the body has been read [D21]', async (t) => {
  const { connectBoth, request } = await serve(t, hold);
  const { client, connection } = await connectBoth();
  client.send(`${put('/1', 5)}hello`);
  client.end();
  const first = await request(0);
  await poll(() => connection.socket.readableEnded, 'its end');
  await turns(5);
  assert.deepEqual(first.events, ['start']);
  first.transport.readBody();
  await poll(() => first.events.includes('gone'), 'it is told');
  assert.deepEqual(first.events, ['start', 'body', 'end', 'gone']);
  assert.equal(first.body, 'hello');
  assert.equal(await client.closed(), 'end');
});

test('a client that ends behind bytes that are no request gets its reply, and a refusal [D21]', async (t) => {
  const { connectBoth, request, refused } = await serve(t);
  for (const [index, behind] of ['\0', 'nonsense\r\n\r\n', 'GET /2 HT'].entries()) {
    const { client, connection } = await connectBoth();
    client.send(get('/1').toString() + behind);
    client.end();
    const first = await request(index);
    await poll(() => connection.socket.readableEnded, 'its end');
    first.reply('1');
    assert.equal((await client.reply()).text, '1');
    assert.equal((await client.reply()).status, 400);
    assert.equal(await client.closed(), 'end');
    assert.deepEqual(first.events, ['start', 'taken']);
  }
  assert.deepEqual(refused.at(-1), { kind: 'malformed', reason: 'a request that is cut off' });
});

test('a client that ends within a request has all those before it answered that it has sent ahead [D21]', async (t) => {
  const { connectBoth, request } = await serve(t);
  const { client, connection } = await connectBoth();
  client.send(`${get('/1').toString()}${get('/2').toString()}${get('/3').toString()}GET /4 HT`);
  client.end();
  for (const index of [0, 1, 2]) {
    const each = await request(index);
    await poll(() => connection.socket.readableEnded, 'its end');
    each.reply(each.head.target);
    assert.equal((await client.reply()).text, `/${index + 1}`);
  }
  assert.equal((await client.reply()).status, 400);
  assert.equal(await client.closed(), 'end');
});

test('a client that ends behind an empty line has gone: that is no request [D21]', async (t) => {
  const { connect, request } = await serve(t);
  const client = await connect();
  client.send(`${get('/1').toString()}\r\n`);
  client.end();
  const first = await request(0);
  await poll(() => first.events.includes('gone'), 'it is told');
  assert.equal(await client.closed(), 'end');
  assert.equal(client.unread.length, 0);
});

test('that a client has gone is told at once, not when its connection has closed [D21]', async (t) => {
  const states: boolean[] = [];
  let isClosed = (): boolean => true;
  const { connectBoth, request } = await serve(t, {
    onGone: () => states.push(isClosed()),
  });
  const { client, connection } = await connectBoth();
  isClosed = () => connection.socket.destroyed;
  client.send(get('/1'));
  await request(0);
  client.end();
  assert.equal(await client.closed(), 'end');
  assert.deepEqual(states, [false]);
});

for (const [what, end] of [
  ['its handler cuts it', undefined],
  ['the server closes it', 'closeAll'],
] as const) {
  test(`of what was sent ahead on a connection nothing starts once ${what}, be there replies before it [D21]`, async (t) => {
    const { connect, server, received } = await serve(t, {
      onStart: (each) => {
        each.reply(each.head.target);
        if (end === undefined) each.transport.cut();
        else server[end]();
      },
    });
    const client = await connect();
    client.send(Buffer.concat(Array.from({ length: 50 }, (_, index) => get(`/${index}`))));
    await client.closed();
    await poll(() => server.size === 0, 'it has closed');
    assert.equal(received.length, 1);
  });
}

test('of what was sent ahead nothing starts behind a reply that is followed by a cut [D21]', async (t) => {
  const { connect, request, server, received } = await serve(t);
  const client = await connect();
  client.send(Buffer.concat([get('/1'), get('/2')]));
  const first = await request(0);
  first.reply('1');
  first.transport.cut();
  await poll(() => server.size === 0, 'it has closed');
  assert.equal(received.length, 1);
});

test('a refusal is the last reply of its connection, whatever its handler says of that [D27]', async (t) => {
  const { connect } = await serve(t, { refusalCloses: false });
  const client = await connect();
  client.send('nonsense\r\n\r\n');
  assert.equal((await client.reply()).header('connection'), 'close');
  assert.equal(await client.closed(), 'end');
});
