// Trace parents and sampling, the spans of a call, and their export [D49]. test/process/traces.test.ts tests the command.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { SpanKind, SpanStatusCode, TraceFlags } from '@opentelemetry/api';
import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import { defaultResource } from '@opentelemetry/resources';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import { createLogger } from '../../packages/command/log/log.ts';
import { quietMs } from '../../packages/command/service/outage-lines.ts';
import type { TraceOptions } from '../../packages/command/service/process-parts.ts';
import { createSpanWriter } from '../../packages/command/traces/call-spans.ts';
import { SpanExport } from '../../packages/command/traces/span-export.ts';
import { createSampler } from '../../packages/command/traces/trace-parent.ts';
import type { RequestHead } from '../../packages/core/http1/head.ts';
import { createCallRecord } from '../helpers/call-record.ts';
import { HandClock } from '../helpers/hand-clock.ts';

const withLastBits = (bits: number): string =>
  `00-${'5'.repeat(24)}${bits.toString(16).padStart(8, '0')}-${'1'.repeat(16)}-02`;

test("a trace is sampled if the last 32 bits of its id are below the ratio times 2 ** 32, or as its parent's sampler decides", () => {
  const highest = 2 ** 32 - 1;
  for (const ratio of [0, 1e-9, 2 ** -32, 0.01, 0.25, 1 / 3, 0.999, 1 - 2 ** -32, 1]) {
    const isSampled = createSampler('traceidratio', ratio);
    const limit = Math.min(highest, Math.ceil(ratio * 2 ** 32));
    const near = [limit - 1, limit, limit + 1].filter((bits) => bits >= 0 && bits <= highest);
    for (const bits of [0, 1, 9, 10, 15, 16, 0xff, 2 ** 30, 2 ** 31, highest - 1, highest, ...near]) {
      assert.equal(isSampled(withLastBits(bits), undefined), bits < ratio * 2 ** 32, `${bits} of ${ratio}`);
    }
  }
  for (const [name, parent, expected] of [
    ['parentbased_traceidratio', true, true], ['parentbased_traceidratio', false, false],
    ['parentbased_traceidratio', undefined, false], ['parentbased_always_on', false, false],
    ['parentbased_always_on', undefined, true], ['parentbased_always_off', true, true],
    ['parentbased_always_off', undefined, false], ['always_on', false, true], ['always_off', true, false],
    ['traceidratio', true, false],
  ] as const) {
    assert.equal(createSampler(name, 0.5)(withLastBits(highest), parent), expected, `${name}, ${String(parent)}`);
  } // prettier-ignore
});

