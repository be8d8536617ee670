// The dashboard's verdict: the state of the gateway and the party at fault [D51].

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { CertificateStatus, Facts, Flow, Now, Party, Summary } from '../../packages/dashboard/state.ts';
import { troubles, type CurrentTroubles } from '../../packages/figures/troubles.ts';
import { createFlow, createFlows } from './report.ts';

// The page's modules are plain JavaScript with types in comments.
interface Verdict {
  readonly level: string;
  readonly party: string | undefined;
  readonly next: string;
  readonly title: string;
  readonly detail: string;
  readonly isOver?: boolean;
}
const verdictModule = new URL('../../packages/dashboard/page/verdict.js', import.meta.url).href;
const { judge, describeCertificate, describeParties } = (await import(verdictModule)) as {
  judge: (now: Now, facts: Facts) => Verdict;
  describeCertificate: (certificate: CertificateStatus, now: number) => { text: string; isUnwell: boolean };
  describeParties: (now: Now, facts: Facts) => Record<string, { text: string; isUnwell: boolean }>;
};

const noTroubles: CurrentTroubles = {
  unreachable: undefined,
  failing: undefined,
  hasNoSuccess: false,
  clients: undefined,
  log: undefined,
  workers: undefined,
};

const flow = createFlow({ p50: 4, mean: 5, backendP50: 3, backendMean: 4 });
const facts: Facts = {
  version: '0.1.0',
  nodeVersion: 'v26.0.0',
  startedAt: 0,
  instanceName: 'gateway',
  hostName: 'gateway',
  pid: 1,
  url: 'http://localhost:3000',
  backendUrl: 'http://localhost:5104',
  inFlightMax: 1_024,
  bufferedBytesMax: 1_000_000,
  certificates: [],
  settings: Object.entries({ BACKEND_URL: 'http://localhost:5104/', AUTH_AUDIENCE: 'api://wrong' }).map(
    ([variable, value]) => ({ variable, flag: '', value, unit: undefined, source: 'file', help: '' }),
  ),
  historyMs: 900_000,
  stepMs: 5_000,
  kinds: Object.entries({
    backend: ['refused', 'unreachable', 'timed-out'],
    gateway: ['overload', 'bug'],
    client: ['not-found', 'rejected', 'invalid-id'],
  } as const).flatMap(([party, names]) => names.map((kind) => ({ kind, party: party as Party, meaning: '' }))),
  troubles,
};

function summary(
  all: Partial<Flow> = {},
  failures: Record<string, number> = {},
  others: Partial<Summary['flows']> = {},
): Summary {
  const flows = createFlows({ all: { ...flow, ...all }, ...others });
  return { from: 40_000, seconds: 60, flows, failures };
}

function now(more: Partial<Now> = {}): Now {
  return {
    at: 100_000,
    isDraining: false,
    workers: [{ pid: 1, inFlight: 0, residentBytes: 0, heapUsedBytes: 0, bufferedBytes: 0, eventLoopDelayMs: 1 }],
    backend: { isReachable: true, since: 0, cause: undefined },
    ...{ inFlight: 3, bufferedBytes: 0, residentBytes: 0, eventLoopDelayMs: 1 },
    clientConnections: 1,
    backendConnections: 1,
    requestsEver: 1_000,
    lastMinute: summary(),
    wholeHistory: summary(),
    lastFailures: { backend: null, gateway: null },
    troubles: noTroubles,
    ...more,
  };
}

function having(found: Partial<CurrentTroubles>): Partial<Now> {
  return { troubles: { ...noTroubles, ...found } };
}

function failed(backend: number, gateway = 0): Partial<Flow> {
  return { failed: { backend, gateway, client: 0 } };
}

