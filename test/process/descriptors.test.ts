// When descriptors or connections run out, the process keeps running, reports the shortage, and recovers later. D26.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { type Command, figureOf, logged, startCommand } from '../helpers/command.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { childrenOf, countDescriptors, figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

// The backend closes after each answer, so each call needs a new connection to it.
const closing = answer('{"id":5}', { headers: [['Connection', 'close']] });
const backend = await useBackend(closing);
// `useBackend` sets this answer before each test. It is set here, too, because calls are made before the first test.
backend.answers(closing);
afterEach(() => assert.deepEqual(backend.violations, []));

async function openMany(command: Command, count: number): Promise<RawClient[]> {
  return await Promise.all(Array.from({ length: count }, () => command.connect()));
}

/** The reply, or undefined if the connection was closed without a reply. */
async function tryCall(command: Command, method: string, path: string, body?: string): Promise<Reply | undefined> {
  try {
    return await command.call(method, path, body === undefined ? {} : { body });
  } catch {
    return undefined;
  }
}

async function assertServesAll(command: Command): Promise<void> {
  for (const { method, path, options, status, body } of operations) {
    assertReply(await command.call(method, path, options), status, body);
  }
}

describe('ulimit -n 64', () => {
  let command: Command;
  let base: number | undefined;
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url }, { descriptors: 64 });
    await assertServesAll(command);
    await backend.until(() => backend.connectionsOpen === 0, 'no connection to the backend');
    base = countDescriptors(command.process.pid);
  });
  after(() => command.stop());

  for (const round of [1, 2]) {
    test(`with 200 connections the process keeps running, a call for which no descriptor is free gets its operation's 500, and later calls succeed, round ${round}`, async () => {
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
      // The gateway is at fault, not the backend [D51].
      const line = await command.log(({ status }) => status === 500, 'the log line of a failed call');
      assert.match(String(line['cause']), /EMFILE/);
      assert.deepEqual(
        [line['level'], line['outcome'], line['msg'], line['backendMs']],
        ['warn', 'overload', 'turned away', undefined],
      );
      for (const client of clients) client.destroy();
      await poll(async () => (await tryCall(command, 'GET', '/api/work-items'))?.status === 200, 'calls succeed again');
      await assertServesAll(command);
      await backend.until(() => backend.connectionsOpen === 0, 'no connection to the backend');
      await poll(
        () => base === undefined || (countDescriptors(command.process.pid) ?? 0) <= base,
        'descriptors are back to base',
      );
      assert.equal(await figureOf(command, 'requests_in_flight'), 0);
      assert.doesNotMatch(await command.metrics(), /backend_outcomes_total\{.*fault="backend"\} [1-9]/);
    });
  }
});

const isWarning = ({ msg }: { msg?: unknown }) => String(msg).startsWith('too few file descriptors');

test('if the limits may need more descriptors than the process can open, one warning is logged at the start [D26]', async (t) => {
  if (!existsSync('/proc/self/limits')) {
    t.skip('there is no /proc');
    return;
  }
  for (const WORKERS of ['1', '2']) {
    const limits = { BACKEND_URL: backend.url, WORKERS, CONNECTIONS_MAX: '40', IN_FLIGHT_MAX: '20' };
    const needed = 150 + 60 / Number(WORKERS);
    await using enough = await startCommand(limits, { descriptors: needed });
    await logged(enough, 'ready');
    assertReply(await enough.call('GET', '/api/work-items/x'), 400, '{"error":"Invalid ID format"}');
    await enough.log(({ outcome }) => outcome === 'invalid-id', 'the line of the call');
    assert.deepEqual(enough.logs.filter(isWarning), []);

    await using tooFew = await startCommand(limits, { descriptors: needed - 1 });
    const { level, limit, needed: shown } = await tooFew.log(isWarning, 'the warning');
    assert.deepEqual({ level, limit, shown }, { level: 'warn', limit: needed - 1, shown: needed });
    assertReply(await tooFew.call('GET', '/api/work-items/x'), 400, '{"error":"Invalid ID format"}');
    await tooFew.log(({ outcome }) => outcome === 'invalid-id', 'the line of the call');
    assert.equal(tooFew.logs.filter(isWarning).length, 1);
  }
});

