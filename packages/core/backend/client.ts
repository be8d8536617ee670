// One call to the backend becomes one Outcome. Deadlines, the single resend and the limits of an answer are here [D15 to
// D23]; the bytes on the wire are http1/'s affair. What a client is told about an outcome is decided elsewhere.

import { AnswerBody } from '../body/body.ts';
import type { BufferBudget } from '../body/budget.ts';
import {
  ClientConnection,
  createOpenSocket,
  tapSockets,
  type ClientTls,
  type ExchangeOwner,
  type SocketTap,
} from '../http1/client-connection.ts';
import type { AnswerHead, Flaw } from '../http1/head.ts';
import { encodeFieldText, writeRequestHead } from '../http1/writer.ts';
import type { Reason } from '../reasons.ts';
import { Deadline, Deadlines, type DeadlineOwner } from './deadlines.ts';
import { describeError, isShortOfDescriptors, reasonOfError, type Peer } from './describe-error.ts';
import { ConnectionPool } from './pool.ts';
import { withoutEndSlashes } from '../text/addresses.ts';

/**
 * Why a call brought no usable answer. Goes to the log and the metrics, never to a client. `no-descriptor`: the backend
 * was not called, since we could not open a connection.
 */
type BackendFailure = 'refused' | 'unreachable' | 'timed-out' | 'not-json' | 'too-large' | 'no-descriptor';

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
  | {
      readonly kind: BackendFailure;
      readonly status: number | undefined;
      readonly reason: Reason;
      /** The same for people, with what is known beyond it. */
      readonly cause: string;
    };

export interface BackendRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Below the backend's base path, for instance `/api/WorkItem/7`. */
  readonly path: string;
  readonly body: Buffer | undefined;
  readonly requestId: string;
  /** Who calls, as far as a guard has found that out; sent where the backend wants to know it [D48]. */
  readonly identity?: string | undefined;
  /** As name, value, ...; with the request id all that is sent beyond our own headers [D23]. */
  readonly traceContext: readonly string[];
  /** The answer's body is needed and must be JSON; otherwise a well-formed head decides alone [D17]. */
  readonly needsAnswer: boolean;
}

interface BackendClientOptions {
  /** `http:` or `https:`, with or without a base path; no query, fragment or credentials. */
  readonly backendUrl: URL;
  /** For an `https:` address; it must have been found to be usable. Default: what Node trusts. */
  readonly tls?: ClientTls | undefined;
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly responseBytesMax: number;
  /** The name of the header that tells the backend who calls; default: none does [D48]. */
  readonly identityHeader?: string | undefined;
  /** What answers are counted against while they are held; `ok` hands its count on with its pieces. */
  readonly budget: BufferBudget;
  /** How its user names it in causes. Default: as an embedder of the gateway does. */
  readonly peer?: Peer | undefined;
  /** Looks on at what arrives; default: nobody does. */
  readonly tap?: SocketTap | undefined;
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

// A body that nobody needs is read to here, so that its connection can be used again; past it the connection is closed.
const discardBytesMax = 65_536;
const discardTimeoutMs = 1_000;

/** Sends calls to one backend over its own keep-alive connections, one call at a time on each. */
export class BackendClient {
  /** @internal */
  readonly options: BackendClientOptions;
  /** @internal */
  readonly pool: ConnectionPool;
  /** @internal */
  readonly deadlines: ExchangeDeadlines;
  /** @internal */
  readonly isTls: boolean;
  readonly #basePath: string;
  readonly #host: string;
  #tls: ClientTls;

