// Handles one request from its head to its reply: check, forward, reply. The differences between operations come from
// operations.ts. The body of a reply is fixed, or is the backend's answer after a check. Uses no socket.

import type { BackendRequest, Exchange, Outcome, OutcomeHandler } from '../backend/client.ts';
import { RequestBody } from '../body/body.ts';
import type { BufferBudget } from '../body/budget.ts';
import type { Cors } from '../admission/cors.ts';
import { monotonicMs } from '../time/monotonic.ts';
import { BorrowedBytes, noBody } from '../http1/borrowed-bytes.ts';
import type { RequestHead } from '../http1/head.ts';
import type { BrokenReason, Requester, RequestReceiver, ReplyHead, Transport } from '../http1/transport.ts';
import type { CallRecord } from './call-record.ts';
import type { Admission, Guard } from './guard.ts';
import { isRead, type Operation } from '../operations.ts';
import { outcomeOfAnswer, type BackendOutcome, type CallOutcome } from '../outcomes.ts';
import type { Reason } from '../reasons.ts';
import { answerHeads, describeBroken, failureReplies, notFoundReplies, replies, type FixedReply } from '../replies.ts';
import { readConditions } from './conditions.ts';
import { describeAgent, describePath, describeSubject, readRequestId, readTraceContext } from './request-context.ts';
import { route, type Route, type RouteOptions } from './route.ts';
import type { CallTrace, Tracer } from './tracer.ts';

/** Makes calls to the backend. The outcome comes after `send` has returned, never during it. */
export interface Backend {
  send(request: BackendRequest, handler: OutcomeHandler): Exchange;
}

export interface CallContext {
  readonly backend: Backend;
  readonly budget: BufferBudget;
  readonly routeOptions: RouteOptions;
  readonly requestBytesMax: number;
  /** True while the gateway stops. Every reply then closes its connection [D33]. */
  readonly isDraining: boolean;
  /** True while the remaining connections are cut. A request that has no reply yet ends as `shutdown` [D51]. */
  readonly isCutting: boolean;
  /** True if another call must be refused: the calls in flight or the buffered bytes have reached their limit [D26]. */
  readonly isFull: boolean;
  /** True if the site of the page that sent the request [D56] and the request's host name [D57] are allowed. */
  admits(head: RequestHead, client: Requester): boolean;
  /** Decides whether requests for operations may proceed; undefined if every request may proceed. */
  readonly guard: Guard | undefined;
  /** Adds header fields for pages of other origins to every reply; undefined if no such page is allowed [D45]. */
  readonly cors: Cors | undefined;
  /** Undefined if nothing is traced [D49]. */
  readonly tracer: Tracer | undefined;
  /** The client's address, from the connection or from trusted proxies [D52]. */
  findClient(client: Requester, head: RequestHead): string | undefined;
  /** Counts one more call in flight and returns true. At the limit, counts nothing and returns false [D26]. */
  enter(): boolean;
  exit(): void;
  notifyEnd(record: CallRecord, trace: CallTrace | undefined): void;
  notifyStall(record: CallRecord): void;
  /** Reports a bug that no longer affects a reply [D28]. */
  notifyBug(error: unknown, record: CallRecord | undefined): void;
}

/**
 * The state of a request: `checking` → `guarding` → `reading` → `calling` → `ended`. If the guard returns no promise,
 * `guarding` is skipped. `list`, `read` and requests without a body skip `reading`. Any state can lead to `ended`.
 *
 * - `checking`: finds the operation and decides whether the request is allowed.
 * - `guarding`: waits for the guard's decision. The body is not read.
 * - `reading`: waits for the end of the body. The body is gathered, or dropped if the operation takes no body.
 * - `calling`: waits for the backend's outcome. Further bytes of the request's body are dropped.
 * - `ended`: the reply has been passed to the transport, or the client had left.
 */
type State = 'checking' | 'guarding' | 'reading' | 'calling' | 'ended';

export class Call implements RequestReceiver, CallRecord, OutcomeHandler {
  readonly requestId: string;
  operation: Operation | undefined;
  status = 0;
  outcome: CallOutcome = 'ok';
  cause: unknown;
  reason: Reason | undefined;
  flaw: string | undefined;
  durationMs = 0;
  backendOutcome: BackendOutcome | undefined;
  backendDurationMs: number | undefined;
  backendStatus: number | undefined;
  requestBytes = 0;
  replyBytes = 0;

