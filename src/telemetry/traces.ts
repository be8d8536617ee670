// Traces of calls [D49]: decides which are sampled, gives the backend its trace context, and makes a server and a client
// span of each sampled call when it has ended. The SDK is loaded with this file: only where traces are on.

import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';

import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type Tracer as SpanTracer,
} from '@opentelemetry/api';
import { TraceState } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import { AlwaysOnSampler, BatchSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';

import type { CallRecord } from '../gateway/call-record.ts';
import { collectionPath } from '../gateway/operations.ts';
import { readTraceContext } from '../gateway/request-context.ts';
import type { CallTrace, Tracer } from '../gateway/tracer.ts';
import { fieldValue, type RequestHead } from '../wire/head.ts';
import { BoundedProcessor, spansMax, WatchedExporter, type SpanObserver } from './span-export.ts';
import { createSampler, createSpanId, createTraceId, type Sampler } from './trace-sampling.ts';
import type { SamplerName } from './trace-settings.ts';

export interface TraceOptions {
  /** Of the collector, without `/v1/traces`. */
  readonly endpoint: string;
  /** Sent to the collector. Secret. */
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
  readonly serviceVersion: string;
  readonly sampler: SamplerName;
  /** From 0 to 1. */
  readonly samplerRatio: number;
  /** By which clients call. */
  readonly scheme: 'http' | 'https';
  readonly backendUrl: URL;
  /** Whether spans have clients' addresses. */
  readonly showsClients: boolean;
  /** Is told of spans that are lost, and when exporting begins to fail or succeeds again. */
  readonly observer: SpanObserver;
}

/** What traces calls, and its end. */
export interface Traces {
  readonly tracer: Tracer;
  /** Exports what is left, for at most `limitMs`; resolves with the number of spans that the collector has not taken. */
  end(limitMs: number): Promise<number>;
}

// A batch, with all attempts to get rid of it.
const exportTimeoutMs = 10_000;
// How long a span may wait for others.
const batchDelayMs = 1_000;
const batchSpansMax = 512;

export function createTraces(options: TraceOptions): Traces {
  const { endpoint, headers, serviceName, serviceVersion, sampler, samplerRatio, observer } = options;
  const url = `${endpoint.replace(/\/+$/, '')}/v1/traces`;
  const agent = new (url.startsWith('https:') ? HttpsAgent : HttpAgent)({ keepAlive: true });
  const exporter = new WatchedExporter(
    new OTLPTraceExporter({
      url,
      headers: { ...headers },
      timeoutMillis: exportTimeoutMs,
      httpAgentOptions: () => agent,
    }),
    exportTimeoutMs,
    observer,
  );
  const processor = new BoundedProcessor(
    new BatchSpanProcessor({
      exporter,
      maxQueueSize: spansMax,
      maxExportBatchSize: batchSpansMax,
      scheduledDelayMillis: batchDelayMs,
      exportTimeoutMillis: exportTimeoutMs,
    }),
    exporter,
  );
  const ids = new GivenIds();
  const provider = new TracerProvider({
    resource: defaultResource().merge(
      resourceFromAttributes({
        'service.name': serviceName,
        'service.version': serviceVersion,
        'process.pid': process.pid,
      }),
    ),
    idGenerator: ids,
    // It is asked for sampled calls alone.
    sampler: new AlwaysOnSampler(),
    spanProcessors: [processor],
  });
  const spans = new SpanWriter(provider.getTracer('work-item-gateway', serviceVersion), ids, options);
  return {
    tracer: new CallTracer(createSampler(sampler, samplerRatio), spans),
    end: async (limitMs) => {
      const { promise: late, resolve } = Promise.withResolvers<undefined>();
      const timer = setTimeout(() => {
        resolve(undefined);
      }, limitMs);
      // Its failures are told by the exporter.
      await Promise.race([provider.shutdown().catch(() => undefined), late]);
      clearTimeout(timer);
      agent.destroy();
      return exporter.pending;
    },
  };
}

class CallTracer implements Tracer {
  readonly #isSampled: Sampler;
  readonly #spans: SpanWriter;

  constructor(isSampled: Sampler, spans: SpanWriter) {
    this.#isSampled = isSampled;
    this.#spans = spans;
  }

  start(head: RequestHead): CallTrace {
    const [, traceParent, , traceState] = readTraceContext(head.fields);
    const parent = traceParent === undefined ? undefined : new Parent(traceParent);
    const traceId = parent?.traceId ?? createTraceId();
    return this.#isSampled(traceId, parent?.isSampled)
      ? new SampledCall(head, traceId, parent, traceState, this.#spans)
      : new UnsampledCall(traceId, parent, traceState);
  }
}

const sampled = 1;
// The trace id is random (W3C Trace Context 2, 3.2.2.5.2): true of it whoever samples.
const random = 2;

// A client's trace context, from `readTraceContext`: version, trace id, parent id and flags, each of its length.
class Parent {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  get traceId(): string {
    return this.#text.slice(3, 35);
  }

  get spanId(): string {
    return this.#text.slice(36, 52);
  }

  get isSampled(): boolean {
    return (this.flags & sampled) !== 0;
  }

  /** Those that anything here knows, in the last digit. */
  get flags(): number {
    return Number.parseInt(this.#text.charAt(54), 16);
  }
}

function writeContext(
  traceId: string,
  spanId: string,
  isSampled: boolean,
  parent: Parent | undefined,
  traceState: string | undefined,
): readonly string[] {
  const flags = (isSampled ? sampled : 0) | ((parent?.flags ?? random) & random);
  const traceParent = `00-${traceId}-${spanId}-0${flags}`;
  return traceState === undefined
    ? ['traceparent', traceParent]
    : ['traceparent', traceParent, 'tracestate', traceState];
}

// The backend hears of the decision, or it would make one of its own.
class UnsampledCall implements CallTrace {
  readonly #traceId: string;
  readonly #parent: Parent | undefined;
  readonly #traceState: string | undefined;

  constructor(traceId: string, parent: Parent | undefined, traceState: string | undefined) {
    this.#traceId = traceId;
    this.#parent = parent;
    this.#traceState = traceState;
  }

  startBackendCall(): readonly string[] {
    return writeContext(this.#traceId, createSpanId(), false, this.#parent, this.#traceState);
  }

  end(): void {
    // Nothing has been kept of it.
  }
}

interface BackendCall {
  readonly spanId: string;
  readonly path: string;
  /** From the request's head, in milliseconds. */
  readonly afterMs: number;
}

/** What is known of a sampled call beside its record. */
interface SampledContext {
  readonly head: RequestHead;
  readonly traceId: string;
  readonly parent: Parent | undefined;
  readonly traceState: string | undefined;
  /** In milliseconds since 1970. */
  readonly startedAt: number;
  readonly serverSpanId: string;
  /** Undefined where the backend was not called. */
  readonly backendCall: BackendCall | undefined;
}

class SampledCall implements CallTrace, SampledContext {
  readonly head: RequestHead;
  readonly traceId: string;
  readonly parent: Parent | undefined;
  readonly traceState: string | undefined;
  readonly startedAt = Date.now();
  readonly serverSpanId = createSpanId();
  backendCall: BackendCall | undefined;
  readonly #startedAt = performance.now();
  readonly #spans: SpanWriter;

  constructor(
    head: RequestHead,
    traceId: string,
    parent: Parent | undefined,
    traceState: string | undefined,
    spans: SpanWriter,
  ) {
    this.head = head;
    this.traceId = traceId;
    this.parent = parent;
    this.traceState = traceState;
    this.#spans = spans;
  }

  startBackendCall(path: string): readonly string[] {
    const spanId = createSpanId();
    this.backendCall = { spanId, path, afterMs: performance.now() - this.#startedAt };
    return writeContext(this.traceId, spanId, true, this.parent, this.traceState);
  }

  end(record: CallRecord): void {
    this.#spans.write(this, record);
  }
}

// The SDK asks for ids as it makes a span; ours are known before that.
class GivenIds {
  traceId = '';
  spanId = '';
  readonly generateTraceId = (): string => this.traceId;
  readonly generateSpanId = (): string => this.spanId;
}

const knownMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'CONNECT', 'TRACE']); // prettier-ignore
const hostForm = /^(\[[^\]]*\]|[^:]{1,255})(?::(\d{1,5}))?$/;

/** Makes the spans of calls that have ended, by the stable conventions for HTTP. Never a body, a query or a token. */
class SpanWriter {
  readonly #tracer: SpanTracer;
  readonly #ids: GivenIds;
  readonly #scheme: string;
  readonly #showsClients: boolean;
  readonly #backendBase: string;
  readonly #backendAttributes: Attributes;

  constructor(tracer: SpanTracer, ids: GivenIds, { scheme, backendUrl, showsClients }: TraceOptions) {
    this.#tracer = tracer;
    this.#ids = ids;
    this.#scheme = scheme;
    this.#showsClients = showsClients;
    this.#backendBase = backendUrl.origin + backendUrl.pathname.replace(/\/+$/, '');
    this.#backendAttributes = {
      'server.address': backendUrl.hostname.replace(/^\[|\]$/g, ''),
      'server.port': Number(backendUrl.port || (backendUrl.protocol === 'https:' ? 443 : 80)),
      'network.protocol.version': '1.1',
    };
  }

  write(call: SampledContext, record: CallRecord): void {
    const { traceId, parent, traceState, backendCall } = call;
    const state = traceState === undefined ? undefined : new TraceState(traceState);
    const common = { traceId, ...(state !== undefined && { traceState: state }) };
    const context =
      parent === undefined
        ? ROOT_CONTEXT
        : trace.setSpanContext(ROOT_CONTEXT, {
            ...common,
            spanId: parent.spanId,
            traceFlags: parent.flags & sampled,
            isRemote: true,
          });
    this.#writeServerSpan(call, record, context);
    if (backendCall !== undefined) {
      const ofServer = { ...common, spanId: call.serverSpanId, traceFlags: TraceFlags.SAMPLED };
      this.#writeClientSpan(call, backendCall, record, trace.setSpanContext(ROOT_CONTEXT, ofServer));
    }
  }

  #writeServerSpan(call: SampledContext, record: CallRecord, context: Context): void {
    const { head, traceId, startedAt } = call;
    const { method, status, operation, client, outcome } = record;
    const isKnown = knownMethods.has(method);
    const route =
      operation === undefined ? undefined : collectionPath + (operation.on === 'item' ? '/{id}' : '');
    const attributes: Attributes = {
      'http.request.method': isKnown ? method : '_OTHER',
      ...(!isKnown && { 'http.request.method_original': method }),
      ...(route !== undefined && { 'http.route': route }),
      'url.path': record.path,
      'url.scheme': this.#scheme,
      'network.protocol.version': head.version,
      ...hostAttributes(head),
      ...(this.#showsClients && client !== undefined && { 'client.address': client }),
      ...(status !== 0 && { 'http.response.status_code': status }),
      'work_item_gateway.request_id': record.requestId,
      'work_item_gateway.outcome': outcome,
    };
    // Of a client that has left nothing is wrong [D51]; what a client did wrong is its own affair.
    const error = status >= 500 ? String(status) : outcome === 'shutdown' ? outcome : undefined;
    this.#write(
      { traceId, spanId: call.serverSpanId, kind: SpanKind.SERVER },
      `${isKnown ? method : 'HTTP'}${route === undefined ? '' : ` ${route}`}`,
      attributes,
      error,
      [startedAt, startedAt + record.durationMs],
      context,
    );
  }

  #writeClientSpan(
    call: SampledContext,
    { spanId, path, afterMs }: BackendCall,
    record: CallRecord,
    context: Context,
  ): void {
    const startedAt = call.startedAt + afterMs;
    const { operation, backendOutcome, backendStatus, backendDurationMs = 0 } = record;
    const method = operation?.method ?? '_OTHER';
    // Where our own stop has cut it, or we failed before there was an outcome.
    const outcome = backendOutcome ?? (record.outcome === 'bug' ? 'bug' : 'cancelled');
    const error =
      outcome === 'ok'
        ? undefined
        : backendStatus === undefined || backendStatus < 300
          ? outcome
          : String(backendStatus);
    this.#write(
      { traceId: call.traceId, spanId, kind: SpanKind.CLIENT },
      method,
      {
        'http.request.method': method,
        'url.full': this.#backendBase + path,
        ...this.#backendAttributes,
        ...(backendStatus !== undefined && { 'http.response.status_code': backendStatus }),
        'work_item_gateway.outcome': outcome,
      },
      error,
      [startedAt, startedAt + backendDurationMs],
      context,
    );
  }

  #write(
    { traceId, spanId, kind }: { traceId: string; spanId: string; kind: SpanKind },
    name: string,
    attributes: Attributes,
    error: string | undefined,
    [startTime, endTime]: [number, number],
    context: Context,
  ): void {
    this.#ids.traceId = traceId;
    this.#ids.spanId = spanId;
    const all = error === undefined ? attributes : { ...attributes, 'error.type': error };
    const span = this.#tracer.startSpan(name, { kind, attributes: all, startTime }, context);
    if (error !== undefined) {
      span.setStatus({ code: SpanStatusCode.ERROR });
    }
    span.end(endTime);
  }
}

/** The name and port under which the client has called. */
function hostAttributes({ fields }: RequestHead): Attributes {
  const [, name, port] = hostForm.exec(fieldValue(fields, 'host') ?? '') ?? [];
  return {
    ...(name !== undefined && { 'server.address': name.replace(/^\[|\]$/g, '') }),
    ...(name !== undefined && port !== undefined && { 'server.port': Number(port) }),
  };
}
