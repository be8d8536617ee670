// File descriptors and connections come to an end: the process lives, tells what it can, and is as before when there
// are some again. D26.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { poll } from '../helpers/changes.ts';
import { assertReply, operations } from '../helpers/expected.ts';
import { childrenOf, countDescriptors, figureIn } from '../helpers/process-figures.ts';
import { RawClient, requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';

let backend: ScriptedBackend;
before(async () => {
  backend = await ScriptedBackend.start();
});
afterEach(() => {
  assert.deepEqual(backend.violations, []);
});
after(() => backend.stop());

async function openMany(command: Command, count: number): Promise<RawClient[]> {
  return await Promise.all(Array.from({ length: count }, () => command.connect()));
}

/** The call's reply, or undefined when its connection was closed instead. */
async function tryCall(
  command: Command,
  method: string,
  path: string,
  body?: string,
): Promise<Reply | undefined> {
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

async function figure(command: Command, name: string): Promise<number | undefined> {
  return figureIn(await command.metrics(), `work_item_gateway_${name}`);
}

describe('ulimit -n 64', () => {
  let command: Command;
  let base: number | undefined;
  before(async () => {
    // Each call to the backend needs a connection of its own.
    backend.answers(answer('{"id":5}', { headers: [['Connection', 'close']] }));
    command = await startCommand({ BACKEND_URL: backend.url }, { descriptors: 64 });
    await assertServesAll(command);
    await backend.until(() => backend.connectionsOpen === 0, 'no connection to the backend');
    base = countDescriptors(command.process.pid);
  });
  after(() => command.stop());

  for (const round of [1, 2]) {
    test(`200 connections: the process lives, a call that needs a descriptor is its 500, and then all is well, round ${round}`, async () => {
      const clients = await openMany(command, 200);
      await poll(() => clients.some(({ isOpen }) => !isOpen), 'those that are too many are closed');
      // The rest of the queue is taken in, or not.
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
      // The backend is well: it is the gateway that has no descriptor [D51].
      const line = await command.log(({ status }) => status === 500, 'a line that tells it');
      assert.match(String(line['cause']), /EMFILE/);
      assert.deepEqual(
        [line['level'], line['outcome'], line['msg'], line['backendMs']],
        ['warn', 'overload', 'turned away', undefined],
      );
      for (const client of clients) client.destroy();
      await poll(
        async () => (await tryCall(command, 'GET', '/api/work-items'))?.status === 200,
        'it serves again',
      );
      await assertServesAll(command);
      await backend.until(() => backend.connectionsOpen === 0, 'no connection to the backend');
      await poll(
        () => base === undefined || (countDescriptors(command.process.pid) ?? 0) <= base,
        'descriptors are back to base',
      );
      assert.equal(await figure(command, 'requests_in_flight'), 0);
      assert.doesNotMatch(await command.metrics(), /backend_outcomes_total\{.*fault="backend"\} [1-9]/);
    });
  }
});

const isWarning = ({ msg }: { msg?: unknown }) => String(msg).startsWith('too few file descriptors');

test('fewer descriptors than the limits can need are told once, at the start [D26]', async (t) => {
  if (!existsSync('/proc/self/limits')) {
    t.skip('there is no /proc, so nothing was tested here');
    return;
  }
  for (const WORKERS of ['1', '2']) {
    const limits = { BACKEND_URL: backend.url, WORKERS, CONNECTIONS_MAX: '40', IN_FLIGHT_MAX: '20' };
    const needed = 150 + 60 / Number(WORKERS);
    await using enough = await startCommand(limits, { descriptors: needed });
    await enough.log(({ msg }) => msg === 'ready', 'it is ready');
    assertReply(await enough.call('GET', '/api/work-items/x'), 400, '{"error":"Invalid ID format"}');
    await enough.log(({ outcome }) => outcome === 'invalid-id', 'the line of the call');
    assert.deepEqual(enough.logs.filter(isWarning), []);

    await using tooFew = await startCommand(limits, { descriptors: needed - 1 });
    const { level, limit, needed: told } = await tooFew.log(isWarning, 'the warning');
    assert.deepEqual({ level, limit, told }, { level: 'warn', limit: needed - 1, told: needed });
    assertReply(await tooFew.call('GET', '/api/work-items/x'), 400, '{"error":"Invalid ID format"}');
    await tooFew.log(({ outcome }) => outcome === 'invalid-id', 'the line of the call');
    assert.equal(tooFew.logs.filter(isWarning).length, 1);
  }
});

for (const sharing of ['cluster', 'reuse-port'] as const) {
  describe(`ulimit -n 64, WORKERS=2, PORT_SHARING=${sharing}`, () => {
    const workersOf = (command: Command): number[] => childrenOf(command.process.pid) ?? [];

    test('more connections than descriptors: the workers live and tell their figures, and then all is well', async (t) => {
      backend.answers(answer('{"id":5}', { headers: [['Connection', 'close']] }));
      await using command = await startCommand(
        { BACKEND_URL: backend.url, WORKERS: '2', PORT_SHARING: sharing },
        { descriptors: 64 },
      );
      const pids = workersOf(command);
      if (pids.length === 0) {
        t.skip('there is no /proc, so nothing was tested here');
        return;
      }
      const base = countDescriptors(command.process.pid) ?? 0;
      for (const round of [1, 2]) {
        const clients: RawClient[] = [];
        // One by one: the primary process has as few descriptors, and needs one for each that it hands on.
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
        // The first time this needs a library too, which cannot be loaded.
        const { text } = await command.admin('/metrics');
        assert.equal(figureIn(text, 'work_item_gateway_workers'), 2);
        assert.equal((await command.admin('/readyz')).status, 200);
        for (const client of clients) client.destroy();
        await poll(
          async () => (await tryCall(command, 'GET', '/api/work-items'))?.status === 200,
          'it serves again',
        );
        const before = command.logs.length;
        const isSeen = (pid: number) =>
          command.logs.slice(before).some((line) => line['pid'] === pid && line['outcome'] === 'ok');
        await poll(async () => {
          assertReply(await command.call('GET', '/api/work-items'), 200, '{"id":5}');
          return pids.every(isSeen);
        }, 'both workers serve again');
        await poll(
          () => (countDescriptors(command.process.pid) ?? 0) <= base + 1,
          `descriptors of the primary process are back to base, round ${round}`,
        );
        await poll(async () => (await figure(command, 'client_connections')) === 0, 'nobody is there');
      }
      assert.deepEqual(workersOf(command), pids);
      if (sharing === 'cluster') {
        await command.log(
          ({ msg }) => String(msg).startsWith('a connection could not be taken'),
          'a line that tells it',
        );
      }
      command.signal('SIGTERM');
      assert.equal(await command.exitCode(), 0);
    });
  });
}

describe('CONNECTIONS_MAX=20', () => {
  let command: Command;
  before(async () => {
    backend.answers(answer('{"id":5}'));
    command = await startCommand({ BACKEND_URL: backend.url, CONNECTIONS_MAX: '20' }, { descriptors: 64 });
  });
  after(() => command.stop());

  test('under a flood of connections that rest, good clients get theirs, and connections at work are kept [D26]', async () => {
    await using atWork = await command.connect();
    const bytes = requestBytes('PUT', '/api/work-items/5', { body: '{"a":1}' });
    // Its body is on its way the whole time.
    await atWork.sendPieces([bytes.subarray(0, -1)]);
    const resting = await openMany(command, 100);
    await poll(() => resting.filter(({ isOpen }) => isOpen).length === 19, 'there are 20 connections');
    assert.equal(await figure(command, 'client_connections'), 20);
    for (let round = 0; round < 3; round += 1) {
      for (const { method, path, options, status, body } of operations) {
        let reply: Reply | undefined;
        await poll(async () => {
          reply = await tryCall(command, method, path, options.body?.toString());
          return reply !== undefined;
        }, 'a good client is served');
        assertReply(reply ?? assert.fail(), status, body);
      }
      resting.push(...(await openMany(command, 100)));
    }
    atWork.send(bytes.subarray(-1));
    assertReply(await atWork.reply(), 200, '{"success":true}');
    assert.ok(((await figure(command, 'client_connections_shed_total')) ?? 0) >= 300);
    assert.ok(((await figure(command, 'client_connections')) ?? 0) <= 20);
    const isLine = ({ msg }: { msg?: unknown }) => String(msg).startsWith('too many connections');
    const line = await command.log(isLine, 'a line that tells it');
    assert.equal(line['connectionsMax'], 20);
    for (const client of resting) client.destroy();
    await assertServesAll(command);
  });

  test('twenty connections that are in use all stay [D26]', async () => {
    await poll(async () => (await figure(command, 'client_connections')) === 0, 'nobody is there');
    const clients = await openMany(command, 20);
    for (let round = 0; round < 5; round += 1) {
      for (const client of clients) assertReply(await client.call('GET', '/api/work-items'), 200, '{"id":5}');
    }
    for (const client of clients) client.destroy();
  });
});
