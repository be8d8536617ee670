// Implements `Transport` for one HTTP/2 stream: a request and its reply [D39]. http2.ts handles the connection.

import { constants, type ServerHttp2Stream } from 'node:http2';

import type { BufferBudget } from '../../body/budget.ts';
import type { BorrowedBytes } from '../../http1/borrowed-bytes.ts';
import { monotonicMs } from '../../time/monotonic.ts';
import type { ServerLimits } from '../../http1/connection.ts';
import type { StallWatch } from '../clients/stall-watch.ts';
import type { Requester, RequestReceiver, Reply, RequestHandler, Transport } from '../../http1/transport.ts';
import { listReplyHeaders } from '../common/fields.ts';
import { readHead } from './http2-head.ts';

export interface Http2Context extends ServerLimits {
  readonly handler: RequestHandler & { readonly budget: BufferBudget };
  /** Gets undefined if the unsent bytes belong to no reply. */
  readonly stallWatch: StallWatch<Http2Exchange | undefined>;
}

export interface ExchangeOwner extends Requester {
  /** Tells the client to send no more requests on this connection. */
  announceEnd(): void;
  /**
   * Called when an exchange starts to read its body. From then on, the body's buffered bytes do not count against the
   * connection's limit.
   */
  onRoom(): void;
  onClosed(exchange: Http2Exchange): void;
  /** Closes the connection, because node:http2 does not close a stream. */
  destroy(): void;
}

// A reply is written in slices of `sliceBytes`. At most `slicesAhead` slices are unread. A slice's callback shows that
// the client has read the slice.
const sliceBytes = 16_384;
const slicesAhead = 2;
// Time for the client to read the first slice. A client that needs longer keeps its flow-control window closed [D39].
const unreadMs = 5_000;
/** Time for node:http2 to close a stream or a session that has ended. */
export const closeMs = 1_000;

type State = 'held' | 'body' | 'answering' | 'unread' | 'sending' | 'dropping' | 'done' | 'reset' | 'closed';

interface Row {
  readonly next: readonly State[];
  /** Longest time in this state, in ms. `#onLate` ends the state. */
  readonly limitMs: (limits: ServerLimits) => number;
}

/**
 * A request starts in `body`, or in `answering` if it has no body.
 *
 * - `held`: the body is not read yet: a guard decides. Meanwhile the request's time limit stands still.
 * - `body`: receiving the body. The time starts with the request.
 * - `answering`: waiting for the reply. The request is complete, or has timed out.
 * - `unread`: the reply has been passed to Node. The client has read nothing of it.
 * - `sending`: the client is reading the reply. The time starts with each slice that it reads.
 * - `dropping`: the OS has the reply. The rest of the body is read and dropped. The time starts with the request.
 * - `done`: request and reply are complete.
 * - `reset`: the gateway or the client has reset the stream, or Node has closed it.
 * - `closed`: Node has emitted 'close'.
 */
export const exchangeStates: Readonly<Record<State, Row>> = {
  held: { next: ['body', 'answering', 'unread', 'dropping', 'reset', 'closed'], limitMs: () => Infinity },
  body: {
    next: ['held', 'answering', 'unread', 'dropping', 'reset', 'closed'],
    limitMs: ({ requestTimeoutMs }) => requestTimeoutMs,
  },
  // The handler has time limits.
  answering: { next: ['unread', 'dropping', 'done', 'reset', 'closed'], limitMs: () => Infinity },
  unread: {
    next: ['sending', 'dropping', 'done', 'reset', 'closed'],
    limitMs: ({ replyStallTimeoutMs }) => Math.min(replyStallTimeoutMs, unreadMs),
  },
  sending: { next: ['dropping', 'done', 'reset', 'closed'], limitMs: ({ replyStallTimeoutMs }) => replyStallTimeoutMs },
  dropping: { next: ['done', 'reset', 'closed'], limitMs: ({ requestTimeoutMs }) => requestTimeoutMs },
  done: { next: ['reset', 'closed'], limitMs: () => closeMs },
  reset: { next: ['closed'], limitMs: () => closeMs },
  closed: { next: [], limitMs: () => Infinity },
};

export class Http2Exchange implements Transport {
  readonly #stream: ServerHttp2Stream;
  /** The memory that is counted for the head while the stream is open, in bytes. */
  readonly headBytes: number;
  readonly #owner: ExchangeOwner;
  readonly #context: Http2Context;
  // The start of the request's time limit. In `held`: the negative time used so far.
  #beganAt = monotonicMs();
  #state: State;
  // The start of the state's time limit. If undefined, `checkTime` sets it.
  #since: number | undefined = this.#beganAt;
  // Undefined for a malformed request, and after the handler has replied to a client that had left.
  #incoming: RequestReceiver | undefined;
  #expectsContinue = false;
  // The number of body bytes that may still arrive. If it is negative, the stream is reset after the reply, so that the
  // client stops sending the body.
  #bodyLeft: number;
  // `#body`: the reply's body; undefined when the client has read it. `#at`: the position of the next slice.
  #body: BorrowedBytes | undefined;
  #at = 0;

