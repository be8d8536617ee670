// The state that all requests of one gateway share: its options, the backend client, the number of calls in flight and
// the observer. Also replies to malformed requests. Independent of settings, signals and hosts.

import type { BackendClient } from '../backend/client.ts';
import type { BufferBudget } from '../body/budget.ts';
import { clientAddress, normalizeAddress, type TrustedProxies } from '../admission/client-address.ts';
import type { Cors } from '../admission/cors.ts';
import { isCrossSiteWrite } from '../admission/cross-site.ts';
import { isAllowedHost } from '../admission/host-names.ts';
import { BorrowedBytes } from '../http1/borrowed-bytes.ts';
import { absoluteForm } from '../http1/grammar.ts';
import { fieldValue, fieldValues, type RequestHead } from '../http1/head.ts';
import type { BrokenReason, Requester, RequestReceiver, Reply, RequestHandler, Transport } from '../http1/transport.ts';
import { Call, type Backend, type CallContext } from './call.ts';
import type { CallRecord } from './call-record.ts';
import { joinGuards, type Guard } from './guard.ts';
import type { ItemIdParsing } from './item-id.ts';
import type { Reason } from '../reasons.ts';
import { describeBroken, type FixedReply, type Pages } from '../replies.ts';
import { createRequestId } from './request-context.ts';
import type { RouteOptions } from './route.ts';
import type { CallTrace, Tracer } from './tracer.ts';

interface GatewayOptions {
  /** Host names for `isAllowedHost`. An empty list allows every name [D57]. */
  readonly allowedHosts: readonly string[];
  readonly itemIdParsing: ItemIdParsing;
  readonly requestBytesMax: number;
  readonly inFlightMax: number;
  readonly trustedProxies: TrustedProxies | undefined;
  /** Called in this order for each request for an operation. */
  readonly guards: readonly Guard[];
  /** Undefined if no page of another origin is allowed [D45]. */
  readonly cors: Cors | undefined;
  readonly tracer: Tracer | undefined;
}

/** Receives the events of requests. A slow method delays all requests. Exceptions of its methods go to `onBug`. */
export interface GatewayObserver<RecordType = CallRecord> {
  onCallEnd(record: RecordType): void;
  /** A request was malformed or late: `cause` in words, `reason` as a code. `reply` is sent to the client [D27]. */
  onMalformed(requestId: string, reply: FixedReply, cause: string, client: string | undefined, reason: Reason): void;
  /** A client stopped reading its reply and was disconnected [D35]. `onCallEnd` has already received `record`. */
  onStall(record: RecordType): void;
  /** The gateway has a bug that no longer affects a reply [D28]. `record` is the request concerned, if any. */
  onBug(error: unknown, record: RecordType | undefined): void;
  /**
   * Called by hosts once when an outage begins, with its `cause`, and once when it ends, without `cause`. `keys`: the
   * issuer's keys cannot be fetched [D44]. `redis`: Redis cannot be used [D47]. `accept`: no connection can be accepted.
   */
  onOutage?(what: 'keys' | 'redis' | 'accept', cause: string | undefined): void;
}

export class Gateway<B extends Backend = BackendClient> implements RequestHandler, CallContext {
  readonly requestBytesMax: number;
  readonly backend: B;
  readonly budget: BufferBudget;
  readonly observer: GatewayObserver;
  readonly guard: Guard | undefined;
  readonly cors: Cors | undefined;
  readonly tracer: Tracer | undefined;
  isDraining = false;
  isCutting = false;
  #routeOptions: RouteOptions;
  readonly #inFlightMax: number;
  readonly #allowedHosts: readonly string[];
  readonly #trustedProxies: TrustedProxies | undefined;
  #inFlight = 0;

  constructor(
    options: GatewayOptions,
    backend: B,
    budget: BufferBudget,
    observer: GatewayObserver,
    collectionPath: string,
  ) {
    this.requestBytesMax = options.requestBytesMax;
    this.#inFlightMax = options.inFlightMax;
    this.#allowedHosts = options.allowedHosts;
    this.#trustedProxies = options.trustedProxies;
    this.guard = joinGuards(options.guards);
    this.cors = options.cors;
    this.tracer = options.tracer;
    this.backend = backend;
    this.budget = budget;
    this.observer = observer;
    this.#routeOptions = { collectionPath, itemIdParsing: options.itemIdParsing, pages: undefined };
  }

