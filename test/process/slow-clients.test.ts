// Clients that take their time: D35. All cases run side by side against one process; each cut-off must come within
// one second of its limit.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, requestTimeout, succeeded } from '../helpers/expected.ts';
import { figureIn } from '../helpers/process-figures.ts';
import { requestBytes, type RawClient } from '../helpers/raw-client.ts';
import { answer, behind, latency, ScriptedBackend } from '../helpers/scripted-backend.ts';
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
  backend.answers(answer('[]'));
  // The first call of a process is its slowest.
  await command.call('GET', '/api/work-items');
});
after(async () => {
  await command.stop();
  await backend.stop();
});

/** Sends a byte every 100 ms until the connection ends. */
async function drip(client: RawClient, bytes: Uint8Array): Promise<void> {
  for (const byte of bytes) {
    if (!client.isOpen) return;
    client.send(Uint8Array.of(byte));
    await pause(100);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The cut-off came at its limit, or within the second after it. */
function assertCutOff(started: number, limitMs: number): void {
  const took = performance.now() - started;
  assert.ok(took > limitMs - 100 && took < limitMs + 1000, `after ${took.toFixed()} ms, limit ${limitMs} ms`);
}

async function assertTimedOut(client: RawClient, started: number, limitMs: number): Promise<void> {
  assertReply(await client.reply(), 408, requestTimeout);
  assertCutOff(started, limitMs);
  await client.closed();
  assert.equal(client.unread.length, 0);
}

describe('slow clients', { concurrency: true }, () => {
  test('a head that stops is 408 after REQUEST_HEADERS_TIMEOUT_MS, and the connection closed [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    client.send('GET /api/work-items HTTP/1.1\r\nHost: x\r\n');
    await assertTimedOut(client, started, headersMs);
  });

  test('a head that drips is 408 after REQUEST_HEADERS_TIMEOUT_MS [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    const dripping = drip(client, Buffer.from(`GET /api/work-items HTTP/1.1\r\nHost: ${'x'.repeat(100)}`));
    await assertTimedOut(client, started, headersMs);
    await dripping;
  });

  test('the head of a second request has the same time, from its first byte [D35]', async () => {
    await using client = await command.connect();
    await client.call('GET', '/api/work-items');
    await pause(700);
    const started = performance.now();
    client.send('GET /api/wo');
    await assertTimedOut(client, started, headersMs);
  });

  test('a body that never comes is 408 after REQUEST_TIMEOUT_MS, and no backend call [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    client.send('PUT /api/work-items/408 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n');
    await assertTimedOut(client, started, requestMs);
  });

  test('a body that drips is 408 after REQUEST_TIMEOUT_MS, and no backend call [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    client.send(
      'POST /api/work-items HTTP/1.1\r\nHost: x\r\nX-Request-Id: drip\r\nContent-Length: 1000\r\n\r\n',
    );
    const dripping = drip(client, Buffer.alloc(1000, ' '));
    await assertTimedOut(client, started, requestMs);
    await dripping;
  });

  test('chunks that drip are 408 after REQUEST_TIMEOUT_MS [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    client.send('PUT /api/work-items/408 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
    const dripping = drip(client, Buffer.from('1\r\n \r\n'.repeat(100)));
    await assertTimedOut(client, started, requestMs);
    await dripping;
  });

  test('head and body together have REQUEST_TIMEOUT_MS, not each [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    client.send('PUT /api/work-items/408 HTTP/1.1\r\nHost: x\r\n');
    await pause(headersMs / 2);
    client.send('Content-Length: 10\r\n\r\n');
    await assertTimedOut(client, started, requestMs);
  });

  test('a request that is slow and whole in time is served [D35]', async () => {
    await using client = await command.connect();
    const bytes = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
    client.send(bytes.subarray(0, 30));
    await pause(headersMs / 2);
    client.send(bytes.subarray(30, -2));
    await pause(requestMs / 4);
    client.send(bytes.subarray(-2));
    assertReply(await client.reply(), 200, succeeded);
  });

  for (const isFirst of [true, false]) {
    test(`a connection that sends nothing but empty lines is closed, ${isFirst ? 'from its beginning' : 'behind a request'} [D35]`, async () => {
      await using client = await command.connect();
      if (!isFirst) await client.call('GET', '/api/work-items');
      const started = performance.now();
      while (client.isOpen && performance.now() - started < 10_000) {
        client.send('\r\n');
        await pause(200);
      }
      // Node takes each for a sign of life, so the time for a head comes on top; and one more pause.
      const took = performance.now() - started;
      assert.ok(took < idleMs + headersMs + 1200, `${took.toFixed()} ms`);
    });
  }

  test('a connection that says nothing at all is closed in time [D35]', async () => {
    await using client = await command.connect();
    const started = performance.now();
    await client.closed();
    const took = performance.now() - started;
    assert.ok(took < Math.max(headersMs, idleMs) + 1000, `${took.toFixed()} ms`);
  });

  test('a connection that rests between two requests is closed after IDLE_TIMEOUT_MS [D35]', async () => {
    await using client = await command.connect();
    assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    const started = performance.now();
    assert.equal(await client.closed(), 'end');
    assertCutOff(started, idleMs);
    assert.equal(client.unread.length, 0, 'without a word');
  });

  test('a connection that rests for less than that is kept, again and again [D35]', async () => {
    await using client = await command.connect();
    for (let round = 0; round < 4; round += 1) {
      assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
      await pause(idleMs / 2);
    }
  });

  test('the time that the backend takes is not the client\'s: no limit of D35 cuts it [D19, D35]', async () => {
    backend.answersOnce(latency(requestMs + 1000, answer('"late"')));
    await using client = await command.connect();
    client.send(requestBytes('GET', '/api/work-items'));
    const reply = await client.reply();
    assert.equal(reply.status, 200);
  }); // prettier-ignore
});

