// The party at fault for each outcome [D51], listed by hand to check the table.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { operations } from '../../packages/core/operations.ts';
import {
  callOutcomes,
  outcomeOfAnswer,
  outcomeOfMalformed,
  outcomes,
  type CallOutcome,
} from '../../packages/core/outcomes.ts';

const expected: Record<CallOutcome, readonly [fault: string, level: string, message: string]> = {
  ok: ['nobody', 'info', 'request'],
  'not-found': ['client', 'info', 'request'],
  rejected: ['client', 'info', 'request'],
  refused: ['backend', 'warn', 'backend call failed'],
  unreachable: ['backend', 'warn', 'backend call failed'],
  'timed-out': ['backend', 'warn', 'backend call failed'],
  'not-json': ['backend', 'warn', 'backend call failed'],
  'too-large': ['backend', 'warn', 'backend call failed'],
  'invalid-id': ['client', 'info', 'request'],
  'invalid-body': ['client', 'info', 'request'],
  'body-too-large': ['client', 'info', 'request'],
  'bad-request': ['client', 'info', 'request'],
  'no-operation': ['client', 'info', 'request'],
  forbidden: ['client', 'info', 'request'],
  'rate-limited': ['client', 'info', 'request'],
  'no-token': ['client', 'info', 'request'],
  'invalid-token': ['client', 'info', 'request'],
  'insufficient-scope': ['client', 'info', 'request'],
  'no-keys': ['gateway', 'warn', 'turned away'],
  overload: ['gateway', 'warn', 'turned away'],
  bug: ['gateway', 'error', 'internal error'],
  'client-gone': ['nobody', 'info', 'request'],
  shutdown: ['nobody', 'info', 'request'],
};

for (const name of callOutcomes) {
  const [fault, level, message] = expected[name];
  test(`${name}: ${fault} is at fault, and the log level is ${level}`, () => {
    const row = outcomes[name];
    assert.deepEqual([row.fault, row.level, row.message], [fault, level, message]);
    assert.ok(row.meaning.length > 3, 'it has a meaning');
  });
}

test('there are no other outcomes', () => {
  assert.deepEqual(callOutcomes.toSorted(), Object.keys(expected).toSorted());
});

const rejected = [400, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 428, 431];

for (const operation of operations) {
  const { name } = operation;
  test(`${name}: an error status that blames the request has the outcome "rejected", any other has "refused" [D51]`, () => {
    for (let status = 300; status <= 999; status += 1) {
      // A list has neither an id nor a body that the backend could reject.
      const expected =
        name === 'list' || !rejected.includes(status)
          ? 'refused'
          : name === 'read' && status === 404
            ? 'not-found'
            : 'rejected';
      assert.equal(outcomeOfAnswer(status, operation), expected, String(status));
    }
    assert.equal(outcomeOfAnswer(undefined, operation), 'refused');
  });
}

test('an unknown path or method has the outcome "no-operation", and malformed bytes have "bad-request" [D6, D27]', () => {
  for (const [status, name] of [
    [404, 'no-operation'],
    [405, 'no-operation'],
    [400, 'bad-request'],
    [408, 'bad-request'],
    [431, 'bad-request'],
  ] as const) {
    assert.equal(outcomeOfMalformed(status), name);
  }
});
