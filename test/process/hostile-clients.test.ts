// Attacks on the built command while good clients call it. Each call of a good client is answered correctly and soon,
// and after the attack all connections, bytes and descriptors are released.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, operations, requestTimeout } from '../helpers/expected.ts';
import { countDescriptors, figureIn } from '../helpers/process-figures.ts';
import { closed, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// The time limits are long enough for a good client on a busy machine.
const headersMs = 3000;
const requestMs = 4000;
const stallMs = 1000;
const idleMs = 3000;
const inFlightMax = 64;
/** The longest duration allowed for a call, far longer than a call takes on a busy machine. */
const soonMs = 8000;

const backend = await useBackend('{"id":5}');
const command = await startCommand({
  BACKEND_URL: backend.url,
  REQUEST_HEADERS_TIMEOUT_MS: String(headersMs),
  REQUEST_TIMEOUT_MS: String(requestMs),
  REPLY_STALL_TIMEOUT_MS: String(stallMs),
  IDLE_TIMEOUT_MS: String(idleMs),
  IN_FLIGHT_MAX: String(inFlightMax),
  BACKEND_IDLE_TIMEOUT_MS: '500',
});
let base: number | undefined;
before(async () => {
  for (const { method, path, options } of operations) await command.call(method, path, options);
  await isIdle();
  base = countDescriptors(command.process.pid);
});
after(async () => {
  await command.stop();
  assert.equal(await command.exitCode(), 0);
  assert.equal(command.stderr, '');
});

/** Waits until no call, body or connection is left. */
async function isIdle(): Promise<void> {
  const names = ['client_connections', 'requests_in_flight', 'buffered_bytes', 'backend_connections'];
  await poll(
    async () => {
      const text = await command.metrics();
      return names.every((name) => figureIn(text, `work_item_gateway_${name}`) === 0);
    },
    `${names.join(', ')} are 0`,
  );
  if (base !== undefined) {
    const limit = base;
    await poll(() => (countDescriptors(command.process.pid) ?? 0) <= limit + 2, 'descriptors are back to base');
  }
}

/** Runs `attack` while good clients call without a pause, on persistent and on new connections. */
async function withGoodClients(attack: () => Promise<unknown>): Promise<void> {
  let isOver = false;
  let slowest = 0;
  let calls = 0;
  const violations = backend.violations.length;
  const call = async (client: RawClient): Promise<void> => {
    const each = operations[calls % operations.length] ?? assert.fail();
    calls += 1;
    const started = performance.now();
    const reply = await client.call(each.method, each.path, each.options);
    slowest = Math.max(slowest, performance.now() - started);
    assertReply(reply, each.status, each.body);
  };
  const staying = async (): Promise<void> => {
    await using client = await command.connect();
    while (!isOver) await call(client);
  };
  const coming = async (): Promise<void> => {
    while (!isOver) {
      await using client = await command.connect();
      await call(client);
    }
  };
  const good = Promise.all([staying(), staying(), coming()]);
  // If a good client fails, the end of the attack is not awaited.
  try {
    await Promise.race([attack(), good]);
  } finally {
    isOver = true;
  }
  await good;
  assert.ok(calls >= 3, `${calls} good calls`);
  assert.ok(slowest < soonMs, `the slowest of ${calls} good calls took ${slowest.toFixed()} ms`);
  assert.equal(backend.violations.length, violations, 'only plain requests reach the backend');
  await isIdle();
}

/** An attacker's connection; its errors are ignored. */
async function open(): Promise<Socket> {
  const socket = connect({ port: command.port, host: '127.0.0.1', allowHalfOpen: false });
  socket.on('error', () => undefined);
  socket.resume();
  if (socket.connecting) await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  return socket;
}

async function openMany(count: number, begin?: (socket: Socket) => Promise<void>): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const size = Math.min(200, count - sockets.length);
    const opened = Array.from({ length: size }, async () => {
      const socket = await open();
      if (!socket.destroyed) await begin?.(socket);
      return socket;
    });
    sockets.push(...(await Promise.all(opened)));
  }
  return sockets;
}