const cases = [
  ['no failures', now(), 'well', undefined, /^All is well$/,
    /^16\.7 requests per second, none failed, p99 20\.0\sms in the last minute \(\d\d:\d\d:40 to \d\d:\d\d:40\)\.$/],
  ['no calls', now({ lastMinute: summary({ requests: 0 }) }), 'well', undefined, /^All is well$/, /No calls/],
  ['a draining gateway', now({ isDraining: true }), 'notice', 'gateway', /draining/, /3 calls still in flight/],
  ['a backend that is down', now({ backend: { isReachable: false, since: 88_000, cause: 'connection refused' }, ...having({ unreachable: 'no-connection' }) }),
    'unwell', 'backend', /does not answer/, /^Unreachable since \d\d:\d\d:\d\d \(12\ss\): connection refused$/],
  ['a fault of the gateway', now({ lastMinute: summary({}, { bug: 2 }) }), 'unwell', 'gateway', /has a bug/,
    /^2 calls/],
  ['rejected calls at the limit', now({ inFlight: 1_024, lastMinute: summary({}, { overload: 30 }) }), 'unwell',
    'gateway', /turns calls away/, /^30 turned away in the last minute \([^)]+\)\. 1,024 of 1,024 calls in flight now/],
  ['every tenth call failed by the backend',
    now({ lastMinute: summary(failed(100), { refused: 90, 'timed-out': 10 }) }), 'unwell', 'backend', /fails calls/,
    /^100 of 1,000 backend calls failed in the last minute \([^)]+\): 90 refused, 10 timed-out\.$/],
  ['every fiftieth call failed by the backend', now({ lastMinute: summary(failed(20), { refused: 20 }) }), 'notice',
    'backend', /fails calls/, /^20 of 1,000 backend calls/],
  ['exactly 5 % of the calls failed by the backend', now({ lastMinute: summary(failed(50), { refused: 50 }) }), 'unwell', 'backend',
    /fails calls/, /^50 of 1,000/],
  ['nearly 5 % of the calls failed by the backend', now({ lastMinute: summary(failed(49), { refused: 49 }) }), 'notice', 'backend',
    /fails calls/, /^49 of 1,000/],
  ['exactly 1 % of the calls failed by the backend', now({ lastMinute: summary(failed(10), { refused: 10 }) }), 'notice', 'backend',
    /fails calls/, /^10 of 1,000/],
  ['less than 1 % of the calls failed by the backend', now({ lastMinute: summary(failed(9), { refused: 9 }) }), 'well', undefined,
    /^All is well$/, /9 failed/],
  ['mistakes of clients only',
    now({ lastMinute: summary({ failed: { backend: 0, gateway: 0, client: 900 }, byStatus: { '2xx': 100, '4xx': 500, '5xx': 400, none: 0 } }, { 'invalid-id': 200, 'not-found': 300, rejected: 400 }) }),
    'well', undefined, /^All is well$/, /^16\.7 requests per second, 900 client errors, p99/],
  ['mistakes of clients, and a failure of the backend',
    now({ lastMinute: summary({ failed: { backend: 1, gateway: 0, client: 900 } }) }), 'well', undefined,
    /^All is well$/, /^16\.7 requests per second, 1 failed, 900 client errors, p99/],
  ['every call rejected', now(having({ hasNoSuccess: true })), 'notice', 'gateway', /^No call succeeds$/,
    /^The backend answers, but no call in the last 5 minutes succeeded\. In force: BACKEND_URL=http:\/\/localhost:5104\/\.$/],
  ['no call succeeds, and the backend fails some',
    now({ lastMinute: summary(failed(100), { refused: 100 }), ...having({ hasNoSuccess: true, failing: { code: 'no-such-path', operation: 'list', cause: 'status 404' } }) }),
    'unwell', 'backend', /^The backend does not have this path$/,
    /^100 of 1,000 backend calls failed in the last minute \([^)]+\): 100 refused\. Most often: list, status 404\. No call in the last 5 minutes succeeded\. In force: BACKEND_URL=http:\/\/localhost:5104\/\.$/],
  ['most calls refused for a wrong audience',
    now(having({ clients: { code: 'token-audience', count: 90, calls: 90, at: 95_000, outcome: 'invalid-token' } })), 'notice', 'gateway',
    /^Most tokens are for another audience$/,
    /^90 of 90 calls were refused in the minute until \d\d:\d\d:35, most often as invalid-token\. In force: AUTH_AUDIENCE=api:\/\/wrong\.$/],
  ['a lost log line', now(having({ log: { code: 'log-lost', count: 1, at: 95_000 } })), 'notice', 'gateway', /^Log lines were lost$/,
    /^1 line lost in the last five minutes, the last at \d\d:\d\d:35\.$/],
  ['a dead worker', now(having({ workers: { code: 'worker-died', count: 1, at: 95_000 } })), 'notice', 'gateway', /^A worker died$/,
    /^1 worker died in the last five minutes, the last at \d\d:\d\d:35\. The gateway/],
  ['a slow backend', now({ lastMinute: summary({ p99: 4_000, backendP99: 3_900, mean: 900, backendMean: 890 }) }),
    'notice', 'backend', /backend is slow/, /^The backend's p99 is 3\.9\ss in the last minute/],
  ['slow reads with a quick backend',
    now({ lastMinute: summary({}, {}, { read: { ...flow, p99: 4_000, mean: 900, backendMean: 4 } }) }), 'notice',
    'gateway', /slow outside the backend/,
    /^The p99 of reads is 4\.0\ss in the last minute \([^)]+\); in the backend it is 18\.0\sms\.$/],
  ['clients that send their bodies slowly',
    now({ lastMinute: summary({ p99: 4_000, mean: 900, backendMean: 4 }, {}, { create: { ...flow, p99: 4_000, mean: 900, backendMean: 4 } }) }),
    'well', undefined, /^All is well$/, /none failed/],
  ['many calls in flight', now({ inFlight: 900 }), 'notice', 'gateway', /nearly full/, /^900 of 1,024/],
  ['a late event loop',
    now({ workers: [{ pid: 1, inFlight: 0, residentBytes: 0, heapUsedBytes: 0, bufferedBytes: 0, eventLoopDelayMs: 400 }] }), 'notice',
    'gateway', /CPU time/, /event loop/],
] as const; // prettier-ignore

