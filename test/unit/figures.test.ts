// The figures of the dashboard and of the metrics: outcomes, the latest failures, the backend's status, and the present
// troubles [D34, D51, D71].

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { reasonOfError } from '../../packages/core/backend/describe-error.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import type { OpenSocket } from '../../packages/core/http1/backend-connection.ts';
import { operations } from '../../packages/core/operations.ts';
import {
  callOutcomes,
  outcomeOfAnswer,
  outcomeOfMalformed,
  outcomes,
  type CallOutcome,
} from '../../packages/core/outcomes.ts';
import { failureReplies, notFoundReplies, replies } from '../../packages/core/replies.ts';
import { BackendMonitor, JoinedBackendStatus, type BackendStatus } from '../../packages/figures/backend-status.ts';
import { findTroubles } from '../../packages/figures/current-troubles.ts';
import { failuresMax, joinFailures, latestMax, RecentFailures } from '../../packages/figures/failures.ts';
import { causeOfDeath, Figures, statuses } from '../../packages/figures/figures.ts';
import { History, stepMs } from '../../packages/figures/history.ts';
import { troubleOfReason, type CurrentTroubles } from '../../packages/figures/troubles.ts';
import { createReport, joinReports } from '../dashboard/report.ts';
import { createCallRecord } from '../helpers/call-record.ts';

describe('labels', () => {
  test('each outcome has a party at fault, a log level and a meaning [D51]', () => {
    const rows = [
      ['nobody', 'info request', 'ok client-gone shutdown'],
      ['client', 'info request', 'not-found rejected invalid-id invalid-body body-too-large bad-request no-operation'],
      ['client', 'info request', 'forbidden rate-limited no-token invalid-token insufficient-scope'],
      ['backend', 'warn backend call failed', 'refused unreachable timed-out not-json too-large'],
      ['gateway', 'warn turned away', 'no-keys overload'],
      ['gateway', 'error internal error', 'bug'],
    ].flatMap(([fault = '', row = '', names = '']) => names.split(' ').map((name) => [name, fault, row]));
    const found = callOutcomes.map((name) => {
      const { fault, level, message, meaning } = outcomes[name];
      assert.ok(meaning.length > 3, name);
      return [name, fault, `${level} ${message}`];
    });
    assert.deepEqual(found.toSorted(), rows.toSorted());
  });

  test('an error status that blames the request is "rejected", any other "refused"; without an operation it is the client [D6, D27, D51]', () => {
    const rejected = [400, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 428, 431];
    for (const operation of operations) {
      for (let status = 300; status <= 999; status += 1) {
        // A list has neither an id nor a body that the backend could reject.
        const blames = operation.name !== 'list' && rejected.includes(status);
        const expected = blames && operation.name === 'read' && status === 404 ? 'not-found' : 'rejected';
        assert.equal(outcomeOfAnswer(status, operation), blames ? expected : 'refused', `${operation.name} ${status}`);
      }
      assert.equal(outcomeOfAnswer(undefined, operation), 'refused');
    }
    const malformed = [404, 405, 400, 408, 431].map(outcomeOfMalformed);
    assert.deepEqual(malformed, ['no-operation', 'no-operation', 'bad-request', 'bad-request', 'bad-request']);
  });

  // Otherwise the reply would be counted as one to a client that left.
  test('every status of a reply is counted under its own label', () => {
    const all = [...Object.values(replies), ...Object.values(failureReplies), ...Object.values(notFoundReplies)];
    for (const { status } of all) {
      const known = statuses.find((each) => each === status);
      assert.ok(known !== undefined, `the status ${status} has no label`);
      const figures = new Figures();
      figures.recordMalformed(status);
      assert.equal(figures.requests('none', known), 1, String(status));
    }
  });

  test("a worker's end has one of five causes [D63]", () => {
    const signals = [null, 'SIGKILL', 'SIGABRT', 'SIGSEGV', 'SIGTERM'] as const;
    const causes = signals.map((signal) => causeOfDeath(signal, false));
    assert.deepEqual(causes, ['exit', 'killed', 'aborted', 'signal', 'signal']);
    assert.equal(causeOfDeath('SIGKILL', true), 'frozen');
  });
});

