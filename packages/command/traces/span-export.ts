// Exports spans and counts lost spans [D49]. The SDK's queue drops spans silently when it is full, so this file adds
// only spans for which the queue has room.

import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';

import { startDeadline } from '../../core/hosts/common/process-deadline.ts';
import { escapeControls } from '../../core/text/escape.ts';
import { systemClock, type Clock } from '../../core/guards/time/clock.ts';
import { OutageLines } from '../service/outage-lines.ts';
import type { Logger } from '../log/log.ts';

// Largest number of spans held, including those in flight to the collector; further spans are dropped.
const spansMax = 2_048;
const batchSpansMax = 512;
// Longest time that a span waits for its batch to fill.
const batchDelayMs = 1_000;
const causeLengthMax = 200;

export class SpanExport {
  readonly #processor: BatchSpanProcessor;
  readonly #onDropped: (spans: number) => void;
  readonly #lines: OutageLines;
  // Number of spans that are neither accepted by the collector nor lost.
  #held = 0;
  // Number of lost spans that no log line has reported.
  #unreported = 0;
  #cause = '';
  // True if a span was dropped for lack of room since the collector last accepted spans.
  #wasFull = false;
  #isClosed = false;

  /**
   * Exports through `exporter` to `endpoint`. A batch that takes longer than `timeoutMs` does not delay the next batch.
   * `onDropped` is called immediately for each loss.
   */
  constructor(
    exporter: SpanExporter,
    endpoint: string,
    timeoutMs: number,
    logger: Logger,
    onDropped: (spans: number) => void,
    clock: Clock = systemClock,
  ) {
    this.#onDropped = onDropped;
    const facts = (): object => ({ endpoint, cause: this.#cause, spans: this.#takeUnreported() });
    this.#lines = new OutageLines(
      () => logger.warn(facts(), 'trace export failed: dropping spans'),
      () => logger.info(facts(), 'trace export works again'),
      clock,
    );
    this.#processor = new BatchSpanProcessor({
      exporter: {
        export: (spans, onResult) =>
          exporter.export(spans, (result) => {
            this.#note(result, spans.length);
            onResult(result);
          }),
        shutdown: () => exporter.shutdown(),
      },
      maxQueueSize: spansMax,
      maxExportBatchSize: batchSpansMax,
      scheduledDelayMillis: batchDelayMs,
      exportTimeoutMillis: timeoutMs,
    });
  }

  add(span: ReadableSpan): void {
    if (this.#held < spansMax) {
      this.#held += 1;
      this.#processor.onEnd(span);
    } else {
      this.#wasFull = true;
      this.#lose(1, `${spansMax} spans are already waiting`);
    }
  }

  /** Resolves when the last spans are exported or lost, or after `limitMs`. */
  async flush(limitMs: number): Promise<void> {
    const { promise: late, resolve } = Promise.withResolvers<undefined>();
    const callOff = startDeadline(limitMs, () => resolve(undefined));
    // Failures are ignored here, because `#note` handles them.
    await Promise.race([this.#processor.shutdown().catch(() => undefined), late]);
    callOff();
  }

  /** Drops the spans not accepted yet. Returns the number of lost spans that no log line has reported. */
  close(): number {
    this.#isClosed = true;
    this.#lines.close();
    this.#onDropped(this.#held);
    return this.#takeUnreported() + this.#held;
  }

  #note({ code, error }: ExportResult, spans: number): void {
    if (this.#isClosed) return;
    this.#held -= spans;
    if (code !== ExportResultCode.SUCCESS) {
      this.#lose(spans, describeCause(error));
    } else if (this.#wasFull) {
      // Spans were dropped while this batch waited, so the next batch decides whether the losses are over.
      this.#wasFull = false;
    } else {
      this.#lines.up();
    }
  }

  #lose(spans: number, cause: string): void {
    this.#onDropped(spans);
    this.#unreported += spans;
    this.#cause = cause;
    this.#lines.down(cause);
  }

  #takeUnreported(): number {
    const spans = this.#unreported;
    this.#unreported = 0;
    return spans;
  }
}

/** Returns the status of the reply, or the message of the error. The text of the collector's reply is left out. */
function describeCause(error: Error | undefined): string {
  const code: unknown = error !== undefined && 'code' in error ? error.code : undefined;
  if (typeof code === 'number') return `status ${code}`;
  const words = [error?.message, code, 'unknown'].find((each) => typeof each === 'string' && each !== '');
  return escapeControls(String(words)).slice(0, causeLengthMax);
}
