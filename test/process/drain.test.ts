// The drain of the built command: no call is lost. D33.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Command, isDraining, startCommand } from '../helpers/command.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
import { isRefused, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, latency } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

const backend = await useBackend();

function start(environment: NodeJS.ProcessEnv = {}): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, ...environment });
}

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  test(`${signal} with no call in flight ends the process with exit code 0, and idle connections do not delay this [D33]`, async () => {
    await using command = await start();
    const clients = await Promise.all(Array.from({ length: 10 }, () => command.connect()));
    for (const client of clients.slice(0, 5)) await client.call('GET', '/api/work-items');
    const started = performance.now();
    command.signal(signal);
    assert.equal(await command.exitCode(), 0);
    assert.ok(performance.now() - started < 9_000, 'the drain does not wait for the idle timeout of 72 s');
    for (const client of clients) assert.equal(await client.closed(), 'end', 'closed, not reset');
  });
}

test('during a drain, calls in flight finish, /readyz is 503 immediately, and no new connection is accepted [D33]', async () => {
  await using command = await start();
  const calls = [
    [requestBytes('GET', '/api/work-items/5'), 200, '{"id":5}'],
    [requestBytes('PUT', '/api/work-items/5', { body: '{}' }), 200, succeeded],
    [requestBytes('POST', '/api/work-items', { body: '{}' }), 201, '{"id":5}'],
  ] as const;
  const held: Awaited<ReturnType<typeof holdCall>>[] = [];
  for (const [bytes] of calls) held.push(await holdCall(backend, command, bytes));
  command.signal('SIGTERM');
  await isDraining(command);
  assert.equal((await command.admin('/livez')).status, 200, 'alive until the end');
  await poll(() => isRefused(command.port), 'no new connection is accepted');
  for (const [index, { client, open }] of held.entries()) {
    assert.ok(command.isRunning);
    open();
    const reply = await client.reply();
    assertReply(reply, calls[index]?.[1] ?? 0, calls[index]?.[2] ?? '');
    assert.equal(reply.header('connection'), 'close');
    await client.closed();
  }
  assert.equal(await command.exitCode(), 0);
});

test('during a drain, a request whose head or body is incomplete may still be completed [D33]', async () => {
  await using command = await start();
  await using body = await command.connect();
  const put = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
  await body.sendPieces([put.subarray(0, -3)]);
  await using head = await command.connect();
  const get = requestBytes('GET', '/api/work-items');
  await head.sendPieces([get.subarray(0, 20)]);
  // When this later call has its reply, the gateway has read the bytes above.
  await command.call('GET', '/api/work-items');
  command.signal('SIGTERM');
  await isDraining(command);
  body.send(put.subarray(-3));
  assertReply(await body.reply(), 200, succeeded);
  head.send(get.subarray(20));
  assertReply(await head.reply(), 200, '[]');
  assert.equal(await command.exitCode(), 0);
});

test('a reply that a client is still reading when a drain begins is sent completely [D33]', async () => {
  const body = `"${'x'.repeat(16_000_000)}"`;
  backend.answersOnce(answer(body));
  await using command = await start();
  await using client = await command.connect();
  client.send(requestBytes('GET', '/api/work-items'));
  await client.receives(1);
  client.pause();
  command.signal('SIGTERM');
  await isDraining(command);
  client.resume();
  const reply = await client.reply();
  assert.equal(reply.body.length, body.length);
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
  assert.ok(performance.now() - started < delayMs, '/readyz is 503 at once, not after the delay');
  const onOld = await old.call('GET', '/api/work-items');
  assertReply(onOld, 200, '[]');
  assert.equal(onOld.header('connection'), 'close');
  const onNew = await command.call('PUT', '/api/work-items/5', { body: '{}' });
  assertReply(onNew, 200, succeeded);
  assert.equal(onNew.header('connection'), 'close');
  assert.equal(await command.exitCode(), 0);
  const took = performance.now() - started;
  assert.ok(took >= delayMs - 50, `the process ended after ${took.toFixed()} ms`);
});

