// Limits the number of spans that wait for the SDK's exporter, and counts the spans that the collector did not accept
// [D49].

import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';

import { escapeControls } from '../../core/text/escape.ts';
import { takeRejectedSpans } from './rejected-spans.ts';
import type { SpanLosses } from './span-losses.ts';

// Largest number of spans held, including those in flight to the collector; further spans are dropped.
const spansMax = 2_048;
const batchSpansMax = 512;
// Longest time that a span waits for its batch to fill.
const batchDelayMs = 1_000;
const causeLengthMax = 200;

/** Exports through `exporter`. A batch that takes longer than `timeoutMs` counts as failed. */
export class WatchedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #timeoutMs: number;
  readonly #losses: SpanLosses;
  // Number of admitted spans that so far are neither accepted by the collector nor dropped.
  #pending = 0;
  // True if a span was dropped for lack of room since the collector last accepted spans.
  #wasFull = false;
  #isClosed = false;

  constructor(exporter: SpanExporter, timeoutMs: number, losses: SpanLosses) {
    this.#exporter = exporter;
    this.#timeoutMs = timeoutMs;
    this.#losses = losses;
  }

  /** Admits one span; returns false if there is no room and the span is dropped. */
  admit(): boolean {
    if (this.#pending >= spansMax) {
      this.#wasFull = true;
      this.#losses.lose(1, `${spansMax} spans are already waiting`);
      return false;
    }
    this.#pending += 1;
    return true;
  }

  /** Drops the spans not accepted yet. Returns the number of lost spans that no log line has reported. */
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
      this.#losses.lose(rejected, 'the collector rejected some spans');
    } else if (this.#wasFull) {
      // Spans were dropped while this batch waited, so the next batch decides whether the losses are over.
      this.#wasFull = false;
    } else {
      this.#losses.recover();
    }
  }

  async shutdown(): Promise<void> {
    await this.#exporter.shutdown();
  }
}

/**
 * Passes only admitted spans on to the SDK's queue. So that queue, which drops spans silently when it is full, never
 * gets full.
 */
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

/** Returns the status of the reply, or the message of the error. The text of the collector's reply is left out. */
function describeCause(error: Error | undefined): string {
  const code: unknown = error !== undefined && 'code' in error ? error.code : undefined;
  if (typeof code === 'number') {
    return `status ${code}`;
  }
  const text =
    error === undefined || error.message === '' ? (typeof code === 'string' ? code : 'unknown') : error.message;
  return escapeControls(text).slice(0, causeLengthMax);
}