  readonly #gateway: CallContext;
  readonly #head: RequestHead;
  readonly #transport: Transport;
  readonly #client: Requester;
  readonly #startedAt = monotonicMs();
  #state: State = 'checking';
  #backendPath = '';
  #conditions = noHeaders;
  #identity: string | undefined;
  #guardHeaders = noHeaders;
  #body: RequestBody | undefined;
  #exchange: Exchange | undefined;
  #exchangeStartedAt = 0;
  #trace: CallTrace | undefined;
  #isClientGone = false;
  // True if the reply must close the connection: after a body that is too large or broken, after CONNECT, or after a bug.
  #mustClose = false;

  constructor(gateway: CallContext, head: RequestHead, transport: Transport, client: Requester) {
    this.#gateway = gateway;
    this.#head = head;
    this.#transport = transport;
    this.#client = client;
    this.requestId = readRequestId(head.fields);
  }

  get method(): string {
    return this.#head.method;
  }

  get path(): string {
    return describePath(this.#head.target);
  }

  get client(): string | undefined {
    return this.#gateway.findClient(this.#client, this.#head);
  }

  get subject(): string | undefined {
    return this.#identity === undefined ? undefined : describeSubject(this.#identity);
  }

  get agent(): string | undefined {
    return describeAgent(this.#head.fields);
  }

  get http(): CallRecord['http'] {
    return this.#head.version;
  }

  start(): void {
    try {
      this.#trace = this.#gateway.tracer?.start(this.#head);
      this.#check();
    } catch (error) {
      this.onFault(error);
    }
  }

  // Check: makes the decisions that do not need the body [D4 to D6, D9, D11, D26].
  #check(): void {
    const { method, target, bodyLength, expectation } = this.#head;
    if (typeof bodyLength === 'number' && bodyLength > this.#gateway.requestBytesMax) this.#mustClose = true;
    if (expectation === 'unknown') {
      this.#refuse(replies.expectationFailed, 'invalid-expect', 'an expect other than 100-continue');
      return;
    }
    if (!this.#gateway.admits(this.#head, this.#client)) {
      this.#reply(replies.forbidden, 'forbidden');
      return;
    }
    const found = route(method, target, this.#gateway.routeOptions);
    this.operation = found.operation;
    const { guard } = this.#gateway;
    if (guard === undefined || found.operation === undefined) {
      this.#goOn(found);
      return;
    }
    const admission = guard.admit({
      head: this.#head,
      operation: found.operation.name,
      client: this.client,
      identity: undefined,
    });
    if (admission instanceof Promise) {
      this.#state = 'guarding';
      this.#transport.holdBody();
      admission.then(
        (admitted) => this.#onAdmission(admitted, found),
        (error: unknown) => this.onFault(error),
      );
    } else if (this.#isAdmitted(admission)) {
      this.#goOn(found);
    }
  }

  #onAdmission(admission: Admission, found: Route): void {
    // If the client has meanwhile left or sent a malformed body, the decision is ignored.
    if (this.#state !== 'guarding' || this.#isClientGone) return;
    try {
      if (this.#isAdmitted(admission)) this.#goOn(found);
    } catch (error) {
      this.onFault(error);
    }
  }

  #isAdmitted(admission: Admission): boolean {
    this.#identity = admission.identity;
    this.#guardHeaders = admission.headers ?? noHeaders;
    if (!admission.isAdmitted) {
      this.cause = admission.cause;
      this.flaw = admission.flaw;
      this.#reply(admission.reply, admission.outcome);
    }
    return admission.isAdmitted;
  }

  #goOn(found: Route): void {
    const { method, bodyLength } = this.#head;
    if (found.refusal !== undefined) {
      this.#mustClose ||= method === 'CONNECT';
      this.#reply(found.refusal, found.outcome);
      return;
    }
    this.#backendPath = found.backendPath;
    const conditions = isRead(found.operation) ? noHeaders : readConditions(method, this.#head.fields);
    if (typeof conditions === 'string') {
      this.#refuse(replies.badRequest, 'invalid-condition', conditions);
      return;
    }
    this.#conditions = conditions;
    if (this.#gateway.isFull) {
      this.#turnAway(this.#gateway.budget.isExhausted ? tooManyBytes : tooManyCalls);
    } else if (found.operation.takesBody && this.#mustClose) {
      this.#reply(replies.bodyTooLarge, 'body-too-large');
    } else if (isRead(found.operation) || bodyLength === 0) {
      this.#forward();
    } else {
      // A write is forwarded only when its whole body has arrived [D11].
      this.#state = 'reading';
      this.#transport.readBody();
    }
  }

  // Gathers the body and checks it as it arrives [spec 4, rule 6; D10, D11, D13].
  onBody(piece: Buffer): void {
    try {
      this.requestBytes += piece.length;
      const isTooLarge = this.requestBytes > this.#gateway.requestBytesMax;
      if (this.#state !== 'reading' || this.operation?.takesBody !== true) {
        this.#mustClose ||= isTooLarge;
      } else if (isTooLarge) {
        this.#mustClose = true;
        this.#reply(replies.bodyTooLarge, 'body-too-large');
      } else if ((this.#body ??= new RequestBody(this.#gateway.budget)).reserve(piece)) {
        this.#body.write(piece);
      } else {
        this.#turnAway(tooManyBytes);
      }
    } catch (error) {
      this.onFault(error);
    }
  }

  onBodyEnd(): void {
    if (this.#state === 'reading') {
      try {
        this.#forward();
      } catch (error) {
        this.onFault(error);
      }
    }
  }

  /** Replies with an error, unless the backend was called or a reply was sent. The connection closes in any case. */
  onBroken(reason: BrokenReason): void {
    this.#mustClose = true;
    if (this.#state === 'reading' || this.#state === 'guarding') {
      const { reply, code, cause } = describeBroken(reason);
      this.#refuse(reply, code, cause, reason === 'overload' ? 'overload' : 'bad-request');
    }
  }

  // Forward: makes one call to the backend [spec 4].
  #forward(): void {
    const operation = this.#calledOperation;
    if (operation.takesBody && this.#body?.isJson() !== true) {
      this.cause = this.#body?.describeFlaw() ?? 'no body';
      this.#reply(failureReplies[operation.name], 'invalid-body');
      return;
    }
    // The limit is checked again, because other calls may have started while the body arrived.
    if (!this.#gateway.enter()) {
      this.#turnAway(tooManyCalls);
      return;
    }
    this.#state = 'calling';
    this.#exchangeStartedAt = monotonicMs();
    const body = this.#body?.lend() ?? noBody;
    const trace = this.#trace?.startBackendCall(this.#backendPath) ?? readTraceContext(this.#head.fields);
    this.#exchange = this.#gateway.backend.send(
      {
        method: operation.method,
        path: this.#backendPath,
        body,
        requestId: this.requestId,
        identity: this.#identity,
        headers: this.#conditions.length === 0 ? trace : [...trace, ...this.#conditions],
        needsAnswer: operation.passesAnswer,
      },
      this,
    );
    // From now on, the exchange decides when the body's memory is free.
    this.#body = undefined;
  }

  get #calledOperation(): Operation {
    if (this.operation === undefined) throw new Error('no operation was matched');
    return this.operation;
  }

  // Reply: sends the backend's answer, or the operation's fixed reply [spec 4 and 7].
  onOutcome(outcome: Outcome): void {
    try {
      const operation = this.#calledOperation;
      if (outcome.kind === 'no-descriptor') {
        // No file descriptor was free, so the backend was not called and is not at fault [D26, D51].
        this.cause = outcome.cause;
        this.#reply(failureReplies[operation.name], 'overload');
        return;
      }
      this.#noteBackendOutcome(outcome.kind);
      this.backendStatus = outcome.status;
      if (outcome.kind === 'ok') {
        if (operation.passesAnswer) {
          this.#end(answerHeads[operation.name], outcome.body, 'ok');
        } else {
          this.#reply(replies.success, 'ok');
        }
        return;
      }
      if (outcome.kind === 'unreachable' && this.#gateway.isCutting) {
        // The gateway, not the backend, cut the connection [D51].
        this.backendOutcome = 'cancelled';
        this.#reply(failureReplies[operation.name], 'shutdown');
        return;
      }
      this.cause = outcome.cause;
      this.reason = outcome.reason;
      const name = outcome.kind === 'refused' ? outcomeOfAnswer(outcome.status, operation) : outcome.kind;
      this.backendOutcome = name;
      this.#reply((outcome.status === 404 ? notFoundReplies : failureReplies)[operation.name], name);
    } catch (error) {
      this.onFault(error);
    }
  }

  #noteBackendOutcome(outcome: BackendOutcome): void {
    this.backendOutcome = outcome;
    this.backendDurationMs = monotonicMs() - this.#exchangeStartedAt;
  }

