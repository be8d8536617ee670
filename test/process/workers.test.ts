// WORKERS: several processes on one port, watched, replaced and drained as one gateway. D31, D32, D33. The simulation of
// test/simulation/workers.ts kills and halts workers at any moment; unit/worker-pool.test.ts has the pauses
// between starts, unit/distributor.test.ts the choice of a worker.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { isDraining, isReloaded, logged, runCommand, startCommand } from '../helpers/command.ts';
import type { Command, LogLine } from '../helpers/command.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
import { findFreePort } from '../helpers/haproxy.ts';
import { childrenOf, countDescriptors, stateOf } from '../helpers/process-figures.ts';
import { isRefused, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend, useFolder } from '../helpers/suites.ts';
import { holdCall } from './held-call.ts';

const folder = useFolder();
const backend = await useBackend();
const list = requestBytes('GET', '/api/work-items');
const put = requestBytes('PUT', '/api/work-items/5', { body: '{}' });
const injection = resolve(import.meta.dirname, './broken-node.ts');
const fastHeartbeats = ['--import', resolve(import.meta.dirname, './fast-heartbeats.ts')];

function start(environment: NodeJS.ProcessEnv = {}, nodeFlags: readonly string[] = []): Promise<Command> {
  return startCommand({ BACKEND_URL: backend.url, WORKERS: '2', ...environment }, { nodeFlags });
}

const workersOf = (command: Command): number[] => childrenOf(command.process.pid) ?? [];
const isCall = ({ msg }: LogLine): boolean => msg === 'request';

/** Sends a signal to a worker. */
function kill(pid: number | undefined, signal: NodeJS.Signals): asserts pid is number {
  // For the pid 0, `process.kill` would end the tests, too.
  assert.ok(pid);
  process.kill(pid, signal);
}

/** The value of the metric with these labels; 0 if there is none. */
async function metric(command: Command, name: string): Promise<number> {
  const line = (await command.metrics()).split('\n').find((each) => each.startsWith(`work_item_gateway_${name} `));
  return Number(line?.split(' ').at(-1) ?? 0);
}

/** Makes calls on new connections until each of `count` workers has served a call. */
async function reachWorkers(command: Command, count: number): Promise<number[]> {
  let pids = new Set<number>();
  await poll(async () => {
    assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
    pids = new Set(command.logs.filter(isCall).map(({ pid }) => Number(pid)));
    return pids.size >= count;
  }, `${count} workers have served calls`);
  return [...pids];
}

const isAlive = (pid: number): boolean => ![undefined, 'Z'].includes(stateOf(pid));

/** Holds `count` calls on new connections until `open` is called. */
async function holdCalls(command: Command, count: number, bytes = list) {
  const gate = createGate();
  const before = backend.requests.length;
  backend.answers(behind(gate, answer('[]')));
  const clients = await Promise.all(Array.from({ length: count }, () => command.connect()));
  for (const client of clients) client.send(bytes);
  await backend.until(() => backend.requests.length === before + count, 'the held calls');
  backend.answers(answer('[]'));
  return { clients, open: gate.open };
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
  assert.ok(!command.logs.some(({ level }) => level !== 'info'), command.output);
});

