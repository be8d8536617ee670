// One request of HTTP/2 and its reply: a stream, made to look like any other carrier of a call [D39]. What is about the
// connection is in http2.ts.

import { constants, type ServerHttp2Stream } from 'node:http2';

import type { BufferBudget } from '../../body/budget.ts';
import { monotonicMs } from '../../time/monotonic.ts';
import type { ServerLimits } from '../../http1/connection.ts';
import type { StallWatch } from '../../http1/stall-watch.ts';
import type { Client, Incoming, Reply, RequestHandler, Transport } from '../../http1/transport.ts';
import { listReplyHeaders } from '../common/fields.ts';
import { readHead } from './http2-head.ts';

/** What all exchanges of a server share. */
export interface Http2Context extends ServerLimits {
  readonly handler: RequestHandler & { readonly budget: BufferBudget };
  readonly stallWatch: StallWatch<Incoming>;
}

/** The connection of an exchange, as far as that knows it. */
export interface ExchangeOwner extends Client {
  /** The client shall send no more requests on this connection. */
  announceEnd(): void;
  /** What was kept of the body is read: there is room for more of any stream. */
  onRoom(): void;
  /** The stream has closed. Told once of each. */
  onClosed(exchange: Http2Exchange): void;
}

/**
 * What the exchange is doing. `body` → `answering` → `replied` → `closed`; a request without a body skips `body`, one whose
 * reply comes before its end has `dropping` in place of `answering`, and each can close.
 *
 * - `body`: the body is to come.
 * - `answering`: nothing more of the request comes, the reply is to come.
 * - `dropping`: the reply has been handed over, and what is left of the body is dropped.
 * - `replied`: the reply has been handed over.
 * - `closed`: nothing more goes either way.
 */
type State = 'body' | 'answering' | 'dropping' | 'replied' | 'closed';

// A reply is handed over in pieces of this size, two at a time: whether its client takes them is seen by their going.
const sliceBytes = 16_384;
const slicesAhead = 2;
// A reply of which nothing has been taken for so long has no window [D39].
const untakenMs = 5_000;

export class Http2Exchange implements Transport {
  readonly #stream: ServerHttp2Stream;
  /** What its head counts for, as long as the stream is open. */
  readonly headBytes: number;
  readonly #isHead: boolean;
  readonly #owner: ExchangeOwner;
  readonly #context: Http2Context;
  readonly #since = monotonicMs();
  #state: State;
  /** The call; undefined for bytes that were no request. */
  incoming: Incoming | undefined;
  // All of the request has come.
  #isWhole: boolean;
  #isHeld = false;
  #isReading = false;
  #owesContinue = false;
  // The client shall not send the rest of the body.
  #refusesRest = false;
  #bodyBytes = 0;
  // The pieces of the reply that are still to be handed over, and where in the first of them.
  #pieces: readonly Buffer[] = noPieces;
  #piece = 0;
  #at = 0;
  // Is defined as long as the client has not taken the reply; and when a part of it has gone last.
  #onTaken: (() => void) | undefined;
  #tookAt = 0;
  #hasTaken = false;

  constructor(
    stream: ServerHttp2Stream,
    headBytes: number,
    isHead: boolean,
    owner: ExchangeOwner,
    context: Http2Context,
  ) {
    this.#stream = stream;
    this.headBytes = headBytes;
    this.#isHead = isHead;
    this.#isWhole = stream.endAfterHeaders;
    this.#state = this.#isWhole ? 'answering' : 'body';
    this.#owner = owner;
    this.#context = context;
    stream
      // It closes with it.
      .on('error', () => undefined)
      .once('close', () => {
        try {
          this.#onClose();
        } catch (error) {
          this.#fail(error);
        }
      });
  }

  /** A part of the reply has not been taken. */
  get isTaking(): boolean {
    return this.#onTaken !== undefined;
  }

  /** Of the body, in bytes: what has come and waits for a guard [D58]. */
  get keptBytes(): number {
    return this.#isReading || this.#isWhole ? 0 : this.#stream.readableLength;
  }