  constructor(options: BackendClientOptions) {
    const { backendUrl, idleTimeoutMs } = options;
    this.options = options;
    this.isTls = backendUrl.protocol === 'https:';
    this.#basePath = withoutEndSlashes(backendUrl.pathname);
    this.#host = backendUrl.host;
    this.#tls = options.tls ?? {};
    const open = createOpenSocket(backendUrl, () => this.#tls);
    this.pool = new ConnectionPool(
      options.tap === undefined ? open : tapSockets(open, options.tap),
      idleTimeoutMs,
    );
    this.deadlines = {
      connecting: new Deadlines(options.connectTimeoutMs),
      answering: new Deadlines(options.timeoutMs),
      discarding: new Deadlines(discardTimeoutMs),
    };
  }

  /** Connections to the backend, open or being opened. */
  get connectionCount(): number {
    return this.pool.size;
  }

  /** New connections are opened with it, open ones live on [D37]. It must have been found to be usable. */
  renewTls(tls: ClientTls): void {
    this.#tls = tls;
  }

  /** Sends one call; after `close` it fails. */
  send(request: BackendRequest, handler: OutcomeHandler): Exchange {
    if (this.pool.isClosed) {
      return failClosed(handler);
    }
    const { method, path, body, requestId, traceContext, identity } = request;
    const { identityHeader } = this.options;
    const head = writeRequestHead(
      method,
      this.#basePath + path,
      this.#host,
      requestId,
      identityHeader === undefined || identity === undefined
        ? traceContext
        : [...traceContext, identityHeader, encodeFieldText(identity)],
      body?.length,
    );
    return new BackendExchange(this, head, request, handler);
  }

  /** Closes every connection. Calls under way fail, and have been told when the promise resolves; so do later ones. */
  async close(): Promise<void> {
    await this.pool.close();
  }

  /** Calls are sent again. To be called when `close` has resolved. */
  reopen(): void {
    this.pool.reopen();
  }
}

interface ExchangeDeadlines {
  readonly connecting: Deadlines;
  /** From sending to the last byte, also where nobody needs the rest any more [D19]. */
  readonly answering: Deadlines;
  readonly discarding: Deadlines;
}

/**
 * `waiting` for what decides the outcome, then `discarding` what is left of the answer, then `ended`; or from waiting
 * straight to the end.
 */
type ExchangeState = 'waiting' | 'discarding' | 'ended';

// One call. It has a connection until it has ended.
class BackendExchange implements Exchange, DeadlineOwner, ExchangeOwner {
  readonly #client: BackendClient;
  readonly #head: string;
  readonly #request: BackendRequest;
  readonly #handler: OutcomeHandler;
  #connection: ClientConnection;
  readonly #deadline = new Deadline(this);
  // Of connecting, or of discarding: never of both.
  #secondDeadline: Deadline | undefined;
  #wasResent = false;
  #state: ExchangeState = 'waiting';
  #status = 0;
  // The answer ends with its connection, and that end may be anybody's doing.
  #mayBeCut = false;
  readonly #body = new AnswerBody();
  // Bytes that came and are not kept.
  #discarded = 0;

  constructor(client: BackendClient, head: string, request: BackendRequest, handler: OutcomeHandler) {
    this.#client = client;
    this.#head = head;
    this.#request = request;
    this.#handler = handler;
    this.#connection = client.pool.acquire(false);
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
      this.#client.pool.discard(this.#connection);
    }
  }

  // A fault of our own must not be taken for one of the backend's, and not leave the call without an end [D28].
  onFault(error: unknown): void {
    this.#dropBody();
    this.#end();
    this.#client.pool.discard(this.#connection);
    this.#handler.onFault(error);
  }

  onDeadlinePassed(deadline: Deadline): void {
    const { timeoutMs, connectTimeoutMs } = this.#client.options;
    try {
      // Nobody is told when the outcome is known and only the rest of an answer did not come.
      if (deadline === this.#secondDeadline) {
        this.#fail('timed-out', 'connect-timeout', `no connection within ${connectTimeoutMs} ms`);
      } else {
        this.#fail('timed-out', 'answer-timeout', `no complete answer within ${timeoutMs} ms`);
      }
    } catch (error) {
      this.onFault(error);
    }
  }

  // Connecting has a limit of its own; from sending to the last byte there is one deadline, whether or not the call is
  // sent twice [D19].
  #dispatch(): void {
    if (this.#connection.isConnecting) {
      this.#secondDeadline = new Deadline(this);
      this.#client.deadlines.connecting.start(this.#secondDeadline);
    }
    this.#connection.send(this.#head, this.#request.body, this);
  }

  onSent(): void {
    this.#secondDeadline?.clear();
    if (!this.#deadline.isRunning) {
      this.#client.deadlines.answering.start(this.#deadline);
    }
  }