test('SIGHUP gives all workers the new settings and changes their number, and no call or count is lost [D65]', async () => {
  const file = join(folder, 'reload.env');
  const set = (text: string): void => writeFileSync(file, `${text}\n`);
  set('REQUEST_BYTES_MAX=100\nWORKERS=2');
  await using command = await start({ SETTINGS_FILE: file, WORKERS: '' });
  const before = await reachWorkers(command, 2);
  let isOver = false as boolean;
  const load = async (): Promise<void> => {
    for (let client: RawClient | undefined; !isOver;) {
      client ??= await command.connect();
      const reply = await client.call('GET', '/api/work-items');
      assert.equal(reply.text, '[]');
      if (reply.header('connection') !== 'close') continue;
      client.destroy();
      client = undefined;
    }
  };
  const clients = Array.from({ length: 4 }, load);
  set('REQUEST_BYTES_MAX=10\nWORKERS=3');
  command.signal('SIGHUP');
  const line = await command.log(isReloaded, 'the reload ends');
  assert.deepEqual(line['changed'], { workers: '2 → 3', requestBytesMax: '100 → 10' });
  assert.ok(before.every(isAlive));
  assert.equal((await command.call('POST', '/api/work-items', { body: '{"title":"long"}' })).status, 413);
  assert.equal(await metric(command, 'workers'), 3);
  set('REQUEST_BYTES_MAX=10\nWORKERS=1');
  command.signal('SIGHUP');
  await poll(() => workersOf(command).length === 1, 'one worker stays');
  isOver = true;
  await Promise.all(clients);
  assert.equal(await metric(command, 'workers'), 1);
  assert.equal(await metric(command, 'requests_total{operation="list",status="200"}'), backend.requests.length);
  assert.ok(!(await command.metrics()).includes('worker_deaths_total{cause="exit"} 1'));
});

test('/readyz is 200 if the workers are late, and 503 if none answers for seconds; then they are killed and replaced', async () => {
  await using command = await start({}, fastHeartbeats);
  const pids = await reachWorkers(command, 2);
  // The last reports of the workers count their calls.
  const calls = await metric(command, 'requests_total{operation="list",status="200"}');
  for (const pid of pids) kill(pid, 'SIGSTOP');
  // This takes a second, because the gateway waits for the workers' reports.
  assert.equal((await command.admin('/readyz')).status, 200);
  await poll(async () => {
    const { status, text } = await command.admin('/readyz');
    return status === 503 && text.includes('"status":"no worker answers"');
  }, '/readyz turns 503');
  await poll(async () => (await command.admin('/readyz')).status === 200, '/readyz is 200 again');
  const lines = command.logs.filter(({ level, worker }) => level === 'error' && worker === pids[0]);
  assert.deepEqual(
    lines.map(({ msg }) => msg),
    ['a worker has not answered for 10 s: killing it', 'a worker ended with signal SIGKILL: replacing it'],
  );
  await poll(
    async () => (await metric(command, 'worker_deaths_total{cause="frozen"}')) === 2,
    'both deaths are counted',
  );
  assert.equal(await metric(command, 'requests_total{operation="list",status="200"}'), calls);
});

test('connections are refused until a worker is ready; if clients connect then and leave, the gateway keeps running', async () => {
  const port = await findFreePort();
  const environment = {
    BACKEND_URL: backend.url,
    WORKERS: '2',
    LOG_FORMAT: 'json',
    PORT: String(port),
    ADMIN_PORT: '0',
  };
  await using command = runCommand(['serve'], environment);
  command.port = port;
  await poll(() => workersOf(command).length > 0, 'the first worker exists');
  const [first] = workersOf(command);
  kill(first, 'SIGSTOP');
  assert.equal(await isRefused(port), true);
  kill(first, 'SIGCONT');
  const clients: RawClient[] = [];
  await poll(async () => {
    await command.connect().then(
      (client) => clients.push(client),
      () => undefined,
    );
    return clients.length > 50 || command.logs.some(({ msg }) => msg === 'ready');
  }, 'clients connect');
  await logged(command, 'ready');
  for (const client of clients) client.reset();
  assertReply(await command.call('GET', '/api/work-items'), 200, '[]');
  assert.ok(!command.logs.some(({ level }) => level === 'fatal'), command.output);
});

test('if a worker is killed during its start, the start fails and leaves no worker', async () => {
  await using command = runCommand(['serve'], { PORT: '0', ADMIN_PORT: '0', WORKERS: '2' });
  await poll(() => workersOf(command).length > 0, 'a worker starts');
  kill(workersOf(command)[0], 'SIGKILL');
  assert.equal(await command.exitCode(), 1);
  const advice = 'check whether the system was out of memory';
  assert.equal(command.stderr, `error: a worker ended during its start with signal SIGKILL: ${advice}\n`);
});

