// The log lines of requests are equal to those that pino writes.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CallRecord } from '../../packages/core/call/call-record.ts';
import { outcomes } from '../../packages/core/outcomes.ts';
import { operations } from '../../packages/core/operations.ts';
import { logCall } from '../../packages/command/log/call-line.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import { createCallRecord } from '../helpers/call-record.ts';

function collect() {
  const pieces: string[] = [];
  return { pieces, stream: { write: (piece: string) => void pieces.push(piece) } };
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

const records: [name: string, record: CallRecord][] = [
  ['a read', read],
  ['a call without an operation', { ...read, operation: undefined, status: 404, outcome: 'not-found' }],
  [
    'a request without a backend call',
    { ...read, backendDurationMs: undefined, backendOutcome: undefined, status: 400, outcome: 'bad-request' },
  ],
  [
    'a request that the backend rejected',
    { ...read, status: 500, outcome: 'rejected', backendOutcome: 'rejected', cause: 'status 409' },
  ],
  [
    'a backend that refused',
    { ...read, status: 500, outcome: 'refused', backendOutcome: 'refused', cause: 'status 503' },
  ],
  ['a bug', { ...read, status: 500, outcome: 'bug', cause: new TypeError('a\nb') }],
  ['a path that needs an escape', { ...read, path: String.raw`/a"b\c\u00e9` }],
  ['an unknown client', { ...read, client: undefined, agent: undefined }],
  ['an agent that needs an escape', { ...read, agent: String.raw`a"b\c\u00e9` }],
  ['a subject', { ...read, subject: 'Ada Lovelace' }],
  ['a subject that needs escapes', { ...read, subject: 'Zo\u00eb "\\" \ud800 x' }],
  ['a duration of 0 and a tiny duration', { ...read, durationMs: 0, backendDurationMs: 1e-7 }],
];

for (const [name, record] of records) {
  test(`the line of ${name} equals pino's line for the same fields`, () => {
    let ms = Date.UTC(2026, 10, 21, 23, 59, 59, 997);
    const ours = collect();
    const theirs = collect();
    // A logger reads the time when it is created, and for each line.
    const now = () => (ms += 1);
    const logger = createLogger('info', ours.stream, now);
    for (let line = 0; line < 4; line += 1) logCall(logger, record, true);
    ms = Date.UTC(2026, 10, 21, 23, 59, 59, 997);
    const pinos = createLogger('info', theirs.stream, now);
    const rounded = (value: number) => Math.round(value * 1000) / 1000;
    for (let line = 0; line < 4; line += 1) {
      const { level, message } = outcomes[record.outcome];
      pinos[level](
        {
          requestId: record.requestId,
          operation: record.operation?.name,
          method: record.method,
          path: record.path,
          http: record.http,
          client: record.client,
          subject: record.subject,
          agent: record.agent,
          status: record.status,
          outcome: record.outcome,
          durationMs: rounded(record.durationMs),
          backendMs: record.backendDurationMs === undefined ? undefined : rounded(record.backendDurationMs),
          requestBytes: record.requestBytes,
          replyBytes: record.replyBytes,
          [level === 'error' ? 'err' : 'cause']: record.cause,
        },
        message,
      );
    }
    assert.deepEqual(ours.pieces, theirs.pieces);
    const times = ours.pieces.map((line) => (JSON.parse(line) as { time: string }).time);
    assert.deepEqual(times, [
      '2026-11-21T23:59:59.999Z',
      '2026-11-22T00:00:00.000Z',
      '2026-11-22T00:00:00.001Z',
      '2026-11-22T00:00:00.002Z',
    ]);
  });
}

test('a level above info suppresses the lines of requests', () => {
  const { pieces, stream } = collect();
  logCall(createLogger('warn', stream), read, true);
  assert.deepEqual(pieces, []);
});

for (const outcome of ['ok', 'refused', 'bug'] as const) {
  const lineOf = (record: CallRecord, showsClient: boolean) => {
    const { pieces, stream } = collect();
    logCall(createLogger('info', stream), record, showsClient);
    return pieces.map((line) => JSON.parse(line) as Record<string, unknown>)[0];
  };

  test(`${outcome}: with LOG_CLIENT=false the line has neither client, subject nor agent [D62]`, () => {
    const record: CallRecord = {
      ...read,
      outcome,
      subject: 'Ada',
      get client(): never {
        throw new Error('must not be read');
      },
    };
    const line = lineOf(record, false);
    assert.deepEqual([line?.['client'], line?.['subject'], line?.['agent']], [undefined, undefined, undefined]);
    assert.deepEqual([line?.['path'], line?.['http']], [read.path, '1.1']);
  });
}