  onGone(cause?: Error): void {
    this.#isClientGone = true;
    this.cause ??= cause;
    if (this.#state === 'calling') {
      if (!isRead(this.#calledOperation)) {
        // A write that has been sent is not cancelled. Its answer is dropped [D21].
        return;
      }
      this.#exchange?.cancel();
      this.#noteBackendOutcome('cancelled');
    }
    // Deferred, so that if thousands of clients leave together, all calls are cancelled before the first is recorded.
    setImmediate(() => {
      // `#reply` sends nothing, because the client has left.
      this.#reply(this.#faultReply, 'client-gone');
    });
  }

  onStall(): void {
    this.#gateway.notifyStall(this);
  }

  #refuse(reply: FixedReply, reason: Reason, cause: string, outcome: CallOutcome = 'bad-request'): void {
    this.reason = reason;
    this.cause = cause;
    this.#reply(reply, outcome);
  }

  #turnAway(cause: string): void {
    this.cause = cause;
    this.#reply(replies.overload, 'overload');
  }

  #reply(reply: FixedReply, outcome: CallOutcome): void {
    this.#end(reply, BorrowedBytes.ofConstant(reply.body), outcome);
  }

  #end(head: ReplyHead, body: BorrowedBytes, outcome: CallOutcome): void {
    if (this.#state === 'ended') {
      body.release();
      return;
    }
    if (this.#state === 'calling') this.#gateway.exit();
    this.#state = 'ended';
    this.outcome = outcome;
    this.#body?.drop();
    if (!this.#isClientGone) this.#write(head, body);
    // The transport may have called `onGone` instead of sending the reply.
    if (this.#isClientGone) {
      if (outcome === 'ok' || outcome === 'client-gone') {
        this.outcome = this.#gateway.isCutting ? 'shutdown' : 'client-gone';
      }
      this.status = 0;
      this.replyBytes = 0;
      body.release();
    }
    this.durationMs = monotonicMs() - this.#startedAt;
    this.#gateway.notifyEnd(this, this.#trace);
  }

  #write(head: ReplyHead, body: BorrowedBytes): void {
    try {
      this.#send(head, body);
    } catch (error) {
      this.cause = error;
      this.outcome = 'bug';
      body.release();
      this.#writeFault();
    }
  }

  // Sends a 500 if writing the reply has thrown. Cuts the connection if writing the 500 throws too.
  #writeFault(): void {
    const reply = this.#faultReply;
    this.#mustClose = true;
    try {
      this.#send(reply, BorrowedBytes.ofConstant(reply.body));
    } catch {
      // Only the first exception is reported.
      this.#transport.cut();
    }
  }

  #send(head: ReplyHead, body: BorrowedBytes): void {
    const { requestId } = this;
    this.status = head.status;
    this.replyBytes = body.length;
    const { cors, isDraining: drains } = this.#gateway;
    const closes = this.#mustClose || drains;
    const added =
      cors === undefined ? this.#guardHeaders : [...cors.fieldsFor(head.headers, this.#head), ...this.#guardHeaders];
    this.#transport.reply({ head, added, requestId, body, closes, drains });
  }

  /** Ends the request after an exception, which is a bug in the gateway [D28]. */
  onFault(error: unknown): void {
    this.cause = error;
    this.operation ??= route(this.method, this.#head.target, this.#gateway.routeOptions).operation;
    this.#exchange?.cancel();
    if (this.#state === 'ended') {
      this.outcome = 'bug';
      this.#gateway.notifyBug(error, this);
      this.#transport.cut();
      return;
    }
    this.#mustClose = true;
    this.#reply(this.#faultReply, 'bug');
  }

  get #faultReply(): FixedReply {
    return this.operation === undefined ? replies.internalError : failureReplies[this.operation.name];
  }
}

const noHeaders: readonly string[] = [];
const tooManyCalls = 'the limit of calls in flight is reached';
const tooManyBytes = 'the limit of buffered bytes is reached';