for (const [what, at, level, party, title, detail] of cases) {
  test(`${what}: ${level}, at fault: ${party ?? 'none'}`, () => {
    const verdict = judge(at, facts);
    assert.equal(verdict.level, level);
    assert.equal(verdict.party, party);
    assert.match(verdict.title, title);
    assert.doesNotMatch(verdict.title, /\d/, 'screen readers announce a changed title, so the title has no figures');
    assert.match(verdict.detail, detail);
    assert.equal(verdict.next === '', level === 'well', 'there is advice unless all is well');
    for (const [name, { text, isUnwell }] of Object.entries(describeParties(at, facts))) {
      assert.equal(isUnwell, name === party, `${name}: marked if it is at fault`);
      if (isUnwell) assert.doesNotMatch(text, /^(?:no failures|reachable)/, 'the words agree with the mark');
    }
  });
}

test('each party has a text with its failures', () => {
  const parties = describeParties(
    now({ lastMinute: summary(failed(30, 2), { refused: 30, overload: 2, 'invalid-id': 1 }) }),
    facts,
  );
  assert.match(parties['backend']?.text ?? '', /answers, 30 failures/);
  assert.match(parties['gateway']?.text ?? '', /2 failures/);
  assert.match(parties['client']?.text ?? '', /^1 error in/);
  assert.deepEqual(
    Object.values(parties).map(({ isUnwell }) => isUnwell),
    [false, true, true],
  );
  const few = describeParties(now({ lastMinute: summary(failed(2), { refused: 2 }) }), facts);
  assert.match(few['backend']?.text ?? '', /answers, 2 failures/);
  assert.equal(few['backend']?.isUnwell, false, 'two of a thousand calls failed');
});

test('failures of clients do not count in the failure rate of the backend', () => {
  // 900 of 1,000 requests did not reach the backend. Half of the other 100 failed.
  const some = { ...failed(50), backendCalls: 100 };
  const verdict = judge(now({ lastMinute: summary(some, { refused: 50, 'invalid-id': 900 }) }), facts);
  assert.equal(verdict.level, 'unwell');
  assert.match(verdict.detail, /^50 of 100 backend calls/);
});

/**
 * `count` of 100 backend calls failed in the last minute. The last failure was `ms` ago. Since then, `callsSince` calls
 * have succeeded.
 */
function failing(count: number, ms: number, callsSince: number, more: Partial<Now> = {}): Now {
  return now({
    lastMinute: summary({ ...failed(count), requests: 100, backendCalls: 100 }, { unreachable: count }),
    lastFailures: { backend: { at: 100_000 - ms, callsSince }, gateway: null },
    ...more,
  });
}

