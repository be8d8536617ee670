// The order of reloads on SIGHUP, the shutdown timeout, lines that are logged at most once a second [D33, D65], and sockets
// passed by a service manager (sd_listen_fds(3)). test/process/signals.test.ts tests signals of the command.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { createLogger } from '../../packages/command/log/log.ts';
import { createStop, listenForReloads, runUntilStopped } from '../../packages/command/service/lifecycle.ts';
import { onceASecond } from '../../packages/command/service/listener.ts';
import { findPassedSockets, settingsOfSockets } from '../../packages/command/service/systemd.ts';
import { createGate } from '../helpers/changes.ts';

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('SIGHUPs before the gateway is ready cause one reload; those during a reload together cause one more', async () => {
  const signals = new EventEmitter();
  const begin = listenForReloads(signals);
  const gates = [createGate(), createGate(), createGate()];
  let [begun, running] = [0, 0];
  for (let count = 0; count < 2; count += 1) signals.emit('SIGHUP');
  begin(async () => {
    running += 1;
    assert.equal(running, 1);
    await gates[begun++]?.opened;
    running -= 1;
  });
  await turn();
  for (let count = 0; count < 25; count += 1) signals.emit('SIGHUP');
  await turn();
  assert.deepEqual([begun, running], [1, 1]);
  gates[0]?.open();
  await turn();
  assert.deepEqual([begun, running], [2, 1]);
  gates[1]?.open();
  await turn();
  assert.deepEqual([begun, running], [2, 0]);
  signals.emit('SIGHUP');
  await turn();
  assert.deepEqual([begun, running], [3, 1]);
});

test('the shutdown timeout ends with the drain: a slow stop after it cuts nothing, and the exit code is 0 [D33]', async () => {
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const stop = createStop(logger, new EventEmitter());
  stop.wanted.abort();
  const service = { beginDrain: () => undefined, finishDrain: () => Promise.resolve(), stop: () => delay(100) };
  const settings = { shutdownDelayMs: 0, shutdownTimeoutMs: 1 };
  assert.equal(await runUntilStopped(service, () => settings, logger, stop), 0);
  assert.equal(lines.length, 1, lines.join(''));
});

test('only the first of several uncaught errors is announced, and it requests the stop', () => {
  const source = new EventEmitter();
  let announced = 0;
  const stop = createStop(createLogger('silent', { write: () => undefined }), source, () => (announced += 1));
  for (const fault of ['unhandledRejection', 'uncaughtException']) source.emit(fault, new Error());
  assert.deepEqual([announced, stop.hasFault, stop.wanted.signal.aborted], [1, true, true]);
});

test('a report is passed on, but not within a second after another', (t) => {
  let now = 5_000;
  t.mock.method(performance, 'now', () => now);
  const passed: number[] = [];
  const report = onceASecond((each: number) => passed.push(each));
  for (const at of [5_000, 5_999, 6_000, 6_999, 7_000]) {
    now = at;
    report(at);
  }
  assert.deepEqual(passed, [5_000, 6_000, 7_000]);
});

test('LISTEN_FDS and LISTEN_FDNAMES say which sockets are for clients and which for operators', () => {
  const pid = 4711;
  const find = (LISTEN_FDS: string, LISTEN_FDNAMES?: string, LISTEN_PID = String(pid)) =>
    findPassedSockets({ LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES }, pid);
  const none = { clients: [], admin: [] };
  for (const [found, expected] of [
    [findPassedSockets({}, pid), none],
    [findPassedSockets({ LISTEN_FDS: '2' }, pid), none],
    [find('2', undefined, '4712'), none],
    [find('nonsense', undefined, '4712'), none],
    [find('0'), none],
    [find('1'), { clients: [3], admin: [] }],
    [find('2'), { clients: [3], admin: [4] }],
    // systemd's default names are treated like no names.
    [find('2', 'a.socket:b.socket'), { clients: [3], admin: [4] }],
    [find('2', 'admin:clients'), { clients: [4], admin: [3] }],
    [find('4', 'clients:admin:clients:admin'), { clients: [3, 5], admin: [4, 6] }],
    [find('1', 'admin'), { clients: [], admin: [3] }],
  ]) {
    assert.deepEqual(found, expected);
  }
  for (const [count, names] of [['3', undefined], ['2', 'clients:client'], ['2', 'clients'], ['3', 'x:y:z']] as const) {
    assert.throws(() => find(count, names), /^StartError: LISTEN_FDS passes \d sockets, .*FileDescriptorName/);
  } // prettier-ignore
  for (const count of ['-1', '1e1', '2 ', '065', '65', 'two', '999999999']) {
    assert.throws(() => find(count), /LISTEN_FDS must be the number of passed sockets, 0 to 64/, count);
  }
});

test('shown addresses and ports are those of the passed sockets', () => {
  for (const [sockets, shown] of [
    [{ clients: [], admin: [] }, {}],
    [
      { clients: [3], admin: [] },
      { host: 'localhost', port: '443' },
    ],
    [
      { clients: [], admin: [3, 4, 5] },
      { adminHost: '[::1] and 2 more', adminPort: '9464 and 2 more' },
    ],
  ] as const) {
    assert.deepEqual(settingsOfSockets(sockets, 'https://localhost', 'http://[::1]:9464'), shown);
  }
});
