// WORKERS: several processes on one port, watched, replaced and drained as one gateway. D31, D32, D33.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import {
  type Command,
  isDraining,
  isReloaded,
  logged,
  type LogLine,
  runCommand,
  startCommand,
} from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { holdCall } from './held-call.ts';
import { childrenOf, countDescriptors } from '../helpers/process-figures.ts';
import { isRefused, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';

const folder = useFolder();
const backend = await useBackend();
function start(environment: NodeJS.ProcessEnv = {}): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, WORKERS: '2', ...environment });
}

/** The sum of the metrics whose lines begin with `name`. */
async function metric(command: Command, name: string): Promise<number> {
  const text = await command.metrics();
  return text
    .split('\n')
    .filter((line) => line.startsWith(`work_item_gateway_${name}`))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

/** Makes calls on new connections until each of `count` workers has served a call. */
async function reachWorkers(command: Command, count: number): Promise<number[]> {
  let pids: number[] = [];
  await poll(async () => {
    assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
    pids = command.logs.filter(({ msg }) => msg === 'request').map(({ pid }) => Number(pid));
    return new Set(pids).size >= count;
  }, `${count} workers have served calls`);
  return [...new Set(pids)];
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Calls without a pause. Reconnects after a reply with `connection: close`. Returns the number of calls. */
async function callWithoutPause(command: Command, load: { readonly isOver: boolean }): Promise<number> {
  let calls = 0;
  let client: RawClient | undefined;
  while (!load.isOver) {
    client ??= await command.connect();
    const reply = await client.call('GET', '/api/work-items');
    assert.equal(reply.text, '[]');
    calls += 1;
    if (reply.header('connection') === 'close') {
      client.destroy();
      client = undefined;
    }
  }
  client?.destroy();
  return calls;
}

test('two workers serve, /metrics covers both, and after SIGTERM both drain, and the exit code is 0 [D33]', async () => {
  await using command = await start();
  const pids = await reachWorkers(command, 2);
  assert.ok(!pids.includes(command.process.pid ?? 0), 'the primary process serves no calls');
  const calls = backend.requests.length;
  const text = await command.metrics();
  for (const line of [
    `work_item_gateway_requests_total{operation="list",status="200"} ${calls}`,
    `work_item_gateway_request_duration_seconds_count{operation="list"} ${calls}`,
    'work_item_gateway_workers 2',
  ]) {
    assert.ok(text.includes(`\n${line}\n`), line);
  }
  assert.match(text, /^process_resident_memory_bytes \d{8,}$/m);
  const { client, open } = await holdCall(backend, command);
  command.signal('SIGTERM');
  await isDraining(command);
  open();
  const reply = await client.reply();
  assertReply(reply, 200, '{"id":5}');
  assert.equal(reply.header('connection'), 'close');
  client.destroy();
  assert.equal(await command.exitCode(), 0);
  assert.ok(!pids.some(isAlive));
});

test('SIGHUP gives all workers the new settings and changes their number, and no call is lost [D65]', async () => {
  const file = join(folder, 'reload.env');
  writeFileSync(file, 'REQUEST_BYTES_MAX=100\nWORKERS=2\n');
  await using command = await start({ SETTINGS_FILE: file, WORKERS: '' });
  const before = await reachWorkers(command, 2);
  const load = { isOver: false };
  const clients = Array.from({ length: 4 }, () => callWithoutPause(command, load));
  writeFileSync(file, 'REQUEST_BYTES_MAX=10\nWORKERS=3\n');
  command.signal('SIGHUP');
  const line = await command.log(isReloaded, 'the reload ends');
  assert.deepEqual(line['changed'], { workers: '2 → 3', requestBytesMax: '100 → 10' });
  load.isOver = true;
  const calls = await Promise.all(clients);
  assert.ok(calls.every((count) => count > 0));
  assert.ok(before.every(isAlive));
  const reply = await command.call('POST', '/api/work-items', { body: '{"title":"long"}' });
  assert.equal(reply.status, 413);
  assert.equal(await metric(command, 'workers '), 3);
});

test('/readyz is 503 if no worker answers for seconds, and 200 if they are only late', async () => {
  await using command = await start();
  const pids = await reachWorkers(command, 2);
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  try {
    // This takes a second, because the gateway waits for the workers' reports.
    assert.equal((await command.admin('/readyz')).status, 200);
    await poll(async () => {
      const { status, text } = await command.admin('/readyz');
      return status === 503 && text.includes('"status":"no worker answers"');
    }, '/readyz turns 503');
  } finally {
    for (const pid of pids) process.kill(pid, 'SIGCONT');
  }
  await poll(async () => (await command.admin('/readyz')).status === 200, '/readyz is 200 again');
});

test('if clients connect during the start and then leave, the gateway keeps running', async () => {
  const port = await findFreePort();
  const clients: RawClient[] = [];
  let isStarted = false as boolean;
  const connect = async (): Promise<void> => {
    while (!isStarted) {
      try {
        clients.push(await RawClient.open(port));
      } catch {
        // Nothing listens yet.
      }
    }
  };
  const starting = start({ PORT: String(port) });
  const connecting = [connect(), connect()];
  await using command = await starting.finally(() => (isStarted = true));
  await Promise.all(connecting);
  assert.ok(clients.length > 0);
  for (const client of clients) client.reset();
  assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
  assert.equal((await command.admin('/readyz')).status, 200);
  assert.ok(!command.logs.some(({ level }) => level === 'fatal'), command.output);
});

test('a worker that cannot start for lack of a descriptor is started when a descriptor is free', async (t) => {
  await using command = await start();
  const [victim = 0] = await reachWorkers(command, 2);
  const pid = String(command.process.pid);
  const { status } = spawnSync('prlimit', ['--pid', pid, '--nofile=3:']);
  if (status !== 0) {
    t.skip('prlimit (util-linux) is not installed or not permitted');
    return;
  }
  process.kill(victim, 'SIGKILL');
  const line = await logged(command, /^a worker could not be replaced/);
  assert.match(JSON.stringify(line['err']), /EMFILE/);
  spawnSync('prlimit', ['--pid', pid, '--nofile=1024:']);
  const children = () => childrenOf(command.process.pid)?.length ?? 2;
  await poll(async () => children() === 2 && (await metric(command, 'workers ')) === 2, 'there are two workers');
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0);
});

test('if the primary process is killed, its workers finish calls in flight and end', async () => {
  await using command = await start();
  const pids = await reachWorkers(command, 2);
  await using idle = await command.connect();
  assertReply(await idle.call('GET', '/api/work-items'), 200, '[]');
  const gate = createGate();
  backend.answers(async (exchange) => {
    await Promise.race([gate.opened, exchange.closed]);
    await answer('{"id":5}')(exchange);
  });
  const before = backend.requests.length;
  const clients = await Promise.all(Array.from({ length: 6 }, () => command.connect()));
  for (const client of clients) client.send(requestBytes('PUT', '/api/work-items/5', { body: '{}' }));
  await backend.until(() => backend.requests.length === before + clients.length, 'the held calls');
  command.signal('SIGKILL');
  await poll(() => isRefused(command.port), 'no new connection is accepted');
  await poll(
    () => command.logs.filter(({ msg }) => String(msg).startsWith('the primary process has ended')).length === 2,
    'both workers have noticed',
  );
  assert.ok(pids.every(isAlive));
  gate.open();
  for (const client of clients) {
    const reply = await client.reply();
    assertReply(reply, 200, '{"success":true}');
    assert.equal(reply.header('connection'), 'close');
    client.destroy();
  }
  await poll(() => !pids.some(isAlive), 'no worker is alive');
  assert.equal(await idle.closed(), 'end');
});

test('if the primary process is killed while its workers start, the workers end, too', async () => {
  const command = runCommand(['serve'], { PORT: '0', ADMIN_PORT: '0', WORKERS: '2' });
  let pids: number[] = [];
  await poll(() => {
    pids = childrenOf(command.process.pid) ?? [];
    return pids.length > 0;
  }, 'a worker starts');
  command.signal('SIGKILL');
  await command.exited;
  await poll(() => !pids.some(isAlive), 'no worker is alive');
});

test('a worker that dies is counted, its unconfirmed connections are served by others, and the primary process keeps none open [D63]', async () => {
  await using command = await start();
  const [victim = 0] = await reachWorkers(command, 2);
  const base = countDescriptors(command.process.pid);
  process.kill(victim, 'SIGSTOP');
  const clients = await Promise.all(Array.from({ length: 8 }, () => command.connect()));
  for (const client of clients) client.send(requestBytes('GET', '/api/work-items'));
  const served = new Set<RawClient>();
  for (const client of clients) {
    void client.reply({ limitMs: 60_000 }).then(
      () => served.add(client),
      () => undefined,
    );
  }
  // Two connections are sent to the stopped worker.
  await poll(() => served.size === clients.length - 2, 'the other worker serves all connections but two');
  process.kill(victim, 'SIGKILL');
  await poll(() => served.size === clients.length, 'all connections are served');
  const isEnd = ({ msg }: LogLine) => String(msg).startsWith('a worker ended with signal SIGKILL');
  const line = await command.log(isEnd, "the worker's end is logged");
  assert.deepEqual([line['level'], line['worker']], ['error', victim]);
  await reachWorkers(command, 3);
  assert.equal(await metric(command, 'workers '), 2);
  assert.equal(await metric(command, 'worker_deaths_total{cause="killed"}'), 1);
  for (const client of clients) client.destroy();
  await poll(() => countDescriptors(command.process.pid) === base, 'descriptors are back to base');
  // The primary process does not keep the port open for the dead worker.
  const { client, open } = await holdCall(backend, command);
  command.signal('SIGTERM');
  await poll(() => isRefused(command.port), 'no new connection is accepted');
  open();
  assertReply(await client.reply(), 200, '{"id":5}');
  assert.equal(await command.exitCode(), 0);
});
