// The port of the part that traces calls, traces/, which can be left out: its `createTraces(options, observer)` gives a
// `ProcessTracer`. Loads nothing.

import type { Tracer } from '../../core/call/tracer.ts';

/** The standard samplers of OpenTelemetry, by the names that OTEL_TRACES_SAMPLER takes. */
export const samplerNames = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

/** The settings that traces depend on, by their names. */
export interface TraceOptions {
  /** The collector's address, without `/v1/traces`. */
  readonly otelExporterOtlpEndpoint: string;
  /** Sent to the collector. Secret. */
  readonly otelExporterOtlpHeaders: string;
  readonly otelServiceName: string;
  readonly otelTracesSampler: (typeof samplerNames)[number];
  /** From 0 to 1. */
  readonly otelTracesSamplerArg: number;
  readonly backendUrl: URL;
  /** Empty where clients use plain HTTP. */
  readonly tlsCertFile: string;
  /** Whether spans have clients' addresses. */
  readonly logClient: boolean;
}

/** Receives the spans that are lost. */
export interface SpanObserver {
  /** Called for each loss at once: the number of spans that will not reach the collector. */
  onDropped(spans: number): void;
  /** The collector stops taking spans, for that reason; `spans` are lost so far. */
  onLosing(cause: string, spans: number): void;
  /** It takes them again; `spans` were lost since `onLosing`, the last of them for that reason. */
  onRecovered(cause: string, spans: number): void;
}

/** A tracer that ends with its process. */
export interface ProcessTracer extends Tracer {
  /** Exports what is left, for at most `limitMs`; resolves with the number of lost spans that the observer's lines do not have. */
  end(limitMs: number): Promise<number>;
}
