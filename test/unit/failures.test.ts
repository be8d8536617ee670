import assert from 'node:assert/strict';
import { test } from 'node:test';

import { failuresMax, RecentFailures } from '../../src/admin/failures.ts';
import type { CallRecord } from '../../src/gateway/call.ts';
import type { CallOutcome } from '../../src/gateway/outcomes.ts';

function call(requestId: string, outcome: CallOutcome): CallRecord {
  return {
    requestId,
    outcome,
    operation: undefined,
    method: 'GET',
    status: 500,
    cause: undefined,
    backendOutcome: undefined,
    durationMs: 1,
    backendDurationMs: undefined,
    requestBytes: 0,
    replyBytes: 0,
  };
}

function idsOf(failures: RecentFailures): string[] {
  return failures.list().map(({ requestId }) => requestId);
}

test('the latest failure comes first, within one millisecond too, whoever it is of', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const failures = new RecentFailures();
  failures.record(call('refused', 'refused'));
  failures.record(call('no failure', 'ok'));
  failures.record(call('mistake', 'invalid-id'));
  failures.recordMalformed('malformed', 400, 'HPE_INVALID_METHOD');
  failures.record(call('full', 'overload'));
  failures.record(call('not JSON', 'not-json'));
  assert.deepEqual(idsOf(failures), ['not JSON', 'full', 'malformed', 'mistake', 'refused']);
});

test('the oldest failures of a party make room for its own only', () => {
  const failures = new RecentFailures();
  failures.record(call('refused', 'refused'));
  for (let mistake = 0; mistake < failuresMax + 2; mistake += 1) {
    failures.record(call(`mistake ${mistake}`, 'invalid-id'));
  }
  const ids = idsOf(failures);
  assert.equal(ids.length, failuresMax + 1);
  assert.deepEqual([ids[0], ids.at(-2), ids.at(-1)], [`mistake ${failuresMax + 1}`, 'mistake 2', 'refused']);
});
