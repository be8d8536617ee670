// The dashboard's history of 15 minutes: sums over steps and windows, and the fixed size.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';

import { Figures } from '../../packages/figures/figures.ts';
import { addFigures, History as FigureHistory, historyMs, stepMs } from '../../packages/figures/history.ts';
import { createDashboard } from '../../packages/dashboard/dashboard-server.ts';
import { pointOf, summaryOf } from '../../packages/dashboard/points.ts';
import type { Point, Summary } from '../../packages/dashboard/state.ts';
import type { Report } from '../../packages/figures/report.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { operations } from '../../packages/core/operations.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { createReport, joinReports } from './report.ts';

const withoutCall = { backendOutcome: undefined, backendDurationMs: undefined };

/** The history of figures, with the dashboard's points and summaries. */
class History extends FigureHistory {
  readonly points: Point[] = [];

  note(reports: readonly Report[]): void {
    this.points.push(pointOf(this.record(addFigures(joinReports(reports))), reports));
  }

  summarise(counted: Figures, ms: number): Summary {
    return summaryOf(this.since(ms, counted));
  }
}

function report(figures: Figures, more: Partial<Report> = {}): Report {
  return createReport({ figures: figures.toJSON(), ...more });
}

function call(name: string, more: Partial<CallRecord> = {}): CallRecord {
  return createCallRecord({
    operation: operations.find((operation) => operation.name === name),
    status: 200,
    outcome: 'ok',
    backendOutcome: 'ok',
    durationMs: 10,
    backendDurationMs: 8,
    ...more,
  });
}

beforeEach(() => mock.timers.enable({ apis: ['Date'], now: 0 }));
afterEach(() => mock.timers.reset());

test('a step has the counts since the previous step, summed over all processes', () => {
  const history = new History(0);
  const [one, other] = [new Figures(), new Figures()];
  one.record(call('list'));
  mock.timers.tick(stepMs);
  history.note([report(one), report(other)]);
  one.record(call('list', { durationMs: 100, backendDurationMs: 90 }));
  other.record(call('read', { outcome: 'refused', status: 500, backendOutcome: 'refused' }));
  other.record(call('read', { outcome: 'overload', status: 503, ...withoutCall }));
  other.record(call('read', { outcome: 'invalid-id', status: 400, ...withoutCall }));
  mock.timers.tick(stepMs);
  history.note([
    report(one, { inFlight: 2, eventLoopDelayMs: 3 }),
    report(other, { inFlight: 5, eventLoopDelayMs: 1 }),
  ]);
  const [first, second] = history.points;
  assert.equal(first?.flows.all.requests, 1);
  assert.ok(second);
  const { seconds, inFlight, eventLoopDelayMs, flows } = second;
  assert.deepEqual({ seconds, inFlight, eventLoopDelayMs }, { seconds: 5, inFlight: 7, eventLoopDelayMs: 3 });
  assert.deepEqual([flows.list.requests, flows.read.requests, flows.all.requests], [1, 3, 4]);
  assert.deepEqual(second.flows.all.failed, { backend: 1, gateway: 1, client: 1 });
  assert.deepEqual(second.flows.all.byStatus, { '2xx': 1, '4xx': 1, '5xx': 2, none: 0 });
  assert.deepEqual(second.flows.read.byStatus, { '2xx': 0, '4xx': 1, '5xx': 2, none: 0 });
  assert.equal(second.flows.all.backendCalls, 2);
  assert.ok((second.flows.list.p99 ?? 0) > 50, 'the slow call is in the second step');
  assert.equal(second.flows.create.p50, null);
});