test('if the primary process has no free descriptor, it counts for the rate limit, and starts a worker when one is free', async (t) => {
  await using command = await start({ RATE_LIMIT: '1/1h' });
  const limit = (count: number) =>
    spawnSync('prlimit', ['--pid', String(command.process.pid), `--nofile=${count}:`]).status === 0;
  await using client = await command.connect();
  assert.equal((await client.call('GET', '/nowhere')).status, 404);
  if (!limit(3)) {
    t.skip('prlimit (util-linux) is not installed or not permitted');
    return;
  }
  for (const status of [200, 429]) assert.equal((await client.call('GET', '/api/work-items')).status, status);
  kill(workersOf(command)[0], 'SIGKILL');
  const line = await logged(command, /^a worker could not be replaced/);
  assert.match(JSON.stringify(line['err']), /EMFILE/);
  limit(1_024);
  await poll(async () => (await metric(command, 'workers')) === 2, 'there are two workers');
  command.signal('SIGTERM');
  assert.equal(await command.exitCode(), 0);
});

test('if the primary process is killed, its workers finish calls in flight and end', async () => {
  await using command = await start();
  const pids = await reachWorkers(command, 2);
  await using idle = await command.connect();
  assertReply(await idle.call('GET', '/api/work-items'), 200, '[]');
  const { clients, open } = await holdCalls(command, 6, put);
  command.signal('SIGKILL');
  await poll(() => isRefused(command.port), 'no new connection is accepted');
  const haveNoticed = () => command.logs.filter(({ msg }) => String(msg).startsWith('the primary process has ended'));
  await poll(() => haveNoticed().length === 2, 'both workers have noticed');
  assert.ok(pids.every(isAlive));
  open();
  for (const client of clients) {
    const reply = await client.reply();
    assertReply(reply, 200, succeeded);
    assert.equal(reply.header('connection'), 'close');
    client.destroy();
  }
  await poll(() => !pids.some(isAlive), 'no worker is alive');
  assert.equal(await idle.closed(), 'end');
});

test('if the primary process is killed while its workers start, the workers end, too', async () => {
  await using command = runCommand(['serve'], { PORT: '0', ADMIN_PORT: '0', WORKERS: '2' });
  await poll(() => workersOf(command).length > 0, 'a worker starts');
  const pids = workersOf(command);
  command.signal('SIGKILL');
  await poll(() => !pids.some(isAlive), 'no worker is alive');
});

test('a worker that dies is counted, its unconfirmed connections are served by others, and the primary process keeps none open [D63]', async () => {
  await using command = await start();
  const [victim, other] = await reachWorkers(command, 2);
  const base = countDescriptors(command.process.pid);
  kill(victim, 'SIGSTOP');
  const clients = await Promise.all(Array.from({ length: 8 }, () => command.connect()));
  let served = 0;
  for (const client of clients) {
    client.send(list);
    void client.reply({ limitMs: 60_000 }).then(
      () => (served += 1),
      () => undefined,
    );
  }
  // Two connections are sent to the stopped worker.
  await poll(() => served === clients.length - 2, 'the other worker serves all connections but two');
  kill(victim, 'SIGKILL');
  await poll(() => served === clients.length, 'all connections are served');
  for (const client of clients) client.destroy();
  await reachWorkers(command, 3);
  kill(other, 'SIGABRT');
  await reachWorkers(command, 4);
  assert.equal(await metric(command, 'workers'), 2);
  const lines = command.logs.filter(({ level }) => level === 'error');
  assert.deepEqual(
    lines.map(({ worker, code, signal, msg }) => [worker, code, signal, msg]),
    [
      [victim, 'SIGKILL'],
      [other, 'SIGABRT'],
    ].map(([worker, signal]) => [worker, null, signal, `a worker ended with signal ${signal}: replacing it`]),
  );
  for (const cause of ['killed', 'aborted'])
    assert.equal(await metric(command, `worker_deaths_total{cause="${cause}"}`), 1);
  await poll(() => countDescriptors(command.process.pid) === base, 'descriptors are back to base');
  // The primary process does not keep the port open for a dead worker.
  const { client, open } = await holdCall(backend, command);
  command.signal('SIGTERM');
  await poll(() => isRefused(command.port), 'no new connection is accepted');
  open();
  assertReply(await client.reply(), 200, '{"id":5}');
  assert.equal(await command.exitCode(), 0);
});

