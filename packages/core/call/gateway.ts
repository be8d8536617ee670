// What the calls of one gateway share: its options, the backend client, the count of calls in flight, the observer. And
// what happens to bytes that are no request at all. No settings, signals or Fastify here.

import type { BackendClient } from '../backend/client.ts';
import type { BufferBudget } from '../body/budget.ts';
import { clientAddress, normalizeAddress, type TrustedProxies } from '../admission/client-address.ts';
import type { Cors } from '../admission/cors.ts';
import { isCrossSiteWrite } from '../admission/cross-site.ts';
import { isAllowedHost } from '../admission/host-names.ts';
import { absoluteForm } from '../http1/grammar.ts';
import { fieldValue, fieldValues, type RequestHead } from '../http1/head.ts';
import type { Broken, Client, Incoming, Reply, RequestHandler, Transport } from '../http1/transport.ts';
import { Call, type Backend, type CallContext } from './call.ts';
import type { CallRecord } from './call-record.ts';
import { joinGuards, type Guard } from './guard.ts';
import type { ItemIdParsing } from './item-id.ts';
import { replyToBroken, type FixedReply, type Pages } from '../replies.ts';
import { createRequestId } from './request-context.ts';
import type { RouteOptions } from './route.ts';
import type { CallTrace, Tracer } from './tracer.ts';

interface GatewayOptions {
  /** As `isAllowedHost` takes them; empty for any name [D57]. */
  readonly allowedHosts: readonly string[];
  readonly itemIdParsing: ItemIdParsing;
  readonly requestBytesMax: number;
  readonly inFlightMax: number;
  /** Undefined for none. */
  readonly trustedProxies: TrustedProxies | undefined;
  /** Are asked in this order about requests of operations. */
  readonly guards: readonly Guard[];
  /** Undefined where no page of another origin is allowed [D45]. */
  readonly cors: Cors | undefined;
  /** Undefined where nothing is traced [D49]. */
  readonly tracer: Tracer | undefined;
}

/** Is told of everything that ends; costs every request what it costs. What it throws goes to its `onBug`. */
export interface GatewayObserver {
  onCallEnd(record: CallRecord): void;
  /** Bytes that were no request: `reply` is what the client got [D27], `reason` what was wrong with them. */
  onMalformed(requestId: string, reply: FixedReply, reason: string, client: string | undefined): void;
  /** The client took nothing more of the reply, and was cut off; `onCallEnd` has had the record before [D35]. */
  onStall(record: CallRecord): void;
  /** A fault of our own that changes no reply any more; `record` is the request that it belongs to [D28]. */
  onBug(error: unknown, record: CallRecord | undefined): void;
  /**
   * In a host that has guards as options: the issuer's keys (`keys`) cannot be fetched, or Redis (`redis`) does not count,
   * for the reason that `cause` has; undefined when it is over. Once for each change [D44, D47].
   */
  onOutage?(what: 'keys' | 'redis', cause: string | undefined): void;
}

export class Gateway<B extends Backend = BackendClient> implements RequestHandler, CallContext {
  readonly requestBytesMax: number;
  readonly backend: B;
  readonly budget: BufferBudget;
  readonly observer: GatewayObserver;
  readonly guard: Guard | undefined;
  readonly cors: Cors | undefined;
  readonly tracer: Tracer | undefined;
  /** Every reply now closes its connection [D33]. */
  isDraining = false;
  isCutting = false;
  readonly #inFlightMax: number;
  readonly #allowedHosts: readonly string[];
  readonly #trustedProxies: TrustedProxies | undefined;
  #routeOptions: RouteOptions;
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

  /** Serves `pages` beside the operations [D5]. */
  servePages(pages: Pages): void {
    this.#routeOptions = { ...this.#routeOptions, pages };
  }

  /** Calls between being sent to the backend and the end of their reply, or of their write. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Another call would be one too many, or too many bytes are held already [D26]. */
  get isFull(): boolean {
    return this.#inFlight >= this.#inFlightMax || this.budget.isExhausted;
  }

  /**
   * Counts a call in, or says that there are too many [D26]. To be called when the backend is: a client that
   * is slow with its body takes no place from others.
   */
  enter(): boolean {
    if (this.#inFlight >= this.#inFlightMax) {
      return false;
    }
    this.#inFlight += 1;
    return true;
  }

  exit(): void {
    this.#inFlight -= 1;
  }

  admits({ method, target, fields }: RequestHead): boolean {
    const site = fieldValue(fields, 'sec-fetch-site');
    if (
      site !== undefined &&
      isCrossSiteWrite(method, fieldValues(fields, 'sec-fetch-site').join()) &&
      this.cors?.allows(fields) !== true
    ) {
      return false;
    }
    const allowed = this.#allowedHosts;
    if (allowed.length === 0) {
      return true;
    }
    // In absolute-form there are two names, and others differ on which of them counts.
    const authority = absoluteForm.exec(target)?.[1];
    return (
      isAllowedHost(fieldValue(fields, 'host'), allowed) &&
      (authority === undefined || isAllowedHost(authority, allowed))
    );
  }

  findClient(client: Client, head: RequestHead): string | undefined {
    const address = addressOf(client);
    return address === undefined || this.#trustedProxies === undefined
      ? address
      : clientAddress(address, fieldValues(head.fields, 'x-forwarded-for'), this.#trustedProxies);
  }

  accept(head: RequestHead, transport: Transport, client: Client): Incoming {
    return new Call(this, head, transport, client);
  }

  /** Answers a request that met a fault of our own on its way here [D28]. */
  acceptFault(method: string, target: string, transport: Transport, client: Client, error: unknown): void {
    const head = { ...emptyHead, method, target };
    new Call(this, head, transport, client).onFault(error);
  }

  refuse(reason: Broken, client: Client): Reply {
    const reply = replyToBroken(reason);
    const requestId = createRequestId();
    try {
      const text = typeof reason === 'string' ? brokenTexts[reason] : reason.reason;
      this.observer.onMalformed(requestId, reply, text, addressOf(client));
    } catch (error) {
      this.notifyBug(error, undefined);
    }
    // The origin is not known.
    const added = this.cors?.fieldsFor(reply.headers, undefined) ?? [];
    const { body } = reply;
    const drains = this.isDraining;
    return { head: reply, added, requestId, pieces: [body], length: body.length, closes: true, drains };
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

  /** Tells the observer and the trace of a request's end. What they throw is their own fault, and the reply stands [D28]. */
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

  /** Tells the observer of a fault that changes no reply any more. */
  notifyBug(error: unknown, record: CallRecord | undefined): void {
    try {
      this.observer.onBug(error, record);
    } catch {
      // Whoever would say so is broken.
    }
  }
}

const brokenTexts = { timeout: 'a request that did not come in time', overload: 'no room for its body' };

const emptyHead: RequestHead = {
  method: '',
  target: '',
  bodyLength: 0,
  expectation: 'none',
  persists: false,
  version: '1.1',
  fields: [],
};

function addressOf({ address }: Client): string | undefined {
  return address === undefined ? undefined : normalizeAddress(address);
}
