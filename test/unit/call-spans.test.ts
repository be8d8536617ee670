// The spans of a call: one for the request, and one for the call to the backend if it was made [D49].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import type { RequestHead } from '../../packages/core/http1/head.ts';
import { operations } from '../../packages/core/operations.ts';
import type { TraceOptions } from '../../packages/command/service/process-parts.ts';
import { createSpanWriter } from '../../packages/command/traces/call-spans.ts';
import { createCallRecord } from '../helpers/call-record.ts';

const traceParent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`;
const head = {
  method: 'GET',
  target: '/api/work-items/5',
  version: '1.1',
  fields: ['host', 'x'],
} as unknown as RequestHead;
const options = {
  backendUrl: new URL('http://localhost:5104'),
  tlsCertFile: '',
  logClient: true,
  otelServiceName: '',
  otelResourceAttributes: '',
} as unknown as TraceOptions;

/** Returns `name: error.type` for each span of a request. Its backend call was prepared, but perhaps not made. */
function namesFor(record: Partial<CallRecord>): string[] {
  const names: string[] = [];
  const write = createSpanWriter(options, ({ name, attributes }) =>
    names.push(`${name}: ${String(attributes['error.type'])}`),
  );
  const backendCall = { traceParent, path: '/api/WorkItem/5', startedAt: 0 };
  const call = { head, traceParent, parent: undefined, traceState: undefined, startedAt: 0, backendCall };
  write(call, createCallRecord({ operation: operations.find(({ name }) => name === 'read'), ...record }));
  return names;
}

test('the call to the backend has its own span if it has its own outcome, or if a bug ended it [D49]', () => {
  assert.deepEqual(namesFor({ outcome: 'unreachable', backendOutcome: 'unreachable' }), [
    'GET /api/work-items/{id}: 500',
    'GET: unreachable',
  ]);
  assert.deepEqual(namesFor({ outcome: 'client-gone', status: 0, backendOutcome: 'cancelled' }), [
    'GET /api/work-items/{id}: undefined',
    'GET: cancelled',
  ]);
  assert.deepEqual(namesFor({ outcome: 'bug' }), ['GET /api/work-items/{id}: 500', 'GET: bug']);
});

test('if no descriptor was free for the call to the backend, only the request has a span [D49, D51]', () => {
  assert.deepEqual(namesFor({ outcome: 'overload' }), ['GET /api/work-items/{id}: 500']);
});
