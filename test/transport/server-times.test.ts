// The server side of HTTP/1.1 on real sockets: each time limit of a client, to the millisecond. The test sets the
// clock. server-room.test.ts tests how often the limits are checked. D35.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import { poll } from '../helpers/changes.ts';
import {
  assertEchoes,
  assertEnds,
  assertLastReply,
  echo,
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

/** A server on a stopped clock, with the limits above. */
async function start(t: TestContext, script: Script = {}, more: Partial<ServerLimits> = {}) {
  const clock = stopClock(t);
  const served = await serve(t, script, { ...limits, ...more });
  return {
    ...served,
    clock,
    open: async () => {
      const { client, connection } = await served.connectBoth();
      return {
        client,
        connection,
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
    },
  };
}

describe('each time limit takes effect to the millisecond [D35]', { timeout: 30_000 }, () => {
  test('a connection without a byte is closed after REQUEST_HEADERS_TIMEOUT_MS, without a reply', async (t) => {
    const { clock, open, refused } = await start(t);
    const { client, reaches } = await open();
    await reaches(clock.now + 300);
    await client.closed();
    assert.equal(client.unread.length, 0);
    assert.deepEqual(refused, []);
  });

  test('an incomplete first head is 408, REQUEST_HEADERS_TIMEOUT_MS after the connection opened', async (t) => {
    const { clock, open, refused } = await start(t);
    const from = clock.now;
    const { client, connection, begin, reaches } = await open();
    clock.now += 200;
    await begin('GET /1 HT');
    assert.equal(connection.idleMs(from + 250), 250, 'half a head is not a request in flight');
    await reaches(from + 300);
    await assertLastReply(client, 408);
    assert.deepEqual(refused, ['timeout']);
  });

  test('an incomplete head is 408 after REQUEST_TIMEOUT_MS, if that is shorter', async (t) => {
    const { clock, open } = await start(t, {}, { requestTimeoutMs: 200 });
    const { client, begin, reaches } = await open();
    await begin('GET / HTTP/1.1\r\n');
    await reaches(clock.now + 200);
    await assertLastReply(client, 408, 'late');
  });

  test('an incomplete later head is 408, REQUEST_HEADERS_TIMEOUT_MS after its first byte', async (t) => {
    const { clock, open, exchange } = await start(t);
    const { client, begin, reaches } = await open();
    client.send(get('/1'));
    await exchange(client, 0, '1');
    clock.now += 400;
    await begin('GET /2 HT');
    await reaches(clock.now + 300);
    await assertLastReply(client, 408);
  });

  test('an idle connection is closed without a 408, IDLE_TIMEOUT_MS after its last reply, even if empty lines arrive', async (t) => {
    const { clock, open, request, refused } = await start(t);
    const { client, begin, reaches } = await open();
    client.send(get('/1'));
    const first = await request(0);
    clock.now += 5_000;
    first.reply('1');
    await client.reply();
    const repliedAt = clock.now;
    clock.now += 400;
    await begin('\r\n');
    await reaches(repliedAt + 500);
    await client.closed();
    assert.equal(client.unread.length, 0);
    assert.deepEqual(refused, []);
  });

  for (const [when, early] of [
    ['is reported as timed out', false],
    ['closes the connection after an early reply', true],
  ] as const) {
    test(`a slow body ${when}, REQUEST_TIMEOUT_MS after the first byte of its head`, async (t) => {
      const { clock, open, exchange, request } = await start(t);
      const { client, begin, reaches } = await open();
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

  for (const [idleTimeoutMs, announced] of [
    [72_000, 71],
    [1_999, 0],
  ] as const) {
    test(`with an idle time of ${idleTimeoutMs} ms, a request at the end of the announced ${announced} s comes a second before the close`, async (t) => {
      const { clock, open, exchange, request } = await start(t, {}, { idleTimeoutMs });
      const { client, connection } = await open();
      client.send(get('/1'));
      (await request(0)).reply('1');
      const reply = await client.reply();
      assert.equal(reply.header('keep-alive'), `timeout=${announced}`);
      connection.checkTime(clock.now + Math.min(announced * 1_000 + 999, idleTimeoutMs - 1));
      client.send(get('/2'));
      await exchange(client, 1, '2');
    });
  }

  test('a client that continues to send after its last reply is cut off 5 s later', async (t) => {
    const { clock, open } = await start(t, echo);
    const { client, connection, begin } = await open();
    clock.now += 200;
    client.send(get('/1', [['Connection', 'close']]));
    await assertLastReply(client, 200, '/1');
    await poll(() => connection.socket.writableLength === 0, 'the reply is sent');
    const from = clock.now;
    clock.now += 4_000;
    await begin('more');
    connection.checkTime(from + 4_999);
    assert.equal(connection.socket.destroyed, false);
    connection.checkTime(from + 5_000);
    assert.equal(connection.socket.destroyed, true);
  });

  for (const [what, closes, ms] of [
    ['its last reply; 5 s apply afterwards', true, 5_000],
    ['a reply; IDLE_TIMEOUT_MS applies afterwards', false, 500],
  ] as const) {
    test(`no limit applies while a client slowly reads ${what}`, async (t) => {
      const { clock, open, request } = await start(t);
      const { client, connection } = await open();
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
      if (!closes) assert.equal(connection.idleMs(clock.now), 0);
      connection.checkTime(clock.now + ms - 1);
      assert.equal(connection.socket.destroyed, false);
      connection.checkTime(clock.now + ms);
      assert.equal(connection.socket.destroyed, true);
    });
  }
});

test('while a reply is awaited, no time limit runs for its request or for an incomplete next request [D35]', async (t) => {
  const { clock, open, exchange, request } = await start(t);
  const { client, connection } = await open();
  client.send(join(get('/1'), 'GET /2 HTTP/1.1\r\nHo'));
  await request(0);
  clock.now += 600_000;
  connection.checkTime(clock.now);
  await exchange(client, 0, '1');
  client.send('st: x\r\n\r\n');
  await exchange(client, 1, '2');
});

for (const [what, first, last, passed] of [
  ['an idle connection', get('/1'), get('/2'), limits.idleTimeoutMs],
  ['an incomplete head', join(get('/1'), 'GET /2 HT'), 'TP/1.1\r\nHost: x\r\n\r\n', limits.requestHeadersTimeoutMs],
] as const) {
  test(`input that arrives on ${what} during a long turn is read before the time limits are checked [D35]`, async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { clock, open, exchange } = await start(t);
    const { client } = await open();
    client.send(first);
    await exchange(client, 0, '1');
    // A turn of the event loop begins with the timers, before the sockets are read.
    await turn();
    client.send(last);
    clock.now += passed;
    t.mock.timers.tick(200);
    await exchange(client, 1, '2');
  });
}

test('a connection is not idle while its requests wait for their turn [D26, D33, D35]', async (t) => {
  const seen: unknown[] = [];
  const count = 50;
  const { clock, open, received } = await start(t, {
    onStart: (each) => {
      if (received.length === 1) {
        // Runs before the connection's next turn.
        setImmediate(() => {
          const later = clock.now + 600_000;
          connection.checkTime(later);
          const { socket } = connection;
          seen.push(received.length < count, socket.destroyed, connection.isQuiet(1, clock.now - 600_000));
          seen.push(connection.idleMs(later));
        });
      }
      each.reply(each.head.target);
    },
  });
  const { client, connection } = await open();
  client.send(gets(count));
  await assertEchoes(client, count);
  assert.deepEqual(seen, [true, false, false, 0]);
});

test('if a body times out, all other bytes are read and dropped, and no later request starts [D35]', async (t) => {
  const { client, connection, request, received } = await serveOne(t);
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

test('the time limit of a body stands still while the handler holds the body back [D35]', async (t) => {
  const { clock, open, request } = await start(t, { onStart: ({ transport }) => transport.holdBody() });
  const { client, connection } = await open();
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

for (const [what, parts, isRefusal] of [
  ['its reply', ['large'], false],
  ['a refusal', [], true],
  ['a refusal after a reply that was sent', ['small'], true],
  // The reply stays in the socket, as if the OS did not accept it yet.
  ['a refusal after a reply that is queued', ['queued'], false],
] as const) {
  test(`a client that does not read ${what} is cut off, and reported as a stalled ${isRefusal ? 'refusal' : 'reply'} [D35]`, async (t) => {
    const large = Buffer.alloc(30_000_000, '1');
    const { client, connection, received, server } = await serveOne(
      t,
      {
        refusal: large,
        onStart: (each) => {
          if (parts[0] === 'queued') connection.socket.cork();
          each.reply('', { pieces: [parts[0] === 'large' ? large : Buffer.from('1')] });
        },
      },
      { replyStallTimeoutMs: 100 },
    );
    let stalledRefusals = 0;
    server.onStalledRefusal = () => (stalledRefusals += 1);
    client.pause();
    for (const each of parts) client.send(get(`/${each}`));
    if (parts[0] !== 'large') client.send('nonsense\r\n\r\n');
    await poll(() => server.size === 0, 'the connection is cut');
    assert.equal(stalledRefusals, isRefusal ? 1 : 0);
    if (!isRefusal) assert.ok(received[0]?.events.includes('stall'));
  });
}
