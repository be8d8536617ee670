// Makes calls to the backend. Each call ends in one `Outcome`. Enforces deadlines and the size limit of answers, and
// resends a call at most once [D15 to D23]. http1/ sends and parses the bytes; call/ decides the client's reply.

import { AnswerBody } from '../body/body.ts';
import type { BufferBudget } from '../body/budget.ts';
import { noBody, type BorrowedBytes } from '../http1/borrowed-bytes.ts';
import type { BackendConnection, ExchangeOwner, OpenSocket } from '../http1/backend-connection.ts';
import type { AnswerHead, Flaw } from '../http1/head.ts';
import { encodeFieldText, writeRequestHead } from '../http1/writer.ts';
import { shortTextOf, type Reason } from '../reasons.ts';
import { Deadline, Deadlines, type DeadlineOwner } from './deadlines.ts';
import { describeError, reasonOfError, type Peer } from './describe-error.ts';
import { ConnectionPool, type Caller } from './connection-pool.ts';
import { withoutEndSlashes } from '../text/addresses.ts';

/** The kinds of failures, for log and metrics only. `no-descriptor`: no file descriptor was free for the call. */
type BackendFailure = 'refused' | 'unreachable' | 'timed-out' | 'not-json' | 'too-large' | 'no-descriptor';

/**
 * The outcome of one call: an answer or a failure. `body` has the exact bytes of the answer's body; it is empty if the
 * request had `needsAnswer: false`. The receiver releases it. The kind `refused` is an answer with a status other than 200 to 299 [D15].
 */
export type Outcome =
  | { readonly kind: 'ok'; readonly status: number; readonly body: BorrowedBytes }
  | {
      readonly kind: BackendFailure;
      readonly status: number | undefined;
      readonly reason: Reason;
      /** The reason in words, with details. */
      readonly cause: string;
    };

export interface BackendRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** The path below the backend's base path, for instance `/api/WorkItem/7`. */
  readonly path: string;
  /** The JSON body; empty for a request without a body. Released when the call no longer needs it. */
  readonly body: BorrowedBytes;
  readonly requestId: string;
  /** The client's identity, if a guard has established it. Sent only if `identityHeader` is set [D48]. */
  readonly identity?: string | undefined;
  /** The trace context, and the conditions of a write [D67], as name, value, name, value [D23]. */
  readonly headers: readonly string[];
  /** True: the answer's body must be JSON and is kept. False: the answer's head alone decides the outcome [D17]. */
  readonly needsAnswer: boolean;
}

interface BackendClientOptions {
  /** `http:` or `https:`, with or without a base path; no query, fragment or credentials. */
  readonly backendUrl: URL;
  readonly open: OpenSocket;
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** 0: no limit [D68]. */
  readonly connectionAgeMaxMs: number;
  readonly responseBytesMax: number;
  /** Name of the header with the client's identity. Default: the identity is not sent [D48]. */
  readonly identityHeader?: string | undefined;
  readonly budget: BufferBudget;
  /** How error messages name the backend and what they advise. Default: words for a program that embeds the gateway. */
  readonly peer?: Peer | undefined;
}

export interface OutcomeHandler {
  /** Called once, after `send` has returned. Not called after `cancel` or `onFault`. Must not throw. */
  onOutcome(outcome: Outcome): void;
  /** Called for an exception in the gateway, instead of `onOutcome` or after it. The call has been cancelled. */
  onFault(error: unknown): void;
}

export interface Exchange {
  /** Ends the call and closes its connection immediately. No outcome follows. Safe at any time. */
  cancel(): void;
}

// If the rest of an answer is not needed, it is read and dropped, so that the connection can be reused. If the rest
// exceeds `discardBytesMax` or `discardTimeoutMs`, the connection is closed instead.
const discardBytesMax = 65_536;
const discardTimeoutMs = 1_000;

