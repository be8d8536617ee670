// Between the gateway's spans and the SDK's exporter: holds no more spans than it may, and knows of each whether the
// collector has taken it [D49].

import { diag, DiagLogLevel } from '@opentelemetry/api';
import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import type { BatchSpanProcessor, ReadableSpan, SpanExporter, SpanProcessor } from '@opentelemetry/sdk-trace';

import { escapeControls } from '../../core/text/escape.ts';
import type { SpanLosses } from './span-losses.ts';

/** Spans held at once, those that are being sent among them; further ones are dropped. */
export const spansMax = 2_048;

const causeLengthMax = 200;

// The spans of the batch whose reply is being read that the collector has rejected. The exporter says it to its log only,
// and right after that, in the same turn, that the batch was taken.
let rejectedSpans = 0;

/** Listens to what OpenTelemetry logs; without it nothing does. */
export function watchRejections(): void {
  const nothing = (): void => undefined;
  const warn = (message: string, detail?: unknown): void => {
    if (message.startsWith('Received Partial Success') && typeof detail === 'string') {
      rejectedSpans = readRejected(detail);
    }
  };
  const log = { error: nothing, warn, info: nothing, debug: nothing, verbose: nothing };
  diag.setLogger(log, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
}

function takeRejected(): number {
  const rejected = rejectedSpans;
  rejectedSpans = 0;
  return rejected;
}

function readRejected(partialSuccess: string): number {
  const { rejectedSpans: rejected } = JSON.parse(partialSuccess) as { rejectedSpans?: unknown };
  const count = Number(rejected);
  return count > 0 ? count : 0;
}

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

  /** What is still under way is lost; gives all lost spans that no line has told of. */
  close(): number {
    this.#isClosed = true;
    return this.#losses.close(this.#pending);
  }

  export(spans: ReadableSpan[], onResult: (result: ExportResult) => void): void {
    let isOver = false;
    const finish = (result: ExportResult): void => {
      const rejected = takeRejected();
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

/** Hands spans that were admitted to the SDK's batches. */
export class BoundedProcessor implements SpanProcessor {
  readonly #batches: BatchSpanProcessor;
  readonly #exporter: WatchedExporter;

  constructor(batches: BatchSpanProcessor, exporter: WatchedExporter) {
    this.#batches = batches;
    this.#exporter = exporter;
  }

  onStart(): void {
    // Spans begin when they have ended already.
  }

  onEnd(span: ReadableSpan): void {
    if (this.#exporter.admit()) {
      this.#batches.onEnd(span);
    }
  }

  async forceFlush(): Promise<void> {
    await this.#batches.forceFlush();
  }

  async shutdown(): Promise<void> {
    await this.#batches.shutdown();
  }
}
