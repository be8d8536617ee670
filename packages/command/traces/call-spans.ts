// Makes the server and the client span of a finished sampled call, by OpenTelemetry's stable conventions for HTTP. A span
// never contains a body, a query or a token [D49].

import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type SpanOptions,
  type Tracer,
} from '@opentelemetry/api';
import { TraceState } from '@opentelemetry/core';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import { AlwaysOnSampler, TracerProvider, type IdGenerator, type SpanProcessor } from '@opentelemetry/sdk-trace';

import type { CallRecord } from '../../core/call/call-record.ts';
import { fieldValue, type RequestHead } from '../../core/http1/head.ts';
import { collectionPath } from '../../core/operations.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { version } from '../../core/version.ts';
import type { TraceOptions } from '../options/tracing.ts';
import { isSampled, spanIdOf, traceIdOf } from './trace-parent.ts';

/** The start of a sampled call. */
export interface CallOrigin {
  readonly head: RequestHead;
  /** Contains the ids of the server span. */
  readonly traceParent: string;
  /** The client's `traceparent`, if it sent one. */
  readonly parent: string | undefined;
  readonly traceState: string | undefined;
}

export interface BackendCall {
  /** The `traceparent` sent to the backend, with the ids of the client span. */
  readonly traceParent: string;
  readonly path: string;
  /** In milliseconds since 1970. */
  readonly startedAt: number;
}

const knownMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'CONNECT', 'TRACE']); // prettier-ignore
const hostForm = /^(\[[^\]]*\]|[^:]{1,255})(?::(\d{1,5}))?$/;

export class CallSpans {
  readonly #provider: TracerProvider;
  readonly #tracer: Tracer;
  readonly #ids = new DrawnIds();
  readonly #scheme: string;
  readonly #showsClients: boolean;
  readonly #backendBase: string;
  readonly #backendAttributes: Attributes;

  constructor(options: TraceOptions, processor: SpanProcessor) {
    const { backendUrl, tlsCertFile, logClient, otelServiceName } = options;
    this.#provider = new TracerProvider({
      resource: defaultResource().merge(
        resourceFromAttributes({
          'service.name': otelServiceName || 'work-item-gateway',
          'service.version': version,
          'process.pid': process.pid,
        }),
      ),
      // Spans are made for sampled calls only.
      sampler: new AlwaysOnSampler(),
      idGenerator: this.#ids,
      spanProcessors: [processor],
    });
    this.#tracer = this.#provider.getTracer('work-item-gateway', version);
    this.#scheme = tlsCertFile === '' ? 'http' : 'https';
    this.#showsClients = logClient;
    this.#backendBase = backendUrl.origin + withoutEndSlashes(backendUrl.pathname);
    this.#backendAttributes = {
      'server.address': withoutBrackets(backendUrl.hostname),
      'server.port': Number(backendUrl.port || (backendUrl.protocol === 'https:' ? 443 : 80)),
      'network.protocol.version': '1.1',
    };
  }

  /** Makes the spans of a finished call. `backendCall` is undefined if the backend was not called. */
  write(origin: CallOrigin, startedAt: number, backendCall: BackendCall | undefined, record: CallRecord): void {
    const context = this.#writeServerSpan(origin, startedAt, record);
    if (backendCall !== undefined) {
      this.#writeClientSpan(backendCall, record, context);
    }
  }

  /** Resolves when the last spans are exported or lost. */
  async end(): Promise<void> {
    await this.#provider.shutdown();
  }

  #writeServerSpan(
    { head, traceParent, parent, traceState }: CallOrigin,
    startedAt: number,
    record: CallRecord,
  ): Context {
    const { method, status, operation, outcome } = record;
    const isKnown = knownMethods.has(method);
    const route = operation && collectionPath + (operation.on === 'item' ? '/{id}' : '');
    const [, name, port] = hostForm.exec(fieldValue(head.fields, 'host') ?? '') ?? [];
    // A call whose client left is not an error [D51]. By convention a 4xx reply is not an error of a server span either.
    const error = status >= 500 ? String(status) : outcome === 'shutdown' ? outcome : undefined;
    const attributes: Attributes = {
      'http.request.method': isKnown ? method : '_OTHER',
      'http.request.method_original': isKnown ? undefined : method,
      'http.route': route,
      'url.path': record.path,
      'url.scheme': this.#scheme,
      'network.protocol.version': head.version,
      'server.address': name && withoutBrackets(name),
      'server.port': port && Number(port),
      'client.address': this.#showsClients ? record.client : undefined,
      'http.response.status_code': status === 0 ? undefined : status,
      'work_item_gateway.request_id': record.requestId,
      'work_item_gateway.outcome': outcome,
      'error.type': error,
    };
    return this.#write(
      traceParent,
      `${isKnown ? method : 'HTTP'}${route === undefined ? '' : ` ${route}`}`,
      { kind: SpanKind.SERVER, attributes, startTime: startedAt },
      parent === undefined ? ROOT_CONTEXT : remoteContext(parent, traceState),
      startedAt + record.durationMs,
    );
  }

  #writeClientSpan({ traceParent, path, startedAt }: BackendCall, record: CallRecord, context: Context): void {
    const { operation, backendOutcome, backendStatus, backendDurationMs = 0 } = record;
    const method = operation?.method ?? '_OTHER';
    // A backend call without an outcome was cut by a stop, or the gateway failed first.
    const outcome = backendOutcome ?? (record.outcome === 'bug' ? 'bug' : 'cancelled');
    const failure = backendStatus === undefined || backendStatus < 300 ? outcome : String(backendStatus);
    const attributes: Attributes = {
      'http.request.method': method,
      'url.full': this.#backendBase + path,
      ...this.#backendAttributes,
      'http.response.status_code': backendStatus,
      'work_item_gateway.outcome': outcome,
      'error.type': outcome === 'ok' ? undefined : failure,
    };
    const options = { kind: SpanKind.CLIENT, attributes, startTime: startedAt };
    this.#write(traceParent, method, options, context, startedAt + backendDurationMs);
  }

  /** Passes a span to the SDK, which omits undefined attributes. Returns the context for its children. */
  #write(traceParent: string, name: string, options: SpanOptions, parent: Context, endedAt: number): Context {
    this.#ids.traceParent = traceParent;
    const span = this.#tracer.startSpan(name, options, parent);
    if (options.attributes?.['error.type'] !== undefined) {
      span.setStatus({ code: SpanStatusCode.ERROR });
    }
    span.end(endedAt);
    return trace.setSpan(parent, span);
  }
}

// Gives the SDK ids that were made earlier, because the sampler and the backend need them before there is a span.
class DrawnIds implements IdGenerator {
  /** Contains the ids of the next span. */
  traceParent = '';

  generateTraceId(): string {
    return traceIdOf(this.traceParent);
  }

  generateSpanId(): string {
    return spanIdOf(this.traceParent);
  }
}

function remoteContext(traceParent: string, traceState: string | undefined): Context {
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId: traceIdOf(traceParent),
    spanId: spanIdOf(traceParent),
    traceFlags: isSampled(traceParent) ? TraceFlags.SAMPLED : TraceFlags.NONE,
    isRemote: true,
    ...(traceState !== undefined && { traceState: new TraceState(traceState) }),
  });
}

function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}
