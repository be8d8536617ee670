// The drain of the built command: no call is lost. D33. The simulation of test/simulation/ drains at any moment.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Command, isDraining, startCommand } from '../helpers/command.ts';
import { assertReply, operations, succeeded } from '../helpers/expected.ts';
import { audience, issuerName, KeyServer } from '../helpers/issuer.ts';
import { isRefused, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, latency } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

const backend = await useBackend();
const list = requestBytes('GET', '/api/work-items');
const put = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });

function start(environment: NodeJS.ProcessEnv = {}): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, ...environment });
}

test('SIGTERM right after the log line `ready` ends the process with exit code 0 [D33]', async () => {
  await using command = await start();
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0);
});

test('SIGINT with no call in flight ends the process with exit code 0, and idle connections do not delay this [D33]', async () => {
  await using command = await start({ IDLE_TIMEOUT_MS: '600000' });
  const clients = await Promise.all(Array.from({ length: 10 }, () => command.connect()));
  for (const client of clients.slice(0, 5)) await client.call('GET', '/api/work-items');
  command.signal('SIGINT');
  assert.equal(await command.exitCode(), 0);
  for (const client of clients) assert.equal(await client.closed(), 'end', 'closed, not reset');
});

test('during a drain, all that has begun is completed, /readyz is 503 immediately, and no new connection is accepted [D33]', async () => {
  await using command = await start();
  const large = `"${'x'.repeat(16_000_000)}"`;
  backend.answersOnce(answer(large));
  const reading = await command.connect();
  reading.send(list);
  await reading.receives(1);
  reading.pause();
  const held = [await holdCall(backend, command), await holdCall(backend, command, put)];
  // The head of one request and the body of another are incomplete.
  const [head, body] = [await command.connect(), await command.connect()];
  await head.sendPieces([list.subarray(0, 20)]);
  await body.sendPieces([put.subarray(0, -3)]);
  // When this later call has its reply, the gateway has read the bytes above.
  await command.call('GET', '/api/work-items');
  command.signal('SIGTERM');
  await isDraining(command);
  assert.equal((await command.admin('/livez')).status, 200, 'alive until the end');
  await poll(() => isRefused(command.port), 'no new connection is accepted');
  for (const [index, { client, open }] of held.entries()) {
    open();
    const reply = await client.reply();
    assertReply(reply, 200, index === 0 ? '{"id":5}' : succeeded);
    assert.equal(reply.header('connection'), 'close');
    await client.closed();
  }
  body.send(put.subarray(-3));
  assertReply(await body.reply(), 200, succeeded);
  head.send(list.subarray(20));
  assertReply(await head.reply(), 200, '[]');
  reading.resume();
  assert.equal((await reading.reply()).text, large);
  assert.equal(await command.exitCode(), 0);
});

test('during SHUTDOWN_DELAY_MS the gateway still serves, and each reply has connection: close [D33]', async () => {
  const delayMs = 3_000;
  await using command = await start({ SHUTDOWN_DELAY_MS: String(delayMs) });
  await using old = await command.connect();
  await old.call('GET', '/api/work-items');
  const started = performance.now();
  command.signal('SIGTERM');
  await isDraining(command);
  for (const client of [old, await command.connect()]) {
    const reply = await client.call('GET', '/api/work-items');
    assertReply(reply, 200, '[]');
    assert.equal(reply.header('connection'), 'close');
  }
  assert.equal(await command.exitCode(), 0);
  const took = performance.now() - started;
  assert.ok(took >= delayMs - 50, `the process ended after ${took.toFixed()} ms`);
});

