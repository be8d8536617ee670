// The dashboard's first line: is it well, and if not, whose affair is it?

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Facts, Flow, Now, Summary } from '../../src/admin/dashboard-state.ts';

// The page's own modules are plain JavaScript with types in comments; here only their values are of interest.
interface Verdict {
  readonly level: string;
  readonly party: string | undefined;
  readonly title: string;
  readonly detail: string;
}
const verdictModule = new URL('../../src/admin/dashboard/verdict.js', import.meta.url).href;
const { judge, describeParties } = (await import(verdictModule)) as {
  judge: (now: Now, facts: Facts) => Verdict;
  describeParties: (now: Now, facts: Facts) => Record<string, { text: string; isUnwell: boolean }>;
};

const flow: Flow = {
  requests: 1_000,
  failed: { backend: 0, gateway: 0, client: 0 },
  p50: 4,
  p99: 20,
  mean: 5,
  backendCalls: 1_000,
  backendFailed: 0,
  backendP50: 3,
  backendP99: 18,
  backendMean: 4,
};
const facts: Facts = {
  version: '0.1.0',
  nodeVersion: 'v26.0.0',
  startedAt: 0,
  url: 'http://localhost:3000',
  backendUrl: 'http://localhost:5104',
  inFlightMax: 1_024,
  bufferedBytesMax: 1_000_000,
  settings: [],
  historyMs: 900_000,
  stepMs: 5_000,
  failureKinds: {
    backend: ['refused', 'unreachable', 'timed-out'],
    gateway: ['overload', 'bug'],
    client: ['invalid-id'],
  },
};

function summary(all: Partial<Flow> = {}, failures: Record<string, number> = {}): Summary {
  const flows = {
    all: { ...flow, ...all },
    list: flow,
    create: flow,
    read: flow,
    update: flow,
    delete: flow,
    none: flow,
  };
  return { seconds: 60, flows, failures };
}

function now(more: Partial<Now> = {}): Now {
  return {
    at: 100_000,
    isDraining: false,
    workers: [{ pid: 1, inFlight: 0, residentBytes: 0, heapUsedBytes: 0, eventLoopDelayMs: 1 }],
    backend: { isReachable: true, since: 0, cause: undefined },
    inFlight: 3,
    bufferedBytes: 0,
    clientConnections: 1,
    backendConnections: 1,
    requestsEver: 1_000,
    lastMinute: summary(),
    wholeHistory: summary(),
    ...more,
  };
}

for (const [what, at, level, party, title, detail] of [
  ['no failures', now(), 'well', undefined, /^All is well$/, /17 requests a second, none failed, p99 20\sms/],
  [
    'nothing at all',
    now({ lastMinute: summary({ requests: 0 }) }),
    'well',
    undefined,
    /^All is well$/,
    /No calls/,
  ],
  [
    'a draining gateway',
    now({ isDraining: true }),
    'notice',
    'gateway',
    /draining/,
    /3 calls are being finished/,
  ],
  [
    'a backend that is away',
    now({ backend: { isReachable: false, since: 88_000, cause: 'ECONNREFUSED' } }),
    'unwell',
    'backend',
    /does not answer/,
    /^Unreachable since \d\d:\d\d:\d\d \(12\ss\)\. ECONNREFUSED$/,
  ],
  [
    'a fault of our own',
    now({ lastMinute: summary({}, { bug: 2 }) }),
    'unwell',
    'gateway',
    /a fault of its own/,
    /^2 calls/,
  ],
  [
    'calls turned away',
    now({ inFlight: 1_024, lastMinute: summary({}, { overload: 30 }) }),
    'unwell',
    'gateway',
    /turns calls away/,
    /^30 in the last minute, with 1,024 of 1,024 calls in flight/,
  ],
  [
    'every tenth call failed by the backend',
    now({
      lastMinute: summary(
        { failed: { backend: 100, gateway: 0, client: 0 } },
        { refused: 90, 'timed-out': 10 },
      ),
    }),
    'unwell',
    'backend',
    /fails calls/,
    /^10\s% of the last minute's calls: 90 refused, 10 timed out\.$/,
  ],
  [
    'every fiftieth call failed by the backend',
    now({ lastMinute: summary({ failed: { backend: 20, gateway: 0, client: 0 } }, { refused: 20 }) }),
    'notice',
    'backend',
    /fails calls/,
    /^2\s%/,
  ],
  [
    'mistakes of clients only',
    now({ lastMinute: summary({ failed: { backend: 0, gateway: 0, client: 500 } }, { 'invalid-id': 500 }) }),
    'well',
    undefined,
    /^All is well$/,
    /none failed/,
  ],
  [
    'a slow backend',
    now({ lastMinute: summary({ p99: 4_000, backendP99: 3_900, mean: 900, backendMean: 890 }) }),
    'notice',
    'backend',
    /backend is slow/,
    /p99 is 4\ss/,
  ],
  [
    'slow clients',
    now({ lastMinute: summary({ p99: 4_000, mean: 900, backendMean: 4 }) }),
    'notice',
    'gateway',
    /before and after the backend/,
    /Slow clients/,
  ],
  ['many calls in flight', now({ inFlight: 900 }), 'notice', 'gateway', /nearly full/, /^900 of 1,024/],
  [
    'a late event loop',
    now({ workers: [{ pid: 1, inFlight: 0, residentBytes: 0, heapUsedBytes: 0, eventLoopDelayMs: 400 }] }),
    'notice',
    'gateway',
    /processor time/,
    /event loop/,
  ],
] as const) {
  test(`${what}: ${level}, ${party ?? 'nobody'}'s affair`, () => {
    const verdict = judge(at, facts);
    assert.equal(verdict.level, level);
    assert.equal(verdict.party, party);
    assert.match(verdict.title, title);
    assert.doesNotMatch(verdict.title, /\d/, 'a title is read out when it changes, so it has no figures');
    assert.match(verdict.detail, detail);
  });
}

test('each party on the way of a call has its line', () => {
  const parties = describeParties(
    now({ lastMinute: summary({}, { refused: 30, overload: 2, 'invalid-id': 1 }) }),
    facts,
  );
  assert.match(parties['backend']?.text ?? '', /answers, 30 failures/);
  assert.match(parties['gateway']?.text ?? '', /2 failures/);
  assert.match(parties['client']?.text ?? '', /1 mistakes/);
  assert.deepEqual(
    Object.values(parties).map(({ isUnwell }) => isUnwell),
    [false, true, true],
  );
  const few = describeParties(now({ lastMinute: summary({}, { refused: 2 }) }), facts);
  assert.match(few['backend']?.text ?? '', /answers, 2 failures/);
  assert.equal(few['backend']?.isUnwell, false, 'two of a thousand');
});
