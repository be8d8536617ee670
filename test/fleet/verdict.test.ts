// The verdict on a fleet run: causes of lost calls, and violations of the requirements.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MarkedCall } from './marked-load.ts';
import { judge, type Evidence, type Fault } from './verdict.ts';

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

for (const [end, fault, isExplained, outcome] of [
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
  [500, backendKill, true, 'unreachable'],
  [500, backendKill, true, 'timed-out'],
  [500, backendKill, false, 'refused'],
  [500, backendKill, false],
  [500, gatewayKill, false, 'unreachable'],
  [500, { ...backendKill, from: 998, limitMs: 1 }, false, 'unreachable'],
] as [MarkedCall['end'], Fault, boolean, string?][]) {
  test(`a call that ends with ${end}, logged as ${outcome}, is ${isExplained ? '' : 'not '}explained by a fault of the ${fault.name} at ${fault.from}`, () => {
    const outcomes = new Map(outcome === undefined ? [] : [['a', outcome]]);
    const verdict = judged({ calls: [call('a', { end })], faults: [fault], outcomes });
    assert.equal(verdict.losses[0]?.lost, isExplained ? 1 : 0);
    assert.equal(verdict.lostOtherwise.length, isExplained ? 0 : 1);
    assert.equal(verdict.problems.some((text) => text.includes('explains')), !isExplained);
  }); // prettier-ignore
}

const lostWrite = {
  calls: [call('a', { end: 500 })],
  faults: [backendKill],
  outcomes: new Map([['a', 'unreachable']]),
};
for (const [title, evidence, problem] of [
  ['every call was served and reached a backend once', { calls: [call('a'), call('b', { method: 'GET' })] }, undefined],
  ['a call took 5.5 s', { calls: [call('a', { endedAt: 6_500 })] }, undefined],
  ['a call took longer', { calls: [call('a', { endedAt: 6_501 })] }, /^1 calls were served only after/],
  ['a completed write lost its reply', lostWrite, undefined],
  ['no completed write lost its reply', { ...lostWrite, records: [new Map()] }, /^no fault of a backend .* was not tested/],
  ['no call was lost', { ...lostWrite, calls: [] }, /was not tested/],
  ['no call was lost in an incomplete run', { ...lostWrite, calls: [], isComplete: false }, undefined],
  ['a write reached one backend twice', { calls: [call('a')], records: [new Map([['a', 2]])] }, /^1 writes .* more than once/],
  ['a write reached two backends', { calls: [call('a')], records: [new Map([['a', 1]]), new Map([['a', 1]])] }, /more than once/],
  ['a read reached a backend twice', { calls: [call('a', { method: 'GET' })], records: [new Map([['a', 2]])] }, undefined],
  ['a successful write reached no backend', { calls: [call('a')], records: [new Map()] }, /^1 writes .* reached no backend/],
  ['more was served than the rate limit allows', { probes: [{ ...probe, served: 101, refused: 299 }] }, /101 requests served/],
  ['less was served', { probes: [{ ...probe, served: 99, refused: 301 }] }, undefined],
  ['a request was neither served nor refused', { probes: [{ ...probe, refused: 299 }] }, /^1 requests were neither/],
] as [string, Partial<Evidence>, RegExp | undefined][]) {
  test(`${title}: ${problem === undefined ? 'no problem' : 'a problem'}`, () => {
    const { problems } = judged(evidence);
    if (problem === undefined) assert.deepEqual(problems, []);
    else assert.match(problems.join(), problem);
  });
} // prettier-ignore

test('recovery is the time from the fault until the last lost call was sent; the newer of two faults is the cause', () => {
  const calls = [300, 900].map((ms) => call(String(ms), { sentAt: 1_005 + ms, endedAt: 3_000, end: 'none' }));
  const faults = [{ ...gatewayKill, from: 1_000 }, gatewayKill];
  const { losses, lostButDone, calls: count, served, readsAgain } = judged({ calls, faults, records: [new Map([['300', 1]])] });
  assert.deepEqual([lostButDone, count, served, readsAgain], [1, 2, 0, 0]);
  assert.deepEqual(losses.map(({ lost, recoveredMs }) => [lost, recoveredMs]), [[0, 0], [2, 900]]);
}); // prettier-ignore
