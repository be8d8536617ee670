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
  describeParties: (now: Now, facts: Facts) => Record<Party, { text: string; isUnwell: boolean }>;
};

const flow = createFlow({ p50: 4, mean: 5, backendP50: 3, backendMean: 4 });
const facts = {
  inFlightMax: 1_024,
  bufferedBytesMax: 1_000_000,
  settings: Object.entries({ BACKEND_URL: 'http://localhost:5104/', AUTH_AUDIENCE: 'api://wrong' }).map(
    ([variable, value]) => ({ variable, flag: '', value, unit: undefined, source: 'file', help: '' }),
  ),
  kinds: ['refused', 'unreachable', 'timed-out'].map((kind) => ({ kind, party: 'backend', meaning: '' })),
  troubles,
} as Partial<Facts> as Facts;

function summary(
  all: Partial<Flow> = {},
  failures: Record<string, number> = {},
  others: Partial<Summary['flows']> = {},
) {
  return { from: 40_000, seconds: 60, flows: createFlows({ all: { ...flow, ...all }, ...others }), failures };
}

const load = { inFlight: 0, residentBytes: 0, bufferedBytes: 0, eventLoopDelayMs: 1 };

function now(more: Partial<Now> = {}): Now {
  return {
    at: 100_000,
    isDraining: false,
    workers: [{ pid: 1, heapUsedBytes: 0, ...load }],
    backend: { isReachable: true, since: 0, cause: undefined },
    ...{ ...load, inFlight: 3 },
    ...{ clientConnections: 1, backendConnections: 1, requestsEver: 1_000 },
    ...{ lastMinute: summary(), wholeHistory: summary() },
    lastFailures: { backend: null, gateway: null },
    ...having({}),
    ...more,
  };
}

function having(found: Partial<CurrentTroubles>): Pick<Now, 'troubles'> {
  const none = { unreachable: undefined, failing: undefined, clients: undefined, log: undefined, workers: undefined };
  return { troubles: { ...none, hasNoSuccess: false, ...found } };
}

const failed = (backend: number, gateway = 0, client = 0) => ({ failed: { backend, gateway, client } });

/** 1,000 requests in the last minute, of which these failed, by party and by outcome. */
const after = (...[all, failures, others]: Parameters<typeof summary>): Now =>
  now({ lastMinute: summary(all, failures, others) });

const down: Partial<Now> = { backend: { isReachable: false, since: 88_000, cause: 'connection refused' } };
const slow = { p99: 4_000, mean: 900 };
const minute = String.raw`in the last minute \(\d\d:\d\d:40 to \d\d:\d\d:40\)`;
const inForce = String.raw`In force: BACKEND_URL=http:\/\/localhost:5104\/\.$`;

