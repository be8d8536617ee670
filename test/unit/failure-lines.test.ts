// Lines on stderr about failures, for hosts without an observer [D50].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { outageTexts } from '../../packages/core/guards/ports/ports.ts';
import { callOutcomes, outcomes, type CallOutcome } from '../../packages/core/outcomes.ts';
import { HostMistake, linesMax, periodMs, writeFailureLines } from '../../packages/core/hosts/common/failure-lines.ts';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { createCallRecord } from '../helpers/call-record.ts';

function call(outcome: CallOutcome, changes: Partial<CallRecord> = {}): CallRecord {
  return createCallRecord({ outcome, ...changes });
}

function observe() {
  const lines: string[] = [];
  return { lines, observer: writeFailureLines((line) => lines.push(line)) };
}

test('each failure of the backend or the gateway, and no other outcome, is a line with request, outcome and cause [D50, D51]', () => {
  for (const outcome of callOutcomes) {
    const { lines, observer } = observe();
    observer.onCallEnd(call(outcome));
    observer.onCallEnd(call(outcome, { status: 0, cause: 'connect ECONNREFUSED 127.0.0.1:5104' }));
    const start = 'work-item-gateway: GET /api/work-items/5 (request id the-id) got';
    const { fault, meaning } = outcomes[outcome];
    assert.deepEqual(
      lines,
      ['backend', 'gateway'].includes(fault)
        ? [
            `${start} 500, outcome ${outcome}: ${meaning}.`,
            `${start} no reply, outcome ${outcome}: ${meaning}. Cause: connect ECONNREFUSED 127.0.0.1:5104.`,
          ]
        : [],
    );
  }
});

test('a bug after the reply is written as one line with the stack', () => {
  const { lines, observer } = observe();
  observer.onBug(new Error('broken'), call('ok'));
  observer.onBug(new Error('broken'), undefined);
  assert.match(lines[0] ?? '', /bug: .*\/api\/work-items\/5.*the-id.*Error: broken\\u000a +at /);
  assert.match(lines[1] ?? '', /bug: a fault after the reply\. Cause: Error: broken/);
  assert.doesNotMatch(lines.join(''), /\n/);
});

test('a mistake of the host is written with its message and without advice', () => {
  const { lines, observer } = observe();
  const mistake = new HostMistake('put it first');
  observer.onCallEnd(call('bug', { cause: mistake }));
  delete mistake.stack;
  observer.onCallEnd(call('bug', { cause: mistake }));
  const error = new Error('broken');
  delete error.stack;
  observer.onCallEnd(call('bug', { cause: error }));
  assert.match(lines.pop() ?? '', /Cause: broken\.$/);
  const start = 'work-item-gateway: GET /api/work-items/5 (request id the-id) got 500, outcome bug: ';
  assert.match(lines[0] ?? '', /got 500, outcome bug: Error: put it first\\u000a +at [^:]*:/);
  assert.equal(lines[1], `${start}put it first`);
});

test('one line is written when an outage of the keys or of Redis begins, and another when it ends', () => {
  const { lines, observer } = observe();
  for (const what of ['keys', 'redis'] as const) {
    observer.onOutage?.(what, 'it is down');
    observer.onOutage?.(what, undefined);
  }
  const { keys, redis } = outageTexts;
  assert.deepEqual(
    lines,
    [
      `${keys.begins}. Cause: it is down.`,
      `${keys.ends}.`,
      `${redis.begins}. Cause: it is down.`,
      `${redis.ends}.`,
    ].map((text) => `work-item-gateway: ${text}`),
  );
});

test('a line is cut at 2,000 characters', () => {
  const { lines, observer } = observe();
  observer.onOutage?.('keys', 'x');
  const rest = 2_000 - (lines[0] ?? '').length;
  for (const more of [rest, rest + 1]) observer.onOutage?.('keys', 'x'.repeat(1 + more));
  const lengths = lines.map((line) => line.length);
  assert.deepEqual(lengths, [2_000 - rest, 2_000, 2_001]);
  assert.equal(lines[2], `${(lines[1] ?? '').slice(0, -1)}x…`);
});

test('control characters in a path or a cause are escaped', () => {
  const { lines, observer } = observe();
  observer.onCallEnd(call('refused', { path: '/\u001b[2J\r\nwork-item-gateway: ok', cause: 'x\u2028\u202e' }));
  assert.doesNotMatch(lines[0] ?? '', /[\p{Cc}\u2028\u202e]/u);
  assert.match(lines[0] ?? '', /\/\\u001b\[2J\\u000d\\u000awork-item-gateway: ok/);
});

test('a dead backend causes few lines; further failures are only counted', (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { lines, observer } = observe();
  for (let failed = 0; failed < 5_000; failed += 1) observer.onCallEnd(call('unreachable'));
  assert.equal(lines.length, linesMax);
  context.mock.timers.tick(periodMs);
  assert.equal(lines.length, linesMax + 1);
  assert.match(lines.at(-1) ?? '', /^work-item-gateway: 4990 more failed in the last 10 s/);
  // The line with the count is the first of the `linesMax` lines of the next period.
  for (let failed = 0; failed < linesMax; failed += 1) observer.onCallEnd(call('unreachable'));
  assert.equal(lines.length, 2 * linesMax);
  context.mock.timers.tick(periodMs);
  context.mock.timers.tick(periodMs);
  assert.match(lines.at(-1) ?? '', /: 1 more failed/);
  observer.onCallEnd(call('refused'));
  assert.match(lines.at(-1) ?? '', /, outcome refused: /);
});
