// Why a worker has ended, in a few words that metrics can have as a label [D63].

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { causeOfDeath } from '../../packages/figures/worker-deaths.ts';

test('an end of a worker has one of five causes [D63]', () => {
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
