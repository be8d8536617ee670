import assert from 'node:assert/strict';
import { test } from 'node:test';

import { operations } from '../../packages/core/operations.ts';
import { callOutcomes, outcomes, type CallOutcome } from '../../packages/core/outcomes.ts';
import { linesMax, periodMs, writeFailureLines } from '../../packages/core/hosts/common/failure-lines.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';

function call(outcome: CallOutcome, changes: Partial<CallRecord> = {}): CallRecord {
  return {
    requestId: 'the-id',
    outcome,
    operation: operations[1],
    method: 'GET',
    path: '/api/work-items/5',
    client: '127.0.0.1',
    subject: undefined,
    agent: undefined,
    http: '1.1',
    status: 500,
    cause: undefined,
    backendOutcome: undefined,
    durationMs: 1,
    backendDurationMs: undefined,
    backendStatus: undefined,
    requestBytes: 0,
    replyBytes: 0,
    ...changes,
  };
}

function observe() {
  const lines: string[] = [];
  return { lines, observer: writeFailureLines((line) => lines.push(line)) };
}

test('a failure is one line: outcome, request, cause, and what to do [D50]', () => {
  const { lines, observer } = observe();
  observer.onCallEnd(call('unreachable', { cause: 'connect ECONNREFUSED 127.0.0.1:5104' }));
  observer.onCallEnd(call('timed-out', { status: 0 }));
  assert.deepEqual(lines, [
    'work-item-gateway: unreachable: GET /api/work-items/5 (request id the-id) got 500: no complete, well-formed answer. ' +
      'Cause: connect ECONNREFUSED 127.0.0.1:5104. Look whether the backend runs, and whether backendUrl is its address.',
    'work-item-gateway: timed-out: GET /api/work-items/5 (request id the-id) got no reply: no answer in time. ' +
      'Look what the backend is busy with, or raise backendTimeoutMs or backendConnectTimeoutMs.',
  ]);
});

test("only what is the backend's or the gateway's fault is a line [D51]", () => {
  for (const outcome of callOutcomes) {
    const { lines, observer } = observe();
    observer.onCallEnd(call(outcome));
    const isFailure = ['backend', 'gateway'].includes(outcomes[outcome].fault);
    assert.equal(lines.length, isFailure ? 1 : 0, outcome);
    assert.doesNotMatch(lines.join(), /undefined/);
  }
});

test('a bug after its reply is a line with its stack, and stays one line', () => {
  const { lines, observer } = observe();
  observer.onBug(new Error('broken'), call('ok'));
  observer.onBug(new Error('broken'), undefined);
  assert.match(lines[0] ?? '', /bug: .*\/api\/work-items\/5.*the-id.*Error: broken\\u000a +at .*report it/);
  assert.match(lines[1] ?? '', /bug: a fault after the reply\. Cause: Error: broken/);
  assert.doesNotMatch(lines.join(''), /\n/);
});

test('what comes from outside changes no terminal, and makes no line of its own', () => {
  const { lines, observer } = observe();
  observer.onCallEnd(
    call('refused', { path: '/\u001b[2J\r\nwork-item-gateway: ok', cause: 'x\u2028\u202e'.repeat(5_000) }),
  );
  assert.doesNotMatch(lines[0] ?? '', /[\p{Cc}\u2028\u202e]/u);
  assert.match(lines[0] ?? '', /\/\\u001b\[2J\\u000d\\u000awork-item-gateway: ok/);
  assert.ok((lines[0] ?? '').length < 2_100);
});

test('a dead backend writes few lines, and the rest is counted', (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { lines, observer } = observe();
  for (let failed = 0; failed < 5_000; failed += 1) observer.onCallEnd(call('unreachable'));
  assert.equal(lines.length, linesMax);
  context.mock.timers.tick(periodMs);
  assert.equal(lines.length, linesMax + 1);
  assert.match(lines.at(-1) ?? '', /^work-item-gateway: 4990 more failed in the last 10 s/);
  // The line that counts is one of its period.
  for (let failed = 0; failed < linesMax; failed += 1) observer.onCallEnd(call('unreachable'));
  assert.equal(lines.length, 2 * linesMax);
  context.mock.timers.tick(periodMs);
  context.mock.timers.tick(periodMs);
  assert.match(lines.at(-1) ?? '', /: 1 more failed/);
  observer.onCallEnd(call('refused'));
  assert.match(lines.at(-1) ?? '', /: refused: /);
});