for (const [what, at, hasRecovered, detail] of [
  ['an outage, and 60 successful calls since', failing(40, 50_000, 60), true, /^Recovered 50\ss ago\. 40 of 100 backend calls failed in the last minute \([^)]+\): 40 unreachable\.$/],
  ['an outage of every call, and one successful call since', failing(99, 50_000, 1), true, /^Recovered 50\ss ago/],
  ['an outage that ended a moment ago', failing(40, 1_000, 60), false, /^40 of 100 backend calls/],
  ['every tenth call fails, and by chance none of the last twenty', failing(10, 20_000, 20), false, /^10 of 100/],
  ['every tenth call failed, and none of the last sixty', failing(10, 40_000, 60), true, /^Recovered 40\ss ago/],
  ['failures, and no call since', failing(40, 50_000, 0), false, /^40 of 100/],
  ['an outage, and no call since, but the backend accepts connections again', failing(40, 50_000, 0, { backend: { isReachable: true, since: 70_000, cause: undefined } }), true, /^Recovered 30\ss ago/],
] as const) {
  test(`${what}: ${hasRecovered ? 'recovered' : 'not recovered'}`, () => {
    const { level, party, title, next, detail: text, isOver = false } = judge(at, facts);
    assert.notEqual(next, '');
    assert.equal(isOver, hasRecovered);
    assert.deepEqual(
      { level, party, title },
      hasRecovered
        ? { level: 'notice', party: 'backend', title: 'The backend has recovered' }
        : { level: 'unwell', party: 'backend', title: 'The backend fails calls' },
    );
    assert.match(text, detail);
    const backend = describeParties(at, facts)['backend'];
    assert.equal(backend?.isUnwell, !hasRecovered);
    assert.match(backend.text, hasRecovered ? /^recovered \d+\ss ago, \d+ failures in the last minute$/ : /^answers, \d+ failures in the last minute$/);
  });
} // prettier-ignore

test('a recovery does not hide a present fault', () => {
  const back = failing(40, 50_000, 60);
  const withBug = { ...back.lastMinute, failures: { ...back.lastMinute.failures, bug: 1 } };
  assert.match(judge({ ...back, lastMinute: withBug }, facts).title, /has a bug/);
  assert.match(judge({ ...back, inFlight: 1_000 }, facts).title, /nearly full/);
  assert.match(judge({ ...back, ...having({ unreachable: 'no-connection' }) }, facts).title, /does not answer/);
}); // prettier-ignore

test('a verdict names the troubles that it would hide', () => {
  const hidden = having({ unreachable: 'no-connection', log: { code: 'log-lost', count: 1, at: 1 }, workers: { code: 'worker-died', count: 1, at: 1 } });
  const { title, detail } = judge(now({ backend: { isReachable: false, since: 99_000, cause: 'connection refused' }, ...hidden, inFlight: 1_024, lastMinute: summary(failed(100)) }), facts);
  assert.equal(title, 'The backend does not answer');
  assert.match(detail, /connection refused\. Also: log lines were lost; a worker died\.$/);
}); // prettier-ignore

test('a gateway that accepts calls again after an overload is shown as recovered', () => {
  const lastMinute = summary({ ...failed(0, 30), backendCalls: 900 }, { overload: 30 });
  const at = (callsSince: number) =>
    judge(now({ lastMinute, lastFailures: { backend: null, gateway: { at: 80_000, callsSince } } }), facts);
  assert.deepEqual([at(10).level, at(10).title], ['unwell', 'The gateway turns calls away']);
  assert.deepEqual([at(600).level, at(600).title], ['notice', 'The gateway accepts all calls again']);
  assert.equal(at(600).isOver, true);
  assert.match(at(600).detail, /^Recovered 20\ss ago\. 30 calls turned away in the last minute/);
});

test('a certificate is shown with its remaining days, and marked when it must be renewed [D37]', () => {
  const day = 86_400_000;
  const now = Date.parse('2026-11-22T12:00:00Z');
  const certificate = { use: 'clients', taken: 0, refused: 0, problems: [] } as const;
  const own = (expiresAt: number) => ({ own: { subject: '', names: [], expiresAt } });
  for (const [more, text, isUnwell] of [
    [own(now + 14 * day), 'until 2026-12-06, 14 days left', false],
    [own(now + 14 * day - 1), 'until 2026-12-06, 13 days left', true],
    [own(now + day), 'until 2026-11-23, 1 day left', true],
    [own(now - 1), 'expired on 2026-11-22', true],
    [{ ...own(now + 14 * day), problems: ['x'] }, 'until 2026-12-06, 14 days left; the new files were refused', true],
    [{ own: undefined }, 'CA certificates only', false],
    [{ own: undefined, problems: ['x'] }, 'CA certificates only; the new files were refused', true],
  ] as const) {
    assert.deepEqual(describeCertificate({ ...certificate, ...more }, now), { text, isUnwell });
  }
});
