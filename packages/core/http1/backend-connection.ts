// One keep-alive connection to a server. It carries one exchange at a time: a request and its answer. The owner of the
// exchange receives its events, and decides on deadlines and resending.

import type { Socket } from 'node:net';

import { holdClock, releaseClock } from '../time/monotonic.ts';
import type { AnswerHead, Flaw } from './head.ts';
import { readBeforeWriteErrors } from './node-internals.ts';
import { AnswerReader } from './answer-reader.ts';
import { noBody, type BorrowedBytes } from './borrowed-bytes.ts';

/** Receives the events of an exchange. `onFault` receives the exceptions of the other methods. */
export interface ExchangeOwner {
  onSent(): void;
  onAnswerHead(head: AnswerHead): void;
  /** The next bytes of the answer's body. Their memory is overwritten after this call. */
  onAnswerBody(piece: Buffer): void;
  /** The answer is complete. `isReusable` is true if the connection can carry another exchange. */
  onAnswerEnd(isReusable: boolean): void;
  /** The answer is missing, malformed or incomplete. The connection is closed. */
  onBroken(error: Error | Flaw): void;
  onFault(error: unknown): void;
}

// `looking`: a request waits until all input that has already arrived is handled.
type State = 'idle' | 'looking' | 'busy' | 'closed';

// Limits of an answer's head, and of its trailers, in bytes: of the whole, and of each field that the gateway reads. The
// other fields are not kept.
const headBytesMax = 1_048_576;
const fieldBytesMax = 16_384;

// Connections that send a request in the event loop's next check phase. One callback sends all of these requests.
let looking: BackendConnection[] = [];

function sendAll(): void {
  const connections = looking;
  looking = [];
  for (const connection of connections) {
    connection.sendWaiting();
  }
}

export class BackendConnection {
  /** When the idle connection expires, on the clock of `monotonicMs`. */
  expiresAt = 0;
  /** No call may start on the connection after this time, on the same clock. */
  usableUntil = Infinity;
  /** Seconds for which the server keeps an idle connection; undefined if the server announces none. */
  keepAliveSeconds: number | undefined;
  /** True if the connection closed before the request was sent. */
  hasDiedUnsent = false;
  #state: State = 'idle';
  #owner: ExchangeOwner | undefined = undefined;
  readonly #socket: Socket;
  readonly #reader: AnswerReader;
  readonly #onClose: () => void;
  #persists = true;
  #isReused = false;
  #isSilent = true;
  #error: Error | undefined;
  // True if an answer ended before its request was fully sent. The connection then waits for one event-loop iteration.
  #hasWaited = false;
  #waitingHead = '';
  #waitingBody = noBody;

