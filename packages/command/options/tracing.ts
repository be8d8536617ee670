// The interface of traces/, a part that can be left out. Its `createTraces(options, observer)` returns a
// `ProcessTracer`. This file loads nothing.

import type { Tracer } from '../../core/call/tracer.ts';

/** OpenTelemetry's standard samplers, by their names in OTEL_TRACES_SAMPLER. */
export const samplerNames = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

export interface TraceOptions {
  /** The collector's address, without `/v1/traces`. */
  readonly otelExporterOtlpEndpoint: string;
  /** Headers for requests to the collector. Secret. */
  readonly otelExporterOtlpHeaders: string;
  readonly otelServiceName: string;
  readonly otelTracesSampler: (typeof samplerNames)[number];
  /** From 0 to 1. */
  readonly otelTracesSamplerArg: number;
  readonly backendUrl: URL;
  /** Empty if clients use plain HTTP. */
  readonly tlsCertFile: string;
  /** If true, spans contain the addresses of clients. */
  readonly logClient: boolean;
}

/** Receives the numbers of lost spans. */
export interface SpanObserver {
  /** Called immediately for each loss, with the number of spans. */
  onDropped(spans: number): void;
  /** Spans are being lost because of `cause`. `spans` is the number of losses that no earlier call has reported. */
  onLosing(cause: string, spans: number): void;
  /** The collector accepts spans again. `spans` of them were lost since `onLosing`, the last one because of `cause`. */
  onRecovered(cause: string, spans: number): void;
}

/** A tracer with a lifetime. */
export interface ProcessTracer extends Tracer {
  /** Exports the remaining spans for at most `limitMs`. Resolves with the number of losses that only `onDropped` reported. */
  end(limitMs: number): Promise<number>;
}
