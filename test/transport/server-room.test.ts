// ClientListener: idle and quiet connections, the connection limit, drains, and how often time limits are checked. The
// test sets the clock. D26, D33, D35.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { poll } from '../helpers/changes.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { assertLastReply, echo, get, gets, serve, serveOne, stopClock, turn } from './served-connections.ts';

/** Starts a server on a stopped clock, and counts its calls of onFull and onShed. */
async function start(t: TestContext, connectionsMax: number) {
  const clock = stopClock(t);
  const served = await serve(t, {}, { connectionsMax });
  const counts = { full: 0, shed: 0 };
  served.server.onFull = () => (counts.full += 1);
  served.server.onShed = () => (counts.shed += 1);
  return {
    ...served,
    clock,
    assertCounts: (full: number, shed: number, size: number, why = 'full, shed, size') =>
      assert.deepEqual([counts.full, counts.shed, served.server.size], [full, shed, size], why),
    /** Opens a connection that must be accepted; other connections may be closed to make room for it. */
    admit: async (): Promise<RawClient> => {
      const before = new Set(served.server);
      const client = await served.connect();
      await poll(() => [...served.server].some((each) => !before.has(each)), 'the connection is accepted');
      return client;
    },
    /** Opens a connection that must be closed at once. */
    turnAway: async (): Promise<void> => {
      await (await served.connect()).closed();
    },
  };
}

describe('idle connections [D26, D33]', () => {
  test('a connection is idle from its opening or its last reply, but not while a request is in flight or a reply has not been read', async (t) => {
    const clock = stopClock(t);
    const { client, connection, request } = await serveOne(t);
    const idleMs = () => connection.idleMs(clock.now + 500);
    assert.equal(idleMs(), 500);
    clock.now += 100;
    assert.equal(idleMs(), 600);
    client.send(get('/1'));
    const first = await request(0);
    assert.equal(idleMs(), 0, 'a request is in flight');
    first.reply('1');
    await client.reply();
    assert.equal(idleMs(), 500, 'since its reply');
    client.pause();
    client.send(get('/2'));
    (await request(1)).reply('', { pieces: [Buffer.alloc(20_000_000)] });
    assert.equal(idleMs(), 0, 'its reply is unread');
    client.resume();
    await client.reply();
    client.send(gets(2));
    await request(2);
    assert.equal(idleMs(), 0, 'two requests are in flight');
  });

  test('a connection is quiet if, for the given time, no request was in flight and no byte of a request arrived', async (t) => {
    const clock = stopClock(t);
    const { client, connection, request } = await serveOne(t);
    const from = clock.now;
    const isQuiet = () => {
      clock.now += 1;
      return connection.isQuiet(1, from);
    };
    assert.equal(isQuiet(), true);
    assert.equal(connection.isQuiet(0, from + 60_000), false, 'the start is in the future');
    clock.now += 498;
    assert.equal(connection.isQuiet(500, 0), false);
    clock.now += 1;
    assert.equal(connection.isQuiet(500, 0), true);
    client.send('\r\n');
    await poll(() => connection.socket.bytesRead === 2, 'an empty line');
    assert.equal(isQuiet(), true);
    client.send('G');
    await poll(() => connection.socket.bytesRead === 3, 'the first byte of a request');
    assert.equal(isQuiet(), false);
    client.send('ET /1 HTTP/1.1\r\nHost: x\r\n\r\n');
    const first = await request(0);
    assert.equal(isQuiet(), false, 'a request is in flight');
    first.reply('1');
    await client.reply();
    assert.equal(isQuiet(), true);
    client.pause();
    client.send(get('/2'));
    (await request(1)).reply('', { pieces: [Buffer.alloc(20_000_000)] });
    assert.equal(isQuiet(), false, 'its reply is unread');
  });

  test('after its last reply is sent, a connection is quiet, even if the client does not close it', async (t) => {
    const { client, connection } = await serveOne(t, echo);
    client.send(get('/1', [['Connection', 'close']]));
    await assertLastReply(client, 200, '/1');
    await poll(() => connection.isQuiet(0, 0), 'the connection is quiet');
    assert.equal(connection.socket.destroyed, false);
  });
});