const cases: readonly [what: string, Now, level: string, party: Party | undefined, title: string, detail: string][] = [
  ['no failures', now(), 'well', undefined, 'All is well', `^16\\.7 requests per second, none failed, p99 20\\.0\\sms ${minute}\\.$`],
  ['no calls', after({ requests: 0 }), 'well', undefined, 'All is well', `^No calls ${minute}\\.$`],
  ['mistakes of clients only, of which 100 called no operation', after(failed(0, 0, 900), {}, { none: createFlow(failed(0, 0, 100)) }), 'well', undefined, 'All is well', '^16\\.7 requests per second, 1,000 client errors, p99'],
  ['mistakes of clients, and failures of others', after(failed(1, 1, 900)), 'notice', 'gateway', 'All is well', '^16\\.7 requests per second, 2 failed, 900 client errors, p99'],
  ['slow bodies of clients', after(slow, {}, { create: createFlow({ ...flow, ...slow }) }), 'well', undefined, 'All is well', 'none failed'],
  ['0.9 % failed by the backend', after(failed(9), { refused: 9 }), 'well', undefined, 'All is well', '9 failed'],
  ['1 % failed by the backend', after(failed(10), { refused: 10 }), 'notice', 'backend', 'The backend fails calls', '^10 of 1,000 backend calls'],
  ['4.9 % failed by the backend', after(failed(49), { refused: 49 }), 'notice', 'backend', 'The backend fails calls', '^49 of 1,000'],
  ['5 % failed by the backend', after(failed(50), { refused: 40, 'timed-out': 10 }), 'unwell', 'backend', 'The backend fails calls', `^50 of 1,000 backend calls failed ${minute}: 40 refused, 10 timed-out\\.$`],
  ['900 of 1,000 requests did not reach the backend, and half of the others failed', after({ ...failed(50), backendCalls: 100 }, { refused: 50 }), 'unwell', 'backend', 'The backend fails calls', '^50 of 100 backend calls'],
  ['no call succeeds, and the backend fails some', now({ lastMinute: summary(failed(100), { refused: 100 }), ...having({ hasNoSuccess: true, failing: { code: 'no-such-path', operation: 'list', cause: 'status 404' } }) }),
    'unwell', 'backend', 'The backend does not have this path', `: 100 refused\\. Most often: list, status 404\\. No call in the last 5 minutes succeeded\\. ${inForce}`],
  ['a backend that is down', now({ ...down, ...having({ unreachable: 'no-connection' }) }), 'unwell', 'backend', 'The backend does not answer', '^Unreachable since \\d\\d:\\d\\d:28 \\(12\\ss\\): connection refused$'],
  ['a slow backend', after({ ...slow, backendP99: 3_900, backendMean: 890 }), 'notice', 'backend', 'The backend is slow', "^The backend's p99 is 3\\.9\\ss in the last minute"],
  ['a draining gateway', now({ isDraining: true }), 'notice', 'gateway', 'The gateway is draining', '3 calls still in flight'],
  ['a bug', after({}, { bug: 2 }), 'unwell', 'gateway', 'The gateway has a bug', '^2 calls'],
  ['rejected calls at the limit', now({ inFlight: 1_024, lastMinute: summary({}, { overload: 30 }) }), 'unwell', 'gateway', 'The gateway turns calls away', `^30 turned away ${minute}\\. 1,024 of 1,024 calls in flight now`],
  ['missing keys', after({}, { 'no-keys': 3 }), 'unwell', 'gateway', 'The gateway has no keys to verify tokens', '^The gateway turned away 3 calls'],
  ['every call rejected', now(having({ hasNoSuccess: true })), 'notice', 'gateway', 'No call succeeds', `^The backend answers, but no call in the last 5 minutes succeeded\\. ${inForce}`],
  ['most tokens for another audience', now(having({ clients: { code: 'token-audience', count: 90, calls: 90, at: 95_000, outcome: 'invalid-token' } })),
    'notice', 'gateway', 'Most tokens are for another audience', '^90 of 90 calls were refused in the minute until \\d\\d:\\d\\d:35, most often as invalid-token\\. In force: AUTH_AUDIENCE=api:\\/\\/wrong\\.$'],
  ['a lost log line', now(having({ log: { code: 'log-lost', count: 1, at: 95_000 } })), 'notice', 'gateway', 'Log lines were lost', '^1 line lost in the last five minutes, the last at \\d\\d:\\d\\d:35\\.$'],
  ['a dead worker', now(having({ workers: { code: 'worker-died', count: 1, at: 95_000 } })), 'notice', 'gateway', 'A worker died', '^1 worker died in the last five minutes, the last at \\d\\d:\\d\\d:35\\. The gateway'],
  ['slow reads with a quick backend', after({}, {}, { read: createFlow({ ...flow, ...slow }) }), 'notice', 'gateway', 'Calls are slow outside the backend', `^The p99 of reads is 4\\.0\\ss ${minute}; in the backend it is 18\\.0\\sms\\.$`],
  ['many calls in flight', now({ inFlight: 900 }), 'notice', 'gateway', 'The gateway is nearly full', '^900 of 1,024'],
  ['many buffered bytes', now({ bufferedBytes: 800_000 }), 'notice', 'gateway', 'The gateway is nearly full', '^3 of 1,024'],
  ['a late event loop', now({ workers: [{ pid: 1, heapUsedBytes: 0, ...load, eventLoopDelayMs: 400 }] }), 'notice', 'gateway', 'The gateway is short of CPU time', 'event loop'],
]; // prettier-ignore

for (const [what, at, level, party, title, detail] of cases) {
  test(`${what}: ${title}`, () => {
    const verdict = judge(at, facts);
    const isWell = title === 'All is well';
    assert.deepEqual([verdict.level, verdict.party, verdict.title], [isWell ? 'well' : level, isWell ? undefined : party, title]);
    assert.doesNotMatch(verdict.title, /\d/, 'screen readers announce a changed title, so the title has no figures');
    assert.match(verdict.detail, new RegExp(detail));
    assert.equal(verdict.next === '', isWell, 'there is advice unless all is well');
    for (const [name, { text, isUnwell }] of Object.entries(describeParties(at, facts))) {
      assert.equal(isUnwell, name === party, `${name}: marked if it is at fault`);
      if (isUnwell) assert.doesNotMatch(text, /^(?:no failures|reachable)/, 'the words agree with the mark');
    }
  });
} // prettier-ignore

test('each party has a text with its failures, also those of requests without an operation', () => {
  const textsOf = (at: Now) => Object.values(describeParties(at, facts)).map(({ text }) => text);
  const minuteOf = (count: string) => `${count} in the last minute`;
  const at = after(failed(30, 2, 1), {}, { none: createFlow(failed(0, 0, 4)) });
  assert.deepEqual(textsOf(at), [minuteOf('5 errors'), minuteOf('2 failures'), minuteOf('answers, 30 failures')]);
  const [clients, gateway, backend] = textsOf(now());
  assert.deepEqual([clients, gateway], ['no errors', 'no failures']);
  assert.match(backend ?? '', /^reachable since \d\d:\d\d:00$/);
});