test('durations are those of the requests that called the backend', () => {
  const history = new History(0);
  const figures = new Figures();
  figures.record(call('read', { durationMs: 200, backendDurationMs: 190 }));
  const alone = history.summarise(figures, historyMs).flows;
  for (const [outcome, status] of [
    ['no-token', 401],
    ['invalid-token', 401],
    ['insufficient-scope', 403],
    ['forbidden', 403],
    ['rate-limited', 429],
    ['overload', 503],
    ['no-keys', 503],
    ['invalid-id', 400],
    ['bad-request', 408],
    ['body-too-large', 413],
    ['invalid-body', 500],
    ['client-gone', 0],
  ] as const) {
    for (const durationMs of [0.01, 20_000])
      figures.record(call('read', { outcome, status, durationMs, ...withoutCall }));
  }
  figures.record(createCallRecord({ outcome: 'no-operation', status: 404, ...withoutCall }));
  const { flows } = history.summarise(figures, historyMs);
  assert.equal(flows.read.requests, 25);
  for (const name of ['read', 'all', 'none'] as const) {
    const { p50, p99, mean, backendMean } = alone[name];
    assert.partialDeepStrictEqual(flows[name], { p50, p99, mean, backendMean }, name);
  }
  assert.deepEqual([flows.read.mean, flows.read.backendMean, flows.none.p50], [200, 190, null]);
});

test('a window covers its duration, or the time since the start if that is shorter', () => {
  const history = new History(0);
  const figures = new Figures();
  for (let step = 0; step < 24; step += 1) {
    figures.record(call('list', step < 10 ? { outcome: 'timed-out', backendOutcome: 'timed-out' } : {}));
    mock.timers.tick(stepMs);
    history.note([report(figures)]);
  }
  const counted = addFigures(joinReports([report(figures)]));
  const minute = history.summarise(counted, 60_000);
  assert.equal(minute.seconds, 60);
  assert.equal(minute.from, 60_000);
  assert.equal(minute.flows.list.requests, 12);
  assert.deepEqual(minute.failures, {});
  const whole = history.summarise(counted, historyMs);
  assert.equal(whole.seconds, 120);
  assert.equal(whole.flows.list.requests, 24);
  assert.deepEqual(whole.failures, { 'timed-out': 10 });
});

test('the history has a fixed size: the oldest step is dropped', () => {
  const history = new History(0);
  const figures = new Figures();
  const steps = historyMs / stepMs;
  for (let step = 0; step < steps + 20; step += 1) {
    figures.record(call('delete'));
    mock.timers.tick(stepMs);
    history.note([report(figures)]);
  }
  assert.equal(history.summarise(figures, historyMs).flows.delete.requests, steps);
});

test('failures caused by clients are counted for the clients, even if the reply is a 500 [D51]', () => {
  const history = new History(0);
  const figures = new Figures();
  figures.record(call('read', { outcome: 'not-found', status: 404, backendOutcome: 'not-found' }));
  figures.record(call('create', { outcome: 'rejected', status: 500, backendOutcome: 'rejected' }));
  figures.record(call('create', { outcome: 'invalid-body', status: 500, ...withoutCall }));
  figures.record(call('update', { outcome: 'client-gone', status: 0, backendOutcome: 'ok' }));
  figures.record(call('list', { outcome: 'shutdown', status: 0, backendOutcome: 'cancelled' }));
  figures.record(call('none', { outcome: 'no-operation', status: 404, ...withoutCall }));
  figures.recordMalformed(405);
  figures.recordMalformed(400);
  const { flows, failures } = history.summarise(figures, historyMs);
  const nobody = { backend: 0, gateway: 0, client: 0 };
  assert.deepEqual(flows.create.failed, { ...nobody, client: 2 });
  assert.deepEqual(flows.create.byStatus, { '2xx': 0, '4xx': 0, '5xx': 2, none: 0 });
  assert.deepEqual(flows.read.failed, { ...nobody, client: 1 });
  assert.deepEqual(flows.update.failed, nobody);
  assert.deepEqual(flows.update.byStatus, { '2xx': 0, '4xx': 0, '5xx': 0, none: 1 });
  assert.deepEqual(flows.list.failed, nobody);
  assert.equal(flows.all.requests, 5);
  assert.deepEqual(flows.none.failed, { ...nobody, client: 3 });
  assert.deepEqual(failures, { 'not-found': 1, rejected: 1, 'invalid-body': 1, 'no-operation': 2, 'bad-request': 1 });
});

