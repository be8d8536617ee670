// The log lines of requests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { operations } from '../../packages/core/operations.ts';
import { logCall } from '../../packages/command/log/call-line.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import { createCallRecord } from '../helpers/call-record.ts';

/** The lines of four calls, each a millisecond after the last, around midnight. */
function linesOf(record: CallRecord, showsClient = true, level = 'info'): string[] {
  let ms = Date.UTC(2026, 10, 21, 23, 59, 59, 997);
  const lines: string[] = [];
  // The logger reads the time when it is created, and for each line.
  const logger = createLogger(level, { write: (line) => void lines.push(line) }, () => (ms += 1));
  for (let line = 0; line < 4; line += 1) logCall(logger, record, showsClient);
  return lines;
}

const read = createCallRecord({
  requestId: 'A-z.09_~',
  operation: operations.find(({ name }) => name === 'read'),
  agent: 'curl/8.5.0',
  status: 200,
  outcome: 'ok',
  durationMs: 12.34567,
  backendOutcome: 'ok',
  backendDurationMs: 11,
  replyBytes: 432,
});
const whole = {
  level: 'info',
  time: '2026-11-21T23:59:59.999Z',
  pid: process.pid,
  requestId: 'A-z.09_~',
  operation: 'read',
  method: read.method,
  path: read.path,
  http: '1.1',
  client: read.client,
  agent: 'curl/8.5.0',
  status: 200,
  outcome: 'ok',
  durationMs: 12.346,
  backendMs: 11,
  requestBytes: 0,
  replyBytes: 432,
  msg: 'request',
};
const failed = { level: 'warn', status: 500, outcome: 'refused', msg: 'backend call failed' } as const;

const cases: [what: string, record: Partial<CallRecord>, fields: Record<string, unknown>][] = [
  ['a read', {}, {}],
  ['a call without an operation', { operation: undefined, status: 404, outcome: 'not-found' }, { operation: undefined, status: 404, outcome: 'not-found' }],
  ['a request without a backend call', { backendDurationMs: undefined, status: 400, outcome: 'bad-request' }, { backendMs: undefined, status: 400, outcome: 'bad-request' }],
  ['a backend that failed', { status: 500, outcome: 'refused', reason: 'status', cause: 'a\n"b"' }, { ...failed, reason: 'status', cause: 'a\n"b"' }],
  ['text that needs escapes', { path: String.raw`/a"b\c`, agent: String.raw`a"b\c`, subject: 'Zo\u00eb "\\" x' }, { path: String.raw`/a"b\c`, agent: String.raw`a"b\c`, subject: 'Zo\u00eb "\\" x' }],
  ['an unknown client', { client: undefined, agent: undefined }, { client: undefined, agent: undefined }],
  ['tiny durations', { durationMs: 0, backendDurationMs: 1e-7 }, { durationMs: 0, backendMs: 0 }],
  ['durations with zeros', { durationMs: 3.05, backendDurationMs: 2.0996 }, { durationMs: 3.05, backendMs: 2.1 }],
]; // prettier-ignore
for (const [what, record, fields] of cases) {
  test(`the line of ${what} is one line of JSON with the documented fields`, () => {
    const lines = linesOf({ ...read, ...record });
    const expected = JSON.parse(JSON.stringify({ ...whole, ...fields })) as object;
    for (const line of lines) assert.match(line, /^\{[ -~\u00eb]+\}\n$/);
    assert.deepEqual(JSON.parse(lines[0] ?? ''), expected);
    const times = lines.map((line) => (JSON.parse(line) as { time: string }).time);
    assert.deepEqual(times.slice(1), ['2026-11-22T00:00:00.000Z', '2026-11-22T00:00:00.001Z', '2026-11-22T00:00:00.002Z']);
  });
} // prettier-ignore

test('the line of a bug has the stack of its error', () => {
  const [line = ''] = linesOf({ ...read, status: 500, outcome: 'bug', cause: new TypeError('a\nb') });
  const { err, ...others } = JSON.parse(line) as { err: { type: string; message: string; stack: string } };
  assert.deepEqual(others, { ...whole, level: 'error', status: 500, outcome: 'bug', msg: 'internal error' });
  assert.deepEqual([err.type, err.message], ['TypeError', 'a\nb']);
  assert.match(err.stack, /^TypeError: a\nb\n +at /);
});

test('a level above info suppresses the lines of requests', () => {
  assert.deepEqual(linesOf(read, true, 'warn'), []);
});

for (const outcome of ['ok', 'refused', 'bug'] as const) {
  test(`${outcome}: with LOG_CLIENT=false the line has neither client, subject nor agent [D62]`, () => {
    const record: CallRecord = {
      ...read,
      outcome,
      subject: 'Ada',
      get client(): never {
        throw new Error('must not be read');
      },
    };
    const [line = ''] = linesOf(record, false);
    assert.doesNotMatch(line, /"(?:client|subject|agent)"/);
    assert.match(line, /"path":.*"http":"1.1"/);
  });
}
