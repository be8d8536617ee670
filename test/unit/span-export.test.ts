// The export of spans: at most 2,048 spans wait. Each lost span is counted immediately and is in one log line [D49].

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { SpanKind, SpanStatusCode, TraceFlags } from '@opentelemetry/api';
import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import { defaultResource } from '@opentelemetry/resources';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import { createLogger } from '../../packages/command/log/log.ts';
import { quietMs } from '../../packages/command/service/outage-lines.ts';
import { SpanExport } from '../../packages/command/traces/span-export.ts';
import { HandClock } from '../helpers/hand-clock.ts';

const context = { traceId: '1'.repeat(32), spanId: '2'.repeat(16), traceFlags: TraceFlags.SAMPLED };
const span: ReadableSpan = {
  name: 'read',
  kind: SpanKind.SERVER,
  spanContext: () => context,
  startTime: [0, 0],
  endTime: [0, 0],
  duration: [0, 0],
  ended: true,
  status: { code: SpanStatusCode.UNSET },
  attributes: {},
  links: [],
  events: [],
  resource: defaultResource(),
  instrumentationScope: { name: 'test' },
  droppedAttributesCount: 0,
  droppedEventsCount: 0,
  droppedLinksCount: 0,
};
const accepted = { code: ExportResultCode.SUCCESS };
const failed = (message: string, code?: unknown): ExportResult => ({
  code: ExportResultCode.FAILED,
  error: Object.assign(new Error(message), code !== undefined && { code }),
});

/** As soon as this many spans wait, the SDK exports them. */
const batch = 512;
let clock: HandClock;
let spans: SpanExport;
let dropped: number;
let lines: (readonly ['losing' | 'recovered', cause: string, spans: number])[];
/** The batches that the collector has not answered. */
let batches: ((result: ExportResult) => void)[];

function summarize(line: string): (typeof lines)[number] {
  const { level, endpoint, cause, spans, msg } = JSON.parse(line) as Record<string, string> & { spans: number };
  assert.equal(endpoint, 'http://collector');
  if (level === 'warn') {
    assert.equal(msg, 'trace export failed: dropping spans');
    return ['losing', String(cause), spans];
  }
  assert.deepEqual([level, msg], ['info', 'trace export works again']);
  return ['recovered', String(cause), spans];
}

beforeEach(() => {
  clock = new HandClock();
  dropped = 0;
  lines = [];
  batches = [];
  spans = new SpanExport(
    {
      export: ({ length }, onResult) => {
        assert.ok(length <= batch);
        batches.push(onResult);
      },
      shutdown: () => Promise.resolve(),
    },
    'http://collector',
    1_000,
    createLogger('info', { write: (line) => void lines.push(summarize(line)) }),
    (count) => {
      dropped += count;
    },
    clock,
  );
});

const add = (count: number): void => {
  for (let each = 0; each < count; each += 1) spans.add(span);
};

/** Answers the batch that is in flight. The SDK sends the next batch afterwards. */
async function answer(result: ExportResult): Promise<void> {
  const onResult = batches.shift();
  assert.ok(onResult !== undefined, 'a batch is in flight');
  onResult(result);
  await new Promise(setImmediate);
}

async function exportBatch(result: ExportResult): Promise<void> {
  add(batch);
  await answer(result);
}

test('the first loss is reported immediately, later losses are reported with the recovery; a success without an earlier loss is not reported', async () => {
  await exportBatch(accepted);
  assert.deepEqual([lines, dropped], [[], 0]);
  await exportBatch(failed('', 503));
  assert.deepEqual(lines, [['losing', 'status 503', batch]]);
  await exportBatch(failed('', 503));
  await exportBatch(failed('', 400));
  assert.equal(dropped, 3 * batch);
  await exportBatch(accepted);
  assert.deepEqual(lines.slice(1), [['recovered', 'status 400', 2 * batch]]);
});

test('at most 2,048 spans wait, further spans are dropped, and an accepted batch makes room', async () => {
  add(2_048 + 3);
  assert.deepEqual([lines, dropped], [[['losing', '2048 spans are already waiting', 1]], 3]);
  await answer(accepted);
  // Spans were dropped while this batch waited, so its success is not yet the recovery.
  assert.equal(lines.length, 1);
  await answer(accepted);
  assert.deepEqual(lines.slice(1), [['recovered', '2048 spans are already waiting', 2]]);
  add(2 * batch);
  assert.equal(dropped, 3);
  add(1);
  assert.equal(dropped, 4);
});

test('if the collector fails and recovers repeatedly, each lost span is in exactly one line, and lines come in pairs', async () => {
  for (let round = 0; round < 30; round += 1) {
    await exportBatch(failed('down'));
    await exportBatch(accepted);
    await clock.pass(quietMs / 5);
  }
  assert.ok(lines.length < 30 && lines.length % 2 === 0, `${lines.length} lines`);
  const close = spans.close();
  assert.equal(lines.reduce((sum, [, , count]) => sum + count, 0) + close, 30 * batch);
  assert.equal(dropped, 30 * batch);
});

test('close() returns the number of lost spans that are not reported yet; afterwards, nothing is logged and no timer runs', async () => {
  await exportBatch(failed('a'));
  await exportBatch(failed('a'));
  add(batch);
  assert.equal(spans.close(), 2 * batch);
  assert.equal(dropped, 3 * batch);
  await answer(failed('b'));
  await clock.pass(10 * quietMs);
  assert.deepEqual([lines.length, dropped], [1, 3 * batch]);
  assert.deepEqual(clock.waits, []);
});

test('flush() exports the spans of an incomplete batch, and ends when the collector has accepted them', async () => {
  add(1);
  const flushed = spans.flush(60_000);
  await new Promise(setImmediate);
  await answer(accepted);
  await flushed;
  assert.equal(spans.close(), 0);
});

test('flush() ends when its limit is reached', async () => {
  add(1);
  await spans.flush(1);
  assert.equal(spans.close(), 1);
});

for (const [result, cause] of [
  [failed('Bad Request', 400), 'status 400'],
  [failed('Request timed out'), 'Request timed out'],
  [failed('connect ECONNREFUSED', 'ECONNREFUSED'), 'connect ECONNREFUSED'],
  [failed('', 'ECONNREFUSED'), 'ECONNREFUSED'],
  [failed('a\nb'), String.raw`a\u000ab`],
  [failed('x'.repeat(300)), 'x'.repeat(200)],
  [{ code: ExportResultCode.FAILED }, 'unknown'],
] as const) {
  test(`a failure is logged as ${JSON.stringify(cause.slice(0, 30))}`, async () => {
    await exportBatch(result);
    assert.deepEqual(lines, [['losing', cause, batch]]);
  });
}