test('each worker may serve an equal part of IN_FLIGHT_MAX, rounded up', async () => {
  await using command = await start({ IN_FLIGHT_MAX: '3' });
  const gate = createGate();
  backend.answers(behind(gate, answer('[]')));
  let refused = 0;
  const calls = Array.from({ length: 12 }, async () => {
    if ((await command.call('GET', '/api/work-items')).status === 503) refused += 1;
  });
  await poll(() => refused === 8, 'all calls but four are refused');
  gate.open();
  await Promise.all(calls);
  assert.equal(refused, 8);
});

test('a worker that dies during SHUTDOWN_DELAY_MS is replaced, and its successor closes connections, too [D33]', async () => {
  await using command = await start({ SHUTDOWN_DELAY_MS: '60000' });
  const before = await reachWorkers(command, 2);
  command.signal('SIGTERM');
  await isDraining(command);
  for (const pid of before) kill(pid, 'SIGKILL');
  const reply = await command.call('GET', '/api/work-items');
  assert.deepEqual([reply.text, reply.header('connection')], ['[]', 'close']);
  command.signal('SIGINT');
  assert.equal(await command.exitCode(), 1);
});

for (const fault of ['rejection', 'log and exceptions']) {
  test(`a worker with a fault (${fault}) gets no further connection and is replaced before its last call ends [D33]`, async () => {
    const flags = `--disable-warning=ExperimentalWarning --import ${injection}`;
    await using command = await start({ FAULTS: fault, NODE_OPTIONS: flags });
    const [victim, other] = workersOf(command);
    const { clients, open } = await holdCalls(command, 4);
    kill(victim, 'SIGUSR2');
    // A broken log cannot write the line `fatal`.
    const replacing = 'a worker had an internal error: replacing it';
    await command.log(
      ({ level, msg }) => (fault.startsWith('log') ? msg === replacing : level === 'fatal'),
      'the fault',
    );
    // The calls of the victim are still in flight, so these calls cannot be its last ones.
    const isSeen = (pid: number): boolean => command.logs.some((line) => isCall(line) && line['pid'] === pid);
    await poll(async () => {
      assert.equal((await command.call('GET', '/api/work-items')).text, '[]');
      return workersOf(command).some((pid) => pid !== victim && pid !== other && isSeen(pid));
    }, 'the successor serves');
    assert.ok(workersOf(command).includes(victim) && !isSeen(victim));
    assert.equal((await logged(command, replacing))['worker'], victim);
    open();
    for (const client of clients) assert.equal((await client.reply()).text, '[]');
    await logged(command, 'a draining worker ended with exit code 1');
    assert.equal(await metric(command, 'worker_deaths_total{cause="exit"}'), 1);
    for (const client of clients) client.destroy();
  });
}

test('64 connections are spread evenly over 4 workers', async () => {
  await using command = await start({ WORKERS: '4' });
  const clients: RawClient[] = [];
  // One at a time: on a busy machine, a worker that is late would get fewer simultaneous connections.
  while (clients.length < 64) {
    const client = await command.connect();
    clients.push(client);
    assert.equal((await client.call('GET', '/api/work-items')).status, 200);
  }
  const calls = () => command.logs.filter(isCall);
  await poll(() => calls().length === 64, 'all calls are logged');
  const counts = workersOf(command).map((worker) => calls().filter(({ pid }) => pid === worker).length);
  // 16, or 25 % more or fewer.
  assert.ok(counts.length === 4 && counts.every((count) => count >= 12 && count <= 20), counts.join());
  for (const client of clients) client.destroy();
});
