// Reloads on SIGHUP [D65]. test/process/signals.test.ts tests signals of the command.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { listenForReloads } from '../../packages/command/service/lifecycle.ts';
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