describe('ulimit -n 64, WORKERS=2', () => {
  const workersOf = (command: Command): number[] => childrenOf(command.process.pid) ?? [];

  test('with more connections than descriptors, the workers keep running, their metrics are served, and later calls succeed', async (t) => {
    const environment = { BACKEND_URL: backend.url, WORKERS: '2' };
    await using command = await startCommand(environment, { descriptors: 64 });
    const pids = workersOf(command);
    if (pids.length === 0) {
      t.skip('there is no /proc');
      return;
    }
    const base = countDescriptors(command.process.pid) ?? 0;
    const clients: RawClient[] = [];
    // Clients connect one by one, because the limit also applies to the primary process: to pass on a connection, it
    // needs a descriptor.
    await poll(async () => {
      const client = await command.connect();
      clients.push(client);
      client.send(requestBytes('GET', '/api/work-items/none'));
      const isServed = await client.reply().then(
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
    await poll(async () => (await tryCall(command, 'GET', '/api/work-items'))?.status === 200, 'calls succeed again');
    const before = command.logs.length;
    const isSeen = (pid: number) =>
      command.logs.slice(before).some((line) => line['pid'] === pid && line['outcome'] === 'ok');
    await poll(async () => {
      assertReply(await command.call('GET', '/api/work-items'), 200, '{"id":5}');
      return pids.every(isSeen);
    }, 'both workers serve again');
    await poll(
      () => (countDescriptors(command.process.pid) ?? 0) <= base + 1,
      'descriptors of the primary process are back to base',
    );
    await poll(async () => (await figureOf(command, 'client_connections')) === 0, 'no client is connected');
    assert.deepEqual(workersOf(command), pids);
    await logged(command, /^could not accept connections/);
    command.signal('SIGTERM');
    assert.equal(await command.exitCode(), 0);
  });
});

describe('CONNECTIONS_MAX=20', () => {
  let command: Command;
  before(async () => {
    command = await startCommand({ BACKEND_URL: backend.url, CONNECTIONS_MAX: '20' }, { descriptors: 64 });
  });
  beforeEach(() => backend.answers(answer('{"id":5}')));
  after(() => command.stop());

  test('during a flood of idle connections, good clients are served, and a request in progress is completed [D26]', async () => {
    await using busy = await command.connect();
    const bytes = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
    // The body of this request is incomplete during the flood.
    await busy.sendPieces([bytes.subarray(0, -1)]);
    const idle = await openMany(command, 100);
    await poll(() => idle.filter(({ isOpen }) => isOpen).length === 19, 'there are 20 connections');
    assert.equal(await figureOf(command, 'client_connections'), 20);
    for (let round = 0; round < 3; round += 1) {
      for (const { method, path, options, status, body } of operations) {
        let reply: Reply | undefined;
        await poll(async () => {
          reply = await tryCall(command, method, path, options.body?.toString());
          return reply !== undefined;
        }, 'a good client is served');
        assertReply(reply ?? assert.fail(), status, body);
      }
      idle.push(...(await openMany(command, 100)));
    }
    busy.send(bytes.subarray(-1));
    assertReply(await busy.reply(), 200, '{"success":true}');
    assert.ok(((await figureOf(command, 'client_connections_shed_total')) ?? 0) >= 300);
    assert.ok(((await figureOf(command, 'client_connections')) ?? 0) <= 20);
    const isLine = ({ msg }: { msg?: unknown }) => String(msg).startsWith('connection limit reached');
    const line = await command.log(isLine, 'the log line about the limit');
    assert.equal(line['connectionsMax'], 20);
    for (const client of idle) client.destroy();
    await assertServesAll(command);
  });
});
