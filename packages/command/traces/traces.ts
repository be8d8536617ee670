// Traces of calls [D49]: decides which are sampled, gives the backend its trace context, and makes a server and a client
// span of each sampled call when it has ended. The SDK is loaded with this file: only where traces are on.

import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';

import {
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Attributes,
  type HrTime,
  type Link,
  type SpanContext,
  type SpanStatus,
} from '@opentelemetry/api';
import { hrTimeDuration, millisToHrTime, TraceState, type InstrumentationScope } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { defaultResource, resourceFromAttributes, type Resource } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanProcessor,
  type TimedEvent,
} from '@opentelemetry/sdk-trace';

import type { CallRecord } from '../../core/call/call-record.ts';
import { collectionPath } from '../../core/operations.ts';
import { readTraceContext } from '../../core/call/request-context.ts';
import type { CallTrace, Tracer } from '../../core/call/tracer.ts';
import { fieldValue, type RequestHead } from '../../core/http1/head.ts';
import { BoundedProcessor, spansMax, watchRejections, WatchedExporter } from './span-export.ts';
import { SpanLosses, type SpanObserver } from './span-losses.ts';
import { createSampler, spanIdOf, traceIdOf, traceParents, type Sampler } from './trace-sampling.ts';
import type { SamplerName } from './trace-settings.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';

interface TraceOptions {
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
  /** Is told of spans that are lost. */
  readonly observer: SpanObserver;
}

/** What traces calls, and its end. */
export interface Traces {
  readonly tracer: Tracer;
  /** Exports what is left, for at most `limitMs`; resolves with the number of lost spans that the observer's lines are without. */
  end(limitMs: number): Promise<number>;
}

// A batch, with all attempts to get rid of it.
const exportTimeoutMs = 10_000;
// How long a span may wait for others.
const batchDelayMs = 1_000;
const batchSpansMax = 512;

