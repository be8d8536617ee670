// Attacks on the built command while good clients call it. Each call of a good client is answered correctly and soon,
// and after the attack all connections, bytes and descriptors are released. test/transport/ has the time limits.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { countDescriptors, figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// The time limits are long enough for a good client on a busy machine.
const [headersMs, requestMs, stallMs] = [3_000, 4_000, 1_000];
const inFlightMax = 16;
/** The longest duration allowed for a call, far longer than a call takes on a busy machine. */
const soonMs = 8_000;

const backend = await useBackend('{"id":5}');
const command = await startCommand({
  BACKEND_URL: backend.url,
  REQUEST_HEADERS_TIMEOUT_MS: String(headersMs),
  REQUEST_TIMEOUT_MS: String(requestMs),
  REPLY_STALL_TIMEOUT_MS: String(stallMs),
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

/** Waits until no call, body, connection or descriptor is left. */
async function isIdle(): Promise<void> {
  const names = ['client_connections', 'requests_in_flight', 'buffered_bytes', 'backend_connections'];
  await poll(
    async () => {
      const text = await command.metrics();
      return names.every((name) => figureIn(text, `work_item_gateway_${name}`) === 0);
    },
    `${names.join(', ')} are 0`,
  );
  await poll(
    () => (countDescriptors(command.process.pid) ?? 0) <= (base ?? Infinity) + 2,
    'descriptors are back to base',
  );
}

/** Runs `attack` while good clients call without a pause, on persistent and on new connections. */
async function withGoodClients(attack: () => Promise<unknown>): Promise<void> {
  let isOver = false;
  let calls = 0;
  const good = async (stays: boolean): Promise<void> => {
    let client = await command.connect();
    while (!isOver) {
      const { method, path, options, status, body } = operations[(calls += 1) % operations.length] ?? assert.fail();
      const started = performance.now();
      assertReply(await client.call(method, path, options), status, body);
      assert.ok(performance.now() - started < soonMs);
      if (stays) continue;
      client.destroy();
      client = await command.connect();
    }
    client.destroy();
  };
  const all = Promise.all([good(true), good(true), good(false)]);
  // If a good client fails, the end of the attack is not awaited.
  try {
    await Promise.race([attack(), all]);
  } finally {
    isOver = true;
  }
  await all;
  assert.deepEqual(backend.violations, []);
  await isIdle();
}

const openMany = (count: number): Promise<RawClient[]> =>
  Promise.all(Array.from({ length: count }, () => command.connect()));

/** Sends a byte every 100 ms on all connections; asserts that all are closed at most 3 s after `limitMs`. */
async function dripUntilCut(clients: RawClient[], start: string, limitMs: number): Promise<void> {
  for (const client of clients) client.send(start);
  const timer = setInterval(() => {
    for (const client of clients) if (client.isOpen) client.send('x');
  }, 100);
  await Promise.all(clients.map((client) => client.closed(limitMs + 3_000)));
  clearInterval(timer);
  for (const client of clients) client.destroy();
}

test('100 heads and 64 bodies that arrive byte by byte are cut off at their time limits and do not count for IN_FLIGHT_MAX [D26, D35]', async () => {
  await withGoodClients(async () => {
    const body = 'PUT /api/work-items/666 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"';
    await Promise.all([
      dripUntilCut(await openMany(100), 'GET /api/work-items HTTP/1.1\r\nHost: ', headersMs),
      dripUntilCut(await openMany(4 * inFlightMax), body, requestMs),
    ]);
  });
  assert.ok(!backend.requests.some(({ target }) => target.endsWith('/666')));
});

test('400 connections stay idle after a request, and 400 connections send nothing', async () => {
  await withGoodClients(async () => {
    const idle = await openMany(400);
    await Promise.all(idle.map((client) => client.call('GET', '/api/work-items/x')));
    const silent = await openMany(400);
    assert.ok(((await figureOf(command, 'client_connections')) ?? 0) >= 800);
    for (const client of [...idle, ...silent]) client.destroy();
  });
});

test('1,000 connections are opened and closed as fast as possible', async () => {
  const attack = async (): Promise<void> => {
    for (let count = 0; count < 50; count += 1) {
      const client = await command.connect();
      if (count % 3 === 0) client.send('GET /');
      if (count % 2 === 0) client.destroy();
      else client.reset();
    }
  };
  await withGoodClients(() => Promise.all(Array.from({ length: 20 }, attack)));
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
  assert.ok(performance.now() - begun > stallMs - 100);
  client.resume();
  await client.closed();
  assert.ok(client.bytesReceived < body.length);
  assert.equal(await figureOf(command, 'client_connections_stalled_total'), 1);
  assert.deepEqual(
    [line['level'], line['operation'], line['path'], line['client'], line['status'], line['replyBytes']],
    ['info', 'list', '/api/work-items', '127.0.0.1', 200, body.length],
  );
});
