// What a worker's rate limit takes its primary process for: there from the start, silent, or gone [D46].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CounterGoneError } from '../../packages/core/guards/options/ports.ts';
import { PrimaryCounter } from '../../packages/command/cluster/primary-counter.ts';

const question = { rate: { limit: 1, windowMs: 1_000 }, keys: ['a'], wanted: [1] };

test('who has been started by it need not ask whether it is there: on a busy machine that answer comes late', async () => {
  const asked: number[] = [];
  const counter = new PrimaryCounter((id) => asked.push(id));
  await counter.revive();
  assert.deepEqual(asked, []);
  const answer = counter.ask(question);
  counter.onAnswer(0, [1, 1_000, 0]);
  assert.deepEqual(await answer, [1, 1_000, 0]);
});

test('when it has been silent it must answer before it counts again', async () => {
  const asked: number[] = [];
  const counter = new PrimaryCounter((id) => asked.push(id));
  await counter.revive();
  const revived = counter.revive();
  assert.deepEqual(asked, [0]);
  counter.onAnswer(0, []);
  await revived;
});

test('when it has gone, nobody waits for it: what was asked is rejected, and what is asked later', async () => {
  const asked: number[] = [];
  const counter = new PrimaryCounter((id) => asked.push(id));
  await counter.revive();
  const answer = counter.ask(question);
  counter.onGone();
  await assert.rejects(answer, CounterGoneError);
  await assert.rejects(counter.ask(question), CounterGoneError);
  await assert.rejects(counter.revive(), CounterGoneError);
  assert.deepEqual(asked, [0]);
});
