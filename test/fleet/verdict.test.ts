// The verdict on a fleet run: causes of lost calls, and violations of the requirements.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MarkedCall } from './marked-load.ts';
import { judge, type Evidence } from './verdict.ts';

const call = (marker: string, more: Partial<MarkedCall> = {}): MarkedCall => ({
  method: 'PUT',
  marker,
  sentAt: 1_000,
  endedAt: 1_010,
  end: 200,
  ...more,
});
const gatewayKill = { what: 'gateway', name: 'gateway', from: 1_005, limitMs: 2_000 } as const;
const balancerKill = { ...gatewayKill, what: 'balancer', name: 'balancer' } as const;
const backendKill = { ...gatewayKill, what: 'backend', name: 'backend' } as const;
const probe = { when: 'without faults', asked: 400, served: 100, refused: 300, limit: 100 };
const judged = (more: Partial<Evidence>): ReturnType<typeof judge> =>
  judge({
    isComplete: true,
    calls: [],
    records: [new Map((more.calls ?? []).map(({ marker }) => [marker, 1])), new Map()],
    faults: [],
    outcomes: new Map(),
    probes: [probe],
    ...more,
  });

test('a run has no problems if every call was served and reached a backend exactly once', () => {
  const verdict = judged({ calls: [call('a'), call('b', { method: 'GET' })] });
  assert.deepEqual(verdict.problems, []);
  assert.deepEqual([verdict.calls, verdict.served], [2, 2]);
});

test('a call without a reply is explained only by a fault of a gateway or balancer at the time of the call', () => {
  for (const [end, fault, isExplained] of [
    ['none', gatewayKill, true],
    [502, gatewayKill, true],
    ['none', balancerKill, true],
    ['timeout', balancerKill, true],
    ['no connection', balancerKill, true],
    [502, balancerKill, false],
    ['none', backendKill, false],
    ['none', { ...gatewayKill, from: 1_011 }, false],
    ['none', { ...gatewayKill, from: 998, limitMs: 1 }, false],
    ['timeout', gatewayKill, false],
    ['no connection', gatewayKill, false],
    ['wrong reply', gatewayKill, false],
    [503, gatewayKill, false],
    [429, gatewayKill, false],
  ] as const) {
    const verdict = judged({ calls: [call('a', { end })], faults: [fault] });
    assert.equal(verdict.losses[0]?.lost, isExplained ? 1 : 0, `${end} by ${fault.name}`);
    assert.equal(verdict.lostOtherwise.length, isExplained ? 0 : 1, `${end} by ${fault.name}`);
    assert.equal(verdict.problems.some((text) => text.includes('explains')), !isExplained, String(end));
  } // prettier-ignore
});

test('a 500 is explained only by a fault of a backend together with a matching outcome in the log of a gateway', () => {
  for (const [outcome, fault, isExplained] of [
    ['unreachable', backendKill, true],
    ['timed-out', backendKill, true],
    ['refused', backendKill, false],
    [undefined, backendKill, false],
    ['unreachable', gatewayKill, false],
    ['unreachable', { ...backendKill, from: 998, limitMs: 1 }, false],
  ] as const) {
    const outcomes = new Map(outcome === undefined ? [] : [['a', outcome]]);
    const verdict = judged({ calls: [call('a', { end: 500 })], faults: [fault], outcomes });
    assert.equal(verdict.losses[0]?.lost, isExplained ? 1 : 0, String(outcome));
    assert.equal(verdict.lostOtherwise.length, isExplained ? 0 : 1, String(outcome));
  }
});

test('a call that takes more than 5.5 s is a problem', () => {
  assert.deepEqual(judged({ calls: [call('a', { endedAt: 6_500 })] }).problems, []);
  assert.match(judged({ calls: [call('a', { endedAt: 6_501 })] }).problems.join(), /served only after/);
});

test('recovery is the time from the fault until the last lost call was sent', () => {
  const calls = [300, 900].map((ms) => call(String(ms), { sentAt: 1_005 + ms, endedAt: 3_000, end: 'none' }));
  assert.equal(judged({ calls, faults: [gatewayKill] }).losses[0]?.recoveredMs, 900);
});

test('if two faults explain a lost call, the newer fault is its cause', () => {
  const faults = [gatewayKill, { ...gatewayKill, name: 'newer', from: 1_006 }];
  const verdict = judged({ calls: [call('a', { end: 'none' })], faults });
  const lost = verdict.losses.map(({ lost }) => lost);
  assert.deepEqual(lost, [0, 1]);
});

test('a write that a backend did, but whose reply was lost, is counted and is not a problem', () => {
  const calls = [call('done', { end: 'none' }), call('not', { end: 'none' })];
  const verdict = judged({ calls, faults: [gatewayKill], records: [new Map([['done', 1]])] });
  assert.deepEqual([verdict.lostButDone, verdict.problems], [1, []]);
});

test('if no completed write loses its reply, a complete run has a problem, because repetition was not tested', () => {
  for (const [fault, end] of [[gatewayKill, 502], [backendKill, 500]] as const) {
    const evidence = { calls: [call('a', { end })], faults: [fault], outcomes: new Map([['a', 'unreachable']]) };
    assert.deepEqual(judged(evidence).problems, []);
    assert.match(judged({ ...evidence, records: [new Map()] }).problems.join(), /was not tested/);
    assert.match(judged({ ...evidence, calls: [] }).problems.join(), /was not tested/);
    assert.deepEqual(judged({ ...evidence, calls: [], isComplete: false }).problems, []);
  } // prettier-ignore
});

test('a write that reached one backend twice, or each of two backends once, is a problem; such a read is not a problem', () => {
  for (const records of [[new Map([['a', 2]])], [new Map([['a', 1]]), new Map([['a', 1]])]]) {
    const write = judged({ calls: [call('a')], records });
    assert.deepEqual([write.writesTwice, write.problems.length], [['a'], 1]);
    const read = judged({ calls: [call('a', { method: 'GET' })], records });
    assert.deepEqual([read.readsAgain, read.problems], [1, []]);
  }
});

test('a successful write that reached no backend is a problem', () => {
  const verdict = judged({ calls: [call('a')], records: [new Map()] });
  assert.deepEqual([verdict.writesInvented, verdict.problems.length], [['a'], 1]);
});

test('serving more requests than the rate limit allows is a problem; serving fewer is not', () => {
  assert.equal(judged({ probes: [{ ...probe, served: 101, refused: 299 }] }).problems.length, 1);
  assert.equal(judged({ probes: [{ ...probe, served: 99, refused: 301 }] }).problems.length, 0);
  assert.equal(judged({ probes: [{ ...probe, refused: 299 }] }).problems.length, 1);
});