  constructor(stream: ServerHttp2Stream, headBytes: number, owner: ExchangeOwner, context: Http2Context) {
    this.#stream = stream;
    this.headBytes = headBytes;
    this.#state = this.#isWhole ? 'answering' : 'body';
    this.#owner = owner;
    this.#context = context;
    this.#bodyLeft = context.requestBytesMax;
    // Ignores the error, because the 'close' listener handles the failure.
    stream.on('error', () => undefined);
    this.#listen('close', this.#onClose);
  }

  /** @internal A method, so that a test can compare each change with `exchangeStates`. */
  enter(state: State, since?: number): void {
    if (state === 'held') this.#beganAt -= monotonicMs();
    else if (this.#state === 'held') this.#beganAt += monotonicMs();
    this.#state = state;
    this.#since = state === 'body' || state === 'dropping' ? this.#beganAt : since;
  }

  #listen(event: 'data' | 'end' | 'close', act: (piece: Buffer) => void): void {
    this.#stream.on(event, (piece: Buffer) => {
      try {
        act.call(this, piece);
      } catch (error) {
        this.#fail(error);
      }
    });
  }

  get isTaking(): boolean {
    return this.#state === 'unread' || this.#state === 'sending';
  }

  /** The number of body bytes that are buffered while a guard decides [D58]. */
  get keptBytes(): number {
    return this.#state === 'held' ? this.#stream.readableLength : 0;
  }

  get #isWhole(): boolean {
    return this.#stream.endAfterHeaders || this.#stream.readableEnded;
  }

  // True as soon as the client has reset the stream; Node emits 'close' later.
  get #isReset(): boolean {
    return this.#stream.closed || this.#stream.destroyed;
  }

  get stream(): number {
    return this.#stream.id ?? 0;
  }

  /** Begins the call. `fields`: name, value, name, value. They are not stored, because they can be large [D39]. */
  begin(fields: readonly string[]): void {
    try {
      const { handler, requestHeadBytesMax } = this.#context;
      const head = readHead(fields, this.#isWhole, requestHeadBytesMax);
      if ('reason' in head) {
        this.#send(handler.refuse(head, this.#owner));
        return;
      }
      this.#expectsContinue = head.expectation === 'continue';
      if (this.#expectsContinue) this.holdBody();
      this.#incoming = handler.accept(head, this, this.#owner);
      this.#incoming.start();
      if (this.#state === 'body') this.#read();
    } catch (error) {
      this.#fail(error);
    }
  }

  /**
   * Applies the time limits at time `now` [D35]. `isQueued`: the socket has unsent bytes. `isLast`: the connection serves
   * no further request.
   */
  checkTime(now: number, isQueued: boolean, isLast: boolean): void {
    try {
      if (this.#isReset && this.#state !== 'reset') {
        this.enter('reset');
        // Node closes the stream only when all its data has been read.
        this.#read();
      }
      const isOfBody = this.#state === 'held' || this.#state === 'body' || this.#state === 'dropping';
      if (isQueued && !isOfBody) {
        // The whole connection may be slow. http2.ts watches the socket.
        if (!this.isTaking) this.#since = undefined;
        return;
      }
      this.#since ??= now;
      const isOver = isLast && this.#state === 'dropping';
      if (isOver || now - this.#since >= exchangeStates[this.#state].limitMs(this.#context)) this.#onLate();
    } catch (error) {
      this.#fail(error);
    }
  }

  #onLate(): void {
    switch (this.#state) {
      case 'body':
        this.enter('answering');
        this.#incoming?.onBroken('timeout');
        break;
      case 'unread':
      case 'sending':
        this.reportStall();
        this.#reset(constants.NGHTTP2_CANCEL);
        break;
      case 'dropping':
      case 'done':
        this.#reset(constants.NGHTTP2_NO_ERROR);
        break;
      case 'reset':
        this.#owner.destroy();
        break;
      case 'held':
      case 'answering':
      case 'closed':
      // No limit.
    }
  }

  reportStall(): void {
    if (this.isTaking) this.#incoming?.onStall();
  }

  holdBody(): void {
    if (this.#state === 'body') this.enter('held');
  }

  readBody(): void {
    if (this.#state === 'held') {
      this.enter('body');
      if (this.#expectsContinue && !this.#isReset) this.#stream.additionalHeaders({ ':status': 100 });
    }
    this.#read();
  }

  // Calls no listener itself: Node emits the body's events only after `#read` and its caller have returned.
  #read(): void {
    if (this.#isWhole || this.#stream.readableFlowing !== null) return;
    this.#listen('data', this.#onData);
    this.#listen('end', this.#onEnd);
    this.#owner.onRoom();
  }

  #onData(piece: Buffer): void {
    this.#bodyLeft -= piece.length;
    if (this.#state === 'body') this.#incoming?.onBody(piece);
    else if (this.#state === 'dropping' && this.#bodyLeft < 0) this.#reset(constants.NGHTTP2_NO_ERROR);
  }

  #onEnd(): void {
    // Node also emits 'end' after a reset without an error. A body that was cut off must not count as complete.
    if (this.#stream.closed) return;
    if (this.#state === 'body') {
      this.enter('answering');
      this.#incoming?.onBodyEnd();
    } else if (this.#state === 'dropping') {
      this.enter('done');
    }
  }

  reply(reply: Reply): void {
    this.#send(reply);
    // `reply.closes` does not close the connection, because a faulty request ends only its own stream.
    if (reply.drains) this.#owner.announceEnd();
  }

  #send(reply: Reply): void {
    if (this.#state !== 'reset' && !exchangeStates[this.#state].next.includes('unread')) {
      throw new Error('the request has been answered, or its client has left');
    }
    if (this.#isReset) {
      this.#incoming = undefined;
      reply.body.release();
      // Reads the body: after a reset without an error, Node closes the stream only when all its data has been read.
      this.#read();
      return;
    }
    // node:http2 has already ended the writable side of a HEAD request.
    const hasBody = reply.body.length > 0 && !this.#stream.writableEnded;
    // Without `date`, because Node adds it.
    const fields = [':status', String(reply.head.status), ...listReplyHeaders(reply)];
    this.#stream.respond(fields, { endStream: !hasBody });
    if (reply.closes || (this.#expectsContinue && this.#state === 'held')) this.#bodyLeft = -1;
    if (hasBody) {
      this.enter('unread', monotonicMs());
      this.#body = reply.body;
      for (let slices = 0; slices < slicesAhead; slices += 1) {
        this.#writeNext();
      }
    } else {
      this.#endReply();
      reply.body.release();
    }
    if (!this.#stream.closed) this.#read();
  }

  #writeNext(): void {
    const body = this.#body;
    if (body === undefined || this.#at === body.length) return;
    const isLast = this.#at + sliceBytes >= body.length;
    this.#at = body.writePartTo(this.#stream, this.#at, sliceBytes, isLast ? this.#onLastTaken : this.#onSliceTaken);
  }

  readonly #onSliceTaken = (error?: Error | null): void => {
    if (!this.isTaking || (error !== undefined && error !== null)) return;
    if (this.#state === 'unread') this.enter('sending');
    this.#since = monotonicMs();
    this.#writeNext();
  };

  readonly #onLastTaken = (): void => {
    // After a reset, node:http2 may still use the reply's bytes. In this case `#onClose` releases them, one turn later.
    if (this.#stream.destroyed) return;
    this.#body?.release();
    this.#body = undefined;
    if (this.isTaking) this.#endReply();
  };

  // Resets the stream only after the whole reply, because an earlier reset would cut the reply off [RFC 9113, 8.1].
  #endReply(): void {
    if (this.#isWhole) this.enter('done');
    else if (this.#bodyLeft < 0) this.#reset(constants.NGHTTP2_NO_ERROR);
    else this.enter('dropping');
  }

  /** Resets the stream as malformed. */
  refuse(): void {
    this.#reset(constants.NGHTTP2_PROTOCOL_ERROR);
  }

  cut(): void {
    this.#reset(constants.NGHTTP2_INTERNAL_ERROR);
  }

  #reset(code: number): void {
    if (this.#isReset) return;
    this.#stream.close(code);
    this.enter('reset');
  }

  #onClose(): void {
    this.#owner.onClosed(this);
    this.enter('closed');
    if (!this.#stream.headersSent) this.#incoming?.onGone();
    const body = this.#body;
    this.#body = undefined;
    // In the next turn of the event loop, node:http2 no longer uses the reply's bytes.
    if (body !== undefined) setImmediate(() => body.release());
  }

  // A fault ends only this stream [D28].
  #fail(error: unknown): void {
    this.cut();
    this.#context.handler.onFault(error);
  }
}