test('the call to the backend has its own span if it was made', () => {
  const traceParent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`;
  const head = { method: 'GET', target: '/', version: '1.1', fields: ['host', 'x'] } as unknown as RequestHead;
  const none = { tlsCertFile: '', otelServiceName: '', otelResourceAttributes: '' };
  const options = { backendUrl: new URL('http://localhost:5104'), logClient: true, ...none } as unknown as TraceOptions;
  const backendCall = { traceParent, path: '/api/WorkItem', startedAt: 0 };
  const call = { head, traceParent, parent: undefined, traceState: undefined, startedAt: 0, backendCall };
  for (const [record, ...expected] of [
    [{ outcome: 'unreachable', backendOutcome: 'unreachable' }, '500', 'unreachable'],
    [{ outcome: 'client-gone', status: 0, backendOutcome: 'cancelled' }, 'undefined', 'cancelled'],
    [{ outcome: 'bug' }, '500', 'bug'],
    // No descriptor was free for it.
    [{ outcome: 'overload' }, '500'],
  ] as const) {
    const errors: string[] = [];
    createSpanWriter(options, ({ attributes }) => errors.push(String(attributes['error.type'])))(
      call,
      createCallRecord(record),
    );
    assert.deepEqual(errors, expected);
  }
});

test('spans have their times, the address and port of the backend, and the flags of the parent', () => {
  const [traceId, parentId] = ['1'.repeat(32), '3'.repeat(16)];
  const traceParent = `00-${traceId}-${'2'.repeat(16)}-01`;
  const head = { method: 'GET', target: '/', version: '1.1', fields: [] } as unknown as RequestHead;
  for (const [url, address, port, flags] of [
    ['https://[::1]/base', '::1', 443, 0],
    ['http://localhost', 'localhost', 80, 1],
  ] as const) {
    const [parent, backendCall] = [`00-${traceId}-${parentId}-0${flags}`, { traceParent, path: '/', startedAt: 1_250 }];
    const none = { tlsCertFile: '', otelServiceName: '', otelResourceAttributes: '', logClient: true };
    const found: ReadableSpan[] = [];
    createSpanWriter({ ...none, backendUrl: new URL(url) } as unknown as TraceOptions, (each) => found.push(each))(
      { head, traceParent, parent, traceState: undefined, startedAt: 1_000, backendCall },
      createCallRecord({ backendOutcome: 'ok', durationMs: 2_500, backendDurationMs: 1_500 }),
    );
    assert.deepEqual(
      found.map(({ startTime, endTime }) => [startTime, endTime]),
      [
        [[1, 0], [3, 5e8]],
        [[1, 25e7], [2, 75e7]],
      ],
    ); // prettier-ignore
    assert.partialDeepStrictEqual(found[0]?.parentSpanContext, { spanId: parentId, traceFlags: flags, isRemote: true });
    assert.partialDeepStrictEqual(found[1]?.attributes, { 'server.address': address, 'server.port': port });
  }
});

const span: ReadableSpan = {
  ...{ name: 'read', kind: SpanKind.SERVER, startTime: [0, 0], endTime: [0, 0], duration: [0, 0], ended: true },
  spanContext: () => ({ traceId: '1'.repeat(32), spanId: '2'.repeat(16), traceFlags: TraceFlags.SAMPLED }),
  ...{ status: { code: SpanStatusCode.UNSET }, attributes: {}, links: [], events: [], resource: defaultResource() },
  ...{ instrumentationScope: { name: 'test' }, droppedAttributesCount: 0, droppedEventsCount: 0, droppedLinksCount: 0 },
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
  const texts = { warn: 'trace export failed: dropping spans', info: 'trace export works again' };
  assert.deepEqual([endpoint, msg], ['http://collector', texts[level as keyof typeof texts]]);
  return [level === 'warn' ? 'losing' : 'recovered', String(cause), spans];
}

beforeEach(() => {
  clock = new HandClock();
  dropped = 0;
  lines = [];
  batches = [];
  const exporter = {
    export: ({ length }: readonly ReadableSpan[], onResult: (typeof batches)[number]) => {
      assert.ok(length <= batch);
      batches.push(onResult);
    },
    shutdown: () => Promise.resolve(),
  };
  const logger = createLogger('info', { write: (line) => void lines.push(summarize(line)) });
  spans = new SpanExport(exporter, 'http://collector', 1_000, logger, (count) => void (dropped += count), clock);
});

const add = (count: number): void => {
  for (let each = 0; each < count; each += 1) spans.add(span);
};

/** Answers the batch that is in flight. The SDK sends the next batch afterwards. */
async function answer(result: ExportResult): Promise<void> {
  const onResult = batches.shift();
  assert.ok(onResult !== undefined, 'a batch is in flight');
  onResult(result);
  await nextTurn();
}

async function exportBatch(result: ExportResult): Promise<void> {
  add(batch);
  await answer(result);
}

test('the first loss is reported immediately, later losses with the recovery; a success without a loss is not reported', async () => {
  await exportBatch(accepted);
  assert.deepEqual([lines, dropped], [[], 0]);
  for (const code of [503, 503, 400]) await exportBatch(failed('', code));
  assert.deepEqual([lines, dropped], [[['losing', 'status 503', batch]], 3 * batch]);
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

test('if the collector fails and recovers repeatedly, each lost span is in exactly one of few lines', async () => {
  for (let round = 0; round < 30; round += 1) {
    await exportBatch(failed('down'));
    await exportBatch(accepted);
    await clock.pass(quietMs / 5);
  }
  const gaps = lines.map(([is]) => is);
  assert.deepEqual(
    gaps,
    gaps.map((_, index) => (index % 2 === 0 ? 'losing' : 'recovered')),
  );
  assert.ok(lines.length < 30 && lines.length % 2 === 0, `${lines.length} lines`);
  assert.equal(lines.reduce((sum, [, , count]) => sum + count, 0) + spans.close(), 30 * batch);
  assert.equal(dropped, 30 * batch);
});

test('close() returns the number of lost spans that are not reported yet; afterwards, nothing is logged and no timer runs', async () => {
  await exportBatch(failed('a'));
  await exportBatch(failed('a'));
  add(batch);
  assert.deepEqual([spans.close(), dropped], [2 * batch, 3 * batch]);
  await answer(failed('b'));
  await clock.pass(10 * quietMs);
  assert.deepEqual([lines.length, dropped, clock.waits], [1, 3 * batch, []]);
});

test('a failure is logged with its status, message or code, in one line', async () => {
  const results: [ExportResult, cause: string][] = [
    [failed('Bad Request', 400), 'status 400'],
    [failed('Request timed out'), 'Request timed out'],
    [failed('', 'ECONNREFUSED'), 'ECONNREFUSED'],
    [failed('a\nb', 'E'), String.raw`a\u000ab`],
    [failed('x'.repeat(300)), 'x'.repeat(200)],
    [{ code: ExportResultCode.FAILED }, 'unknown'],
  ];
  for (const [result] of results) {
    await exportBatch(result);
    await exportBatch(accepted);
    await clock.pass(2 * quietMs);
  }
  const causes = lines.filter(([is]) => is === 'losing').map(([, cause]) => cause);
  assert.deepEqual(
    causes,
    results.map(([, cause]) => cause),
  );
});
