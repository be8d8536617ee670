// Causes of a worker's end, as labels of metrics [D63].

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { causeOfDeath } from '../../packages/figures/worker-deaths.ts';

test("a worker's end has one of five causes [D63]", () => {
  for (const [signal, isFrozen, cause] of [
    [null, false, 'exit'],
    ['SIGKILL', false, 'killed'],
    ['SIGKILL', true, 'frozen'],
    ['SIGABRT', false, 'aborted'],
    ['SIGSEGV', false, 'signal'],
    ['SIGTERM', false, 'signal'],
  ] as const) {
    assert.equal(causeOfDeath(signal, isFrozen), cause, String(signal));
  }
});
