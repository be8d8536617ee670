// The time limits for clients in the built command [D35]: no client is cut off before its limit.
// test/transport/server-times.test.ts tests the limits in detail, on a clock that the test sets.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, requestTimeout } from '../helpers/expected.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';

const headersMs = 1000;
const requestMs = 2000;
const stallMs = 1000;
const idleMs = 4000;

// Not `useBackend`: it clears the record before each test, but the last test needs the whole record.
const backend = await ScriptedBackend.start();
backend.answers(answer('[]'));
const command = await startCommand({
  BACKEND_URL: backend.url,
  REQUEST_HEADERS_TIMEOUT_MS: String(headersMs),
  REQUEST_TIMEOUT_MS: String(requestMs),
  REPLY_STALL_TIMEOUT_MS: String(stallMs),
  IDLE_TIMEOUT_MS: String(idleMs),
});
after(async () => {
  await command.stop();
  await backend.stop();
});
// The first call of a process is its slowest, so it is made before the tests.
await command.call('GET', '/api/work-items');

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

/** Asserts that the cut-off did not come before the limit. How late it may be is not asserted: the machine may be busy. */
function assertCutOff(started: number, limitMs: number): void {
  const took = performance.now() - started;
  assert.ok(took > limitMs - 100, `after ${took.toFixed()} ms, limit ${limitMs} ms`);
}

describe('slow clients', { concurrency: true }, () => {
  const put = 'PUT /api/work-items/408 HTTP/1.1\r\nHost: x\r\n';
  for (const [what, limitMs, start, dripped] of [
    ['an incomplete head', headersMs, 'GET /api/work-items HTTP/1.1\r\nHost: x\r\n', ''],
    ['a body sent byte by byte', requestMs, `${put}Content-Length: 1000\r\n\r\n`, ' '.repeat(1000)],
  ] as const) {
    const setting = limitMs === headersMs ? 'REQUEST_HEADERS_TIMEOUT_MS' : 'REQUEST_TIMEOUT_MS';
    test(`${what} gets 408 after ${setting}, and the connection is closed [D35]`, async () => {
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
});

describe('slow readers', () => {
  const body = Buffer.alloc(32_000_000, '1');

  test('a client that reads no byte of its reply for REPLY_STALL_TIMEOUT_MS is disconnected [D35]', async () => {
    backend.answersOnce(answer(body));
    await using client = await command.connect();
    const started = performance.now();
    client.send(requestBytes('GET', '/api/work-items'));
    await client.receives(1);
    client.pause();
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
});

test('no request that was cut off has reached the backend [D35]', () => {
  assert.ok(!backend.requests.some(({ target }) => target === '/api/WorkItem/408'));
  assert.equal(command.stderr, '');
});
