// When descriptors or connections run out, the process keeps running, reports the shortage, and recovers later. D26.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { afterEach, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, operation, operations, succeeded } from '../helpers/expected.ts';
import { childrenOf, countDescriptors, figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// The backend closes after each answer, so each call needs a new connection to it.
const closing = answer('{"id":5}', { headers: [['Connection', 'close']] });
const backend = await useBackend(closing);
afterEach(() => assert.deepEqual(backend.violations, []));

const noProc = !existsSync('/proc/self/limits') && 'there is no /proc';

function start(environment: NodeJS.ProcessEnv = {}, descriptors = 64): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, ...environment }, { descriptors });
}

const openMany = (command: Command, count: number): Promise<RawClient[]> =>
  Promise.all(Array.from({ length: count }, () => command.connect()));

/** The reply; or undefined if the connection was closed without a reply. */
const tryCall = (command: Command, { method, path, options } = operation(1)): Promise<Reply | undefined> =>
  command.call(method, path, options).catch(() => undefined);

async function assertServesAll(command: Command): Promise<void> {
  for (const { method, path, options, status, body } of operations) {
    assertReply(await command.call(method, path, options), status, body);
  }
}

async function servesAgain(command: Command): Promise<void> {
  await poll(async () => (await tryCall(command))?.status === 200, 'calls succeed again');
}

test("with 200 connections and 64 descriptors, a call for which no descriptor is free gets its operation's 500, and later calls succeed", async () => {
  await using command = await start();
  await assertServesAll(command);
  await backend.until(() => backend.connectionsOpen === 0, 'no connection to the backend');
  const base = countDescriptors(command.process.pid);
  for (let round = 0; round < 2; round += 1) {
    const clients = await openMany(command, 200);
    await poll(() => clients.some(({ isOpen }) => !isOpen), 'connections over the limit are closed');
    // The gateway may or may not accept the connections that are still queued.
    await poll(() => (countDescriptors(command.process.pid) ?? 64) >= 60, 'no descriptor is left');
    const survivors = clients.filter(({ isOpen }) => isOpen);
    assert.ok(survivors.length >= 10, `${survivors.length} connections`);
    let failures = 0;
    for (const { method, path, options, status, body, failure } of operations) {
      for (const client of survivors.slice(0, 3)) {
        client.send(requestBytes(method, path, options));
        const reply = await client.reply();
        if (reply.status === status) assertReply(reply, status, body);
        else assertReply(reply, 500, failure);
        failures += reply.status === 500 ? 1 : 0;
      }
    }
    assert.ok(failures > 0, 'some calls had no descriptor');
    for (const client of clients) client.destroy();
    await servesAgain(command);
    await assertServesAll(command);
    await backend.until(() => backend.connectionsOpen === 0, 'no connection to the backend');
    await poll(() => (countDescriptors(command.process.pid) ?? 0) <= (base ?? 64), 'descriptors are back to base');
  }
  // The gateway is at fault, not the backend [D51].
  const { cause, level, outcome, msg, backendMs } = await command.log(({ status }) => status === 500, 'a failed call');
  assert.match(String(cause), /EMFILE/);
  assert.deepEqual([level, outcome, msg, backendMs], ['warn', 'overload', 'turned away', undefined]);
  const metrics = await command.metrics();
  assert.equal(figureIn(metrics, 'work_item_gateway_requests_in_flight'), 0);
  assert.doesNotMatch(metrics, /backend_outcomes_total\{.*fault="backend"\} [1-9]/);
});

for (const WORKERS of ['1', '2']) {
  test(
    `if the limits may need more descriptors than the process can open, one warning is logged at the start, WORKERS=${WORKERS} [D26]`,
    { skip: noProc },
    async () => {
      const limits = { WORKERS, CONNECTIONS_MAX: '40', IN_FLIGHT_MAX: '20' };
      const needed = 150 + 60 / Number(WORKERS);
      for (const limit of [needed, needed - 1]) {
        await using command = await start(limits, limit);
        assert.equal((await command.call('GET', '/api/work-items/x')).status, 400);
        await command.log(({ outcome }) => outcome === 'invalid-id', 'the line of the call');
        const warnings = command.logs.filter(({ msg }) => String(msg).startsWith('too few file descriptors'));
        assert.deepEqual(
          warnings.map((line) => [line['level'], line['limit'], line['needed']]),
          limit === needed ? [] : [['warn', limit, needed]],
        );
      }
    },
  );
}

test(
  'with more connections than descriptors, the workers keep running, their metrics are served, and later calls succeed',
  { skip: noProc },
  async () => {
    await using command = await start({ WORKERS: '2' });
    const pids = childrenOf(command.process.pid) ?? [];
    const base = countDescriptors(command.process.pid) ?? 0;
    const clients: RawClient[] = [];
    // Clients connect one by one, because the limit also applies to the primary process: to pass on a connection, it needs a
    // descriptor.
    await poll(async () => {
      const client = await command.connect();
      clients.push(client);
      const isServed = await client.call('GET', '/api/work-items/none').then(
        () => true,
        () => false,
      );
      return !isServed && pids.every((pid) => (countDescriptors(pid) ?? 64) >= 64);
    }, 'no descriptor is left');
    // The first request for /metrics loads a library. This must succeed although no descriptor is free.
    const { text } = await command.admin('/metrics');
    assert.equal(figureIn(text, 'work_item_gateway_workers'), 2);
    assert.equal((await command.admin('/readyz')).status, 200);
    for (const client of clients) client.destroy();
    await servesAgain(command);
    await poll(async () => {
      assertReply(await command.call('GET', '/api/work-items'), 200, '{"id":5}');
      const serving = command.logs.filter(({ outcome }) => outcome === 'ok').map(({ pid }) => pid);
      return new Set(serving).size === 2;
    }, 'both workers serve again');
    await poll(() => (countDescriptors(command.process.pid) ?? 0) <= base + 1, 'descriptors are back to base');
    await poll(async () => (await figureOf(command, 'client_connections')) === 0, 'no client is connected');
    assert.deepEqual(childrenOf(command.process.pid), pids);
    await logged(command, /^could not accept connections/);
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0);
  },
);

test('during a flood of idle connections with CONNECTIONS_MAX=20, good clients are served, and a request in progress is completed [D26]', async () => {
  await using command = await start({ CONNECTIONS_MAX: '20' });
  backend.answers(answer('{"id":5}'));
  await using busy = await command.connect();
  const bytes = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
  // The body of this request is incomplete during the flood.
  await busy.sendPieces([bytes.subarray(0, -1)]);
  const idle = await openMany(command, 100);
  await poll(() => idle.filter(({ isOpen }) => isOpen).length === 19, 'there are 20 connections');
  assert.equal(await figureOf(command, 'client_connections'), 20);
  for (let round = 0; round < 2; round += 1) {
    for (const each of operations) {
      let reply: Reply | undefined;
      await poll(async () => (reply = await tryCall(command, each)) !== undefined, 'a good client is served');
      assertReply(reply ?? assert.fail(), each.status, each.body);
    }
    idle.push(...(await openMany(command, 100)));
  }
  busy.send(bytes.subarray(-1));
  assertReply(await busy.reply(), 200, succeeded);
  const metrics = await command.metrics();
  assert.ok((figureIn(metrics, 'work_item_gateway_client_connections_shed_total') ?? 0) >= 200);
  assert.ok((figureIn(metrics, 'work_item_gateway_client_connections') ?? Infinity) <= 20);
  assert.equal((await logged(command, /^connection limit reached/))['connectionsMax'], 20);
  for (const client of idle) client.destroy();
  await assertServesAll(command);
});