test('a verdict names the troubles that it would hide', () => {
  const hidden = having({
    ...{ unreachable: 'no-connection', log: { code: 'log-lost', count: 1, at: 1 } },
    workers: { code: 'worker-died', count: 1, at: 1 },
  });
  const { title, detail } = judge(
    now({ ...down, ...hidden, inFlight: 1_024, lastMinute: summary(failed(100)) }),
    facts,
  );
  assert.equal(title, 'The backend does not answer');
  assert.match(detail, /connection refused\. Also: log lines were lost; a worker died\.$/);
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

test('a backend has recovered if its successes since the last failure are no accident, or if it is reachable again', () => {
  for (const [what, at, recovered] of [
    ['an outage, and 60 successful calls since', failing(40, 50_000, 60), '50'],
    ['an outage of every call, and one successful call since', failing(99, 50_000, 1), '50'],
    ['an outage that ended a moment ago', failing(40, 1_000, 60)],
    ['every tenth call fails, and by chance none of the last twenty', failing(10, 20_000, 20)],
    ['every tenth call failed, and none of the last sixty', failing(10, 40_000, 60), '40'],
    ['an outage, and no call since', failing(40, 50_000, 0)],
    ['an outage, and no call since, but the backend accepts connections again', failing(40, 50_000, 0, { backend: { isReachable: true, since: 70_000, cause: undefined } }), '30'],
  ] as const) {
    const { level, title, next, detail, isOver = false } = judge(at, facts);
    const expected = recovered ? ['notice', 'The backend has recovered', true] : ['unwell', 'The backend fails calls', false];
    assert.deepEqual([level, title, isOver], expected, what);
    assert.match(detail, new RegExp(`^${recovered ? `Recovered ${recovered}\\ss ago\\. ` : ''}\\d+ of 100 backend calls failed ${minute}: \\d+ unreachable\\.$`), what);
    const { text, isUnwell } = describeParties(at, facts).backend;
    assert.match(text, new RegExp(`^${recovered ? `recovered ${recovered}\\ss ago` : 'answers'}, \\d+ failures in the last minute$`), what);
    assert.deepEqual([isUnwell, next === ''], [!recovered, false], what);
  }
  const back = failing(40, 50_000, 60);
  const withBug = { ...back.lastMinute, failures: { ...back.lastMinute.failures, bug: 1 } };
  assert.match(judge({ ...back, lastMinute: withBug }, facts).title, /has a bug/, 'a recovery hides no present fault');
  assert.match(judge({ ...back, inFlight: 1_000 }, facts).title, /nearly full/);
}); // prettier-ignore

test('a gateway that accepts calls again after an overload is shown as recovered', () => {
  for (const [backendCalls, callsSince, recovered] of [
    [900, 10, false],
    [900, 600, true],
    // The 30 rejected calls are not among these 40: about half of the calls failed.
    [40, 3, false],
  ] as const) {
    const lastMinute = summary({ ...failed(0, 30), backendCalls }, { overload: 30 });
    const lastFailures = { backend: null, gateway: { at: 80_000, callsSince } };
    const { level, title, detail, isOver = false } = judge(now({ lastMinute, lastFailures }), facts);
    const expected = recovered
      ? ['notice', 'The gateway accepts all calls again', true]
      : ['unwell', 'The gateway turns calls away', false];
    assert.deepEqual([level, title, isOver], expected);
    if (recovered) assert.match(detail, /^Recovered 20\ss ago\. 30 calls turned away in the last minute/);
  }
});

test('a certificate is shown with its remaining days, and marked when it must be renewed [D37]', () => {
  const day = 86_400_000;
  const today = Date.parse('2026-11-22T12:00:00Z');
  const certificate = { use: 'clients', taken: 0, refused: 0, problems: [] } as const;
  const own = (expiresAt: number) => ({ own: { subject: '', names: [], expiresAt } });
  for (const [more, text, isUnwell] of [
    [own(today + 14 * day), 'until 2026-12-06, 14 days left', false],
    [own(today + 14 * day - 1), 'until 2026-12-06, 13 days left', true],
    [own(today + day), 'until 2026-11-23, 1 day left', true],
    [own(today - 1), 'expired on 2026-11-22', true],
    [{ ...own(today + 14 * day), problems: ['x'] }, 'until 2026-12-06, 14 days left; the new files were refused', true],
    [{ own: undefined }, 'CA certificates only', false],
    [{ own: undefined, problems: ['x'] }, 'CA certificates only; the new files were refused', true],
  ] as const)
    assert.deepEqual(describeCertificate({ ...certificate, ...more }, today), { text, isUnwell });
});