/** Makes calls to one backend over its own keep-alive connections, one call at a time on each. */
export class BackendClient {
  // The public fields are for `BackendExchange`.
  readonly options: BackendClientOptions;
  readonly pool: ConnectionPool;
  readonly connecting: Deadlines;
  // From sending the request to the last byte of the answer, needed or not [D19].
  readonly answering: Deadlines;
  readonly discarding = new Deadlines(discardTimeoutMs);
  readonly isTls: boolean;
  readonly #basePath: string;
  readonly #host: string;

  constructor(options: BackendClientOptions) {
    const { backendUrl } = options;
    this.options = options;
    this.isTls = backendUrl.protocol === 'https:';
    this.#basePath = withoutEndSlashes(backendUrl.pathname);
    this.#host = backendUrl.host;
    this.connecting = new Deadlines(options.connectTimeoutMs);
    this.answering = new Deadlines(options.timeoutMs);
    this.pool = new ConnectionPool(options, this.connecting);
  }

  get connectionCount(): number {
    return this.pool.size;
  }

  /** Uses new connections for later calls. Calls in flight continue [D68]. */
  renewConnections(): void {
    this.pool.renew();
  }

  /** Makes one call. After `close` every call fails. */
  send(request: BackendRequest, handler: OutcomeHandler): Exchange {
    const { method, path, body, requestId, headers, identity } = request;
    const { identityHeader } = this.options;
    const head = writeRequestHead(
      method,
      this.#basePath + path,
      this.#host,
      requestId,
      identityHeader === undefined || identity === undefined
        ? headers
        : [...headers, identityHeader, encodeFieldText(identity)],
      body.length === 0 ? undefined : body.length,
    );
    return new BackendExchange(this, head, request, handler);
  }

  /** Closes every connection. Calls in flight fail before the promise resolves; later calls fail too. */
  close(): Promise<void> {
    return this.pool.close();
  }

  /** Allows calls again. `close` must have resolved. */
  reopen(): void {
    this.pool.reopen();
  }
}

/** `discarding`: the outcome is decided, and the rest of the answer is read and dropped. Many calls skip this state. */
type ExchangeState = 'waiting' | 'discarding' | 'ended';

// One call. It uses one connection at a time.
class BackendExchange implements Exchange, DeadlineOwner, ExchangeOwner, Caller {
  readonly isWrite: boolean;
  /** True if the call is sent once more. */
  needsNew = false;
  readonly #client: BackendClient;
  readonly #head: string;
  readonly #request: BackendRequest;
  readonly #handler: OutcomeHandler;
  // Undefined while the call waits for a connection, and after its connection has been released.
  #connection: BackendConnection | undefined;
  readonly #deadline = new Deadline(this);
  // The deadline for connecting, later the deadline for discarding.
  #secondDeadline: Deadline | undefined;
  #state: ExchangeState = 'waiting';
  #status = 0;
  // True if only the close of the connection marks the end of the answer, and Node may report a broken connection as
  // normally closed. Then bytes may be missing.
  #mayBeCut = false;
  readonly #body: AnswerBody;
  #discarded = 0;

  constructor(client: BackendClient, head: string, request: BackendRequest, handler: OutcomeHandler) {
    this.#client = client;
    this.#head = head;
    this.#request = request;
    this.#handler = handler;
    this.#body = new AnswerBody(client.options.budget);
    this.isWrite = request.method !== 'GET';
    try {
      this.#dispatch();
    } catch (error) {
      this.cancel();
      throw error;
    }
  }

  cancel(): void {
    if (this.#state !== 'ended') {
      this.#body.drop();
      this.#end();
      this.#leave();
    }
  }

  // Called for a bug in the gateway. The backend is not at fault, and the call must still end [D28].
  onFault(error: unknown): void {
    this.#body.drop();
    this.#end();
    this.#leave();
    this.#handler.onFault(error);
  }

