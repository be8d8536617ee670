// The time limits for clients in the built command [D35]. A client must be cut off within one second after its limit.
// test/transport/server-times.test.ts tests the limits in detail, on a clock that the test sets.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { figureOf, logged } from '../helpers/command-tests.ts';
import { assertReply, requestTimeout, succeeded } from '../helpers/expected.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { answer, latency, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

const headersMs = 1000;
const requestMs = 2000;
const stallMs = 1000;
const idleMs = 1500;

let backend: ScriptedBackend;
let command: Command;
before(async () => {
  backend = await ScriptedBackend.start();
  command = await startCommand({
    BACKEND_URL: backend.url,
    REQUEST_HEADERS_TIMEOUT_MS: String(headersMs),
    REQUEST_TIMEOUT_MS: String(requestMs),
    REPLY_STALL_TIMEOUT_MS: String(stallMs),
    IDLE_TIMEOUT_MS: String(idleMs),
  });
  const late = latency(requestMs + 1000, answer('"late"'));
  backend.answers((exchange) => (exchange.request.target.endsWith('/16') ? late(exchange) : answer('[]')(exchange)));
  // The first call of a process is its slowest.
  await command.call('GET', '/api/work-items');
});
after(async () => {
  await command.stop();
  await backend.stop();
});

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Sends a byte every 100 ms until the connection ends. */
async function drip(client: RawClient, bytes: Uint8Array): Promise<void> {
  for (const byte of bytes) {
    if (!client.isOpen) return;
    client.send(Uint8Array.of(byte));
    await pause(100);
  }
}

/** Asserts that the cut-off came at the limit (100 ms early at most), or within the second after the limit. */
function assertCutOff(started: number, limitMs: number): void {
  const took = performance.now() - started;
  assert.ok(took > limitMs - 100 && took < limitMs + 1000, `after ${took.toFixed()} ms, limit ${limitMs} ms`);
}

describe('slow clients', { concurrency: true }, () => {
  const put = 'PUT /api/work-items/408 HTTP/1.1\r\nHost: x\r\n';
  for (const [what, limitMs, start, dripped] of [
    ['a head that stops', headersMs, 'GET /api/work-items HTTP/1.1\r\nHost: x\r\n', ''],
    ['a head sent byte by byte', headersMs, 'GET /api/work-items HTTP/1.1\r\nHost: ', 'x'.repeat(100)],
    ['a body that never arrives', requestMs, `${put}Content-Length: 10\r\n\r\n`, ''],
    ['a body sent byte by byte', requestMs, `${put}Content-Length: 1000\r\n\r\n`, ' '.repeat(1000)],
    ['a chunked body sent byte by byte', requestMs, `${put}Transfer-Encoding: chunked\r\n\r\n`, '1\r\n \r\n'.repeat(100)],
  ] as const) {
    const setting = limitMs === headersMs ? 'REQUEST_HEADERS_TIMEOUT_MS' : 'REQUEST_TIMEOUT_MS';
    test(`${what}: 408 after ${setting}, and the connection is closed [D35]`, async () => {
      await using client = await command.connect();
      const started = performance.now();
      client.send(start);
      const dripping = drip(client, Buffer.from(dripped));
      assertReply(await client.reply(), 408, requestTimeout);
      assertCutOff(started, limitMs);
      await client.closed();
      assert.equal(client.unread.length, 0);
      await dripping;
    });
  } // prettier-ignore

  test('a slow request that is complete within its limits is served [D35]', async () => {
    await using client = await command.connect();
    const bytes = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
    client.send(bytes.subarray(0, 30));
    await pause(headersMs / 2);
    client.send(bytes.subarray(30, -2));
    await pause(requestMs / 4);
    client.send(bytes.subarray(-2));
    assertReply(await client.reply(), 200, succeeded);
  });

  test('a connection that sends no byte is closed in time [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    await client.closed();
    const took = performance.now() - started;
    assert.ok(took < Math.max(headersMs, idleMs) + 1000, `${took.toFixed()} ms`);
  });

  test('an idle connection stays open until IDLE_TIMEOUT_MS and is then closed [D35]', async () => {
    await using client = await command.connect();
    for (let round = 0; round < 3; round += 1) {
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
      if (round < 2) await pause(idleMs / 2);
    }
    const started = performance.now();
    assert.equal(await client.closed(), 'end');
    assertCutOff(started, idleMs);
    assert.equal(client.unread.length, 0, 'closed without a reply');
  });

  test('the time that the backend needs does not count for any limit for clients [D19, D35]', async () => {
    assertReply(await command.call('GET', '/api/work-items/16'), 200, '"late"');
  });
});

describe('slow readers', () => {
  const body = Buffer.alloc(32_000_000, '1');

  test('a client that reads no byte of its reply for REPLY_STALL_TIMEOUT_MS is disconnected [D35]', async () => {
    backend.answersOnce(answer(body));
    await using client = await command.connect();
    client.send(requestBytes('GET', '/api/work-items'));
    await client.receives(1);
    client.pause();
    const started = performance.now();
    const line = await logged(command, /^disconnected a client that stopped reading/);
    assertCutOff(started, stallMs);
    client.resume();
    await client.closed();
    assert.ok(client.bytesReceived < body.length);
    assert.equal(await figureOf(command, 'client_connections_stalled_total'), 1);
    await poll(async () => (await figureOf(command, 'client_connections')) === 0, 'its connection is closed');
    assert.deepEqual(
      [line['level'], line['operation'], line['path'], line['client'], line['status'], line['replyBytes']],
      ['info', 'list', '/api/work-items', '127.0.0.1', 200, body.length],
    );
  });

  const onlyLinux = process.platform === 'linux' ? false : 'only Linux reports the bytes that the kernel still holds';

  test('a client that reads slowly but steadily gets its complete reply [D35]', { skip: onlyLinux }, async () => {
    backend.answersOnce(answer(body));
    using client = await connectSlowReader(command.port);
    client.socket.write(requestBytes('GET', '/api/work-items'));
    const started = performance.now();
    // A few megabytes a second. The kernel buffers megabytes, so it takes bytes from the gateway only now and then.
    while (performance.now() - started < 4 * stallMs) {
      client.take(65_536);
      await pause(25);
    }
    assert.equal(await client.takeAll(body.length), true, 'the complete reply has arrived');
  });
});

/** A client that reads only when `take` is called and leaves all other bytes in the kernel. */
async function connectSlowReader(port: number) {
  const socket = connect({ port, host: '127.0.0.1' });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  let taken = 0;
  return {
    socket,
    take: (count: number) => {
      taken += (socket.read(Math.min(count, socket.readableLength)) as Buffer | null)?.length ?? 0;
    },
    /** Reads the rest; true if the reply, with a body of `length` bytes, was complete. */
    takeAll: async (length: number) => {
      socket.on('data', (piece: Buffer) => {
        taken += piece.length;
      });
      await poll(() => taken > length || socket.destroyed, 'the reply is whole or has ended');
      return taken > length;
    },
    [Symbol.dispose]: () => socket.destroy(),
  };
}

test('no request that was cut off has reached the backend [D35]', () => {
  assert.ok(!backend.requests.some(({ target }) => target === '/api/WorkItem/408'));
  assert.equal(command.stderr, '');
});