for (const [delayMs, pauseMs] of [
  [0, 0],
  [300, 5],
] as const) {
  // prettier-ignore
  test(`in a drain, keep-alive clients under load lose no call: SHUTDOWN_DELAY_MS=${delayMs}, ${pauseMs} ms between calls [D33]`, async () => {
    backend.answers(latency(2, answer('[]')));
    await using command = await start({ SHUTDOWN_DELAY_MS: String(delayMs), LOG_LEVEL: 'warn' });
    const lost: string[] = [];
    let isEnding = false;
    let notAccepted = 0;
    let served = 0;
    const warm = createGate();

    async function load(): Promise<void> {
      for (;;) {
        let client: RawClient;
        try {
          client = await command.connect();
        } catch (error) {
          if (!isEnding) lost.push(String(error));
          return;
        }
        let isServed = false;
        while (client.isOpen) {
          const bytes =
            served % 2 === 0 ? requestBytes('GET', '/api/work-items') : requestBytes('PUT', '/api/work-items/5', { body: '{}' });
          client.send(bytes);
          try {
            const reply = await client.reply();
            if (reply.status !== 200) lost.push(`status ${reply.status}`);
            isServed = true;
            served += 1;
            if (served === 500) warm.open();
            // With a delay, the client acts like a load balancer: it opens no new connection to a draining process.
            if (reply.header('connection') === 'close' && delayMs > 0) return;
            if (reply.header('connection') === 'close') break;
          } catch (error) {
            // A connection that is reset before its first reply was still in the kernel's queue when the port closed,
            // so its call is not lost.
            const isUnseen = isEnding && !isServed && client.bytesReceived === 0 && (await client.closed()) === 'reset';
            if (!isUnseen) lost.push(String(error));
            else notAccepted += 1;
            break;
          }
          if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
        }
        client.destroy();
      }
    }

    const clients = Array.from({ length: 20 }, () => load());
    await warm.opened;
    isEnding = true;
    command.signal('SIGTERM');
    await Promise.all(clients);
    assert.deepEqual(lost, [], `${served} calls were served; ${notAccepted} new connections were not accepted`);
    assert.equal(backend.requests.length, served, 'each call is sent once');
    assert.equal(await command.exitCode(), 0);
  });
}

for (const workers of ['1', '2']) {
  test(`after SHUTDOWN_TIMEOUT_MS, calls in flight are cut and logged as shutdown, and the exit code is 1, WORKERS=${workers} [D33, D51]`, async () => {
    await using command = await start({ SHUTDOWN_TIMEOUT_MS: '1000', WORKERS: workers });
    const sent = [
      ['read', requestBytes('GET', '/api/work-items/5')],
      ['list', requestBytes('GET', '/api/work-items')],
      ['create', requestBytes('POST', '/api/work-items', { body: '{}' })],
      ['update', requestBytes('PUT', '/api/work-items/5', { body: '{}' })],
      ['delete', requestBytes('DELETE', '/api/work-items/5')],
    ] as const;
    const clients: RawClient[] = [];
    for (const [, bytes] of sent) clients.push((await holdCall(backend, command, bytes)).client);
    // A call with an incomplete body.
    const slow = await command.connect();
    slow.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{');
    await command.call('GET', '/nowhere');
    const started = performance.now();
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 1);
    const took = performance.now() - started;
    assert.ok(took > 900 && took < 20_000, `${took.toFixed()} ms`);
    for (const client of clients) await client.closed();
    const lines = command.logs.filter(({ operation }) => operation !== undefined);
    assert.deepEqual(
      lines
        .map((line) => `${String(line['operation'])} ${String(line['status'])} ${String(line['outcome'])}`)
        .toSorted(),
      [...sent.map(([name]) => name), 'update'].map((name) => `${name} 0 shutdown`).toSorted(),
    );
    for (const { level, cause, msg } of lines) {
      assert.deepEqual({ level, cause, msg }, { level: 'info', cause: undefined, msg: 'request' });
    }
  });
}

for (const [first, second, environment] of [
  ['SIGTERM', 'SIGINT', {}],
  ['SIGINT', 'SIGINT', {}],
  ['SIGTERM', 'SIGTERM', { SHUTDOWN_DELAY_MS: '60000' }],
] as const) {
  // prettier-ignore
  test(`${first}, then ${second}: calls in flight are cut, and the exit code is 1, ${JSON.stringify(environment)} [D33]`, async () => {
    await using command = await start(environment);
    const { client } = await holdCall(backend, command);
    command.signal(first);
    await isDraining(command);
    // Waits until the drain is in progress.
    await new Promise((resolve) => setTimeout(resolve, 250));
    command.signal(second);
    assert.equal(await command.exitCode(2000), 1, 'the process ends at once');
    await client.closed();
  });
}

test('SIGTERM right after the log line `ready` ends the process with exit code 0 [D33]', async () => {
  await using command = await start();
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0);
});
