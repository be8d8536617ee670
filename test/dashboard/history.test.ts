// The dashboard's history of 15 minutes: sums over steps and windows, and the fixed size.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';

import { createDashboard } from '../../packages/dashboard/dashboard-server.ts';
import { pointOf, summaryOf } from '../../packages/dashboard/points.ts';
import type { Point } from '../../packages/dashboard/state.ts';
import { deathCauses, Figures } from '../../packages/figures/figures.ts';
import { addFigures, History, historyMs, stepMs } from '../../packages/figures/history.ts';
import type { Report } from '../../packages/figures/report.ts';
import { operations } from '../../packages/core/operations.ts';
import { callOutcomes, type CallOutcome } from '../../packages/core/outcomes.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { createReport, joinReports, noFacts } from './report.ts';

/** Figures with calls: a name, the outcome, and the status of the reply. */
class Counted extends Figures {
  /** Calls that the backend answered. */
  answered(name: string, outcome: CallOutcome = 'ok', status = 200, durationMs = 10, backendDurationMs = 8): void {
    const operation = operations.find((each) => each.name === name);
    const backendOutcome = outcome === 'client-gone' ? 'cancelled' : (outcome as 'ok');
    this.record(createCallRecord({ operation, outcome, status, durationMs, backendOutcome, backendDurationMs }));
  }

  /** Calls that ended before the backend was called. */
  refused(name: string, outcome: CallOutcome, status: number, durationMs = 10): void {
    this.record(
      createCallRecord({ operation: operations.find((each) => each.name === name), outcome, status, durationMs }),
    );
  }
}

const report = (figures: Figures, more: Partial<Report> = {}): Report =>
  createReport({ figures: figures.toJSON(), ...more });

/** Lets a step pass, and returns its point. */
function step(history: History, ...reports: readonly Report[]): Point {
  mock.timers.tick(stepMs);
  return pointOf(history.record(addFigures(joinReports(reports))), reports);
}

const summaryIn = (history: History, figures: Figures, ms = historyMs) => summaryOf(history.since(ms, figures));

beforeEach(() => mock.timers.enable({ apis: ['Date'], now: 0 }));
afterEach(() => mock.timers.reset());

test('a step has the counts since the previous step, summed over all processes, with the party at fault [D51]', () => {
  const history = new History(0);
  const [one, other] = [new Counted(), new Counted()];
  one.answered('list');
  assert.equal(step(history, report(one), report(other)).flows.all.requests, 1);
  one.answered('list', 'ok', 200, 100, 90);
  other.answered('read', 'refused', 500);
  other.refused('read', 'overload', 503);
  other.refused('read', 'invalid-id', 400);
  other.answered('create', 'rejected', 500);
  other.answered('update', 'client-gone', 0);
  other.recordMalformed(405);
  const loads = [
    { inFlight: 2, eventLoopDelayMs: 3 },
    { inFlight: 5, eventLoopDelayMs: 1 },
  ] as const;
  const { flows, ...second } = step(history, report(one, loads[0]), report(other, loads[1]));
  assert.partialDeepStrictEqual(second, { at: 10_000, seconds: 5, inFlight: 7, eventLoopDelayMs: 3 });
  assert.deepEqual([flows.list.requests, flows.read.requests, flows.all.requests], [1, 3, 6]);
  assert.deepEqual(flows.all.failed, { backend: 1, gateway: 1, client: 2 });
  assert.deepEqual(flows.all.byStatus, { '2xx': 1, '4xx': 1, '5xx': 3, none: 1 });
  assert.deepEqual(flows.none.failed, { backend: 0, gateway: 0, client: 1 });
  assert.deepEqual(flows.read.byStatus, { '2xx': 0, '4xx': 1, '5xx': 2, none: 0 });
  assert.equal(flows.all.backendCalls, 4);
  assert.ok((flows.list.p99 ?? 0) > 50, 'the slow call is in the second step');
  assert.equal(flows.delete.p50, null);
});

test('the death of a worker is counted in the step in which it happened [D63]', () => {
  const history = new History(0);
  const figures = new Figures();
  const deaths = [['killed'], ['killed', 'exit'], [], deathCauses].map((causes) => {
    for (const cause of causes) figures.count(`death ${cause as 'killed'}`);
    return step(history, report(figures)).workerDeaths;
  });
  assert.deepEqual(deaths, [1, 2, 0, 5]);
});

