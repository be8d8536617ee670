// The stall timeout of clients, with real sockets and the OS's table of TCP sockets. The test sets the clock. D35.
// test/process/slow-clients.test.ts tests the built command in real time.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';

import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { inodeOf, readUnacknowledged, StallWatch } from '../../packages/core/http1/stall-watch.ts';
import { createGate, poll } from '../helpers/changes.ts';

// More bytes than the socket buffers can take.
const replyBytes = 32_000_000;
const onlyLinux = process.platform === 'linux' ? false : 'only Linux has a list of the bytes that it still holds';

/** A StallWatch on a stopped clock. */
function startWatch(context: TestContext, timeoutMs: number, readTable = readUnacknowledged) {
  let now = 0;
  let tables = 0;
  context.mock.timers.enable({ apis: ['setInterval'] });
  const clock = context.mock.method(performance, 'now', () => now);
  const stalled: CallRecord[] = [];
  const watch = new StallWatch<CallRecord>(
    timeoutMs,
    (call) => stalled.push(call),
    async () => {
      const table = await readTable();
      tables += 1;
      return table;
    },
  );
  /** Lets `ms` pass, and returns how often the watch has checked its sockets. Each check is one clock reading. */
  const looksIn = (ms: number): number => {
    const before = clock.mock.callCount();
    for (const end = now + ms; now < end;) {
      now += 1;
      context.mock.timers.tick(1);
    }
    return clock.mock.callCount() - before;
  };
  return {
    watch,
    stalled,
    looksIn,
    tables: () => tables,
    /** Like `looksIn`, and waits until the table has been read. */
    passAndReadTable: async (ms: number) => {
      const before = tables;
      const looks = looksIn(ms);
      await poll(() => tables > before, 'the table is read');
      await nextTurn();
      return looks;
    },
  };
}

/** A call, reduced to what the watch needs. */
function call(requestId: string): CallRecord {
  return { requestId } as CallRecord;
}

/** A connection with a long reply. Its client reads only when `take` is called. */
async function startReply(host = '127.0.0.1') {
  const server = createServer({ pauseOnConnect: true });
  server.listen(0, host);
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, host);
  const [[socket]] = (await Promise.all([once(server, 'connection'), once(client, 'connect')])) as [[Socket], unknown];
  for (const each of [socket, client]) each.on('error', () => undefined);
  socket.write(Buffer.alloc(replyBytes, '1'));
  const queued = () => (socket as unknown as { _handle: { writeQueueSize: number } | null })._handle?.writeQueueSize;
  await poll(() => client.readableLength >= client.readableHighWaterMark, 'the client has filled its read buffer');
  return {
    socket,
    client,
    queued,
    take: async (count: number) => {
      let taken = 0;
      await poll(() => {
        const piece = client.read(Math.min(count - taken, client.readableLength)) as Buffer | null;
        taken += piece?.length ?? 0;
        return taken === count;
      }, `the client reads ${count} bytes`);
    },
    [Symbol.dispose]: () => {
      socket.destroy();
      client.destroy();
      server.close();
    },
  };
}

for (const host of ['127.0.0.1', '::1']) {
  test(
    `a client is not cut off if only the OS's table of sockets shows its progress, over ${host}`,
    { skip: onlyLinux },
    async (context) => {
      using reply = await startReply(host);
      const { watch, stalled, passAndReadTable } = startWatch(context, 400);
      watch.watch(reply.socket, call('slow'));
      const queued = reply.queued();
      for (let quarter = 0; quarter < 6; quarter += 1) {
        await reply.take(100_000);
        await passAndReadTable(100);
      }
      assert.equal(reply.queued(), queued, 'the OS has accepted nothing more');
      assert.deepEqual([stalled.length, reply.socket.destroyed], [0, false]);
    },
  );

  test(
    `a client without progress in the table is cut off at the timeout, over ${host}`,
    { skip: onlyLinux },
    async (context) => {
      using slow = await startReply(host);
      using idle = await startReply(host);
      // A table that only the test changes: in the real table, the OS may send a last piece at any time.
      const table = new Map(await readUnacknowledged());
      const inode = inodeOf(slow.socket);
      assert.ok(inode !== undefined && (table.get(inode) ?? 0) > 1_000_000);
      const { watch, stalled, looksIn, passAndReadTable } = startWatch(context, 400, () => Promise.resolve(table));
      watch.watch(slow.socket, call('slow'));
      watch.watch(idle.socket, call('first'));
      watch.watch(idle.socket, call('last'));
      assert.equal(looksIn(99), 0);
      // Progress before the first read of the table is unknown, so the time starts with that read.
      await passAndReadTable(1);
      for (let quarter = 0; quarter < 3; quarter += 1) {
        table.set(inode, (table.get(inode) ?? 0) - 1);
        assert.equal(await passAndReadTable(100), 1);
      }
      assert.equal(looksIn(99), 0);
      assert.equal(idle.socket.destroyed, false);
      assert.equal(looksIn(1), 1);
      assert.deepEqual([idle.socket.destroyed, slow.socket.destroyed], [true, false]);
      assert.deepEqual(stalled, [call('last')]);
      slow.socket.destroy();
      looksIn(100);
      assert.equal(looksIn(400), 0, 'no socket is watched');
    },
  );
}

