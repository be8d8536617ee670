// The latest failures, for the dashboard.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { failuresMax, joinFailures, latestMax, RecentFailures } from '../../packages/figures/failures.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { callOutcomes, outcomes, type CallOutcome } from '../../packages/core/outcomes.ts';
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

/** Records `count` failures with the ids `refused 0`, `refused 1` and so on. */
function fill(failures: RecentFailures, outcome: CallOutcome, count: number): void {
  for (let index = 0; index < count; index += 1) failures.record(call(`${outcome} ${index}`, outcome), false);
}

test('the last 50 failures of each outcome are kept, however many others follow', () => {
  const failures = new RecentFailures();
  const rare = ['not-json', 'refused', 'rejected', 'invalid-token'] as const;
  for (const outcome of rare) fill(failures, outcome, failuresMax + 1);
  fill(failures, 'invalid-id', 5_000);
  const ids = new Set(idsOf(failures));
  assert.equal(failuresMax, 50);
  for (const outcome of rare) {
    assert.ok(ids.has(`${outcome} 1`) && ids.has(`${outcome} 50`), outcome);
    assert.ok(!ids.has(`${outcome} 0`), `${outcome}: at most 50`);
  }
});

test('at four failures a second with one outcome, those of the last minute are kept', () => {
  const failures = new RecentFailures();
  fill(failures, 'refused', 5_000);
  assert.ok(idsOf(failures).includes(`refused ${5_000 - 4 * 60}`));
});

test('the lists of several workers are joined: the last 50 of each outcome of all workers', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const workers = [new RecentFailures(), new RecentFailures(), new RecentFailures()];
  for (const [index, worker] of workers.entries()) {
    for (let count = 0; count < 30; count += 1) {
      worker.record(call(`rare ${index} ${count}`, 'timed-out'), false);
      context.mock.timers.tick(1);
    }
  }
  for (const worker of workers) fill(worker, 'invalid-id', 1_000);
  const joined = joinFailures(workers.map((worker) => worker.list()));
  for (const [index, { at }] of joined.entries()) assert.ok(at <= (joined[index - 1]?.at ?? at), 'latest first');
  const rare = joined.filter(({ outcome }) => outcome === 'timed-out').map(({ requestId }) => requestId);
  assert.deepEqual([rare.length, rare[0], rare.at(-1)], [failuresMax, 'rare 2 29', 'rare 1 10']);
});

test('the number of failures kept has a limit, and a kept path does not keep its target', () => {
  const failures = new RecentFailures();
  const failing = callOutcomes.filter((outcome) => outcomes[outcome].fault !== 'nobody');
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let index = 0; index < 200 * failing.length; index += 1) {
    const target = Buffer.alloc(16_384, 'x').fill(String(index), 0, 10).toString('latin1');
    const [path, client] = [target.slice(0, 256), target.slice(256, 300)];
    failures.record({ ...call('id', failing[index % failing.length] ?? 'bug'), path, client }, true);
  }
  collect();
  const kept = failures.list();
  assert.ok(kept.length <= failuresMax * failing.length + latestMax, `${kept.length} failures`);
  const bytes = process.memoryUsage().heapUsed - before;
  assert.ok(bytes < 8_000_000, `${bytes} bytes`);
});

test('failures stay in order, however many there are', (context) => {
  context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const failures = new RecentFailures();
  const count = 10 * latestMax;
  fill(failures, 'refused', count);
  const latest = Array.from({ length: latestMax }, (_, index) => `refused ${count - 1 - index}`);
  assert.deepEqual(idsOf(failures), latest);
});
