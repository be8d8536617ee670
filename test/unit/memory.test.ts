// The memory that a gateway needs, and the memory that the container or the machine has.

import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { test } from 'node:test';
import { connectionKindOf, neededMemory, readMemoryLimit } from '../../packages/command/settings/warnings.ts';

test('the needed memory is the sum of 4/3 of BUFFERED_BYTES_MAX, 200 MB a process, and an amount for each connection that depends on its protocol', () => {
  const limits = { bufferedBytesMax: 3_000_000, connectionsMax: 10_000, workers: 1 };
  assert.equal(neededMemory(limits, 'plain'), 364_000_000);
  assert.equal(neededMemory(limits, 'tls'), 1_604_000_000);
  assert.equal(neededMemory(limits, 'http2'), 2_204_000_000);
  // Workers share the limits, so only the 200 MB a process are multiplied by the number of workers.
  assert.equal(neededMemory({ ...limits, workers: 4 }, 'plain'), 964_000_000);
});

test('the settings decide the protocol of connections', () => {
  assert.equal(connectionKindOf({ tlsCertFile: '', http2: false }), 'plain');
  assert.equal(connectionKindOf({ tlsCertFile: 'cert.pem', http2: false }), 'tls');
  assert.equal(connectionKindOf({ tlsCertFile: 'cert.pem', http2: true }), 'http2');
});

test('the memory limit is that of the container; without a container limit, it is the memory of the machine', () => {
  const constrained = process.constrainedMemory();
  const isConstrained = constrained > 0 && constrained < totalmem();
  assert.equal(readMemoryLimit(), isConstrained ? constrained : totalmem());
});
