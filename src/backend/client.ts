// One call to the backend becomes one Outcome; with connection.ts beside it the only code that knows
// undici. Deadlines, the single resend and the limits of an answer are here [D15 to D23]. What a client is
// told about an outcome is decided elsewhere.

import type { Dispatcher } from 'undici';

import { AnswerBody } from '../body.ts';
import type { BufferBudget } from '../buffer-budget.ts';
import { BackendConnection, type Connect, createConnect } from './connection.ts';
import { Deadline, Deadlines, type DeadlineOwner } from './deadlines.ts';
import { describeError } from './describe-error.ts';

/** Why a call brought no usable answer. Goes to the log and the metrics, never to a client. */
export type BackendFailure = 'refused' | 'unreachable' | 'timed-out' | 'not-json' | 'too-large';

/**
 * What came of one call: the answer (`pieces` are its exact bytes, empty when the caller did not need
 * them), or a failure. `refused` is an answer whose status is not 200 to 299 [D15].
 */
export type Outcome =
  | {
      readonly kind: 'ok';
      readonly status: number;
      readonly pieces: readonly Buffer[];
      /** What they lie in, to be given back when they have been used. */
      readonly blocks: readonly Buffer[];
      readonly length: number;
    }
  | { readonly kind: BackendFailure; readonly status: number | undefined; readonly cause: string };

export interface BackendRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Below the backend's base path, for instance `/api/WorkItem/7`. */
  readonly path: string;
  readonly body: Buffer | undefined;
  readonly requestId: string;
  /** As name, value, ...; with the request id all that is sent beyond our own headers [D23]. */
  readonly traceContext: readonly string[];
  /** The answer's body is needed and must be JSON; otherwise a well-formed head decides alone [D17]. */
  readonly needsAnswer: boolean;
}

export interface BackendClientOptions {
  /** `http:` or `https:`, with or without a base path; no query, fragment or credentials. */
  readonly backendUrl: URL;
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly responseBytesMax: number;
  /** What answers are counted against while they are held; `ok` hands its count on with its pieces. */
  readonly budget: BufferBudget;
}

/** Who made a call. */
export interface OutcomeHandler {
  /** Called exactly once, later, unless the exchange is cancelled first. Must not throw. */
  onOutcome(outcome: Outcome): void;
  /** Called instead of it, or after it, when something here has thrown: the exchange has been cancelled. */
  onFault(error: unknown): void;
}

/** A call under way. */
export interface Exchange {
  /** Ends the call at once and closes its connection; no outcome follows. Safe at any time. */
  cancel(): void;
}

// A body that nobody needs is read to here, so that its connection can be used again; past it the
// connection is closed.
const discardBytesMax = 65_536;
const discardTimeoutMs = 1_000;

/** Sends calls to one backend over its own keep-alive connections, one call at a time on each. */
export class BackendClient {
  readonly #options: BackendClientOptions;
  readonly #basePath: string;
  readonly #connect: Connect;
  readonly #deadlines: ExchangeDeadlines;
  readonly #connections = new Set<BackendConnection>();
  // Last in, first out: the warmest connection is used, the others age and close.
  readonly #idle: BackendConnection[] = [];
  /** @internal */
  isClosed = false;

  constructor(options: BackendClientOptions) {
    this.#options = options;
    this.#basePath = options.backendUrl.pathname.replace(/\/+$/, '');
    this.#connect = createConnect();
    this.#deadlines = {
      connecting: new Deadlines(options.connectTimeoutMs),
      answering: new Deadlines(options.timeoutMs),
      discarding: new Deadlines(discardTimeoutMs),
    };
  }

  /** Connections to the backend, open or being opened. */
  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Sends one call. */
  send(request: BackendRequest, handler: OutcomeHandler): Exchange {
    return new BackendExchange(
      this,
      this.#options,
      this.#deadlines,
      this.#basePath + request.path,
      request,
      handler,
    );
  }

  /** Closes every connection; calls under way fail. */
  async close(): Promise<void> {
    this.isClosed = true;
    const connections = [...this.#connections];
    this.#idle.length = 0;
    this.#connections.clear();
    await Promise.all(connections.map((connection) => connection.destroy()));
  }

  /** @internal An idle connection, or a new one when `fresh` is asked for or none is idle. */
  acquire(fresh: boolean): BackendConnection {
    const idle = fresh ? undefined : this.#idle.pop();
    if (idle !== undefined) {
      return idle;
    }
    const connection = new BackendConnection(this.#options, this.#connect, () => {
      // One that a call holds is that call's to discard.
      if (this.#idle.includes(connection)) {
        this.discard(connection);
      }
    });
    this.#connections.add(connection);
    return connection;
  }

  /** @internal Takes a connection back whose call has ended well. */
  release(connection: BackendConnection): void {
    if (this.#connections.has(connection)) {
      this.#idle.push(connection);
    }
  }

  /** @internal Closes a connection whose call has not ended well, or that has closed while idle. */
  discard(connection: BackendConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) {
      this.#idle.splice(index, 1);
    }
    void connection.destroy();
  }
}

