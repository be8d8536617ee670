// The same worlds at every run. `npm run simulate` explores new ones.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createPlan } from './plan.ts';
import { shorten } from './shorten.ts';
import { runWorld } from './world.ts';

const worlds = 2_000;

test(`${worlds} simulated worlds hold every invariant`, async () => {
  for (let seed = 1; seed <= worlds; seed += 1) {
    const plan = createPlan(seed);
    const { violation } = await runWorld(plan);
    if (violation === undefined) continue;
    const { history } = await runWorld(await shorten(plan, violation.invariant), true);
    const { invariant, detail } = violation;
    assert.fail([`${invariant}: ${detail}`, ...history, `npm run simulate -- --seed ${seed}`].join('\n'));
  }
});

test('a world runs in the same way each time', async () => {
  const [first, second] = [await runWorld(createPlan(7), true), await runWorld(createPlan(7), true)];
  assert.deepEqual(first, second);
});
