// What the fleet's verdict takes for lost, and by what; and when it says that the bar does not hold.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FleetCall } from './calls.ts';
import { judge, type Evidence } from './verdict.ts';

const call = (marker: string, more: Partial<FleetCall> = {}): FleetCall => ({
  method: 'PUT',
  marker,
  sentAt: 1_000,
  endedAt: 1_010,
  end: 200,
  ...more,
});
const gatewayKill = { what: 'gateway', from: 1_005, to: 2_005 } as const;
const backendKill = { what: 'backend', from: 1_005, to: 2_005 } as const;
const probe = { when: 'in peace', asked: 400, served: 100, refused: 300, limit: 100 };
const judged = (more: Partial<Evidence>): ReturnType<typeof judge> =>
  judge({
    calls: [],
    records: [new Map((more.calls ?? []).map(({ marker }) => [marker, 1])), new Map()],
    kills: [],
    outcomes: new Map(),
    probes: [probe],
    ...more,
  });

test('the bar holds where every call was served and came to a backend once', () => {
  const verdict = judged({ calls: [call('a'), call('b', { method: 'GET' })] });
  assert.deepEqual(verdict.problems, []);
  assert.deepEqual([verdict.calls, verdict.served], [2, 2]);
});

test('a call without a reply is lost with a gateway that was killed meanwhile, and with nothing else', () => {
  for (const [end, kill, isWithGateway] of [
    ['none', gatewayKill, true],
    [502, gatewayKill, true],
    ['none', backendKill, false],
    ['none', { ...gatewayKill, from: 1_011 }, false],
    ['none', { ...gatewayKill, from: 0, to: 999 }, false],
    ['timeout', gatewayKill, false],
    ['no connection', gatewayKill, false],
    ['wrong reply', gatewayKill, false],
    [503, gatewayKill, false],
    [429, gatewayKill, false],
  ] as const) {
    const verdict = judged({ calls: [call('a', { end })], kills: [kill] });
    assert.equal(verdict.lostWithGateway, isWithGateway ? 1 : 0, String(end));
    assert.equal(verdict.lostOtherwise.length, isWithGateway ? 0 : 1, String(end));
    assert.equal(verdict.problems.length === 0, isWithGateway, String(end));
  }
});

test('a 500 is lost with a backend that was killed meanwhile, where the gateway says that it was unreachable', () => {
  for (const [outcome, kill, isWithBackend] of [
    ['unreachable', backendKill, true],
    ['refused', backendKill, false],
    [undefined, backendKill, false],
    ['unreachable', gatewayKill, false],
    ['unreachable', { ...backendKill, from: 0, to: 999 }, false],
  ] as const) {
    const outcomes = new Map(outcome === undefined ? [] : [['a', outcome]]);
    const verdict = judged({ calls: [call('a', { end: 500 })], kills: [kill], outcomes });
    assert.equal(verdict.lostWithBackend, isWithBackend ? 1 : 0, String(outcome));
    assert.equal(verdict.problems.length === 0, isWithBackend, String(outcome));
  }
});

test('a write that was lost and had been done is counted, and no problem', () => {
  const calls = [call('done', { end: 'none' }), call('not', { end: 'none' })];
  const verdict = judged({ calls, kills: [gatewayKill], records: [new Map([['done', 1]])] });
  assert.deepEqual([verdict.lostButDone, verdict.problems], [1, []]);
});

test('where no write that had been done was lost with what was killed, the run does not show whether writes are repeated', () => {
  for (const [kill, end] of [[gatewayKill, 502], [backendKill, 500]] as const) {
    const evidence = { calls: [call('a', { end })], kills: [kill], outcomes: new Map([['a', 'unreachable']]) };
    assert.deepEqual(judged(evidence).problems, []);
    assert.match(judged({ ...evidence, records: [new Map()] }).problems.join(), /was not tried/);
    assert.match(judged({ ...evidence, calls: [] }).problems.join(), /was not tried/);
  } // prettier-ignore
});

test('a write that came to the backends twice is a problem, at one of them or at both; a read is none', () => {
  for (const records of [[new Map([['a', 2]])], [new Map([['a', 1]]), new Map([['a', 1]])]]) {
    const write = judged({ calls: [call('a')], records });
    assert.deepEqual([write.writesTwice, write.problems.length], [['a'], 1]);
    const read = judged({ calls: [call('a', { method: 'GET' })], records });
    assert.deepEqual([read.readsAgain, read.problems], [1, []]);
  }
});

test('a success that never came to a backend is a problem', () => {
  const verdict = judged({ calls: [call('a')], records: [new Map()] });
  assert.deepEqual([verdict.writesInvented, verdict.problems.length], [['a'], 1]);
});

test('more than the limit is a problem, fewer are not, and so is a limit that was not tried', () => {
  assert.equal(judged({ probes: [{ ...probe, served: 101, refused: 299 }] }).problems.length, 1);
  assert.equal(judged({ probes: [{ ...probe, served: 99, refused: 301 }] }).problems.length, 0);
  assert.equal(judged({ probes: [{ ...probe, refused: 299 }] }).problems.length, 1);
  assert.equal(judged({ probes: [] }).problems.length, 1);
});