export function createTraces(options: TraceOptions): Traces {
  const { endpoint, headers, serviceName, serviceVersion, sampler, samplerRatio, observer } = options;
  const url = `${withoutEndSlashes(endpoint)}/v1/traces`;
  const agent = new (url.startsWith('https:') ? HttpsAgent : HttpAgent)({ keepAlive: true });
  const exporter = new WatchedExporter(
    new OTLPTraceExporter({
      url,
      headers: { ...headers },
      timeoutMillis: exportTimeoutMs,
      httpAgentOptions: () => agent,
    }),
    exportTimeoutMs,
    new SpanLosses(observer),
  );
  watchRejections();
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
  const resource = defaultResource().merge(
    resourceFromAttributes({
      'service.name': serviceName,
      'service.version': serviceVersion,
      'process.pid': process.pid,
    }),
  );
  const spans = new SpanWriter(processor, resource, options);
  return {
    tracer: new CallTracer(createSampler(sampler, samplerRatio), spans),
    end: async (limitMs) => {
      const { promise: late, resolve } = Promise.withResolvers<undefined>();
      const timer = setTimeout(() => {
        resolve(undefined);
      }, limitMs);
      // Its failures are told by the exporter.
      await Promise.race([processor.shutdown().catch(() => undefined), late]);
      clearTimeout(timer);
      agent.destroy();
      return exporter.close();
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

  // Of a call that is not sampled nothing is kept but its ids: nearly every call is one.
  start(head: RequestHead): CallTrace {
    const given = readTraceContext(head.fields);
    const traceParent = given[1];
    const own = traceParents.draw();
    if (traceParent === undefined) {
      return this.#isSampled(own, undefined)
        ? new SampledCall(head, traceIdOf(own), spanIdOf(own), undefined, undefined, this.#spans)
        : new UnsampledCall(own);
    }
    const parent = new Parent(traceParent);
    const traceState = given[3];
    return this.#isSampled(traceParent, parent.isSampled)
      ? new SampledCall(head, parent.traceId, spanIdOf(own), parent, traceState, this.#spans)
      : new UnsampledChild(parent, spanIdOf(own), traceState);
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
    return traceIdOf(this.#text);
  }

  get spanId(): string {
    return spanIdOf(this.#text);
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
  readonly #traceParent: string;

  constructor(traceParent: string) {
    this.#traceParent = traceParent;
  }

  startBackendCall(): readonly string[] {
    return ['traceparent', this.#traceParent];
  }

  end(): void {
    // Nothing has been kept of it.
  }
}

class UnsampledChild implements CallTrace {
  readonly #parent: Parent;
  readonly #spanId: string;
  readonly #traceState: string | undefined;

  constructor(parent: Parent, spanId: string, traceState: string | undefined) {
    this.#parent = parent;
    this.#spanId = spanId;
    this.#traceState = traceState;
  }

  startBackendCall(): readonly string[] {
    return writeContext(this.#parent.traceId, this.#spanId, false, this.#parent, this.#traceState);
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
  readonly serverSpanId: string;
  backendCall: BackendCall | undefined;
  readonly #startedAt = performance.now();
  readonly #spans: SpanWriter;

  constructor(
    head: RequestHead,
    traceId: string,
    serverSpanId: string,
    parent: Parent | undefined,
    traceState: string | undefined,
    spans: SpanWriter,
  ) {
    this.head = head;
    this.traceId = traceId;
    this.serverSpanId = serverSpanId;
    this.parent = parent;
    this.traceState = traceState;
    this.#spans = spans;
  }

  startBackendCall(path: string): readonly string[] {
    const spanId = spanIdOf(traceParents.draw());
    this.backendCall = { spanId, path, afterMs: performance.now() - this.#startedAt };
    return writeContext(this.traceId, spanId, true, this.parent, this.traceState);
  }

  end(record: CallRecord): void {
    this.#spans.write(this, record);
  }
}

const noEvents: TimedEvent[] = [];
const noLinks: Link[] = [];

/** What a span of ours has that has ended. */
interface SpanFacts {
  readonly name: string;
  readonly kind: SpanKind;
  readonly context: SpanContext;
  readonly parentSpanContext: SpanContext | undefined;
  readonly attributes: Attributes;
  /** The `error.type` of one that is an error. */
  readonly error: string | undefined;
  /** In milliseconds since 1970. */
  readonly startedAt: number;
  readonly endedAt: number;
}

// One span as the SDK's batches take it, made when all of it is known. Its own spans are made to be written to while they
// run, which costs three times as much.
class EndedSpan implements ReadableSpan {
  readonly name: string;
  readonly kind: SpanKind;
  readonly parentSpanContext?: SpanContext;
  readonly startTime: HrTime;
  readonly endTime: HrTime;
  readonly status: SpanStatus;
  readonly attributes: Attributes;
  readonly links = noLinks;
  readonly events = noEvents;
  readonly ended = true;
  readonly droppedAttributesCount = 0;
  readonly droppedEventsCount = 0;
  readonly droppedLinksCount = 0;
  readonly resource: Resource;
  readonly instrumentationScope: InstrumentationScope;
  readonly #context: SpanContext;

  constructor(facts: SpanFacts, resource: Resource, scope: InstrumentationScope) {
    const { name, kind, context, parentSpanContext, attributes, error, startedAt, endedAt } = facts;
    this.name = name;
    this.kind = kind;
    this.#context = context;
    if (parentSpanContext !== undefined) {
      this.parentSpanContext = parentSpanContext;
    }
    this.attributes = error === undefined ? attributes : { ...attributes, 'error.type': error };
    this.status = { code: error === undefined ? SpanStatusCode.UNSET : SpanStatusCode.ERROR };
    this.startTime = millisToHrTime(startedAt);
    this.endTime = millisToHrTime(Math.max(startedAt, endedAt));
    this.resource = resource;
    this.instrumentationScope = scope;
  }

  get duration(): HrTime {
    return hrTimeDuration(this.startTime, this.endTime);
  }

  spanContext(): SpanContext {
    return this.#context;
  }
}

const knownMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'CONNECT', 'TRACE']); // prettier-ignore
const hostForm = /^(\[[^\]]*\]|[^:]{1,255})(?::(\d{1,5}))?$/;

/** Makes the spans of calls that have ended, by the stable conventions for HTTP. Never a body, a query or a token. */
class SpanWriter {
  readonly #processor: SpanProcessor;
  readonly #resource: Resource;
  readonly #scope: InstrumentationScope;
  readonly #scheme: string;
  readonly #showsClients: boolean;
  readonly #backendBase: string;
  readonly #backendAttributes: Attributes;

  constructor(
    processor: SpanProcessor,
    resource: Resource,
    { serviceVersion, scheme, backendUrl, showsClients }: TraceOptions,
  ) {
    this.#processor = processor;
    this.#resource = resource;
    this.#scope = { name: 'work-item-gateway', version: serviceVersion };
    this.#scheme = scheme;
    this.#showsClients = showsClients;
    this.#backendBase = backendUrl.origin + withoutEndSlashes(backendUrl.pathname);
    this.#backendAttributes = {
      'server.address': backendUrl.hostname.replace(/^\[|\]$/g, ''),
      'server.port': Number(backendUrl.port || (backendUrl.protocol === 'https:' ? 443 : 80)),
      'network.protocol.version': '1.1',
    };
  }

  write(call: SampledContext, record: CallRecord): void {
    const { traceId, parent, traceState, backendCall } = call;
    const common = {
      traceId,
      ...(traceState !== undefined && { traceState: new TraceState(traceState) }),
    };
    const context = { ...common, spanId: call.serverSpanId, traceFlags: TraceFlags.SAMPLED };
    const parentContext = parent && {
      ...common,
      spanId: parent.spanId,
      traceFlags: parent.flags & sampled,
      isRemote: true,
    };
    this.#writeServerSpan(call, record, context, parentContext);
    if (backendCall !== undefined) {
      const own = { ...context, spanId: backendCall.spanId };
      this.#writeClientSpan(call, backendCall, record, own, context);
    }
  }

  #writeServerSpan(
    { head, startedAt }: SampledContext,
    record: CallRecord,
    context: SpanContext,
    parentSpanContext: SpanContext | undefined,
  ): void {
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
    this.#end({
      name: `${isKnown ? method : 'HTTP'}${route === undefined ? '' : ` ${route}`}`,
      kind: SpanKind.SERVER,
      context,
      parentSpanContext,
      attributes,
      error,
      startedAt,
      endedAt: startedAt + record.durationMs,
    });
  }

  #writeClientSpan(
    call: SampledContext,
    { path, afterMs }: BackendCall,
    record: CallRecord,
    context: SpanContext,
    parentSpanContext: SpanContext,
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
    this.#end({
      name: method,
      kind: SpanKind.CLIENT,
      context,
      parentSpanContext,
      attributes: {
        'http.request.method': method,
        'url.full': this.#backendBase + path,
        ...this.#backendAttributes,
        ...(backendStatus !== undefined && { 'http.response.status_code': backendStatus }),
        'work_item_gateway.outcome': outcome,
      },
      error,
      startedAt,
      endedAt: startedAt + backendDurationMs,
    });
  }

  #end(facts: SpanFacts): void {
    this.#processor.onEnd(new EndedSpan(facts, this.#resource, this.#scope));
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
