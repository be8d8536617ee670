// State that the primary process keeps for its workers, and how a worker sees its primary: up at the start, silent, or
// gone [D44, D46, D64].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createJoinedCount } from '../../packages/core/guards/rate-limit/count.ts';
import { createKeeper } from '../../packages/command/service/keeper.ts';
import { CounterGoneError } from '../../packages/core/guards/ports/ports.ts';
import { PrimaryCounter } from '../../packages/command/cluster/primary-counter.ts';

const rate = { limit: 5, windowMs: 10_000 };

test('the answer has two numbers for each request: the requests left after it, and the ms left in the window', () => {
  const count = createJoinedCount();
  const answer = (keys: string, now: number) => count.answer({ rate, keys: keys.split(' ') }, now);
  assert.deepEqual(answer('a a b a', 1_000), [...[4, 10_000], ...[3, 10_000], ...[4, 10_000], ...[2, 10_000]]);
  assert.deepEqual(answer('a a a b', 3_500.5), [...[1, 7_500], ...[0, 7_500], ...[-1, 7_500], ...[3, 7_500]]);
  assert.deepEqual(answer('a', 10_999), [-1, 1]);
  assert.deepEqual(answer('a', 11_000), [4, 10_000]);
});

test('keys, and windows of different lengths, are counted separately', () => {
  const count = createJoinedCount();
  count.answer({ rate, keys: ['a'] }, 0);
  assert.deepEqual(count.answer({ rate, keys: ['b'] }, 0), [4, 10_000]);
  assert.deepEqual(count.answer({ rate: { limit: 5, windowMs: 20_000 }, keys: ['a'] }, 0), [4, 20_000]);
  assert.deepEqual(
    count.answer({ rate: { limit: 1, windowMs: 10_000 }, keys: ['a'] }, 0),
    [-1, 10_000],
    'a lower limit',
  );
});

test("the issuer's keys are kept with their address and their age", () => {
  let now = 10_000;
  const keeper = createKeeper(() => now);
  assert.equal(keeper.findKeys('https://a/keys'), undefined);
  keeper.keepKeys('https://a/keys', { text: '{"keys":[]}', ageMs: 500 });
  now = 12_000;
  assert.deepEqual(keeper.findKeys('https://a/keys'), { text: '{"keys":[]}', ageMs: 2_500 });
  assert.equal(keeper.findKeys('https://b/keys'), undefined);
  keeper.keepKeys('https://b/keys', { text: '[]', ageMs: 0 });
  assert.deepEqual(keeper.findKeys('https://a/keys'), { text: '{"keys":[]}', ageMs: 2_500 }, 'the keys of others stay');
});

const question = { rate: { limit: 1, windowMs: 1_000 }, keys: ['a'] };

test('a new worker assumes that its primary is up, because on a busy machine an answer would be late', async () => {
  const asked: number[] = [];
  const counter = new PrimaryCounter((id) => asked.push(id));
  await counter.revive();
  assert.deepEqual(asked, []);
  const answer = counter.ask(question);
  counter.onAnswer(0, [0, 1_000]);
  assert.deepEqual(await answer, [0, 1_000]);
});

test('a primary that was silent must answer a test question before it is asked to count again', async () => {
  const asked: unknown[] = [];
  const counter = new PrimaryCounter((id, sent) => asked.push([id, sent]));
  await counter.revive();
  const revived = counter.revive();
  assert.deepEqual(asked, [[0, { rate: { limit: 1, windowMs: 1 }, keys: [] }]]);
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

test('guards share the counter: when one guard closes or tests the primary, the questions of the other guards stay open', async () => {
  const asked: number[] = [];
  const counter = new PrimaryCounter((id) => asked.push(id));
  await counter.revive();
  const answer = counter.ask(question);
  counter.close();
  const tests = [counter.revive(), counter.revive()];
  assert.deepEqual(asked, [0, 1], 'one test question is open at a time');
  counter.onAnswer(1, []);
  await Promise.all(tests);
  counter.onAnswer(0, [1]);
  assert.deepEqual(await answer, [1]);
  void counter.revive();
  assert.deepEqual(asked, [0, 1, 2]);
});
