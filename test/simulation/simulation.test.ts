// The same worlds at every run. `npm run simulate` explores new ones.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPlan } from './plan.ts';
import { shorten } from './shorten.ts';
import { runInTurn, runWorld } from './world.ts';

const worlds = 2_000;

/** Runs a world. Returns how it fails; undefined if it holds every invariant. */
function findFault(seed: number): string | undefined {
  const plan = createPlan(seed);
  const { violation } = runWorld(plan);
  if (violation === undefined) return undefined;
  const { history } = runWorld(shorten(plan, violation.invariant), true);
  return [`${violation.invariant}: ${violation.detail}`, ...history, `npm run simulate -- --seed ${seed}`].join('\n');
}

test(`${worlds} simulated worlds hold every invariant`, async () => {
  for (let seed = 1; seed <= worlds; seed += 1) {
    assert.equal(await runInTurn(() => findFault(seed)), undefined);
  }
});

test('a world runs in the same way each time', async () => {
  const histories = [1, 2].map(() => runInTurn(() => runWorld(createPlan(7), true).history));
  const [first, second] = await Promise.all(histories);
  assert.deepEqual(first, second);
});