test('in a drain, keep-alive clients under load lose no call, and each call is sent once [D33]', async () => {
  backend.answers(latency(2, answer('[]')));
  await using command = await start({ LOG_LEVEL: 'warn' });
  const lost: string[] = [];
  let isEnding = false;
  let served = 0;
  const warm = createGate();

  /** Calls on one connection until it closes. */
  async function callOn(client: RawClient): Promise<void> {
    for (let isServed = false; client.isOpen; isServed = true) {
      client.send(served % 2 === 0 ? list : put);
      try {
        const reply = await client.reply();
        if (reply.status !== 200) lost.push(`status ${reply.status}`);
        served += 1;
        if (served === 500) warm.open();
        if (reply.header('connection') === 'close') return;
      } catch (error) {
        // A connection that is reset before its first reply was still in the kernel's queue when the port closed, so its
        // call is not lost.
        const isUnseen = isEnding && !isServed && client.bytesReceived === 0 && (await client.closed()) === 'reset';
        if (!isUnseen) lost.push(String(error));
        return;
      }
    }
  }

  async function load(): Promise<void> {
    for (;;) {
      const client = await command.connect().catch((error: unknown) => {
        if (!isEnding) lost.push(String(error));
      });
      if (client === undefined) return;
      await callOn(client);
      client.destroy();
    }
  }

  const clients = Array.from({ length: 20 }, load);
  await warm.opened;
  isEnding = true;
  command.signal('SIGTERM');
  await Promise.all(clients);
  assert.deepEqual(lost, []);
  assert.equal(backend.requests.length, served);
  assert.equal(await command.exitCode(), 0);
});

for (const workers of ['1', '2']) {
  test(`after SHUTDOWN_TIMEOUT_MS, calls in flight are cut and logged as shutdown, and the exit code is 1, WORKERS=${workers} [D33, D51]`, async () => {
    await using command = await start({ SHUTDOWN_TIMEOUT_MS: '1000', WORKERS: workers });
    const clients: RawClient[] = [];
    for (const { method, path, options } of operations) {
      clients.push((await holdCall(backend, command, requestBytes(method, path, options))).client);
    }
    // A call with an incomplete body.
    const slow = await command.connect();
    slow.send(put.subarray(0, -1));
    await command.call('GET', '/nowhere');
    const started = performance.now();
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 1);
    assert.ok(performance.now() - started > 900);
    for (const client of clients) await client.closed();
    const lines = command.logs.filter(({ operation }) => operation !== undefined);
    const names = lines.map(({ operation }) => String(operation)).toSorted();
    assert.deepEqual(names, ['create', 'delete', 'list', 'read', 'update', 'update']);
    for (const { status, outcome, level, cause, msg } of lines) {
      assert.deepEqual([status, outcome, level, cause, msg], [0, 'shutdown', 'info', undefined, 'request']);
    }
  });
}

test('after SHUTDOWN_TIMEOUT_MS, a call that waits for the keys of its token is cut and logged as shutdown [D51]', async () => {
  await using keys = await KeyServer.start('');
  const asked = createGate();
  keys.respond = asked.open;
  const guards = { AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, AUTH_JWKS_URL: keys.url };
  await using command = await start({ SHUTDOWN_TIMEOUT_MS: '100', ...guards });
  await asked.opened;
  await using client = await command.connect();
  client.send(requestBytes('GET', '/api/work-items/5', { headers: [['Authorization', 'Bearer a.b.c']] }));
  assert.equal((await command.call('GET', '/nowhere')).status, 404);
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 1);
  await client.closed();
  const [{ status, outcome } = assert.fail('no line')] = command.logs.filter(({ operation }) => operation === 'read');
  assert.deepEqual([status, outcome], [0, 'shutdown']);
});

for (const [first, second, environment] of [
  ['SIGTERM', 'SIGINT', {}],
  ['SIGINT', 'SIGINT', { SHUTDOWN_DELAY_MS: '60000' }],
] as const) {
  test(`${first}, then ${second}: calls in flight are cut, and the exit code is 1, ${JSON.stringify(environment)} [D33]`, async () => {
    await using command = await start(environment);
    const { client } = await holdCall(backend, command);
    command.signal(first);
    await isDraining(command);
    command.signal(second);
    assert.equal(await command.exitCode(), 1);
    await client.closed();
  });
}
