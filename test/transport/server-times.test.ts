// The server side of HTTP/1.1 on real sockets: time limits of clients, to the millisecond; idle connections, the limit on
// connections, and drains. The test sets the clock. D19, D26, D33, D35. The simulated worlds explore time limits and drains.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { poll } from '../helpers/changes.ts';
import {
  assertEnds,
  assertLastReply,
  assertReplies,
  get,
  gets,
  join,
  put,
  serve,
  serveOne,
  stopClock,
  turn,
  type Script,
} from './served-connections.ts';

const limits = { requestHeadersTimeoutMs: 300, requestTimeoutMs: 800, idleTimeoutMs: 500 };

/** A client of a server on a stopped clock, with the limits above. */
async function start(t: TestContext, script: Script = {}, more: Partial<ServerLimits> = {}) {
  const clock = stopClock(t);
  const served = await serveOne(t, script, { ...limits, ...more });
  const { client, connection } = served;
  return {
    ...served,
    clock,
    /** Sends bytes that do not complete a head, and waits until the server has read them. */
    begin: async (text: string) => {
      const expected = connection.socket.bytesRead + text.length;
      client.send(text);
      await poll(() => connection.socket.bytesRead === expected, 'the bytes are read');
    },
    /** Asserts that the connection is open 1 ms before `time`, and then checks its limits at `time`. */
    reaches: async (time: number) => {
      connection.checkTime(time - 1);
      await turn();
      const { destroyed, writableEnded } = connection.socket;
      assert.ok(client.isOpen && !destroyed && !writableEnded, 'open 1 ms before');
      connection.checkTime(time);
    },
  };
}