  /**
   * Uses an open socket. Calls `onClose` when the socket has closed, for any reason. `breakOff` also calls `onClose` if
   * there is no exchange.
   */
  constructor(socket: Socket, onClose: () => void) {
    this.#socket = socket;
    this.#onClose = onClose;
    this.#reader = new AnswerReader(
      {
        onHead: (head) => {
          this.#persists = head.persists;
          this.keepAliveSeconds = head.keepAliveSeconds;
          this.#owner?.onAnswerHead(head);
        },
        onBody: (piece) => this.#owner?.onAnswerBody(piece),
        onEnd: () => undefined,
      },
      headBytesMax,
      fieldBytesMax,
    );
    readBeforeWriteErrors(socket);
    socket
      .on('end', () => this.#onEnd())
      .on('error', (error) => {
        this.#error = error;
      })
      .on('close', () => this.#onSocketClose());
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** True if the connection has been idle, and no byte has arrived since. */
  get isReusedAndSilent(): boolean {
    return this.#isReused && this.#isSilent;
  }

  /**
   * Sends a request. A connection that has been idle first handles the input that has already arrived: the end of the
   * connection, or stray bytes that could be mistaken for the answer. Call `send` only when no exchange is in progress.
   */
  send(head: string, body: BorrowedBytes, owner: ExchangeOwner): void {
    this.#owner = owner;
    this.#waitingHead = head;
    this.#waitingBody = body;
    this.#state = 'looking';
    if (!this.#isReused) {
      this.sendWaiting();
      return;
    }
    this.#socket.ref();
    if (looking.push(this) === 1) setImmediate(sendAll);
  }

  /** For `sendAll`. */
  sendWaiting(): void {
    // A destroyed socket emits `close` later. Then the owner is notified that nothing was sent.
    const owner = this.#owner;
    if (owner !== undefined && !this.#socket.destroyed) {
      const body = this.#waitingBody;
      this.#waitingBody = noBody;
      try {
        this.#write(owner, this.#waitingHead, body);
      } catch (error) {
        this.#fail(owner, error);
      }
    }
  }

  /** Makes the connection idle. An idle connection does not keep the process alive. */
  rest(): void {
    this.#state = 'idle';
    this.#isReused = true;
    this.#isSilent = true;
    this.#socket.unref();
  }

  /** Closes the connection at once, in any state. The owner is not notified. */
  destroy(): void {
    this.#owner = undefined;
    this.#state = 'closed';
    this.#socket.destroy();
  }

  /** Closes the connection. Then notifies the owner of an exchange, if there is one, and then calls `onClosed`. */
  breakOff(onClosed?: () => void): void {
    if (onClosed !== undefined) this.#socket.once('close', onClosed);
    this.hasDiedUnsent = this.#state === 'looking';
    this.#state = 'closed';
    this.#socket.destroy();
    if (this.#owner === undefined) {
      // Called at once, because otherwise the pool could use this connection again before the socket closes.
      this.#onClose();
    }
  }

  #write(owner: ExchangeOwner, head: string, body: BorrowedBytes): void {
    this.#state = 'busy';
    owner.onSent();
    body.writeTo(this.#socket, head);
  }

  /** Reads bytes that have arrived. Their memory is overwritten after this call. */
  onBytes(bytes: Buffer): void {
    const owner = this.#owner;
    if (owner === undefined || this.#state !== 'busy') {
      // These bytes are stray: every request that was sent already has its answer.
      this.breakOff();
      return;
    }
    this.#isSilent = false;
    holdClock();
    try {
      const position = this.#reader.read(bytes, 0);
      this.#settle(owner, position === bytes.length);
    } catch (error) {
      this.#fail(owner, error);
    } finally {
      releaseClock();
    }
  }

  #onEnd(): void {
    const owner = this.#owner;
    if (owner !== undefined && this.#reader.end()) {
      this.#finish(owner, false);
    } else {
      // Closed at once. Otherwise the socket stays open until the whole request is sent, perhaps forever.
      this.breakOff();
    }
  }

  // Acts on the bytes just read. The owner may have closed the connection in the meantime.
  #settle(owner: ExchangeOwner, isAllTaken: boolean): void {
    if (this.#owner !== owner) return;
    const { flaw, isDone } = this.#reader;
    if (flaw !== undefined) {
      this.#breakOff(owner, flaw);
    } else if (isDone) {
      // The connection is not reused if bytes follow the answer, if a write has failed, or if the request is still being sent.
      const isLast = !this.#persists || !isAllTaken || this.#socket.errored !== null;
      const isGoingOut = this.#socket.writableLength > 0;
      if (isGoingOut && !isLast && !this.#hasWaited) {
        // With TLS, Node reports the end of sending only in the next iteration of the event loop.
        this.#hasWaited = true;
        setImmediate(() => this.#settle(owner, true));
      } else {
        this.#finish(owner, !isGoingOut && !isLast);
      }
    }
  }

  #finish(owner: ExchangeOwner, isReusable: boolean): void {
    if (isReusable) {
      this.#owner = undefined;
      this.#hasWaited = false;
      this.rest();
      this.#reader.next();
    } else {
      this.destroy();
    }
    try {
      owner.onAnswerEnd(isReusable);
    } catch (error) {
      owner.onFault(error);
    }
  }

  #breakOff(owner: ExchangeOwner, error: Error | Flaw): void {
    this.destroy();
    try {
      owner.onBroken(error);
    } catch (fault) {
      owner.onFault(fault);
    }
  }

  #fail(owner: ExchangeOwner, error: unknown): void {
    this.destroy();
    owner.onFault(error);
  }

  #onSocketClose(): void {
    const owner = this.#owner;
    this.hasDiedUnsent ||= this.#state === 'looking';
    this.#owner = undefined;
    this.#state = 'closed';
    this.#onClose();
    if (owner !== undefined && this.#reader.isDone) {
      this.#finish(owner, false);
    } else if (owner !== undefined) {
      const error = new Error('the connection was closed before the answer was complete');
      this.#breakOff(owner, this.#error ?? Object.assign(error, { code: 'ERR_STREAM_PREMATURE_CLOSE' }));
    }
  }
}

/** Receives the events of a dial: `onOpen` or `onFailed`, and after `onOpen` the bytes that arrive. */
export interface DialOwner {
  /** The socket is connected, over TLS if the address demands it. */
  onOpen(socket: Socket): void;
  onFailed(error: Error): void;
  /** The memory of `bytes` is overwritten after this call. */
  onBytes(bytes: Buffer): void;
}

/** An attempt to open a socket. It has no time limit of its own. */
export interface Dial {
  /** Number of sockets that are being opened. */
  readonly socketCount: number;
  /** The failures so far, and the step that has not ended. */
  readonly troubles: readonly Error[];
  /** Closes all sockets that are being opened. No event follows. */
  close(): void;
}

/**
 * Starts a dial. `owner` is called after this function has returned, and closes the dial after `timeoutMs`. No lookup is
 * used that began before `lookupFrom`, on the clock of `monotonicMs` [D68].
 */
export type OpenSocket = (owner: DialOwner, timeoutMs?: number, lookupFrom?: number) => Dial;