describe('the latest failures', () => {
  const call = (requestId: string, outcome: CallOutcome): CallRecord =>
    createCallRecord({ requestId, outcome, path: `/api/work-items/${requestId}` });
  const idsOf = (failures: RecentFailures): string[] => failures.list().map(({ requestId }) => requestId);

  /** Records `count` failures with the ids `refused 0`, `refused 1` and so on. */
  function fill(failures: RecentFailures, outcome: CallOutcome, count: number): void {
    for (let index = 0; index < count; index += 1) failures.record(call(`${outcome} ${index}`, outcome), false);
  }

  test('failures of all parties are listed latest first, with path and client, and without control characters', (context) => {
    context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
    const failures = new RecentFailures();
    failures.record({ ...call('refused', 'refused'), cause: 'a\u001b\u202eb', client: '203.0.113.5' }, true);
    failures.record(call('no failure', 'ok'), false);
    failures.record(call('mistake', 'invalid-id'), false);
    failures.recordMalformed('malformed', 400, 'HPE_INVALID_METHOD', '203.0.113.6');
    failures.record(call('full', 'overload'), false);
    assert.deepEqual(idsOf(failures), ['full', 'malformed', 'mistake', 'refused']);
    const [, malformed, , refused] = failures.list();
    assert.deepEqual([malformed?.path, malformed?.client], [undefined, '203.0.113.6']);
    const shown = ['/api/work-items/refused', '203.0.113.5', String.raw`a\u001b\u202eb`];
    assert.deepEqual([refused?.path, refused?.client, refused?.cause], shown);
  });

  test('the last 50 failures of each outcome are kept, and those of the last minute at four a second', () => {
    const failures = new RecentFailures();
    const rare = ['not-json', 'refused', 'rejected', 'invalid-token'] as const;
    for (const outcome of rare) fill(failures, outcome, 51);
    fill(failures, 'invalid-id', 5_000);
    const ids = new Set(idsOf(failures));
    for (const outcome of rare) {
      const kept = [0, 1, 50].map((index) => ids.has(`${outcome} ${index}`));
      assert.deepEqual(kept, [false, true, true], outcome);
    }
    assert.ok(ids.has(`invalid-id ${5_000 - 4 * 60}`));
    const others = new RecentFailures();
    fill(others, 'refused', 10 * latestMax);
    const latest = Array.from({ length: latestMax }, (_, index) => `refused ${10 * latestMax - 1 - index}`);
    assert.deepEqual(idsOf(others), latest);
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
});

describe("the backend's status [D34]", () => {
  const down = (since: number, seenAt: number, cause = 'refused') => ({ isReachable: false, cause, since, seenAt });
  const up = (since: number, seenAt: number) => ({ isReachable: true, cause: undefined, since, seenAt });

  test('of several processes the latest check decides; a new process and a late change do not move `since` back', () => {
    const cases: [reports: BackendStatus[][], expected: (Partial<BackendStatus> | undefined)[]][] = [
      [[[{ ...down(0, 0), cause: undefined }]], [{ isReachable: false, since: 0 }]],
      [[[down(10, 20), up(5, 30)]], [{ isReachable: true, since: 5 }]],
      [
        [[down(10, 20)], [down(30, 30, 'timed out')], [], [down(0, 0)]],
        [{ since: 10 }, { since: 10, cause: 'timed out' }, undefined, { since: 10, cause: 'timed out' }],
      ],
      [
        [[up(10, 50)], [down(40, 60)], [up(70, 71)]],
        [{ since: 10 }, { since: 50, cause: 'refused' }, { since: 70 }],
      ],
    ];
    for (const [reports, expected] of cases) {
      const joined = new JoinedBackendStatus();
      for (const [index, statuses] of reports.entries()) {
        const all = joined.join(statuses.map((backend) => ({ backend })));
        assert.ok(all.every(({ backend }) => backend === all[0]?.backend));
        assert.partialDeepStrictEqual([all[0]?.backend], [expected[index]]);
      }
    }
  });

  /** Returns a function that starts a dial. The dial fails with the next of `errors`. */
  const failing =
    (...errors: Error[]): OpenSocket =>
    (owner) => {
      setImmediate(() => owner.onFailed(errors.shift() ?? new Error('no more errors')));
      return { socketCount: 1, troubles: [], close: () => undefined };
    };
  const errorOf = (code: string): Error => Object.assign(new Error(`connect ${code}`), { code });

  test('while the backend is down, the latest cause is reported; a check without file descriptors changes nothing [D51]', async () => {
    const monitor = new BackendMonitor(failing(errorOf('ECONNREFUSED')));
    monitor.report('a certificate that is not trusted');
    const { since } = await monitor.check();
    monitor.report('a reset');
    assert.partialDeepStrictEqual(monitor.status, { isReachable: false, cause: 'a reset', since });
    for (const code of ['EMFILE', 'ENFILE']) {
      for (const error of [errorOf(code), new AggregateError([errorOf('ECONNREFUSED'), errorOf(code)])]) {
        const other = new BackendMonitor(failing(error, errorOf('ECONNREFUSED')));
        const first = await other.check();
        assert.deepEqual([first.isReachable, first.cause, first.seenAt], [false, undefined, 0]);
        assert.equal((await other.check()).cause, 'connect ECONNREFUSED');
      }
    }
  });
});

describe('the present troubles', () => {
  const list = operations.find(({ name }) => name === 'list');
  const read = operations.find(({ name }) => name === 'read');
  const ok = { outcome: 'ok', status: 200 } as const;
  const refused = (backendStatus: number) =>
    ({ outcome: 'refused', status: 500, reason: 'status', cause: `status ${backendStatus}`, backendStatus }) as const;
  const page = { outcome: 'not-json', status: 500, reason: 'page', cause: 'a body that is not JSON' } as const;

  /** A gateway without a process: its figures, history and clock. */
  class Gateway {
    readonly figures = new Figures();
    readonly failures = new RecentFailures();
    readonly #history = new History(0);
    readonly #context: TestContext;

    constructor(context: TestContext) {
      this.#context = context;
      context.mock.timers.reset();
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

  test('the commonest failure of the last minute is the trouble, with its operation and status', (context) => {
    const gateway = new Gateway(context);
    gateway.call(30, refused(401));
    gateway.pass(70);
    assert.equal(gateway.troubles().failing, undefined, 'older failures do not count');
    gateway.call(3, refused(500));
    gateway.call(5, { ...refused(302), operation: read });
    gateway.call(4, page);
    assert.deepEqual(gateway.troubles().failing, { code: 'redirect', operation: 'read', cause: 'status 302' });
    // Failures that were dropped from the list count, too.
    gateway.call(150, page);
    gateway.call(45, refused(401));
    assert.equal(gateway.troubles().failing?.code, 'html');
    // One of two equally common failures gives all words.
    const away = { ...refused(503), operation: read };
    for (const records of [
      [away, page],
      [page, away],
    ]) {
      const other = new Gateway(context);
      for (const record of records) other.call(1, record);
      assert.deepEqual(other.troubles().failing, { code: 'behind-is-away', operation: 'read', cause: 'status 503' });
    }
  });

  for (const [outcome, status, flaw, code] of [
    ['no-token', 401, undefined, 'no-token'],
    ['invalid-token', 401, 'audience', 'token-audience'],
    ['invalid-token', 401, 'issuer', 'token-issuer'],
    ['invalid-token', 401, 'unknown-key', 'token-key'],
    ['invalid-token', 401, 'expired', 'token-time'],
    ['insufficient-scope', 403, undefined, 'missing-scope'],
    ['forbidden', 403, undefined, 'foreign-calls'],
    ['rate-limited', 429, undefined, 'over-rate-limit'],
  ] as const) {
    test(`most calls are ${flaw ?? ''} ${outcome}: a trouble until it has passed for five minutes [D71]`, (context) => {
      const gateway = new Gateway(context);
      const record = { outcome, status };
      gateway.call(1_000, ok);
      gateway.pass(120);
      gateway.call(9, record);
      assert.equal(gateway.troubles().clients, undefined, 'nine calls can be the mistake of one client');
      gateway.call(1, record);
      for (let call = 0; flaw !== undefined && call < 10; call += 1) gateway.figures.count(`token ${flaw}`);
      assert.deepEqual(gateway.troubles().clients, { code, count: 10, calls: 10, outcome, at: Date.now() });
      // Requests without an operation do not hide refused calls.
      gateway.call(1_000, { operation: undefined, outcome: 'no-operation', status: 404 });
      assert.equal(gateway.troubles().clients?.code, code);
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

  test('a lost log line and the death of a worker are troubles until they have passed for five minutes [D71]', (context) => {
    for (const [name, event, code] of [
      ['log', 'log line dropped', 'log-lost'],
      ['workers', 'death killed', 'worker-died'],
    ] as const) {
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
    }
  });

  test('a backend that is silent or closes its connections is not taken for one that does not run', () => {
    const closed = Object.assign(new Error('closed'), { code: 'ERR_STREAM_PREMATURE_CLOSE' });
    const reasons = ['answer-timeout', reasonOfError(closed), 'connection-refused'] as const;
    assert.deepEqual(reasons.map(troubleOfReason), ['timed-out', 'connection-lost', 'no-connection']);
  });
});