test('calls that succeeded since the last failure are counted, separately for the backend and the gateway', () => {
  const history = new History(0);
  const figures = new Figures();
  const where = { requestId: 'id', operation: 'list', path: '/api/work-items', client: '127.0.0.1' };
  const failure = { ...where, status: 500, cause: undefined, durationMs: 1 };
  const failures = [
    { ...failure, at: 50, outcome: 'overload', party: 'gateway' },
    { ...failure, at: 40, outcome: 'refused', party: 'backend' },
    { ...failure, at: 30, outcome: 'refused', party: 'backend' },
  ] as const;
  assert.deepEqual(history.lastFailures(figures, []), { backend: null, gateway: null });
  figures.record(call('list'));
  figures.record(call('list', { outcome: 'refused', backendOutcome: 'refused', status: 500 }));
  history.note([report(figures)]);
  figures.record(call('list'));
  figures.record(call('read', { outcome: 'not-found', backendOutcome: 'not-found', status: 404 }));
  figures.record(call('list', { outcome: 'client-gone', backendOutcome: 'cancelled', status: 0 }));
  assert.deepEqual(history.lastFailures(figures, failures.slice(1)), {
    backend: { at: 40, callsSince: 2 },
    gateway: null,
  });
  figures.record(call('list', { outcome: 'overload', backendOutcome: undefined, status: 503 }));
  history.note([report(figures)]);
  figures.record(call('list'));
  assert.deepEqual(history.lastFailures(figures, failures), {
    backend: { at: 40, callsSince: 3 },
    gateway: { at: 50, callsSince: 1 },
  });
});

test('hasNoSuccess is true after at least ten answers in five minutes without a success [D51]', () => {
  const history = new History(0);
  const figures = new Figures();
  const add = (
    count: number,
    ...[name, outcome]: [string, 'ok' | 'not-found' | 'rejected' | 'refused' | 'timed-out']
  ): void => {
    for (let made = 0; made < count; made += 1) figures.record(call(name, { outcome, backendOutcome: outcome }));
  };
  const pass = (ms: number): void => {
    for (let passed = 0; passed < ms; passed += stepMs) {
      mock.timers.tick(stepMs);
      history.note([report(figures)]);
    }
  };
  assert.equal(history.hasNoSuccess(figures), false, 'no calls');
  add(20, 'list', 'timed-out');
  assert.equal(history.hasNoSuccess(figures), false, 'no answers');
  add(3, 'read', 'not-found');
  add(3, 'delete', 'rejected');
  add(3, 'list', 'refused');
  assert.equal(history.hasNoSuccess(figures), false, 'nine answers');
  add(1, 'create', 'rejected');
  assert.equal(history.hasNoSuccess(figures), true);
  add(1, 'update', 'ok');
  assert.equal(history.hasNoSuccess(figures), false, 'a success');
  pass(300_000 + stepMs);
  add(10, 'read', 'not-found');
  assert.equal(history.hasNoSuccess(figures), true, 'the success is five minutes old');
});

test('the death of a worker is counted in the step in which it happened [D63]', () => {
  const history = new History(0);
  const figures = new Figures();
  const step = (...reports: Report[]): void => {
    mock.timers.tick(stepMs);
    history.note(reports);
  };
  figures.count('death killed');
  step(report(figures));
  figures.count('death killed');
  figures.count('death exit');
  step(report(figures));
  step(report(figures));
  assert.deepEqual(
    history.points.map(({ workerDeaths }) => workerDeaths),
    [1, 2, 0],
  );
});

test('the dashboard keeps the points of the last 15 minutes', async () => {
  const history = new FigureHistory(0);
  const dashboard = createDashboard(
    {
      reports: () => Promise.resolve(joinReports([report(new Figures())])),
      isDraining: () => false,
      onFault: (error) => assert.fail(String(error)),
      facts: () => ({
        ...{ instanceName: '', url: '', backendUrl: '', inFlightMax: 1, bufferedBytesMax: 1 },
        ...{ certificates: [], settings: [] },
      }),
    },
    history,
  );
  const steps = historyMs / stepMs;
  for (let step = 0; step < 2 * steps; step += 1) {
    mock.timers.tick(stepMs);
    const reports = [report(new Figures())];
    dashboard.record(history.record(addFigures(joinReports(reports))), reports);
  }
  const reply = await dashboard.answer('/dashboard/state', new URLSearchParams('after=0'));
  const { points } = JSON.parse(String(reply?.body)) as { points: Point[] };
  assert.deepEqual([points.length, points.at(-1)?.at], [steps, 2 * historyMs]);
});
