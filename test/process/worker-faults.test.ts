// Faults and deaths of workers under load: no connection is lost that a worker had not begun to serve. Also how evenly
// connections are spread. D31, D33.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { BoundSocket } from 'node:net';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { createGate, poll } from '../helpers/changes.ts';
import { Command, figureOf, logged, startCommand, type LogLine } from '../helpers/command.ts';
import { childrenOf } from '../helpers/process-figures.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';

const backend = await useBackend();
const injection = resolve(import.meta.dirname, './broken-node.ts');
const list = requestBytes('GET', '/api/work-items');

const isCall = ({ msg }: { readonly msg?: unknown }): boolean => msg === 'request';
const workersOf = (command: Command): number[] => childrenOf(command.process.pid) ?? [];

for (const fault of ['rejection', 'log and exceptions']) {
  test(`a worker with a fault (${fault}) gets no further connection and is replaced before its last call ends [D33]`, async () => {
    await using command = await startCommand({
      BACKEND_URL: backend.url,
      WORKERS: '2',
      FAULTS: fault,
      NODE_OPTIONS: `--disable-warning=ExperimentalWarning --import ${injection}`,
    });
    const [victim = 0, other] = workersOf(command);
    const gate = createGate();
    const before = backend.requests.length;
    backend.answers(behind(gate, answer('[]')));
    const held = await Promise.all(Array.from({ length: 4 }, () => command.connect()));
    for (const client of held) client.send(list);
    await backend.until(() => backend.requests.length === before + 4, 'the held calls');
    backend.answers(answer('[]'));
    process.kill(victim, 'SIGUSR2');
    const replacing = 'a worker had an internal error: replacing it';
    // A broken log cannot write the line `fatal`.
    const isFault = ({ level, msg }: LogLine) => (fault.startsWith('log') ? msg === replacing : level === 'fatal');
    await command.log(isFault, 'the fault');
    // The calls of the victim are still in flight, so these calls cannot be its last ones.
    for (let calls = 0; calls < 40; calls += 1) {
      assert.equal((await command.call('GET', '/api/work-items')).text, '[]');
    }
    await poll(() => workersOf(command).length === 3, 'the successor exists');
    const successor = workersOf(command).find((pid) => pid !== victim && pid !== other);
    await poll(async () => {
      assert.equal((await command.call('GET', '/api/work-items')).text, '[]');
      return command.logs.some((line) => isCall(line) && line['pid'] === successor);
    }, 'the successor serves');
    assert.ok(!command.logs.some((line) => isCall(line) && line['pid'] === victim));
    const line = await logged(command, replacing);
    assert.equal(line['worker'], victim);
    gate.open();
    for (const client of held) {
      assert.equal((await client.reply()).text, '[]');
      client.destroy();
    }
    await logged(command, 'a draining worker ended with exit code 1');
    assert.ok((await command.metrics()).includes('work_item_gateway_worker_deaths_total{cause="exit"} 1\n'));
  });
}

test(
  'if all workers are killed together, connections wait for their successors, and none is lost',
  { skip: process.platform !== 'linux' && 'only Linux shows that a process is stopped' },
  async () => {
    await using command = await startCommand({ BACKEND_URL: backend.url, WORKERS: '3' });
    for (let round = 0; round < 2; round += 1) {
      const victims = workersOf(command);
      for (const pid of victims) process.kill(pid, 'SIGSTOP');
      // A worker that still runs could confirm a connection, which then ends with the worker.
      await poll(() => victims.every(isStopped), 'all workers are stopped');
      const clients = await Promise.all(Array.from({ length: 12 }, () => command.connect()));
      for (const client of clients) client.send(list);
      for (const pid of victims) process.kill(pid, 'SIGKILL');
      for (const client of clients) {
        assert.equal((await client.reply()).text, '[]');
        client.destroy();
      }
      await poll(async () => (await figureOf(command, 'workers')) === 3, 'all workers have been replaced');
    }
  },
);

/** True for a stopped process (proc_pid_stat(5)). */
function isStopped(pid: number): boolean {
  return readFileSync(`/proc/${pid}/stat`, 'latin1').includes(') T ');
}

/** Calls on each of `clients`; returns the clients whose connection still lives. */
async function callOnAll(clients: readonly RawClient[], path: string): Promise<RawClient[]> {
  const living = await Promise.all(
    clients.map((client) =>
      client.call('GET', path).then(
        () => client,
        () => [],
      ),
    ),
  );
  return living.flat();
}

/** Asserts that each of 4 workers has served 16 of the 64 calls of `path`, or 25 % more or fewer. */
async function assertEven(command: Command, path: string): Promise<void> {
  const calls = () => command.logs.filter((line) => isCall(line) && line['path'] === path);
  await poll(() => calls().length === 64, 'all calls are logged');
  const counts = workersOf(command).map((worker) => calls().filter(({ pid }) => pid === worker).length);
  assert.equal(counts.length, 4);
  for (const count of counts) assert.ok(count >= 12 && count <= 20, counts.join());
}

for (const isPassed of [false, true]) {
  const where = isPassed ? 'a passed socket' : "the gateway's own port";
  const skip = isPassed && process.platform !== 'linux' && 'only Linux has systemd';
  test(
    `64 connections to ${where} are spread evenly over 4 workers, also after the death of a worker`,
    { skip },
    async () => {
      using clients = new BoundSocket({ host: '127.0.0.1', port: 0 });
      using admin = new BoundSocket({ host: '127.0.0.1', port: 0 });
      const environment = { BACKEND_URL: backend.url, WORKERS: '4' };
      await using command = isPassed
        ? new Command(
            ['serve'],
            { ...environment, LOG_FORMAT: 'json', LISTEN_FDNAMES: 'clients:admin' },
            { passed: [clients.fd(), admin.fd()] },
          )
        : await startCommand(environment);
      await logged(command, 'ready');
      if (isPassed) [command.port, command.adminPort] = [clients.address().port, admin.address().port];
      // One at a time: on a busy machine, a worker that is late would get fewer simultaneous connections.
      const first: RawClient[] = [];
      while (first.length < 64) {
        first.push(...(await callOnAll([await RawClient.open(command.port)], '/api/work-items/1')));
      }
      await assertEven(command, '/api/work-items/1');
      const [victim = 0] = workersOf(command);
      process.kill(victim, 'SIGKILL');
      await poll(() => workersOf(command).length === 4 && !workersOf(command).includes(victim), 'a successor starts');
      await poll(async () => (await figureOf(command, 'workers')) === 4, 'the successor serves');
      const kept = await callOnAll(first, '/api/work-items/2');
      const again: RawClient[] = [];
      while (kept.length + again.length < 64) {
        again.push(...(await callOnAll([await RawClient.open(command.port)], '/api/work-items/2')));
      }
      const all = await callOnAll([...kept, ...again], '/api/work-items/3');
      assert.equal(all.length, 64);
      await assertEven(command, '/api/work-items/3');
      for (const client of all) client.destroy();
    },
  );
}