  onAnswerHead({ status, bodyLength }: AnswerHead): void {
    this.#status = status;
    this.#mayBeCut = bodyLength === 'until-close' && this.#client.isTls;
    if (status > 299) {
      this.#decide(
        { kind: 'refused', status, reason: 'status', cause: `status ${status}` },
        bodyLength !== 0,
      );
    } else if (!this.#request.needsAnswer) {
      this.#decide({ kind: 'ok', status, pieces: [], blocks: [], length: 0 }, bodyLength !== 0);
    } else if (typeof bodyLength === 'number' && bodyLength > this.#client.options.responseBytesMax) {
      this.#failTooLarge();
    }
  }

  onAnswerBody(piece: Buffer): void {
    const { responseBytesMax, budget } = this.#client.options;
    if (this.#state === 'discarding') {
      this.#discarded += piece.length;
      if (this.#discarded > discardBytesMax) {
        this.cancel();
      }
    } else if (this.#state === 'ended') {
      // Of an answer that was given up in the middle of the bytes that have just come.
    } else if (this.#body.length + piece.length > responseBytesMax) {
      this.#failTooLarge();
    } else if (!budget.take(piece.length)) {
      this.#fail('too-large', 'no-room', 'too many bytes of bodies held at once', this.#status);
    } else if (!this.#body.write(piece)) {
      // Nothing could make it JSON any more: nobody needs the rest.
      this.#discarded = this.#body.length;
      this.#decide(notJson(this.#status, this.#body.length), true);
    }
  }

  onAnswerEnd(isReusable: boolean): void {
    const wasWaiting = this.#state === 'waiting';
    this.#end();
    if (isReusable) {
      this.#client.pool.release(this.#connection);
    } else {
      this.#client.pool.discard(this.#connection);
    }
    if (!wasWaiting) {
      return;
    }
    const { length } = this.#body;
    if (!this.#body.isJson()) {
      this.#dropBody();
      this.#handler.onOutcome(notJson(this.#status, length));
    } else if (this.#mayBeCut && isDigit(this.#body.lastByte)) {
      this.#dropBody();
      this.#handler.onOutcome(unreachable('cut-number', cutNumber));
    } else {
      const { blocks } = this.#body;
      const pieces = this.#body.takePieces();
      this.#handler.onOutcome({ kind: 'ok', status: this.#status, pieces, blocks, length });
    }
  }

  onBroken(error: Error | Flaw): void {
    const wasWaiting = this.#state === 'waiting';
    this.#client.pool.discard(this.#connection);
    if (wasWaiting && error instanceof Error && this.#mayResend()) {
      this.#wasResent = true;
      this.#connection = this.#client.pool.acquire(true);
      this.#dispatch();
      return;
    }
    this.#dropBody();
    this.#end();
    if (wasWaiting) {
      this.#handler.onOutcome(
        error instanceof Error
          ? {
              kind: isShortOfDescriptors(error) ? 'no-descriptor' : 'unreachable',
              status: undefined,
              reason: reasonOfError(error),
              cause: describeError(error, this.#client.options.peer),
            }
          : unreachable('malformed', error.reason),
      );
    }
  }

  // A GET on a reused connection that died before one byte of the answer: most likely the backend closed an idle
  // connection as the call went out. Every other death may have been the call's own doing [D20]. What has not been sent
  // at all may be sent whatever it is.
  #mayResend(): boolean {
    const { hasDiedUnsent, isReusedAndSilent } = this.#connection;
    return (
      !this.#wasResent &&
      !this.#client.pool.isClosed &&
      (hasDiedUnsent || (this.#request.method === 'GET' && isReusedAndSilent))
    );
  }

  // The outcome is known before the answer has ended: what is left is read to a bound and dropped, within its deadline
  // and no longer than a second. Without a rest the end comes now.
  #decide(outcome: Outcome, hasRest: boolean): void {
    this.#dropBody();
    this.#state = 'discarding';
    if (hasRest) {
      this.#secondDeadline = new Deadline(this);
      this.#client.deadlines.discarding.start(this.#secondDeadline);
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
    if (wasWaiting) {
      this.#handler.onOutcome({ kind, status, reason, cause });
    }
  }

  #dropBody(): void {
    this.#client.options.budget.giveBack(this.#body.length);
    this.#body.drop();
  }

  #end(): void {
    this.#state = 'ended';
    this.#deadline.clear();
    this.#secondDeadline?.clear();
  }
}

// An end of a TCP connection can be made up by anybody on the way; TLS says its own end before it, but Node does not tell
// whether it has come. Any other JSON is whole when it is valid, a number could have had more digits [RFC 9112, 8; D18].
const cutNumber =
  'a number that ends with its TLS connection may have been cut off: the backend has to send a content-length or chunks';

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

// Nobody would close a connection that is opened after the end.
function failClosed(handler: OutcomeHandler): Exchange {
  const immediate = setImmediate(() => {
    handler.onOutcome(unreachable('client-closed', 'the connections to the backend have been closed'));
  });
  return {
    cancel: () => {
      clearImmediate(immediate);
    },
  };
}

function notJson(status: number, length: number): Outcome {
  return length === 0
    ? { kind: 'not-json', status, reason: 'empty-body', cause: 'an empty body' }
    : { kind: 'not-json', status, reason: 'not-json', cause: 'a body that is not JSON' };
}

function unreachable(reason: Reason, cause: string): Outcome {
  return { kind: 'unreachable', status: undefined, reason, cause };
}
