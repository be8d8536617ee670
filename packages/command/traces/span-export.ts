// Between the spans of calls and the SDK's exporter: holds a bounded number of spans, and knows of each whether the collector
// has taken it [D49].

import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';

import { escapeControls } from '../../core/text/escape.ts';
import { takeRejectedSpans } from './rejected-spans.ts';
import type { SpanLosses } from './span-losses.ts';

// Spans held at once, those in flight to the collector included; further ones are dropped.
const spansMax = 2_048;
const batchSpansMax = 512;
// How long a span may wait for others.
const batchDelayMs = 1_000;
const causeLengthMax = 200;

/** Exports by `exporter`, each batch within `timeoutMs` whatever the collector does meanwhile. */
export class WatchedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #timeoutMs: number;
  readonly #losses: SpanLosses;
  // Spans that were admitted, and neither taken by the collector nor dropped so far.
  #pending = 0;
  // There was no room for a span since the collector last took some.
  #wasFull = false;
  #isClosed = false;

  constructor(exporter: SpanExporter, timeoutMs: number, losses: SpanLosses) {
    this.#exporter = exporter;
    this.#timeoutMs = timeoutMs;
    this.#losses = losses;
  }

  /** Counts one span in, or drops it: then false. */
  admit(): boolean {
    if (this.#pending >= spansMax) {
      this.#wasFull = true;
      this.#losses.lose(1, `${spansMax} spans wait for it already`);
      return false;
    }
    this.#pending += 1;
    return true;
  }

  /** Drops the spans that the collector has not taken yet; gives all lost spans that no line has told of. */
  close(): number {
    this.#isClosed = true;
    return this.#losses.close(this.#pending);
  }

  export(spans: ReadableSpan[], onResult: (result: ExportResult) => void): void {
    let isOver = false;
    const finish = (result: ExportResult): void => {
      const rejected = takeRejectedSpans();
      if (isOver) {
        return;
      }
      isOver = true;
      clearTimeout(timer);
      if (!this.#isClosed) {
        this.#pending -= spans.length;
        this.#note(result, spans.length, Math.min(rejected, spans.length));
      }
      onResult(result);
    };
    const timer = setTimeout(() => {
      const error = new Error(`no reply within ${this.#timeoutMs} ms`);
      finish({ code: ExportResultCode.FAILED, error });
    }, this.#timeoutMs).unref();
    try {
      this.#exporter.export(spans, finish);
    } catch (error) {
      finish({ code: ExportResultCode.FAILED, error: error as Error });
    }
  }

  #note({ code, error }: ExportResult, spans: number, rejected: number): void {
    if (code !== ExportResultCode.SUCCESS) {
      this.#losses.lose(spans, describeCause(error));
    } else if (rejected > 0) {
      this.#losses.lose(rejected, 'it has rejected some');
    } else if (this.#wasFull) {
      // Others were dropped while these waited: the next ones decide.
      this.#wasFull = false;
    } else {
      this.#losses.recover();
    }
  }

  async shutdown(): Promise<void> {
    await this.#exporter.shutdown();
  }
}

/** The SDK's batches, of admitted spans only: their own queue is never full, which would drop spans without a word. */
export class BoundedProcessor extends BatchSpanProcessor {
  readonly #exporter: WatchedExporter;

  constructor(exporter: WatchedExporter, exportTimeoutMillis: number) {
    super({
      exporter,
      maxQueueSize: spansMax,
      maxExportBatchSize: batchSpansMax,
      scheduledDelayMillis: batchDelayMs,
      exportTimeoutMillis,
    });
    this.#exporter = exporter;
  }

  override onEnd(span: ReadableSpan): void {
    if (this.#exporter.admit()) {
      super.onEnd(span);
    }
  }
}

/** A status, or the system's words. What the collector has said is not repeated. */
function describeCause(error: Error | undefined): string {
  const code: unknown = error !== undefined && 'code' in error ? error.code : undefined;
  if (typeof code === 'number') {
    return `status ${code}`;
  }
  const text =
    error === undefined || error.message === ''
      ? typeof code === 'string'
        ? code
        : 'unknown'
      : error.message;
  return escapeControls(text).slice(0, causeLengthMax);
}