interface ExchangeDeadlines {
  readonly connecting: Deadlines;
  /** From sending to the last byte. */
  readonly answering: Deadlines;
  readonly discarding: Deadlines;
}

// One call: the dispatcher's handler and our Exchange in one object, since there is one of each per call.
class BackendExchange implements Exchange, DeadlineOwner, Dispatcher.DispatchHandler {
  readonly #client: BackendClient;
  readonly #options: BackendClientOptions;
  readonly #deadlines: ExchangeDeadlines;
  readonly #path: string;
  readonly #request: BackendRequest;
  readonly #handler: OutcomeHandler;

  #connection: BackendConnection;
  readonly #deadline = new Deadline(this);
  #connectDeadline: Deadline | undefined;
  #wasResent = false;
  // `waiting` for what decides, `discarding` a body that no longer matters, `ended`.
  #state: 'waiting' | 'discarding' | 'ended' = 'waiting';
  #status = 0;
  readonly #body = new AnswerBody();
  // Bytes that came and are not kept.
  #discarded = 0;

  constructor(
    client: BackendClient,
    options: BackendClientOptions,
    deadlines: ExchangeDeadlines,
    path: string,
    request: BackendRequest,
    handler: OutcomeHandler,
  ) {
    this.#client = client;
    this.#options = options;
    this.#deadlines = deadlines;
    this.#path = path;
    this.#request = request;
    this.#handler = handler;
    this.#connection = client.acquire(false);
    try {
      this.#dispatch();
    } catch (error) {
      this.cancel();
      throw error;
    }
  }

  cancel(): void {
    if (this.#state !== 'ended') {
      this.#dropBody();
      this.#end();
      this.#client.discard(this.#connection);
    }
  }

