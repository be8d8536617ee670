// What a gateway needs of the memory that there is.

import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { test } from 'node:test';

import { connectionKindOf, neededMemory, readMemoryLimit } from '../../packages/command/settings/memory.ts';

test('a third more than the bodies, 200 MB for each process, and each connection by what it speaks', () => {
  const limits = { bufferedBytesMax: 3_000_000, connectionsMax: 10_000, workers: 1 };
  assert.equal(neededMemory(limits, 'plain'), 254_000_000);
  assert.equal(neededMemory(limits, 'tls'), 714_000_000);
  assert.equal(neededMemory(limits, 'http2'), 1_054_000_000);
  // Workers share the limits.
  assert.equal(neededMemory({ ...limits, workers: 4 }, 'plain'), 854_000_000);
});

test('what clients speak is by the settings', () => {
  assert.equal(connectionKindOf({ tlsCertFile: '', http2: false }), 'plain');
  assert.equal(connectionKindOf({ tlsCertFile: 'cert.pem', http2: false }), 'tls');
  assert.equal(connectionKindOf({ tlsCertFile: 'cert.pem', http2: true }), 'http2');
});

test('the limit is that of the container, or the memory of the machine', () => {
  const constrained = process.constrainedMemory();
  const isConstrained = constrained > 0 && constrained < totalmem();
  assert.equal(readMemoryLimit(), isConstrained ? constrained : totalmem());
});