test('durations are those of the requests that called the backend', () => {
  const history = new History(0);
  const figures = new Counted();
  figures.answered('read', 'ok', 200, 200, 190);
  const { flows: alone } = summaryIn(history, figures);
  for (const outcome of callOutcomes) for (const ms of [0.01, 20_000]) figures.refused('read', outcome, 401, ms);
  figures.refused('none', 'no-operation', 404);
  const { flows } = summaryIn(history, figures);
  assert.equal(flows.read.requests, 1 + 2 * callOutcomes.length);
  for (const name of ['read', 'all', 'none'] as const) {
    const { p50, p99, mean, backendMean } = alone[name];
    assert.partialDeepStrictEqual(flows[name], { p50, p99, mean, backendMean }, name);
  }
  assert.deepEqual([flows.read.mean, flows.read.backendMean, flows.none.p50], [200, 190, null]);
});

test('a window covers its duration, or the time since the start if that is shorter; the oldest step is dropped', () => {
  const history = new History(0);
  const figures = new Counted();
  for (let count = 0; count < 24; count += 1) {
    figures.answered('list', count < 10 ? 'timed-out' : 'ok', count < 10 ? 500 : 200);
    step(history, report(figures));
  }
  const minute = summaryIn(history, figures, 60_000);
  assert.deepEqual([minute.from, minute.seconds, minute.flows.list.requests], [60_000, 60, 12]);
  assert.deepEqual(minute.failures, {});
  const whole = summaryIn(history, figures);
  assert.deepEqual([whole.from, whole.seconds, whole.flows.list.requests], [0, 120, 24]);
  assert.deepEqual(whole.failures, { 'timed-out': 10 });
  const steps = historyMs / stepMs;
  for (let count = 0; count < steps + 20; count += 1) {
    figures.answered('delete');
    step(history, report(figures));
  }
  assert.equal(summaryIn(history, figures, 2 * historyMs).flows.delete.requests, steps);
});

test('calls that succeeded since the last failure are counted, separately for the backend and the gateway', () => {
  const history = new History(0);
  const figures = new Counted();
  const where = { requestId: 'id', operation: 'list', path: '/api/work-items', client: '127.0.0.1' };
  const failure = { ...where, status: 500, cause: undefined, durationMs: 1 };
  const failures = [
    { ...failure, at: 50, outcome: 'overload', party: 'gateway' },
    { ...failure, at: 40, outcome: 'refused', party: 'backend' },
    { ...failure, at: 30, outcome: 'refused', party: 'backend' },
  ] as const;
  assert.deepEqual(history.lastFailures(figures, []), { backend: null, gateway: null });
  figures.answered('list');
  figures.answered('list', 'refused', 500);
  step(history, report(figures));
  figures.answered('list');
  figures.answered('read', 'not-found', 404);
  figures.answered('list', 'client-gone', 0);
  const backend = { at: 40, callsSince: 2 };
  assert.deepEqual(history.lastFailures(figures, failures.slice(1)), { backend, gateway: null });
  figures.refused('list', 'overload', 503);
  step(history, report(figures));
  figures.answered('list');
  assert.deepEqual(history.lastFailures(figures, failures), {
    backend: { at: 40, callsSince: 3 },
    gateway: { at: 50, callsSince: 1 },
  });
});

test('hasNoSuccess is true after at least ten answers in five minutes without a success [D51]', () => {
  const history = new History(0);
  const figures = new Counted();
  for (const [expected, ...calls] of [
    [false],
    // No answers.
    [false, ...Array<['list', 'timed-out']>(20).fill(['list', 'timed-out'])],
    [false, ...(['not-found', 'rejected', 'refused'] as const).flatMap((each) => Array<['read', typeof each]>(3).fill(['read', each]))],
    [true, ['create', 'rejected']],
    [false, ['update', 'ok']],
  ] as const) {
    for (const [name, outcome] of calls) figures.answered(name, outcome);
    assert.equal(history.hasNoSuccess(figures), expected, JSON.stringify(calls));
  }
  for (let passed = 0; passed <= 300_000; passed += stepMs) step(history, report(figures));
  for (let count = 0; count < 10; count += 1) figures.answered('read', 'not-found');
  assert.equal(history.hasNoSuccess(figures), true, 'the success is five minutes old');
}); // prettier-ignore

test('the dashboard keeps the points of the last 15 minutes', async () => {
  const history = new History(0);
  const reports = [createReport()];
  const dashboard = createDashboard(
    {
      reports: () => Promise.resolve(joinReports(reports)),
      isDraining: () => false,
      onFault: () => assert.fail(),
      facts: noFacts,
    },
    history,
  );
  for (let passed = 0; passed < 2 * historyMs; passed += stepMs) {
    mock.timers.tick(stepMs);
    dashboard.record(history.record(new Figures()), reports);
  }
  const reply = await dashboard.answer('/dashboard/state', new URLSearchParams('after=0'));
  const { points } = JSON.parse(String(reply?.body)) as { points: Point[] };
  assert.deepEqual([points.length, points.at(-1)?.at], [historyMs / stepMs, 2 * historyMs]);
});
