// The order of reloads on SIGHUP, the shutdown timeout, and lines that are logged at most once a second. D33, D65. test/process/signals.test.ts tests signals of the command.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { createLogger } from '../../packages/command/log/log.ts';
import { createStop, listenForReloads, runUntilStopped } from '../../packages/command/service/lifecycle.ts';
import { onceASecond } from '../../packages/command/service/listener.ts';
import { createGate } from '../helpers/changes.ts';

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('SIGHUPs before the gateway is ready cause one reload as soon as it is ready', async () => {
  const signals = new EventEmitter();
  const begin = listenForReloads(signals);
  signals.emit('SIGHUP');
  signals.emit('SIGHUP');
  let reloads = 0;
  begin(() => Promise.resolve(void (reloads += 1)));
  await turn();
  assert.equal(reloads, 1);
});

test('reloads run one after the other; all signals during a reload together cause one more reload', async () => {
  const signals = new EventEmitter();
  const gates = [createGate(), createGate(), createGate()];
  let begun = 0;
  let running = 0;
  listenForReloads(signals)(async () => {
    const gate = gates[begun];
    begun += 1;
    running += 1;
    assert.equal(running, 1);
    await gate?.opened;
    running -= 1;
  });
  signals.emit('SIGHUP');
  await turn();
  for (let count = 0; count < 25; count += 1) signals.emit('SIGHUP');
  await turn();
  assert.equal(begun, 1);
  gates[0]?.open();
  await turn();
  assert.equal(begun, 2);
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
