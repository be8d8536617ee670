// The latest failures, for the dashboard.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failuresMax, RecentFailures } from '../../packages/figures/failures.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import type { CallOutcome } from '../../packages/core/outcomes.ts';
import { createCallRecord } from '../helpers/call-record.ts';

function call(requestId: string, outcome: CallOutcome): CallRecord {
  return createCallRecord({ requestId, outcome, path: `/api/work-items/${requestId}` });
}

function idsOf(failures: RecentFailures): string[] {
  return failures.list().map(({ requestId }) => requestId);
}

test('failures of all parties are listed latest first, even within one millisecond', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const failures = new RecentFailures();
  failures.record(call('refused', 'refused'), false);
  failures.record(call('no failure', 'ok'), false);
  failures.record(call('mistake', 'invalid-id'), false);
  failures.recordMalformed('malformed', 400, 'HPE_INVALID_METHOD', undefined);
  failures.record(call('full', 'overload'), false);
  failures.record(call('not JSON', 'not-json'), false);
  assert.deepEqual(idsOf(failures), ['not JSON', 'full', 'malformed', 'mistake', 'refused']);
});

test('a failure is listed with its path and client, and without control characters', () => {
  const failures = new RecentFailures();
  failures.record({ ...call('refused', 'refused'), cause: 'a\u001b\u202eb', client: '203.0.113.5' }, true);
  failures.recordMalformed('malformed', 400, 'HPE_INVALID_METHOD', '203.0.113.6');
  const [malformed, refused] = failures.list();
  assert.deepEqual([malformed?.path, malformed?.client], [undefined, '203.0.113.6']);
  assert.deepEqual([refused?.path, refused?.client], ['/api/work-items/refused', '203.0.113.5']);
  assert.equal(refused?.cause, String.raw`a\u001b\u202eb`);
});

test('a new failure replaces only the oldest failure of the same party', () => {
  const failures = new RecentFailures();
  failures.record(call('refused', 'refused'), false);
  for (let mistake = 0; mistake < failuresMax + 2; mistake += 1) {
    failures.record(call(`mistake ${mistake}`, 'invalid-id'), false);
  }
  const ids = idsOf(failures);
  assert.equal(ids.length, failuresMax + 1);
  assert.deepEqual([ids[0], ids.at(-2), ids.at(-1)], [`mistake ${failuresMax + 1}`, 'mistake 2', 'refused']);
});

test('failures stay in order, however many there are', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const failures = new RecentFailures();
  for (let index = 0; index < 10 * failuresMax; index += 1) failures.record(call(`${index}`, 'refused'), false);
  const latest = Array.from({ length: failuresMax }, (_, index) => `${10 * failuresMax - 1 - index}`);
  assert.deepEqual(idsOf(failures), latest);
});