describe('each time limit takes effect to the millisecond [D35]', () => {
  // `at`: the time since the connection opened, or since its last reply.
  for (const [what, isUsed, waitMs, text, at, status] of [
    ['a connection without a byte is closed without a reply', false, 0, '', 300, undefined],
    ['a first head is 408, counted from the opening of the connection', false, 200, 'GET /1 HT', 300, 408],
    ['a later head is 408, counted from its first byte', true, 400, 'GET /2 HT', 700, 408],
    ['an idle connection is closed without a reply, even if empty lines arrive', true, 400, '\r\n', 500, undefined],
    ['a head is 408 after REQUEST_TIMEOUT_MS, if that is shorter', false, 0, 'GET / HTTP/1.1\r\n', 200, 408],
  ] as const) {
    test(what, async (t) => {
      const more = what.includes('shorter') ? { requestTimeoutMs: 200 } : {};
      const { clock, client, begin, reaches, request, refused } = await start(t, {}, more);
      let from = clock.now;
      if (isUsed) {
        client.send(get('/1'));
        const first = await request(0);
        from = clock.now += 5_000;
        first.reply('1');
        await assertReplies(client, '1');
      }
      clock.now += waitMs;
      await begin(text);
      await reaches(from + at);
      if (status === undefined) await assertEnds(client);
      else await assertLastReply(client, status, 'late');
      assert.deepEqual(refused, status === undefined ? [] : ['timeout']);
    });
  }

  for (const [when, early] of [
    ['is reported as timed out', false],
    ['closes the connection after an early reply', true],
  ] as const) {
    test(`a slow body ${when}, REQUEST_TIMEOUT_MS after the first byte of its head`, async (t) => {
      const { clock, client, begin, reaches, exchange, request } = await start(t);
      client.send(get('/1'));
      await exchange(client, 0, '1');
      const from = (clock.now += 100);
      await begin('PUT /2 HT');
      clock.now = from + 200;
      client.send('TP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n');
      const second = await request(1);
      if (early) await exchange(client, 1, 'early');
      clock.now = from + 700;
      await begin('ab');
      await reaches(from + 800);
      if (early) {
        await assertEnds(client);
      } else {
        assert.deepEqual(second.events, ['start', 'body', 'timeout']);
        second.reply('late', { status: 408 });
        await assertLastReply(client, 408, 'late');
      }
    });
  }

  for (const [what, closes, ms] of [
    ['its last reply; 5 s apply afterwards, even if it continues to send', true, 5_000],
    ['a reply; IDLE_TIMEOUT_MS applies afterwards', false, 500],
  ] as const) {
    test(`no limit applies while a client slowly reads ${what}`, async (t) => {
      const { clock, client, connection, begin, request } = await start(t);
      client.send(get('/1'));
      const first = await request(0);
      client.pause();
      first.reply('', { pieces: [Buffer.alloc(30_000_000, '1')], closes });
      // 50 s is less than the stall timeout: the server's own timer may check the limits, too.
      clock.now += 50_000;
      connection.checkTime(clock.now);
      assert.equal(connection.socket.destroyed, false);
      client.resume();
      assert.equal((await client.reply()).body.length, 30_000_000);
      await poll(() => connection.socket.writableLength === 0, 'the reply is sent');
      if (closes) await begin('more');
      connection.checkTime(clock.now + ms - 1);
      assert.equal(connection.socket.destroyed, false);
      connection.checkTime(clock.now + ms);
      assert.equal(connection.socket.destroyed, true);
    });
  }

  test('while a reply is awaited, no time limit runs for its request or for an incomplete next request', async (t) => {
    const { clock, client, connection, exchange, request } = await start(t);
    client.send(join(get('/1'), 'GET /2 HTTP/1.1\r\nHo'));
    await request(0);
    clock.now += 600_000;
    connection.checkTime(clock.now);
    await exchange(client, 0, '1');
    client.send('st: x\r\n\r\n');
    await exchange(client, 1, '2');
  });

  test('a body that times out: all bytes after it are read and dropped, and no later request starts', async (t) => {
    const { client, connection, request, received } = await start(t);
    client.send(put('/1', 5));
    const first = await request(0);
    connection.checkTime(performance.now() + 60_000);
    const rest = join('hello', get('/2'));
    client.send(rest);
    await poll(() => connection.socket.bytesRead === put('/1', 5).length + rest.length, 'all is read');
    assert.deepEqual(first.events, ['start', 'timeout']);
    first.reply('late', { status: 408 });
    await assertLastReply(client, 408);
    assert.equal(received.length, 1);
  });

  test('the time limit of a body stands still while the handler holds the body back', async (t) => {
    const { clock, client, connection, request } = await start(t, { onStart: ({ transport }) => transport.holdBody() });
    client.send(put('/1', 5));
    const { events, transport } = await request(0);
    for (const [passed, expected] of [
      [60_000, ['start']],
      [799, ['start']],
      [1, ['start', 'timeout']],
    ] as const) {
      clock.now += passed;
      connection.checkTime(clock.now);
      assert.deepEqual(events, expected);
      transport.readBody();
    }
  });
});

test('input that arrives during a long turn is read before the time limits are checked [D35]', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { clock, client, exchange } = await start(t);
  client.send(get('/1'));
  await exchange(client, 0, '1');
  // A turn of the event loop begins with the timers, before the sockets are read.
  await turn();
  client.send(get('/2'));
  clock.now += limits.idleTimeoutMs;
  t.mock.timers.tick(200);
  await exchange(client, 1, '2');
});

test('the time limits hold even if every check is late [D35]', async (t) => {
  let addedMs = 0;
  const now = performance.now.bind(performance);
  t.mock.method(performance, 'now', () => now() + addedMs);
  const { client } = await serveOne(t, {}, { requestHeadersTimeoutMs: 300 });
  const timer = setInterval(() => (addedMs += 350), 50);
  t.after(() => clearInterval(timer));
  await client.closed();
});

