// Makes the server and the client span of a finished sampled call. The spans follow OpenTelemetry's stable conventions
// for HTTP, and never contain a body, a query or a token [D49].

import { SpanKind, SpanStatusCode, TraceFlags, type SpanContext } from '@opentelemetry/api';
import { millisToHrTime, TraceState } from '@opentelemetry/core';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';

import type { CallRecord } from '../../core/call/call-record.ts';
import { fieldValue, type RequestHead } from '../../core/http1/head.ts';
import { collectionPath } from '../../core/operations.ts';
import { withoutEndSlashes } from '../../core/text/addresses.ts';
import { version } from '../../core/version.ts';
import type { TraceOptions } from '../service/process-parts.ts';
import { parseResourceAttributes } from '../settings/setting-kinds.ts';
import { isSampled, spanIdOf, traceIdOf } from './trace-parent.ts';

export interface SampledCall {
  readonly head: RequestHead;
  /** Contains the ids of the server span. */
  readonly traceParent: string;
  /** The client's `traceparent`, if it sent one. */
  readonly parent: string | undefined;
  readonly traceState: string | undefined;
  /** In ms since 1970; so is that of the backend call. */
  readonly startedAt: number;
  /** The prepared call to the backend; undefined if the request needed none. Its `traceParent` has the client span's ids. */
  readonly backendCall: { readonly traceParent: string; readonly path: string; readonly startedAt: number } | undefined;
}

type Span = Pick<ReadableSpan, 'name' | 'kind' | 'attributes' | 'parentSpanContext'>;

const knownMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'CONNECT', 'TRACE']); // prettier-ignore
const hostForm = /^(\[[^\]]*\]|[^:]{1,255})(?::(\d{1,5}))?$/;

/** Returns a function that makes the spans of a finished call and passes each span to `add`. */
export function createSpanWriter(
  { backendUrl, tlsCertFile, logClient, otelServiceName, otelResourceAttributes }: TraceOptions,
  add: (span: ReadableSpan) => void,
): (call: SampledCall, record: CallRecord) => void {
  const given = parseResourceAttributes(otelResourceAttributes) ?? {};
  const resource = defaultResource().merge(
    resourceFromAttributes({
      ...given,
      'service.name': otelServiceName || (given['service.name'] ?? '') || 'work-item-gateway',
      'service.version': version,
      'process.pid': process.pid,
    }),
  );
  const scheme = tlsCertFile === '' ? 'http' : 'https';
  const backendBase = backendUrl.origin + withoutEndSlashes(backendUrl.pathname);
  const backendAttributes = {
    'server.address': withoutBrackets(backendUrl.hostname),
    'server.port': Number(backendUrl.port || (backendUrl.protocol === 'https:' ? 443 : 80)),
    'network.protocol.version': '1.1',
  };

  const describeServerSpan = (head: RequestHead, record: CallRecord): Span => {
    const { method, status, operation, outcome } = record;
    const isKnown = knownMethods.has(method);
    const route = operation && collectionPath + (operation.on === 'item' ? '/{id}' : '');
    const [, name, port] = hostForm.exec(fieldValue(head.fields, 'host') ?? '') ?? [];
    return {
      name: `${isKnown ? method : 'HTTP'}${route === undefined ? '' : ` ${route}`}`,
      kind: SpanKind.SERVER,
      attributes: {
        'http.request.method': isKnown ? method : '_OTHER',
        'http.request.method_original': isKnown ? undefined : method,
        'http.route': route,
        'url.path': record.path,
        'url.scheme': scheme,
        'network.protocol.version': head.version,
        'server.address': name && withoutBrackets(name),
        'server.port': port && Number(port),
        'client.address': logClient ? record.client : undefined,
        'http.response.status_code': status === 0 ? undefined : status,
        'work_item_gateway.request_id': record.requestId,
        'work_item_gateway.outcome': outcome,
        // A call whose client left is not an error [D51]. By convention a 4xx reply is not an error of a server span either.
        'error.type': status >= 500 ? String(status) : outcome === 'shutdown' ? outcome : undefined,
      },
    };
  };

  const describeClientSpan = (path: string, record: CallRecord): Span => {
    const { operation, backendOutcome: outcome = 'bug', backendStatus } = record;
    const method = operation?.method ?? '_OTHER';
    const failure = backendStatus === undefined || backendStatus < 300 ? outcome : String(backendStatus);
    return {
      name: method,
      kind: SpanKind.CLIENT,
      attributes: {
        'http.request.method': method,
        'url.full': backendBase + path,
        ...backendAttributes,
        'http.response.status_code': backendStatus,
        'work_item_gateway.outcome': outcome,
        'error.type': outcome === 'ok' ? undefined : failure,
      },
    };
  };

  const write = (span: Span, context: SpanContext, startedAt: number, durationMs: number): void => {
    const attributes = Object.entries(span.attributes).filter(([, value]) => value !== undefined);
    add({
      ...span,
      attributes: Object.fromEntries(attributes),
      spanContext: () => context,
      startTime: millisToHrTime(startedAt),
      endTime: millisToHrTime(startedAt + durationMs),
      duration: millisToHrTime(durationMs),
      ended: true,
      status: { code: span.attributes['error.type'] === undefined ? SpanStatusCode.UNSET : SpanStatusCode.ERROR },
      resource,
      instrumentationScope: { name: 'work-item-gateway', version },
      links: [],
      events: [],
      droppedAttributesCount: 0,
      droppedEventsCount: 0,
      droppedLinksCount: 0,
    });
  };

  return ({ head, traceParent, parent, traceState, startedAt, backendCall }, record) => {
    const state = traceState === undefined ? undefined : { traceState: new TraceState(traceState) };
    // Every span made here is sampled, whatever the flags of `own`.
    const contextOf = (own: string): SpanContext => {
      return { traceId: traceIdOf(own), spanId: spanIdOf(own), traceFlags: TraceFlags.SAMPLED, ...state };
    };
    const context = contextOf(traceParent);
    const traceFlags = parent !== undefined && isSampled(parent) ? TraceFlags.SAMPLED : TraceFlags.NONE;
    const server = {
      ...describeServerSpan(head, record),
      ...(parent !== undefined && { parentSpanContext: { ...contextOf(parent), traceFlags, isRemote: true } }),
    };
    write(server, context, startedAt, record.durationMs);
    // If no file descriptor was free, the prepared call was not made, and has no outcome.
    const wasMade = record.backendOutcome !== undefined || record.outcome === 'bug';
    if (backendCall !== undefined && wasMade) {
      const client = { ...describeClientSpan(backendCall.path, record), parentSpanContext: context };
      write(client, contextOf(backendCall.traceParent), backendCall.startedAt, record.backendDurationMs ?? 0);
    }
  };
}

function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '');
}