  // A fault of our own must not be taken for one of the backend's, which undici would make of it, and not
  // leave the call without an end [D28].
  #fault(error: unknown): void {
    this.#dropBody();
    this.#end();
    this.#client.discard(this.#connection);
    this.#handler.onFault(error);
  }

  onDeadlinePassed(deadline: Deadline): void {
    const { timeoutMs, connectTimeoutMs } = this.#options;
    const cause =
      deadline === this.#connectDeadline
        ? `no connection within ${connectTimeoutMs} ms`
        : `no complete answer within ${timeoutMs} ms`;
    try {
      // Nobody is told when the outcome is known and only the rest of an answer did not come.
      this.#fail('timed-out', cause);
    } catch (error) {
      this.#fault(error);
    }
  }

  // Connecting has a limit of its own; from sending to the last byte there is one deadline, whether or not
  // the call is sent twice [D19].
  #dispatch(): void {
    this.#startDeadline();
    const { method, body, requestId, traceContext } = this.#request;
    this.#connection.dispatch(
      {
        method,
        path: this.#path,
        headers: ['content-type', 'application/json', 'x-request-id', requestId, ...traceContext],
        body: body ?? null,
      },
      this,
    );
  }

  // Leads here: a new connection, and an idle one that proves to be dead before the call goes out on it. The
  // deadline of the answer begins anew when the call is sent, unless it was sent before.
  onConnecting(): void {
    if (!this.#wasResent) {
      this.#deadline.clear();
    }
    this.#connectDeadline ??= new Deadline(this);
    if (!this.#connectDeadline.isRunning) {
      this.#deadlines.connecting.start(this.#connectDeadline);
    }
  }

  onRequestStart(): void {
    try {
      this.#connection.onSent();
      this.#connectDeadline?.clear();
      this.#startDeadline();
    } catch (error) {
      this.#fault(error);
    }
  }

  #startDeadline(): void {
    if (!this.#deadline.isRunning) {
      this.#deadlines.answering.start(this.#deadline);
    }
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    reason = '',
  ): void {
    try {
      this.#takeHead(status, headers, reason);
    } catch (error) {
      this.#fault(error);
    }
  }

  #takeHead(status: number, headers: Record<string, string | string[] | undefined>, reason: string): void {
    if (status < 200 || this.#state !== 'waiting') {
      return;
    }
    const flaw = findFlaw(headers, reason, this.#connection.answerMinorVersion);
    if (flaw !== undefined) {
      this.#fail('unreachable', flaw);
      return;
    }
    const length = headers['content-length'];
    if (typeof length === 'string' && length.endsWith(' ')) {
      this.#connection.setAnswerLength(Number(length));
    }
    this.#status = status;
    if (status > 299) {
      this.#decide({ kind: 'refused', status, cause: `status ${status}` });
    } else if (!this.#request.needsAnswer) {
      this.#decide({ kind: 'ok', status, pieces: [], blocks: [], length: 0 });
    } else if (Number(length) > this.#options.responseBytesMax) {
      this.#failTooLarge();
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, piece: Buffer): void {
    try {
      this.#takePiece(piece);
    } catch (error) {
      this.#fault(error);
    }
  }

  #takePiece(piece: Buffer): void {
    if (this.#state === 'discarding') {
      this.#discarded += piece.length;
      if (this.#discarded > discardBytesMax) {
        this.cancel();
      }
      return;
    }
    if (this.#state === 'ended') {
      return;
    }
    if (this.#body.length + piece.length > this.#options.responseBytesMax) {
      this.#failTooLarge();
    } else if (!this.#options.budget.take(piece.length)) {
      this.#fail('too-large', 'too many bytes of bodies held at once', this.#status);
    } else if (!this.#body.write(piece)) {
      // Nothing could make it JSON any more: nobody needs the rest.
      this.#discarded = this.#body.length;
      this.#decide(notJson(this.#status, this.#body.length));
    }
  }

  onResponseEnd(): void {
    try {
      this.#takeEnd();
    } catch (error) {
      this.#fault(error);
    }
  }

  #takeEnd(): void {
    if (this.#connection.hasFailed) {
      this.#takeError(new Error('the connection broke off in an answer that goes up to its end'));
      return;
    }
    const wasWaiting = this.#state === 'waiting';
    this.#end();
    this.#client.release(this.#connection);
    if (!wasWaiting) {
      return;
    }
    const { length } = this.#body;
    if (this.#body.isJson()) {
      const { blocks } = this.#body;
      const pieces = this.#body.takePieces();
      this.#handler.onOutcome({ kind: 'ok', status: this.#status, pieces, blocks, length });
    } else {
      this.#dropBody();
      this.#handler.onOutcome(notJson(this.#status, length));
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    try {
      this.#takeError(error);
    } catch (fault) {
      this.#fault(fault);
    }
  }

  #takeError(error: Error): void {
    if (this.#state === 'ended') {
      return;
    }
    const wasWaiting = this.#state === 'waiting';
    this.#client.discard(this.#connection);
    if (wasWaiting && this.#mayResend()) {
      this.#wasResent = true;
      this.#connection = this.#client.acquire(true);
      this.#dispatch();
      return;
    }
    this.#dropBody();
    this.#end();
    if (wasWaiting) {
      this.#handler.onOutcome({ kind: 'unreachable', status: undefined, cause: describeError(error) });
    }
  }

  // A GET on a reused connection that died before one byte of the answer: most likely the backend closed an
  // idle connection as the call went out. Every other death may have been the call's own doing [D20].
  #mayResend(): boolean {
    return (
      this.#request.method === 'GET' &&
      !this.#wasResent &&
      this.#connection.diedReusedAndSilent &&
      !this.#client.isClosed
    );
  }

  // The outcome is known before the answer has ended: what is left is read to a bound and dropped.
  #decide(outcome: Outcome): void {
    this.#dropBody();
    this.#state = 'discarding';
    this.#deadline.clear();
    this.#deadlines.discarding.start(this.#deadline);
    this.#handler.onOutcome(outcome);
  }

  #failTooLarge(): void {
    this.#fail('too-large', `an answer of more than ${this.#options.responseBytesMax} bytes`, this.#status);
  }

  #fail(kind: BackendFailure, cause: string, status?: number): void {
    const wasWaiting = this.#state === 'waiting';
    this.cancel();
    if (wasWaiting) {
      this.#handler.onOutcome({ kind, status, cause });
    }
  }

  #dropBody(): void {
    this.#options.budget.giveBack(this.#body.length);
    this.#body.drop();
  }

  #end(): void {
    this.#state = 'ended';
    this.#deadline.clear();
    this.#connectDeadline?.clear();
  }
}

function notJson(status: number, length: number): Outcome {
  return { kind: 'not-json', status, cause: length === 0 ? 'an empty body' : `a body that is not JSON` };
}

// eslint-disable-next-line no-control-regex -- these are what is looked for
const controlCharacter = /[\0-\x08\x0a-\x1f\x7f]/;

// White space may be behind a value (RFC 9112, 5.1). Spaces only: behind a tab undici's parser reads on to the end of
// the connection, or refuses the length.
const onlyChunked = /^chunked *$/i;

// A head that another parser on the way could have read differently [D18]; undici's own has refused the
// rest (two lengths, both framings, bytes that no header has).
function findFlaw(
  headers: Record<string, string | string[] | undefined>,
  reason: string,
  minorVersion: number,
): string | undefined {
  if (controlCharacter.test(reason)) {
    return 'an answer with a control character in its status line';
  }
  const transferEncoding = headers['transfer-encoding'];
  if (transferEncoding === undefined) {
    return undefined;
  }
  if (typeof transferEncoding !== 'string' || !onlyChunked.test(transferEncoding)) {
    return 'an answer with a transfer-encoding other than one "chunked"';
  }
  return minorVersion === 0 ? 'an HTTP/1.0 answer with a transfer-encoding' : undefined;
}