test('the time that a request waits for those before it is not the client\'s, what it takes then is [D27, D35]', async () => {
  const slow = latency(requestMs + 700, answer('"slow"'));
  backend.answers(async (exchange) => {
    await (exchange.request.target.endsWith('/16') ? slow : answer('[]'))(exchange);
  });
  const body = JSON.stringify('x'.repeat(300_000));
  const get = requestBytes('GET', '/api/work-items');
  const ahead = Buffer.concat(Array.from({ length: 2_000 }, () => get));
  const postHead = 'POST /api/work-items HTTP/1.1\r\nHost: x\r\nContent-Length: 300002\r\n\r\n';
  const cases: [what: string, sent: Uint8Array, served: number, isCutOff: boolean][] = [
    ['a whole body', Buffer.from(postHead + body), 1, false],
    ['a body that stops', Buffer.from(postHead + body.slice(0, 200_000)), 0, true],
    ['many requests', ahead, 2_000, false],
    ['many requests, and a head that stops', Buffer.concat([ahead, get.subarray(0, -5)]), 2_000, true],
    ['many requests, and a body that stops', Buffer.concat([ahead, Buffer.from(postHead)]), 2_000, true],
  ];
  await Promise.all(
    cases.map(async ([what, sent, served, isCutOff]) => {
      await using client = await command.connect();
      client.send(Buffer.concat([requestBytes('GET', '/api/work-items/16'), sent]));
      assertReply(await client.reply(), 200, '"slow"');
      for (let index = 0; index < served; index += 1) {
        const { status } = await client.reply();
        assert.ok(status === 200 || status === 201, `${what}: ${status}`);
      }
      const started = performance.now();
      if (isCutOff) {
        assertReply(await client.reply(), 408, requestTimeout);
        const took = performance.now() - started;
        assert.ok(took < requestMs + 1000, `${what}: after ${took.toFixed()} ms`);
        if (served === 0) assertCutOff(started, requestMs);
        await client.closed();
      } else assertReply(await client.call('GET', '/api/work-items'), 200, '[]');
    }),
  );
  backend.answers(answer('[]'));
}); // prettier-ignore

