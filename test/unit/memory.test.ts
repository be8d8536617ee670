// What a gateway needs of its container's memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { neededMemory, readMemoryLimit } from '../../src/process/memory.ts';

test('a third more than the bodies that it may hold, and 200 MB for each process', () => {
  assert.equal(neededMemory({ bufferedBytesMax: 3_000_000, workers: 1 }), 204_000_000);
  assert.equal(neededMemory({ bufferedBytesMax: 3_000_000, workers: 4 }), 804_000_000);
});

test('the limit is what the system says, or none', () => {
  const limit = readMemoryLimit();
  assert.ok(limit === undefined || limit === process.constrainedMemory());
});
