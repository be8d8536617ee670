// Traces calls [D49]: decides which calls are sampled, and makes the trace context for the backend. call-spans.ts makes the
// spans of sampled calls, and span-export.ts exports them.

import * as http from 'node:http';
import * as https from 'node:https';

import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';

import { readTraceContext } from '../../core/call/request-context.ts';
import { findProxyEnv } from '../../core/guards/ports/egress-proxy.ts';
import { monotonicMs } from '../../core/time/monotonic.ts';
import type { Logger } from '../log/log.ts';
import type { ProcessTracer, TraceOptions } from '../service/process-parts.ts';
import { parseExporterHeaders } from '../settings/setting-kinds.ts';
import type { Collector } from '../settings/trace-settings.ts';
import { createSpanWriter, type SampledCall } from './call-spans.ts';
import { SpanExport } from './span-export.ts';
import { childOf, createSampler, isSampled, spanIdOf, traceParents } from './trace-parent.ts';

// Time limit for the export of a batch, including all attempts.
const exportTimeoutMs = 10_000;

export function createTraces(
  options: TraceOptions,
  { address, url, headers }: Collector,
  logger: Logger,
  onDropped: (spans: number) => void,
): ProcessTracer {
  const { Agent, globalAgent } = url.startsWith('https:') ? https : http;
  const proxyEnv = findProxyEnv(globalAgent);
  // The timeout ends connections on which a proxy does not answer.
  const agent = new Agent({ keepAlive: true, ...(proxyEnv && { proxyEnv, timeout: exportTimeoutMs }) });
  const exporter = new OTLPTraceExporter({
    url,
    headers: { ...parseExporterHeaders(headers) },
    timeoutMillis: exportTimeoutMs,
    httpAgentOptions: () => agent,
  });
  const spanExport = new SpanExport(exporter, address, exportTimeoutMs, logger, onDropped);
  const writeSpans = createSpanWriter(options, (span) => spanExport.add(span));
  const decides = createSampler(options.otelTracesSampler, options.otelTracesSamplerArg);
  return {
    start: (head) => {
      const [, parent, , traceState] = readTraceContext(head.fields);
      const drawn = traceParents.draw();
      const isCallSampled = decides(parent ?? drawn, parent === undefined ? undefined : isSampled(parent));
      const traceParent = parent === undefined ? drawn : childOf(parent, spanIdOf(drawn), isCallSampled);
      if (!isCallSampled) {
        // The backend gets the decision not to sample, because it would otherwise make its own.
        const context = traceContext(traceParent, traceState);
        return { startBackendCall: () => context, end: endUnsampled };
      }
      const startedAt = Date.now();
      // On the clock that measures the record's durations, so that the client span does not end after the server span.
      const since = monotonicMs();
      let backendCall: SampledCall['backendCall'];
      return {
        startBackendCall: (path) => {
          const ofBackend = childOf(traceParent, spanIdOf(traceParents.draw()), true);
          backendCall = { traceParent: ofBackend, path, startedAt: startedAt + monotonicMs() - since };
          return traceContext(ofBackend, traceState);
        },
        end: (record) => writeSpans({ head, traceParent, parent, traceState, startedAt, backendCall }, record),
      };
    },
    end: async (limitMs) => {
      await spanExport.flush(limitMs);
      agent.destroy();
      return spanExport.close();
    },
  };
}

const endUnsampled = (): void => undefined;

function traceContext(traceParent: string, traceState: string | undefined): readonly string[] {
  return traceState === undefined
    ? ['traceparent', traceParent]
    : ['traceparent', traceParent, 'tracestate', traceState];
}
