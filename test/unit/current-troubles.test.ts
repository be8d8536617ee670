// The present troubles: the commonest failure of the backend, and the troubles that stay until they have passed for five minutes
// [D51, D71].

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { reasonOfError } from '../../packages/core/backend/describe-error.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { operations } from '../../packages/core/operations.ts';
import { findTroubles } from '../../packages/figures/current-troubles.ts';
import { RecentFailures } from '../../packages/figures/failures.ts';
import { Figures } from '../../packages/figures/figures.ts';
import { History, stepMs } from '../../packages/figures/history.ts';
import { troubleOfReason, type CurrentTroubles } from '../../packages/figures/troubles.ts';
import { createReport, joinReports } from '../dashboard/report.ts';
import { createCallRecord } from '../helpers/call-record.ts';

const list = operations.find(({ name }) => name === 'list');
const read = operations.find(({ name }) => name === 'read');

/** A gateway without a process: its figures, history and clock. */
class Gateway {
  readonly figures = new Figures();
  readonly failures = new RecentFailures();
  readonly #history = new History(0);
  readonly #context: TestContext;

  constructor(context: TestContext) {
    this.#context = context;
    context.mock.timers.enable({ apis: ['Date'], now: 0 });
  }

  call(count: number, record: Partial<CallRecord>): void {
    for (let index = 0; index < count; index += 1) {
      const call = createCallRecord({ operation: list, ...record });
      this.figures.record(call);
      this.failures.record(call, false);
    }
  }

  /** Lets time pass; the history gets its steps. */
  pass(seconds: number): void {
    for (let passed = 0; passed < seconds * 1_000; passed += stepMs) {
      this.#context.mock.timers.setTime(Date.now() + stepMs);
      this.#history.record(new Figures(this.figures.toJSON()));
    }
  }

  troubles(): CurrentTroubles {
    const report = createReport({ figures: this.figures.toJSON(), failures: this.failures.list() });
    return findTroubles(joinReports([report]), this.#history);
  }
}

const ok = { outcome: 'ok', status: 200 } as const;
const refused = (backendStatus: number) =>
  ({ outcome: 'refused', status: 500, reason: 'status', cause: `status ${backendStatus}`, backendStatus }) as const;

test('the commonest failure of the last minute is the trouble, with its operation and status', (context) => {
  const gateway = new Gateway(context);
  gateway.call(30, refused(401));
  gateway.pass(70);
  assert.equal(gateway.troubles().failing, undefined, 'older failures do not count');
  gateway.call(3, refused(500));
  gateway.call(5, { ...refused(302), operation: read });
  gateway.call(4, { outcome: 'not-json', status: 500, reason: 'page', cause: 'a body that is not JSON' });
  assert.deepEqual(gateway.troubles().failing, { code: 'redirect', operation: 'read', cause: 'status 302' });
});

test('failures that were dropped from the list count, too', (context) => {
  const gateway = new Gateway(context);
  gateway.call(150, { outcome: 'not-json', status: 500, reason: 'page', cause: 'a body that is not JSON' });
  gateway.call(45, refused(401));
  assert.equal(gateway.troubles().failing?.code, 'html');
});

const page = { outcome: 'not-json', status: 500, reason: 'page', cause: 'a body that is not JSON' } as const;
const away = { ...refused(503), operation: read };
for (const [what, records] of [
  ['the first', [away, page]],
  ['the last', [page, away]],
] as const) {
  test(`of two equally common failures, the same one gives all words, even if it is ${what}`, (context) => {
    const gateway = new Gateway(context);
    for (const record of records) gateway.call(1, record);
    assert.deepEqual(gateway.troubles().failing, { code: 'behind-is-away', operation: 'read', cause: 'status 503' });
  });
}

for (const [what, record, flaw, code] of [
  ['no token', { outcome: 'no-token', status: 401 }, undefined, 'no-token'],
  ['tokens for another audience', { outcome: 'invalid-token', status: 401 }, 'audience', 'token-audience'],
  ['tokens of another issuer', { outcome: 'invalid-token', status: 401 }, 'issuer', 'token-issuer'],
  ['tokens with an unknown key', { outcome: 'invalid-token', status: 401 }, 'unknown-key', 'token-key'],
  ['expired tokens', { outcome: 'invalid-token', status: 401 }, 'expired', 'token-time'],
  ['a missing scope', { outcome: 'insufficient-scope', status: 403 }, undefined, 'missing-scope'],
  ['another host name', { outcome: 'forbidden', status: 403 }, undefined, 'foreign-calls'],
  ['the rate limit', { outcome: 'rate-limited', status: 429 }, undefined, 'over-rate-limit'],
] as const) {
  test(`most calls are refused because of ${what}: a trouble until it has passed for five minutes [D71]`, (context) => {
    const gateway = new Gateway(context);
    gateway.call(1_000, ok);
    gateway.pass(120);
    gateway.call(9, record);
    assert.equal(gateway.troubles().clients, undefined, 'nine calls can be the mistake of one client');
    gateway.call(1, record);
    for (let call = 0; flaw !== undefined && call < 10; call += 1) gateway.figures.count(`token ${flaw}`);
    const at = Date.now();
    assert.deepEqual(gateway.troubles().clients, { code, count: 10, calls: 10, outcome: record.outcome, at });
    gateway.call(10, ok);
    assert.equal(gateway.troubles().clients, undefined, 'half of the calls are not most');
    gateway.call(1, record);
    gateway.pass(60);
    gateway.call(1_000, ok);
    gateway.pass(295);
    assert.equal(gateway.troubles().clients?.count, 11);
    gateway.pass(5);
    assert.equal(gateway.troubles().clients, undefined);
  });
}

test('requests without an operation do not hide refused calls [D71]', (context) => {
  const gateway = new Gateway(context);
  gateway.call(12, { outcome: 'no-token', status: 401 });
  gateway.call(1_000, { operation: undefined, outcome: 'no-operation', status: 404 });
  assert.equal(gateway.troubles().clients?.code, 'no-token');
});

for (const [name, event, code] of [
  ['log', 'log line dropped', 'log-lost'],
  ['workers', 'death killed', 'worker-died'],
] as const) {
  test(`"${event}" is a trouble until it has passed for five minutes [D71]`, (context) => {
    const gateway = new Gateway(context);
    gateway.pass(600);
    assert.equal(gateway.troubles()[name], undefined);
    gateway.figures.count(event);
    assert.deepEqual(gateway.troubles()[name], { code, count: 1, at: 600_000 });
    gateway.pass(100);
    gateway.figures.count(event);
    gateway.pass(5);
    assert.deepEqual(gateway.troubles()[name], { code, count: 2, at: 705_000 });
    gateway.pass(295);
    assert.equal(gateway.troubles()[name]?.count, 1, 'the first one has passed');
    gateway.pass(5);
    assert.equal(gateway.troubles()[name], undefined);
  });
}

test('a backend that is silent or closes its connections is not taken for one that does not run', () => {
  assert.equal(troubleOfReason('answer-timeout'), 'timed-out');
  const closed = Object.assign(new Error('closed'), { code: 'ERR_STREAM_PREMATURE_CLOSE' });
  assert.equal(troubleOfReason(reasonOfError(closed)), 'connection-lost');
  assert.equal(troubleOfReason('connection-refused'), 'no-connection');
});
