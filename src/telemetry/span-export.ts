// Between the gateway's spans and the SDK's exporter: holds no more spans than it may, counts those that are lost, and says
// once when the collector begins to fail and once when it takes spans again [D49].

import { ExportResultCode, type ExportResult } from '@opentelemetry/core';
import type { BatchSpanProcessor, ReadableSpan, SpanExporter, SpanProcessor } from '@opentelemetry/sdk-trace';

import { escapeControls } from './escape.ts';

export interface SpanObserver {
  /** So many spans will not reach the collector. */
  onDropped(spans: number): void;
  /** The collector takes no spans any more, for that reason. */
  onFailing(cause: string): void;
  /** It takes them again. */
  onRecovered(): void;
}

/** Spans held at once, those that are being sent among them; further ones are dropped. */
export const spansMax = 2_048;

const causeLengthMax = 200;

/** Exports by `exporter`, each batch within `timeoutMs` whatever the collector does meanwhile. */
export class WatchedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #timeoutMs: number;
  readonly #observer: SpanObserver;
  #pending = 0;
  #isFailing = false;

  constructor(exporter: SpanExporter, timeoutMs: number, observer: SpanObserver) {
    this.#exporter = exporter;
    this.#timeoutMs = timeoutMs;
    this.#observer = observer;
  }

  /** Spans that were admitted, and neither taken by the collector nor dropped so far. */
  get pending(): number {
    return this.#pending;
  }

  /** Counts one span in, or drops it: then false. */
  admit(): boolean {
    if (this.#pending >= spansMax) {
      this.#observer.onDropped(1);
      return false;
    }
    this.#pending += 1;
    return true;
  }

  export(spans: ReadableSpan[], onResult: (result: ExportResult) => void): void {
    let isOver = false;
    const finish = (result: ExportResult): void => {
      if (isOver) {
        return;
      }
      isOver = true;
      clearTimeout(timer);
      this.#pending -= spans.length;
      this.#note(result, spans.length);
      onResult(result);
    };
    const timer = setTimeout(() => {
      const error = new Error(`no reply within ${this.#timeoutMs} ms`);
      finish({ code: ExportResultCode.FAILED, error });
    }, this.#timeoutMs).unref();
    this.#exporter.export(spans, finish);
  }

  #note({ code, error }: ExportResult, spans: number): void {
    if (code !== ExportResultCode.SUCCESS) {
      this.#observer.onDropped(spans);
      if (!this.#isFailing) {
        this.#isFailing = true;
        this.#observer.onFailing(describeCause(error));
      }
    } else if (this.#isFailing) {
      this.#isFailing = false;
      this.#observer.onRecovered();
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