for (const [what, parts, isRefusal] of [
  ['its reply', ['large'], false],
  ['a refusal after a reply that was sent', ['small'], true],
  // The reply stays in the socket, as if the OS did not accept it yet.
  ['a refusal after a reply that is queued', ['queued'], false],
] as const) {
  test(`a client that does not read ${what} is cut off, and reported as a stalled ${isRefusal ? 'refusal' : 'reply'} [D35]`, async (t) => {
    const large = Buffer.alloc(30_000_000, '1');
    const script: Script = {
      refusal: large,
      onStart: (each) => {
        if (parts[0] === 'queued') connection.socket.cork();
        each.reply('', { pieces: [parts[0] === 'large' ? large : Buffer.from('1')] });
      },
    };
    const { client, connection, received, server } = await serveOne(t, script, { replyStallTimeoutMs: 100 });
    let stalledRefusals = 0;
    server.onStalledRefusal = () => (stalledRefusals += 1);
    client.pause();
    client.send(get('/1'));
    if (parts[0] !== 'large') client.send('nonsense\r\n\r\n');
    await poll(() => server.size === 0, 'the connection is cut');
    assert.equal(stalledRefusals, isRefusal ? 1 : 0);
    assert.equal(received[0]?.events.includes('stall'), !isRefusal);
  });
}

describe('idle connections [D26, D33]', () => {
  test('a connection is idle since its opening or its last reply. It is quiet if no byte of a request has arrived, either', async (t) => {
    const clock = stopClock(t);
    const { client, connection, request } = await serveOne(t);
    /** For how long the connection is idle, and whether it is quiet for 500 ms, and for longer. */
    const stateAfter = (ms: number) => {
      clock.now += ms;
      return [connection.idleMs(clock.now), connection.isQuiet(500, 0), connection.isQuiet(501, 0)];
    };
    assert.deepEqual(stateAfter(500), [500, true, false]);
    assert.equal(connection.isQuiet(0, clock.now + 60_000), false, 'the start is in the future');
    client.send('G');
    await poll(() => connection.socket.bytesRead === 1, 'the first byte of a request');
    assert.deepEqual(stateAfter(100), [600, false, false]);
    client.send('ET /1 HTTP/1.1\r\nHost: x\r\n\r\n');
    const first = await request(0);
    assert.deepEqual(stateAfter(500), [0, false, false]);
    first.reply('1');
    await client.reply();
    assert.deepEqual(stateAfter(500), [500, true, false]);
    client.pause();
    client.send(get('/2'));
    (await request(1)).reply('', { pieces: [Buffer.alloc(20_000_000)] });
    assert.deepEqual(stateAfter(500), [0, false, false], 'its reply is unread');
    client.resume();
    await client.reply();
    client.send(get('/3', [['Connection', 'close']]));
    (await request(2)).reply('3');
    await assertLastReply(client, 200, '3');
    await poll(() => connection.isQuiet(0, 0), 'the connection is quiet');
    assert.equal(connection.socket.destroyed, false, 'its client has not closed it');
  });

  test('a connection is not idle while its requests wait for their turn', async (t) => {
    const seen: unknown[] = [];
    const { clock, client, connection, received } = await start(t, {
      onStart: (each) => {
        if (received.length === 1) {
          // Runs before the connection's next turn.
          setImmediate(() => {
            const later = clock.now + 600_000;
            connection.checkTime(later);
            seen.push(received.length < 50, connection.socket.destroyed);
            seen.push(connection.isQuiet(1, clock.now - 600_000), connection.idleMs(later));
          });
        }
        each.reply(each.head.target);
      },
    });
    client.send(gets(50));
    await assertReplies(client, ...Array.from({ length: 50 }, (_, index) => `/${index}`));
    assert.deepEqual(seen, [true, false, false, 0]);
  });
});

