// The number of spans that a collector rejected, read from the exporter's log [D49]. Fails if the package changes that log.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { diag } from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import { takeRejectedSpans, watchRejectedSpans } from '../../packages/command/traces/rejected-spans.ts';
import { Collector, takes } from '../helpers/collector.ts';

let collector: Collector;
before(async () => {
  watchRejectedSpans();
  collector = await Collector.start();
});
after(async () => {
  await collector.stop();
});

/** Exports two spans and returns the number of rejected ones known when the exporter reports its result. */
async function rejectedOfTwo(): Promise<number> {
  const memory = new InMemorySpanExporter();
  const tracer = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter: memory })] }).getTracer(
    'test',
  );
  for (const name of ['one', 'two']) tracer.startSpan(name).end();
  const exporter = new OTLPTraceExporter({ url: `${collector.url}/v1/traces` });
  const rejected = await new Promise<number>((resolve) =>
    exporter.export(memory.getFinishedSpans(), () => resolve(takeRejectedSpans())),
  );
  await exporter.shutdown();
  return rejected;
}

const partialSuccess = (...fields: number[]) => Buffer.from([0x0a, fields.length, ...fields]);

test('the exporter logs the rejected spans of a batch before it reports success', async () => {
  // partial_success { rejected_spans: 2 }
  collector.reply = (response) => response.writeHead(200).end(partialSuccess(0x08, 2));
  assert.equal(await rejectedOfTwo(), 2);
  assert.equal(takeRejectedSpans(), 0);
});

test("a collector's warning and an accepted batch reject no spans", async () => {
  // partial_success { error_message: "no" }
  collector.reply = (response) => response.writeHead(200).end(partialSuccess(0x12, 2, 0x6e, 0x6f));
  assert.equal(await rejectedOfTwo(), 0);
  collector.reply = takes;
  assert.equal(await rejectedOfTwo(), 0);
});

test('other log lines are ignored', () => {
  for (const words of [['{'], ['{"rejectedSpans":"x"}'], ['{"rejectedSpans":-1}'], ['a', 1, null, undefined]]) {
    diag.warn(...(words as [string]));
    assert.equal(takeRejectedSpans(), 0);
  }
});