test('without a table, a client is cut off when the timeout has passed since the watch began', async (context) => {
  using reply = await startReply();
  const { watch, stalled, looksIn, passAndReadTable } = startWatch(context, 400, () => Promise.resolve(undefined));
  watch.watch(reply.socket, call('idle'));
  for (let quarter = 0; quarter < 3; quarter += 1) assert.equal(await passAndReadTable(100), 1);
  looksIn(99);
  assert.equal(reply.socket.destroyed, false);
  looksIn(1);
  assert.equal(reply.socket.destroyed, true);
  assert.deepEqual(stalled, [call('idle')]);
});

test('the table is not read again before the previous read has ended', async (context) => {
  using reply = await startReply();
  const gate = createGate();
  let asked = 0;
  const { watch, looksIn, passAndReadTable } = startWatch(context, 10_000, async () => {
    asked += 1;
    await gate.opened;
    return new Map();
  });
  watch.watch(reply.socket, call('idle'));
  looksIn(3_000);
  assert.equal(asked, 1);
  gate.open();
  await nextTurn();
  looksIn(200);
  assert.equal(asked, 1, 'the table was just read');
  await passAndReadTable(100);
  assert.equal(asked, 2);
});

test('a client that reads steadily is not looked up in the table, and is no longer watched after the last byte', async (context) => {
  using reply = await startReply();
  const { watch, stalled, looksIn, tables } = startWatch(context, 400);
  watch.watch(reply.socket, call('much'));
  for (let taken = 0; taken < 24_000_000; taken += 8_000_000) {
    const queued = reply.queued();
    await reply.take(8_000_000);
    await poll(() => reply.queued() !== queued, 'the OS has accepted more');
    assert.equal(looksIn(100), 1);
  }
  reply.client.resume();
  await poll(() => reply.socket.writableLength === 0, 'all bytes are sent');
  assert.equal(looksIn(100), 1);
  assert.equal(looksIn(10_000), 0);
  await nextTurn();
  assert.equal(tables(), 0);
  assert.deepEqual([stalled.length, reply.socket.destroyed], [0, false]);
});

test('a connection that closes is no longer watched, so it is never reported as stalled', async (context) => {
  using reply = await startReply();
  const { watch, stalled, looksIn } = startWatch(context, 400);
  watch.watch(reply.socket, call('gone'));
  reply.socket.destroy();
  assert.equal(looksIn(100), 1);
  assert.equal(looksIn(10_000), 0);
  assert.equal(stalled.length, 0);
  using other = await startReply();
  watch.watch(other.socket, call('other'));
  assert.equal(looksIn(100), 1, 'a new socket is checked');
});

for (const [timeoutMs, everyMs, tableAtMs] of [
  [20, 10, 10],
  [400, 100, 100],
  [800, 100, 200],
  [30_000, 100, 300],
] as const) {
  test(`with a timeout of ${timeoutMs} ms, sockets are checked every ${everyMs} ms, and the table is read after ${tableAtMs} ms without progress`, async (context) => {
    using reply = await startReply();
    const { watch, looksIn, passAndReadTable, tables } = startWatch(context, timeoutMs);
    watch.watch(reply.socket, call('idle'));
    for (let ms = everyMs; ms < tableAtMs; ms += everyMs) {
      assert.equal(looksIn(everyMs - 1), 0);
      assert.equal(looksIn(1), 1);
      assert.equal(tables(), 0);
    }
    assert.equal(looksIn(everyMs - 1), 0);
    assert.equal(await passAndReadTable(1), 1);
  });
}

test(
  'the table is used only for replies without progress for a quarter of the timeout',
  { skip: onlyLinux },
  async (context) => {
    using first = await startReply();
    using second = await startReply();
    const table = new Map(await readUnacknowledged());
    const { watch, stalled, looksIn, passAndReadTable } = startWatch(context, 400, () => Promise.resolve(table));
    const stalledNow = () => stalled.map(({ requestId }) => requestId);
    watch.watch(first.socket, call('first'));
    looksIn(50);
    watch.watch(second.socket, call('second'));
    // The table is read for the first reply now, and for the second reply later.
    await passAndReadTable(50);
    await passAndReadTable(100);
    for (let ms = 200; ms < 500; ms += 100) {
      assert.deepEqual(stalledNow(), []);
      looksIn(100);
      await nextTurn();
    }
    assert.deepEqual(stalledNow(), ['first']);
    looksIn(100);
    assert.deepEqual(stalledNow(), ['first', 'second']);
  },
);
