// How a worker sees its primary process, which counts the requests of all workers for the rate limit: up at the start,
// silent, or gone [D46].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CounterGoneError } from '../../packages/core/guards/options/ports.ts';
import { PrimaryCounter } from '../../packages/command/cluster/primary-counter.ts';

const question = { rate: { limit: 1, windowMs: 1_000 }, keys: ['a'], wanted: [1] };

test('a new worker assumes that its primary is up, because on a busy machine an answer would be late', async () => {
  const asked: number[] = [];
  const counter = new PrimaryCounter((id) => asked.push(id));
  await counter.revive();
  assert.deepEqual(asked, []);
  const answer = counter.ask(question);
  counter.onAnswer(0, [1, 1_000, 0]);
  assert.deepEqual(await answer, [1, 1_000, 0]);
});

test('a primary that was silent must answer before it counts again', async () => {
  const asked: unknown[] = [];
  const counter = new PrimaryCounter((id, sent) => asked.push([id, sent]));
  await counter.revive();
  const revived = counter.revive();
  assert.deepEqual(asked, [[0, { rate: { limit: 1, windowMs: 1 }, keys: [], wanted: [] }]]);
  counter.onAnswer(0, []);
  await revived;
});

test('after the primary has gone, pending and later questions are rejected', async () => {
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

test('each question gets its own answer, in any order; other answers are ignored', async () => {
  const asked: unknown[] = [];
  const counter = new PrimaryCounter((id, sent) => asked.push([id, sent]));
  const answers = [counter.ask(question), counter.ask({ ...question, keys: ['b'] })];
  assert.deepEqual(asked, [
    [0, question],
    [1, { ...question, keys: ['b'] }],
  ]);
  counter.onAnswer(2, [9]);
  counter.onAnswer(1, [2]);
  counter.onAnswer(0, [1]);
  counter.onAnswer(0, [9]);
  assert.deepEqual(await Promise.all(answers), [[1], [2]]);
});

for (const [what, forget] of [
  [
    'close',
    (counter: PrimaryCounter) => {
      counter.close();
    },
  ],
  ['revive', (counter: PrimaryCounter) => void counter.revive()],
] as const) {
  test(`an answer that comes after ${what} is ignored`, async () => {
    const counter = new PrimaryCounter(() => undefined);
    const answer = counter.ask(question);
    forget(counter);
    counter.onAnswer(0, [1]);
    const turn = new Promise((resolve) => setImmediate(resolve, 'no answer'));
    assert.equal(await Promise.race([answer, turn]), 'no answer');
  });
}