  onDeadlinePassed(deadline: Deadline): void {
    const { timeoutMs, connectTimeoutMs, peer } = this.#client.options;
    try {
      // If the outcome is already decided and only the rest of the answer is late, `#fail` reports nothing.
      if (deadline === this.#secondDeadline) {
        const causes = this.#client.pool.troubles.map((error) => describeError(error, peer));
        this.#fail(
          'timed-out',
          'connect-timeout',
          [`no connection within ${connectTimeoutMs} ms`, ...causes].join('; '),
        );
      } else {
        this.#fail('timed-out', 'answer-timeout', `no complete answer within ${timeoutMs} ms`);
      }
    } catch (error) {
      this.onFault(error);
    }
  }

  // `#secondDeadline` limits the wait for a connection. `#deadline` runs from the first send, not a resend, to the last
  // byte [D19].
  #dispatch(): void {
    const { pool, connecting } = this.#client;
    const idle = pool.takeIdle(this);
    if (idle !== undefined) {
      this.onConnection(idle);
    } else {
      this.#secondDeadline = new Deadline(this);
      connecting.start(this.#secondDeadline);
      pool.wait(this);
    }
  }

  onConnection(connection: BackendConnection): void {
    this.#secondDeadline?.clear();
    this.#connection = connection;
    connection.send(this.#head, this.#request.body, this);
  }

  onSent(): void {
    if (!this.#deadline.isRunning) this.#client.answering.start(this.#deadline);
  }

  onAnswerHead({ status, bodyLength }: AnswerHead): void {
    this.#status = status;
    this.#mayBeCut = bodyLength === 'until-close' && (this.#client.isTls || resetLooksLikeEnd);
    if (status > 299) {
      this.#decide({ kind: 'refused', status, reason: 'status', cause: `status ${status}` }, bodyLength !== 0);
    } else if (!this.#request.needsAnswer) {
      this.#decide({ kind: 'ok', status, body: noBody }, bodyLength !== 0);
    } else if (typeof bodyLength === 'number' && bodyLength > this.#client.options.responseBytesMax) {
      this.#failTooLarge();
    } else if (typeof bodyLength === 'number') {
      this.#body.announcedLength = bodyLength;
    }
  }

  onAnswerBody(piece: Buffer): void {
    const { responseBytesMax } = this.#client.options;
    if (this.#state === 'discarding') {
      this.#discarded += piece.length;
      if (this.#discarded > discardBytesMax) this.cancel();
    } else if (this.#state === 'ended') {
      // An earlier piece of the same read has ended the call, so this piece is ignored.
    } else if (this.#body.length + piece.length > responseBytesMax) {
      this.#failTooLarge();
    } else if (!this.#body.reserve(piece)) {
      this.#fail('too-large', 'no-room', 'the limit of buffered bytes is reached', this.#status);
    } else if (!this.#body.write(piece)) {
      // These bytes cannot begin a JSON text, so the rest is not needed.
      this.#discarded = this.#body.length;
      this.#decide(notJson(this.#status, this.#body), true);
    }
  }

  onAnswerEnd(isReusable: boolean): void {
    const wasWaiting = this.#state === 'waiting';
    const connection = this.#connection;
    this.#end();
    // From now on the connection may serve another call.
    this.#connection = undefined;
    if (connection !== undefined) this.#client.pool.release(connection, isReusable);
    if (!wasWaiting) return;
    if (!this.#body.isJson()) {
      const outcome = notJson(this.#status, this.#body);
      this.#body.drop();
      this.#handler.onOutcome(outcome);
    } else if (this.#mayBeCut && isDigit(this.#body.lastByte)) {
      this.#body.drop();
      this.#handler.onOutcome(unreachable('cut-number', cutNumber));
    } else {
      this.#handler.onOutcome({ kind: 'ok', status: this.#status, body: this.#body.lend() });
    }
  }

  onBroken(error: Error | Flaw): void {
    const wasWaiting = this.#state === 'waiting';
    const connection = this.#connection;
    if (connection?.isReusedAndSilent === true && !connection.hasDiedUnsent) this.#client.pool.recordDeath();
    this.#leave();
    if (wasWaiting && error instanceof Error && this.#mayResend()) {
      this.needsNew = true;
      this.#connection = undefined;
      this.#dispatch();
      return;
    }
    this.#body.drop();
    this.#end();
    if (!wasWaiting) return;
    if (error instanceof Error) {
      const reason = reasonOfError(error);
      const kind = reason === 'no-descriptor' ? reason : 'unreachable';
      const cause = describeError(error, this.#client.options.peer);
      this.#handler.onOutcome({ kind, status: undefined, reason, cause });
    } else {
      this.#handler.onOutcome(unreachable('malformed', error.reason));
    }
  }

  // A call may be resent if no byte of it was sent. A GET may also be resent if its reused connection closed before the
  // first byte of the answer. Then the backend most likely closed the idle connection just when the call was sent. In
  // all other cases the call itself may have caused the failure [D20].
  #mayResend(): boolean {
    const { hasDiedUnsent, isReusedAndSilent } = this.#connection ?? {};
    return (
      !this.needsNew &&
      !this.#client.pool.isClosed &&
      (hasDiedUnsent === true || (!this.isWrite && isReusedAndSilent === true))
    );
  }

  // Reports an outcome that is known before the answer has ended. The rest of the answer is read and dropped, up to a size
  // limit, for at most a second and within the call's deadline. If there is no rest, `onAnswerEnd` follows immediately.
  #decide(outcome: Outcome, hasRest: boolean): void {
    this.#body.drop();
    this.#state = 'discarding';
    if (hasRest) {
      this.#secondDeadline = new Deadline(this);
      this.#client.discarding.start(this.#secondDeadline);
    }
    this.#handler.onOutcome(outcome);
  }

  #failTooLarge(): void {
    const { responseBytesMax } = this.#client.options;
    this.#fail('too-large', 'too-large', `an answer of more than ${responseBytesMax} bytes`, this.#status);
  }

  #fail(kind: BackendFailure, reason: Reason, cause: string, status?: number): void {
    const wasWaiting = this.#state === 'waiting';
    this.cancel();
    if (wasWaiting) this.#handler.onOutcome({ kind, status, reason, cause });
  }

  // Closes the connection, or stops waiting for one.
  #leave(): void {
    if (this.#connection === undefined) this.#client.pool.leave(this);
    else this.#client.pool.discard(this.#connection);
  }

  #end(): void {
    this.#state = 'ended';
    this.#request.body.release();
    this.#deadline.clear();
    this.#secondDeadline?.clear();
  }
}

// An attacker on the network can forge the end of a TCP connection. TLS can detect this, but Node does not report it.
// So if an answer ends in a digit, more digits may be missing. All other valid JSON is complete [RFC 9112, 8; D18].
const cutNumber =
  'a number that may lack its last digits, because the answer has no length: the backend must send a content-length or chunks';

// Before version 1.52, libuv can report the reset of a connection as its normal end (libuv pull request 4997). Node 22
// has such a version. Runtimes such as Deno may report no version of libuv; the result is then false.
const [uvMajor = 0, uvMinor = 0] = ((process.versions.uv as string | undefined) ?? '').split('.').map(Number);
const resetLooksLikeEnd = uvMajor === 1 && uvMinor < 52;

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

function notJson(status: number, { length, isPage }: AnswerBody): Outcome {
  const reason = length === 0 ? 'empty-body' : isPage ? 'page' : 'not-json';
  return { kind: 'not-json', status, reason, cause: `status ${status} with ${shortTextOf(reason, reason)}` };
}

function unreachable(reason: Reason, cause: string): Outcome {
  return { kind: 'unreachable', status: undefined, reason, cause };
}