test('a head that was held back has its own time, and its body the time of both [D35]', async () => {
  const gate = createGate();
  backend.answers(answer('[]')).answersOnce(behind(gate, answer('"slow"')));
  await using client = await command.connect();
  const get = requestBytes('GET', '/api/work-items');
  client.send(Buffer.concat([...Array.from({ length: 21 }, () => get), Buffer.from('PUT /api/work-items/5 HTTP/1.1\r\nHo')]));
  await pause(headersMs + 500);
  gate.open();
  for (let index = 0; index < 21; index += 1) assert.equal((await client.reply()).status, 200);
  client.send('st: x\r\nContent-Length: 4\r\n\r\n"a');
  await pause(headersMs + 300);
  client.send('b"');
  assertReply(await client.reply(), 200, succeeded);
  backend.answers(answer('[]'));
}); // prettier-ignore

describe('slow readers', () => {
  const body = Buffer.alloc(32_000_000, '1');

  /** A client that has asked for a large reply and got its first bytes. */
  async function ask(): Promise<RawClient> {
    backend.answersOnce(answer(body));
    const client = await command.connect();
    client.send(requestBytes('GET', '/api/work-items'));
    await client.receives(1);
    return client;
  }

  test('a client that takes no byte of its reply for REPLY_STALL_TIMEOUT_MS is cut off [D35]', async () => {
    const client = await ask();
    client.pause();
    const started = performance.now();
    const line = await command.log(
      ({ msg }) => String(msg).includes('took nothing more of its reply'),
      'the cut-off is logged',
    );
    assertCutOff(started, stallMs);
    client.resume();
    await client.closed();
    assert.ok(client.bytesReceived < body.length);
    assert.equal(await figure('client_connections_stalled_total'), 1);
    await poll(async () => (await connections()) === 0, 'its connection is closed');
    assert.deepEqual(
      [line['level'], line['operation'], line['path'], line['client'], line['status'], line['replyBytes']],
      ['info', 'list', '/api/work-items', '127.0.0.1', 200, body.length],
    );
  });

  test('a client that takes some now and then gets all of it [D35]', async () => {
    const client = await ask();
    for (let round = 0; round < 8; round += 1) {
      client.pause();
      await pause(stallMs / 4);
      const received = client.bytesReceived;
      client.resume();
      await client.receives(Math.min(received + 2_000_000, body.length));
    }
    const reply = await client.reply();
    assert.ok(reply.body.equals(body));
    client.destroy();
  });

  const onlyLinux =
    process.platform === 'linux' ? false : 'what the system still holds is seen on Linux only';

  test(
    'a client that takes little at a time, and all the time, is not cut off [D35]',
    { skip: onlyLinux },
    async () => {
      backend.answersOnce(answer(body));
      using client = await connectSlowReader(command.port);
      client.socket.write(requestBytes('GET', '/api/work-items'));
      const started = performance.now();
      // Some megabytes a second, in small steps: the system has megabytes in its buffers, and asks the gateway for more
      // only now and then.
      while (performance.now() - started < 4 * stallMs) {
        client.take(65_536);
        await pause(25);
      }
      assert.equal(await client.takeAll(body.length), true, 'the whole reply has come');
    },
  );

  async function figure(name: string): Promise<number | undefined> {
    return figureIn(await command.metrics(), `work_item_gateway_${name}`);
  }

  const connections = async () => await figure('client_connections');
});

/** A client that takes so many bytes as it is told to, and leaves the others with the system. */
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
    /** Takes the rest; whether there were as many bytes as a reply with a body of `length` has, or more. */
    takeAll: async (length: number) => {
      socket.on('data', (piece: Buffer) => {
        taken += piece.length;
      });
      await poll(() => taken > length || socket.destroyed, 'the reply is whole or has ended');
      return taken > length;
    },
    [Symbol.dispose]: () => {
      socket.destroy();
    },
  };
}

test('nothing that was cut off has reached the backend [D35]', () => {
  const calls = backend.requests.map((call) => call.target);
  assert.ok(!calls.includes('/api/WorkItem/408'));
  assert.ok(!backend.requests.some((call) => call.header('x-request-id') === 'drip'));
  assert.equal(command.stderr, '');
});