describe('the limit on connections [D26]', { timeout: 30_000 }, () => {
  test('while all connections are busy, a new connection over the limit is closed; after a busy connection has closed, a new connection is accepted', async (t) => {
    const { admit, assertCounts, clock, request, server, turnAway } = await start(t, 3);
    const clients: RawClient[] = [];
    for (let index = 0; index < 3; index += 1) {
      const client = await admit();
      client.send(get(`/${index}`));
      await request(index);
      clients.push(client);
    }
    clock.now += 60_000;
    for (let count = 1; count <= 5; count += 1) {
      await turnAway();
      assertCounts(count, count, 3);
    }
    assert.ok(clients.every(({ isOpen }) => isOpen));
    clients[0]?.destroy();
    await poll(() => server.size === 2, 'one connection has closed');
    await admit();
    assertCounts(5, 5, 3);
  });

  test('a full server closes some connections that were idle for a second, and looks for such connections at most once in 50 ms', async (t) => {
    const { admit, assertCounts, clock, turnAway } = await start(t, 64);
    const from = clock.now;
    for (let count = 0; count < 64; count += 1) await admit();
    assertCounts(0, 0, 64);
    const firstLook = from + 999;
    clock.now = firstLook;
    await turnAway();
    assertCounts(1, 1, 64, 'no connection has been idle for a second');
    clock.now = firstLook + 49;
    await turnAway();
    assertCounts(2, 2, 64, 'the last look was less than 50 ms ago');
    clock.now = firstLook + 50;
    await admit();
    assertCounts(3, 4, 63, '1/32 of all connections was closed');
    await admit();
    assertCounts(3, 4, 64);
    clock.now = firstLook + 999;
    await admit();
    await admit();
    assertCounts(4, 6, 64);
    clock.now = firstLook + 1_000;
    await turnAway();
    assertCounts(5, 7, 64);
  });

  test('a connection idle for exactly one second is closed to make room for a new one', async (t) => {
    const { admit, clock, server } = await start(t, 1);
    const first = await admit();
    clock.now += 1_000;
    await admit();
    await first.closed();
    assert.equal(server.size, 1);
  });

  test('the longest-idle connections are closed to make room for a new one; busy connections are never closed', async (t) => {
    const { assertCounts, clock, connectBoth, connect, exchange, request } = await start(t, 64);
    const all: Awaited<ReturnType<typeof connectBoth>>[] = [];
    for (let count = 0; count < 64; count += 1) all.push(await connectBoth());
    clock.now += 100;
    // The first connection is busy. The next two connections have been idle for a shorter time than all others.
    for (const [index, { client }] of all.slice(0, 3).entries()) {
      client.send(get(`/${index}`));
      if (index === 0) await request(0);
      else await exchange(client, index, 'done');
    }
    clock.now += 2_000;
    const newcomer = await connect();
    await all[3]?.client.closed();
    await all[4]?.client.closed();
    assertCounts(1, 2, 63);
    assert.deepEqual(
      all.slice(0, 6).map(({ connection }) => connection.socket.destroyed),
      [false, false, false, true, true, false],
    );
    newcomer.send(get('/new'));
    await exchange(newcomer, 3, 'new');
  });
});

test(
  'time limits are checked five times a second while there are connections [D35]',
  { timeout: 30_000 },
  async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const clock = t.mock.method(performance, 'now');
    const { server, connectBoth } = await serve(t);
    const looksIn = (ms: number): number => {
      const before = clock.mock.callCount();
      const immediate = t.mock.method(globalThis, 'setImmediate', (look: () => void) => look());
      t.mock.timers.tick(ms);
      immediate.mock.restore();
      return clock.mock.callCount() - before;
    };
    assert.equal(looksIn(10_000), 0);
    for (let round = 0; round < 2; round += 1) {
      const clients = [(await connectBoth()).client, (await connectBoth()).client];
      assert.deepEqual([looksIn(199), looksIn(1)], [0, 1]);
      assert.equal(looksIn(1_000), 5);
      clients[0]?.destroy();
      await poll(() => server.size === 1, 'one connection has closed');
      assert.equal(looksIn(1_000), 5);
      clients[1]?.destroy();
      await poll(() => server.size === 0, 'both connections have closed');
      assert.equal(looksIn(200), 1);
      assert.equal(looksIn(10_000), 0);
    }
  },
);

test('a drain waits for requests in flight, closes quiet connections, and ends when its callback returns true [D33]', async (t) => {
  const clock = stopClock(t);
  const { server, connect, request } = await serve(t);
  const quiet = await connect();
  const busy = await connect();
  busy.send(get('/1'));
  const first = await request(0);
  let isDone = false;
  const drained = server.drain(new AbortController().signal, () => isDone);
  // In steps, because a longer one would be a pause of the process.
  for (const ms of [333, 333, 333]) {
    clock.now += ms;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.ok(quiet.isOpen, 'quiet for less than a second');
  clock.now += 1;
  await quiet.closed();
  assert.ok(busy.isOpen);
  first.reply('1', { closes: true });
  await assertLastReply(busy, 200, '1');
  for (const ms of [400, 400, 400]) {
    clock.now += ms;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  let hasEnded = false;
  void drained.then(() => {
    hasEnded = true;
  });
  await poll(() => server.size === 0, 'all connections have closed');
  await turn();
  assert.equal(hasEnded, false, 'the callback returns false');
  isDone = true;
  await drained;
});

test('after a pause of the process, a drain leaves the clients their time [D19, D33]', async (t) => {
  const clock = stopClock(t);
  const { server, connect } = await serve(t);
  const client = await connect();
  const drained = server.drain(new AbortController().signal, () => true);
  clock.now += 1_500;
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(client.isOpen);
  for (const ms of [400, 400, 400]) {
    clock.now += ms;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await client.closed();
  await drained;
});

test('an aborted drain ends at once and leaves its connections to closeAll [D33]', async (t) => {
  const { client, server, request } = await serveOne(t);
  client.send(get('/1'));
  const first = await request(0);
  const abort = new AbortController();
  const aborted = server.drain(abort.signal, () => true);
  abort.abort();
  await aborted;
  assert.ok(client.isOpen);
  server.closeAll();
  await client.closed();
  await poll(() => first.events.includes('gone'), 'the client has gone');
});

test('a server without TLS has the scheme http, and renewTls has no effect', async (t) => {
  const { server } = await serve(t);
  assert.equal(server.scheme, 'http');
  server.renewTls({ cert: '', key: '' });
  assert.equal(server.scheme, 'http');
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
