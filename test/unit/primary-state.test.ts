// State that the primary process keeps for its workers: shared counts and the issuer's keys [D44, D46, D64].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { JoinedCount } from '../../packages/core/guards/rate-limit/joined-count.ts';
import { KeptKeys } from '../../packages/command/service/keeper.ts';

const rate = { limit: 5, windowMs: 10_000 };

test('the answer for each key has the granted requests, the ms left in the window and the requests left', () => {
  const count = new JoinedCount();
  assert.deepEqual(count.answer({ rate, keys: ['a', 'b'], wanted: [3, 1] }, 1_000), [
    ...[3, 10_000, 2],
    ...[1, 10_000, 4],
  ]);
  assert.deepEqual(count.answer({ rate, keys: ['a', 'b'], wanted: [4, 1] }, 3_500.5), [
    ...[2, 7_500, 0],
    ...[1, 7_500, 3],
  ]);
  assert.deepEqual(count.answer({ rate, keys: ['a'], wanted: [1] }, 10_999), [0, 1, 0]);
  assert.deepEqual(count.answer({ rate, keys: ['a'], wanted: [1] }, 11_000), [1, 10_000, 4]);
});

test('keys, and windows of different lengths, are counted separately', () => {
  const count = new JoinedCount();
  count.answer({ rate, keys: ['a'], wanted: [5] }, 0);
  assert.deepEqual(count.answer({ rate, keys: ['b'], wanted: [1] }, 0), [1, 10_000, 4]);
  const longer = { limit: 5, windowMs: 20_000 };
  assert.deepEqual(count.answer({ rate: longer, keys: ['a'], wanted: [1] }, 0), [1, 20_000, 4]);
});

test("the issuer's keys are kept with their address and their age", () => {
  const kept = new KeptKeys();
  assert.equal(kept.find('https://a/keys', 0), undefined);
  kept.keep('https://a/keys', { text: '{"keys":[]}', ageMs: 500 }, 10_000);
  assert.deepEqual(kept.find('https://a/keys', 12_000), { text: '{"keys":[]}', ageMs: 2_500 });
  assert.equal(kept.find('https://b/keys', 12_000), undefined);
});