  /** Nothing can be written any more. Its closing is told later: a client can reset it right behind its head. */
  get #isReset(): boolean {
    return this.#stream.closed || this.#stream.destroyed;
  }

  /** The number of its stream. */
  get stream(): number {
    return this.#stream.id ?? 0;
  }

  /** Begins the call. `fields` are name, value, name, value; they are not kept, as they can be large [D39]. */
  begin(fields: readonly string[]): void {
    try {
      const { handler, requestHeadBytesMax } = this.#context;
      const head = readHead(fields, this.#isWhole, requestHeadBytesMax);
      if ('reason' in head) {
        this.#send(handler.refuse(head, this.#owner), () => undefined);
        return;
      }
      this.#owesContinue = head.expectation === 'continue' && !this.#isWhole;
      this.incoming = handler.accept(head, this, this.#owner);
      this.incoming.start();
      if (!this.#isWhole && !this.#isHeld) {
        this.#read();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Looks whether the client has taken too long, as of `now` [D35]; `isQueued` says that its whole connection may be slow. */
  checkTime(now: number, isQueued: boolean): void {
    try {
      const { requestTimeoutMs, replyStallTimeoutMs } = this.#context;
      const isLate = now - this.#since >= requestTimeoutMs;
      if (this.#state === 'body' && isLate) {
        this.#state = 'answering';
        this.incoming?.onBroken('timeout');
      } else if (this.#state === 'dropping' && isLate) {
        this.#refuseRest();
      }
      // What the system holds of it shows on the connection, and is watched there.
      const limitMs = this.#hasTaken ? replyStallTimeoutMs : Math.min(replyStallTimeoutMs, untakenMs);
      if (this.#onTaken !== undefined && !isQueued && now - this.#tookAt >= limitMs) {
        this.incoming?.onStall();
        this.#reset(constants.NGHTTP2_CANCEL);
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  holdBody(): void {
    this.#isHeld = this.#state === 'body';
  }

  readBody(): void {
    this.#isHeld = false;
    if (this.#owesContinue) {
      this.#owesContinue = false;
      if (!this.#isReset) {
        this.#stream.additionalHeaders({ ':status': 100 });
      }
    }
    this.#read();
  }

  // Node tells of nothing before the next turn of its microtasks.
  #read(): void {
    if (this.#isReading || this.#isWhole || this.#state === 'closed') {
      return;
    }
    this.#isReading = true;
    this.#stream
      .on('data', (piece: Buffer) => {
        try {
          this.#onData(piece);
        } catch (error) {
          this.#fail(error);
        }
      })
      .once('end', () => {
        try {
          this.#onEnd();
        } catch (error) {
          this.#fail(error);
        }
      });
    this.#owner.onRoom();
  }

  #onData(piece: Buffer): void {
    this.#bodyBytes += piece.length;
    if (this.#state === 'body') {
      this.incoming?.onBody(piece);
    } else if (this.#state === 'dropping' && this.#bodyBytes > this.#context.requestBytesMax) {
      this.#refuseRest();
    }
  }

  #onEnd(): void {
    // The end of a stream that was reset without an error looks like the end of its body: half a write would be one.
    if (this.#stream.closed) {
      return;
    }
    this.#isWhole = true;
    if (this.#state === 'body') {
      this.#state = 'answering';
      this.incoming?.onBodyEnd();
    } else if (this.#state === 'dropping') {
      this.#state = 'replied';
    }
  }

  reply(reply: Reply, onTaken: () => void): void {
    this.#send(reply, onTaken);
    // What is wrong with one request ends its stream only: nothing is wrong with the others.
    if (reply.drains) {
      this.#owner.announceEnd();
    }
  }

  #send(reply: Reply, onTaken: () => void): void {
    if (this.#state !== 'body' && this.#state !== 'answering') {
      throw new Error('the request has had its reply, or its client has gone');
    }
    if (this.#isReset) {
      this.#state = 'replied';
      onTaken();
      // Without an error it closes when it has been read.
      this.#read();
      return;
    }
    const hasBody = reply.length > 0 && !this.#isHead;
    // The date is the library's.
    const fields = [':status', String(reply.head.status), ...listReplyHeaders(reply)];
    this.#stream.respond(fields, { endStream: !hasBody });
    this.#state = this.#isWhole ? 'replied' : 'dropping';
    this.#refusesRest ||= !this.#isWhole && (reply.closes || this.#owesContinue);
    if (hasBody) {
      this.#onTaken = onTaken;
      this.#tookAt = monotonicMs();
      this.#pieces = reply.pieces;
      for (let slices = 0; slices < slicesAhead; slices += 1) {
        this.#writeNext();
      }
    } else {
      onTaken();
    }
    if (this.#refusesRest) {
      this.#refuseRest();
    }
    if (!this.#stream.closed) {
      this.#read();
    }
  }

  #writeNext(): void {
    const piece = this.#pieces[this.#piece];
    if (piece === undefined) {
      return;
    }
    const from = this.#at;
    const slice = from === 0 && piece.length <= sliceBytes ? piece : piece.subarray(from, from + sliceBytes);
    this.#at += slice.length;
    if (this.#at === piece.length) {
      this.#at = 0;
      this.#piece += 1;
    }
    if (this.#piece < this.#pieces.length) {
      this.#stream.write(slice, this.#onSliceTaken);
    } else {
      this.#stream.end(slice, this.#onLastTaken);
    }
  }

  readonly #onSliceTaken = (error?: Error | null): void => {
    if (error === undefined || error === null) {
      this.#tookAt = monotonicMs();
      this.#hasTaken = true;
      this.#writeNext();
    }
  };

  readonly #onLastTaken = (): void => {
    // Of a stream that has been reset the library may still hold bytes: the end of it says when not.
    if (this.#stream.destroyed) {
      return;
    }
    const onTaken = this.#onTaken;
    this.#onTaken = undefined;
    this.#pieces = noPieces;
    onTaken?.();
    if (this.#refusesRest) {
      this.#refuseRest();
    }
  };

  // Behind the whole reply, which a reset would cut off [RFC 9113, 8.1]. What comes until then is dropped: kept, it would
  // be a window of each stream.
  #refuseRest(): void {
    this.#refusesRest = true;
    if (this.#onTaken === undefined) {
      this.#reset(constants.NGHTTP2_NO_ERROR);
    }
  }

  /** The request is malformed. */
  refuse(): void {
    this.#reset(constants.NGHTTP2_PROTOCOL_ERROR);
  }

  cut(): void {
    this.#reset(constants.NGHTTP2_INTERNAL_ERROR);
  }

  #reset(code: number): void {
    if (!this.#isReset) {
      this.#stream.close(code);
    }
  }

  #onClose(): void {
    const hasReplied = this.#state === 'replied' || this.#state === 'dropping';
    this.#owner.onClosed(this);
    this.#state = 'closed';
    if (!hasReplied) {
      this.incoming?.onGone();
    }
    if (this.#onTaken !== undefined) {
      // The library lets go of what it holds in this turn.
      setImmediate(this.#onTaken);
      this.#onTaken = undefined;
      this.#pieces = noPieces;
    }
  }

  // A fault of our own: this stream ends, and no other [D28].
  #fail(error: unknown): void {
    this.cut();
    this.#context.handler.onFault(error);
  }
}

const noPieces: readonly Buffer[] = [];