describe('the limit on connections [D26]', () => {
  test('at the limit, some of the longest idle connections are closed for a new one, looked for at most once in 50 ms', async (t) => {
    const clock = stopClock(t);
    const { server, connect, connectBoth, exchange, request } = await serve(t, {}, { connectionsMax: 64 });
    const counts = { full: 0, shed: 0 };
    server.onFull = () => (counts.full += 1);
    server.onShed = () => (counts.shed += 1);
    const assertCounts = (full: number, shed: number, size: number) =>
      assert.deepEqual([counts.full, counts.shed, server.size], [full, shed, size]);
    const turnAway = async () => await (await connect()).closed();
    const all: Awaited<ReturnType<typeof connectBoth>>[] = [];
    for (let count = 0; count < 64; count += 1) all.push(await connectBoth());
    const from = clock.now;
    // The first connection is busy. The second has been idle for a shorter time than all others.
    clock.now += 10;
    for (const [index, { client }] of all.slice(0, 2).entries()) {
      client.send(get(`/${index}`));
      if (index === 0) await request(0);
      else await exchange(client, 1, 'done');
    }
    clock.now = from + 999;
    await turnAway();
    assertCounts(1, 1, 64);
    clock.now = from + 1_048;
    await turnAway();
    assertCounts(2, 2, 64);
    clock.now = from + 1_049;
    // Closes 1/32 of all connections.
    await connectBoth();
    assertCounts(3, 4, 63);
    const closed = all.map(({ connection }, index) => (connection.socket.destroyed ? index : -1));
    assert.deepEqual(closed.filter((index) => index >= 0), [2, 3]); // prettier-ignore
    await connectBoth();
    assertCounts(3, 4, 64);
    all[0]?.client.destroy();
    await poll(() => server.size === 63, 'the busy connection has closed');
    await connectBoth();
    assertCounts(3, 4, 64);
  });
});

describe('a drain [D33]', () => {
  const never = new AbortController().signal;
  /** Lets time pass in steps, each of which the drain sees: a longer step would be a pause of the process. */
  const pass = async (clock: ReturnType<typeof stopClock>, ...steps: readonly number[]) => {
    for (const ms of steps) {
      clock.now += ms;
      const { reads } = clock;
      await poll(() => clock.reads > reads + 10, 'the drain looks at the clock');
    }
  };

  test('waits for requests in flight, closes quiet connections, and ends when its callback returns true', async (t) => {
    const clock = stopClock(t);
    const { server, connect, request } = await serve(t);
    const [quiet, busy] = [await connect(), await connect()];
    busy.send(get('/1'));
    const first = await request(0);
    const state = { isDone: false, hasEnded: false };
    const drained = server.drain(never, () => state.isDone).then(() => (state.hasEnded = true));
    await pass(clock, 333, 333, 333);
    assert.ok(quiet.isOpen, 'quiet for less than a second');
    clock.now += 1;
    await quiet.closed();
    assert.ok(busy.isOpen);
    first.reply('1');
    await assertLastReply(busy, 200, '1');
    await poll(async () => {
      await pass(clock, 400);
      return server.size === 0;
    }, 'all connections have closed');
    await turn();
    assert.equal(state.hasEnded, false, 'the callback returns false');
    state.isDone = true;
    await drained;
  });

  test('gives the clients their time again after a pause of the process [D19]', async (t) => {
    const clock = stopClock(t);
    const { server, connectBoth } = await serve(t);
    const { client } = await connectBoth();
    const drained = server.drain(never, () => true);
    await pass(clock, 1_500, 400, 400);
    assert.equal(server.size, 1);
    clock.now += 400;
    await client.closed();
    await drained;
  });

  test('ends at once if it is aborted, and leaves its connections to closeAll', async (t) => {
    const { client, server, request } = await serveOne(t);
    client.send(get('/1'));
    const first = await request(0);
    await server.drain(AbortSignal.abort(), () => true);
    assert.ok(client.isOpen);
    server.closeAll();
    await client.closed();
    await poll(() => first.events.includes('gone'), 'the client has gone');
  });
});