/** Sends a byte every 100 ms on all `sockets`; asserts that all are closed at most 3 s after `limitMs`. */
async function dripUntilCut(sockets: Socket[], start: string, limitMs: number): Promise<void> {
  const took: number[] = [];
  const cut = sockets.map(async (socket) => {
    const started = performance.now();
    socket.write(start);
    const timer = setInterval(() => {
      if (socket.writable) socket.write('x');
    }, 100);
    if (!socket.destroyed) await closed(socket);
    clearInterval(timer);
    took.push(performance.now() - started);
  });
  await Promise.all(cut);
  const latest = Math.max(...took);
  assert.ok(latest < limitMs + 3000, `the last connection was closed after ${latest.toFixed()} ms`);
}

describe('good clients are served during an attack', () => {
  test('300 heads and 256 bodies that arrive byte by byte are cut off at their time limits and do not count for IN_FLIGHT_MAX [D26, D35]', async () => {
    await withGoodClients(async () => {
      const heads = await openMany(300);
      const bodies = await openMany(4 * inFlightMax);
      const body = 'PUT /api/work-items/666 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"';
      await Promise.all([
        dripUntilCut(heads, 'GET /api/work-items HTTP/1.1\r\nHost: ', headersMs),
        dripUntilCut(bodies, body, requestMs),
      ]);
    });
    assert.ok(!backend.requests.some(({ target }) => target.endsWith('/666')));
  });

  test('1,000 connections stay idle after a request, and 2,000 connections send nothing', async () => {
    await withGoodClients(async () => {
      const idle = await openMany(1000, async (socket) => {
        socket.write(requestBytes('GET', '/api/work-items/x'));
        await Promise.race([once(socket, 'data'), once(socket, 'close')]);
      });
      const silent = await openMany(2000);
      assert.ok(((await figureOf(command, 'client_connections')) ?? 0) >= 1000);
      for (const socket of [...idle, ...silent]) socket.destroy();
    });
  });

  test('3,000 connections are opened and closed as fast as possible', async () => {
    await withGoodClients(async () => {
      await Promise.all(
        Array.from({ length: 20 }, async () => {
          for (let count = 0; count < 150; count += 1) {
            const socket = await open();
            if (count % 3 === 0) socket.write('GET /');
            if (count % 2 === 0) socket.destroy();
            else socket.resetAndDestroy();
          }
        }),
      );
    });
  });
});

/** Asserts that `begun` was at least `limitMs` ago. How late a client is cut off is not asserted. */
function assertNotEarly(begun: number, limitMs: number): void {
  const took = performance.now() - begun;
  assert.ok(took > limitMs - 100, `after ${took.toFixed()} ms, limit ${limitMs} ms`);
}

describe('no client is cut off before its time limit [D35]', { concurrency: true }, () => {
  for (const [what, limitMs, start] of [
    ['an incomplete head', headersMs, 'GET /api/work-items HTTP/1.1\r\nHost: x\r\n'],
    ['an incomplete body', requestMs, 'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1'],
  ] as const) {
    test(`${what} gets 408, and the connection is closed`, async () => {
      await using client = await command.connect();
      const begun = performance.now();
      client.send(start);
      assertReply(await client.reply(), 408, requestTimeout);
      assertNotEarly(begun, limitMs);
      await client.closed();
      assert.equal(client.unread.length, 0);
    });
  }

  test('an idle connection is closed without a reply', async () => {
    await using client = await command.connect();
    for (let round = 0; round < 2; round += 1) {
      assert.equal((await client.call('GET', '/api/work-items')).status, 200);
      if (round === 0) await new Promise((resolve) => setTimeout(resolve, idleMs / 2));
    }
    const begun = performance.now();
    assert.equal(await client.closed(), 'end');
    assertNotEarly(begun, idleMs);
    assert.equal(client.unread.length, 0);
  });
});

test('a client that reads no byte of its reply for REPLY_STALL_TIMEOUT_MS is disconnected [D35]', async () => {
  const body = Buffer.alloc(32_000_000, '1');
  backend.answersOnce(answer(body));
  await using client = await command.connect();
  const begun = performance.now();
  client.send(requestBytes('GET', '/api/work-items'));
  await client.receives(1);
  client.pause();
  const line = await logged(command, /^disconnected a client that stopped reading/);
  assertNotEarly(begun, stallMs);
  client.resume();
  await client.closed();
  assert.ok(client.bytesReceived < body.length);
  assert.equal(await figureOf(command, 'client_connections_stalled_total'), 1);
  assert.deepEqual(
    [line['level'], line['operation'], line['path'], line['client'], line['status'], line['replyBytes']],
    ['info', 'list', '/api/work-items', '127.0.0.1', 200, body.length],
  );
});
