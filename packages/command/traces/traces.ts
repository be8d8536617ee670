// Traces calls [D49]: decides which calls are sampled, and makes the trace context for the backend. call-spans.ts makes the
// spans of sampled calls, and span-export.ts exports them. This file loads the SDK.

import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';

import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';

import { readTraceContext } from '../../core/call/request-context.ts';
import type { CallTrace } from '../../core/call/tracer.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { parseExporterHeaders } from '../options/exporter-headers.ts';
import type { ProcessTracer, SpanObserver, TraceOptions } from '../options/tracing.ts';
import { CallSpans, type BackendCall, type CallOrigin } from './call-spans.ts';
import { watchRejectedSpans } from './rejected-spans.ts';
import { BoundedProcessor, WatchedExporter } from './span-export.ts';
import { SpanLosses } from './span-losses.ts';
import { childOf, isSampled, spanIdOf, traceParents } from './trace-parent.ts';
import { createSampler } from './trace-sampling.ts';

// Time limit for the export of a batch, including all attempts.
const exportTimeoutMs = 10_000;

export function createTraces(options: TraceOptions, observer: SpanObserver): ProcessTracer {
  const url = `${withoutEndSlashes(options.otelExporterOtlpEndpoint)}/v1/traces`;
  const agent = new (url.startsWith('https:') ? HttpsAgent : HttpAgent)({ keepAlive: true });
  watchRejectedSpans();
  const exporter = new WatchedExporter(
    new OTLPTraceExporter({
      url,
      headers: { ...parseExporterHeaders(options.otelExporterOtlpHeaders) },
      timeoutMillis: exportTimeoutMs,
      httpAgentOptions: () => agent,
    }),
    exportTimeoutMs,
    new SpanLosses(observer),
  );
  const spans = new CallSpans(options, new BoundedProcessor(exporter, exportTimeoutMs));
  const decides = createSampler(options.otelTracesSampler, options.otelTracesSamplerArg);
  return {
    // For a call that is not sampled, only its trace context is kept.
    start: (head) => {
      const [, parent, , traceState] = readTraceContext(head.fields);
      const drawn = traceParents.draw();
      if (parent === undefined) {
        return decides(drawn, undefined)
          ? traceCall({ head, traceParent: drawn, parent, traceState }, spans)
          : new UnsampledCall(drawn, undefined);
      }
      const isChildSampled = decides(parent, isSampled(parent));
      const traceParent = childOf(parent, spanIdOf(drawn), isChildSampled);
      return isChildSampled
        ? traceCall({ head, traceParent, parent, traceState }, spans)
        : new UnsampledCall(traceParent, traceState);
    },
    end: async (limitMs) => {
      const { promise: late, resolve } = Promise.withResolvers<undefined>();
      const timer = setTimeout(() => resolve(undefined), limitMs);
      // The exporter reports its own failures.
      await Promise.race([spans.end().catch(() => undefined), late]);
      clearTimeout(timer);
      agent.destroy();
      return exporter.close();
    },
  };
}

function traceCall(origin: CallOrigin, spans: CallSpans): CallTrace {
  const startedAt = Date.now();
  const since = performance.now();
  let backendCall: BackendCall | undefined;
  return {
    startBackendCall: (path) => {
      const traceParent = childOf(origin.traceParent, spanIdOf(traceParents.draw()), true);
      backendCall = { traceParent, path, startedAt: startedAt + performance.now() - since };
      return traceContext(traceParent, origin.traceState);
    },
    end: (record) => spans.write(origin, startedAt, backendCall, record),
  };
}

// A call that is not sampled. The backend gets this decision, because the backend would otherwise make its own.
class UnsampledCall implements CallTrace {
  readonly #traceParent: string;
  readonly #traceState: string | undefined;

  constructor(traceParent: string, traceState: string | undefined) {
    this.#traceParent = traceParent;
    this.#traceState = traceState;
  }

  startBackendCall(): readonly string[] {
    return traceContext(this.#traceParent, this.#traceState);
  }

  end(): void {
    // There is no span to end.
  }
}

function traceContext(traceParent: string, traceState: string | undefined): readonly string[] {
  return traceState === undefined
    ? ['traceparent', traceParent]
    : ['traceparent', traceParent, 'tracestate', traceState];
}