  get routeOptions(): RouteOptions {
    return this.#routeOptions;
  }

  /** Serves `pages` next to the operations [D5]. */
  servePages(pages: Pages): void {
    this.#routeOptions = { ...this.#routeOptions, pages };
  }

  /** Number of calls to the backend in flight. A write stays in flight until its answer, even if the client leaves. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get isFull(): boolean {
    return this.budget.calls >= this.#inFlightMax || this.budget.isExhausted;
  }

  /** Counts a call when it is sent, not while its request body arrives [D26]. Returns false at the limit. */
  enter(): boolean {
    if (this.budget.calls >= this.#inFlightMax) return false;
    this.budget.calls += 1;
    this.#inFlight += 1;
    return true;
  }

  exit(): void {
    this.budget.calls -= 1;
    this.#inFlight -= 1;
  }

  admits(head: RequestHead, client: Requester): boolean {
    const { target, fields } = head;
    const isTrusted = () => this.#trustedProxies?.has(addressOf(client) ?? '') === true;
    if (isCrossSiteWrite(head, isTrusted, client.allowedOrigin) && this.cors?.allows(fields) !== true) return false;
    const allowed = this.#allowedHosts;
    if (allowed.length === 0) return true;
    // An absolute-form target has a host name too. Servers differ in the name they use, so both names must be allowed.
    const authority = absoluteForm.exec(target)?.[1];
    return (
      isAllowedHost(fieldValue(fields, 'host'), allowed) &&
      (authority === undefined || isAllowedHost(authority, allowed))
    );
  }

  findClient(client: Requester, head: RequestHead): string | undefined {
    const address = addressOf(client);
    return address === undefined || this.#trustedProxies === undefined
      ? address
      : clientAddress(address, fieldValues(head.fields, 'x-forwarded-for'), this.#trustedProxies);
  }

  accept(head: RequestHead, transport: Transport, client: Requester): RequestReceiver {
    return new Call(this, head, transport, client);
  }

  /** Replies to a request for which a bug prevented `accept` [D28]. */
  acceptFault(method: string, target: string, transport: Transport, client: Requester, error: unknown): void {
    const rest = { bodyLength: 0, expectation: 'none', persists: false, version: '1.1', fields: [] } as const;
    new Call(this, { method, target, ...rest }, transport, client).onFault(error);
  }

  refuse(reason: BrokenReason, client: Requester): Reply {
    const { reply, code, cause } = describeBroken(reason);
    const requestId = createRequestId();
    try {
      this.observer.onMalformed(requestId, reply, cause, addressOf(client), code);
    } catch (error) {
      this.notifyBug(error, undefined);
    }
    // The origin of a malformed request is unknown, so `fieldsFor` receives no request.
    const added = this.cors?.fieldsFor(reply.headers, undefined) ?? [];
    const body = BorrowedBytes.ofConstant(reply.body);
    return { head: reply, added, requestId, body, closes: true, drains: this.isDraining };
  }

  notifyStall(record: CallRecord): void {
    try {
      this.observer.onStall(record);
    } catch (error) {
      this.notifyBug(error, record);
    }
  }

  onFault(error: unknown): void {
    this.notifyBug(error, undefined);
  }

  /** Reports the end of a request to observer and trace. Their exceptions do not affect the reply [D28]. */
  notifyEnd(record: CallRecord, trace: CallTrace | undefined): void {
    try {
      this.observer.onCallEnd(record);
    } catch (error) {
      this.notifyBug(error, record);
    }
    try {
      trace?.end(record);
    } catch (error) {
      this.notifyBug(error, record);
    }
  }

  notifyBug(error: unknown, record: CallRecord | undefined): void {
    try {
      this.observer.onBug(error, record);
    } catch {
      // The observer itself fails, so the error cannot be reported.
    }
  }
}

function addressOf({ address }: Requester): string | undefined {
  return address === undefined ? undefined : normalizeAddress(address);
}
