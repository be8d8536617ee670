// The table of a worker's states.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextState } from '../../packages/command/cluster/worker-state.ts';

const none = undefined;
const expected = {
  starting: { ready: 'serving', leave: 'draining', end: 'ended' },
  serving: { ready: none, leave: 'draining', end: 'ended' },
  draining: { ready: 'draining', leave: 'draining', end: 'ended' },
  ended: { ready: none, leave: none, end: none },
} as const;

for (const state of ['starting', 'serving', 'draining', 'ended'] as const) {
  for (const event of ['ready', 'leave', 'end'] as const) {
    const next = expected[state][event];
    test(`${state}: after the event ${event} a worker is ${next ?? 'nothing, because this throws'}`, () => {
      if (next === undefined) assert.throws(() => nextState(state, event), { message: /cannot have the event/ });
      else assert.equal(nextState(state, event), next);
    });
  }
}
