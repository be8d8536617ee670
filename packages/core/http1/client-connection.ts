// Serves one client connection: reads a request, passes it to the handler, writes the reply, and only then reads the
// next request (RFC 9112, 9.3.2) [D27]. Until the reply is written, the reader gets no bytes of pipelined requests.

import type { Socket } from 'node:net';

import { holdClock, monotonicMs, releaseClock } from '../time/monotonic.ts';
import { oneWriteBytesMax } from './borrowed-bytes.ts';
import { freeBytes, Holding, lingerMs, type Connection, type ServerLimits } from './connection.ts';
import type { RequestHead } from './head.ts';
import { carrierOf, setReading } from './node-internals.ts';
import type { Sink } from './reader.ts';
import { RequestReader } from './request-reader.ts';
import { SentAhead } from './sent-ahead.ts';
import type { BrokenReason, Requester, RequestReceiver, Reply, RequestHandler, Transport } from './transport.ts';
import { TurnShare, type TurnTaker } from './turns.ts';
import { writeDate, writeReplyHead } from './writer.ts';

export interface ConnectionContext extends ServerLimits {
  readonly handler: RequestHandler;
  /** True during a drain: each reply is the last on its connection. */
  isEnding: boolean;
  /** Closes connections whose clients stop reading their reply. */
  readonly stallWatch: { watch(socket: Socket, incoming: RequestReceiver | undefined): void };
  /** Header lines of a reply after which the connection stays open. */
  readonly keepAliveLines: string;
}

/**
 * The state of reading.
 *
 * - `new`: no byte has arrived since the connection was opened.
 * - `idle`: the last request has its reply, and the next one has not begun.
 * - `head`: the head is arriving.
 * - `body`: the handler has the head, and the body is arriving.
 * - `held`: the handler has the head and has paused the body. Meanwhile the time limit stands still.
 * - `whole`: the request is complete. The next one is read after the reply.
 * - `over`: nothing more is read. The connection is closing, or the end of the last request is unknown.
 */
type ReadState = 'new' | 'idle' | 'head' | 'body' | 'held' | 'whole' | 'over';

/**
 * The state of writing: what must still be sent to the client.
 *
 * - `nothing`: no request is waiting for a reply.
 * - `continue`: `100 Continue` when the handler calls `readBody`, then a reply.
 * - `reply`: a reply.
 * - `replied`: nothing for this request. The reply was sent before the body ended; the rest of the body is dropped.
 * - `ended`: nothing more. Our side of the connection has ended. Input is dropped for `lingerMs`, because closing at once
 *   would reset the connection. A client that is still sending would then lose its last reply.
 */
type WriteState = 'nothing' | 'continue' | 'reply' | 'replied' | 'ended';

// TLS keeps an encrypted copy of the piece that is being written, which is an answer's block at most.
const tlsBytesMax = 65_536;

const continueText = 'HTTP/1.1 100 Continue\r\n\r\n';
const closeLine = 'connection: close\r\n';

export class ClientConnection implements Connection, Transport, Requester, Sink<RequestHead>, TurnTaker {
  readonly socket: Socket;
  /** Read when the connection opens, because a closed socket has no address. */
  readonly address: string | undefined;
  readonly #context: ConnectionContext;
  readonly #reader: RequestReader;
  readonly #ahead = new SentAhead();
  readonly #share = new TurnShare();
  readonly #holding: Holding;
  readonly #isTls: boolean;
  #isReading = true;
  #reading: ReadState = 'new';
  #writing: WriteState = 'nothing';
  // The time when the current time limit started, on the clock of `monotonicMs`. In `held`: the negative time used so far.
  #since = monotonicMs();
  // The request that is being read or answered; undefined between two requests.
  #head: RequestHead | undefined;
  // Receives the events of the current request; undefined if no reply is due.
  #incoming: RequestReceiver | undefined;
  #bodyBytes = 0;
  // Bytes of unread replies that were copied into strings. An upper bound until the socket has written all its bytes.
  #copiedBytes = 0;

  constructor(socket: Socket, context: ConnectionContext) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    this.#context = context;
    this.#reader = new RequestReader(this, context.requestHeadBytesMax, context.requiresHost);
    this.#holding = new Holding(context.handler.budget);
    this.#isTls = carrierOf(socket) !== undefined;
    // TLS copies what it writes. Without `_writev`, Node passes it one piece at a time, so that TLS never copies a whole list.
    if (this.#isTls) Object.assign(socket, { _writev: undefined });
    socket
      .on('data', (bytes: Buffer) => this.#onData(bytes))
      .on('end', () => this.#run(() => this.#onSocketEnd()))
      .on('drain', this.#goOn)
      // The `close` event follows and is handled.
      .on('error', () => undefined)
      .on('close', () => {
        this.#run(() => this.#leave());
        this.#holding.count(0);
      });
  }

  /** In tests, test/helpers/connection-states.ts checks each change against the table of transitions. */
  enter(reading: ReadState, writing = this.#writing): void {
    this.#reading = reading;
    this.#writing = writing;
  }

  // Runs `act`. If it throws, only this connection is closed, and the handler's `onFault` is called [D28].
  #run(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.socket.destroy();
    this.#context.handler.onFault(error);
  }

  // Time limits and idle time.

  idleMs(now: number): number {
    return this.#isWaiting ? now - this.#since : 0;
  }

  isQuiet(quietMs: number, from: number): boolean {
    return this.#isWaiting && this.#reading !== 'head' && monotonicMs() - Math.max(this.#since, from) >= quietMs;
  }

  get #isWaiting(): boolean {
    const isWaiting = this.#writing === 'nothing' || this.#writing === 'ended';
    return isWaiting && this.#ahead.isEmpty && this.socket.writableLength === 0;
  }

  get #isIdle(): boolean {
    return this.#reading === 'new' || this.#reading === 'idle';
  }

  checkTime(now: number): void {
    this.#count();
    const { requestHeadersTimeoutMs, requestTimeoutMs, idleTimeoutMs } = this.#context;
    const took = now - this.#since;
    switch (this.#reading) {
      case 'new':
      case 'idle':
        this.#checkIdle(now, this.#reading === 'new' ? requestHeadersTimeoutMs : idleTimeoutMs);
        break;
      case 'head':
        if (took >= Math.min(requestHeadersTimeoutMs, requestTimeoutMs)) {
          this.#run(() => this.#refuse('timeout'));
        }
        break;
      case 'body':
        if (took >= requestTimeoutMs) this.#run(() => this.#breakBody('timeout'));
        break;
      case 'over':
        if (this.#writing === 'ended') this.#checkIdle(now, lingerMs);
        break;
      case 'held':
      case 'whole':
      // No limit, because the client is waiting for the handler.
    }
  }

  #checkIdle(now: number, idleMsMax: number): void {
    if (this.socket.writableLength > 0) {
      // The client is still reading the last reply.
      this.#since = now;
    } else if (this.#ahead.isEmpty && now - this.#since >= idleMsMax) {
      this.socket.destroy();
    }
  }

  // Memory.

  // Counts the memory that the connection holds [D69]. If there is no room, the connection ends: it sends the reply that is
  // due, or a 503. A client that reads no replies is disconnected at once.
  #count(): void {
    const { socket } = this;
    const unsent = socket.writableLength;
    if (unsent === 0) this.#copiedBytes = 0;
    // Most often, the connection holds only a small head. The sum below would not exceed the free bytes.
    const isSmall = unsent === 0 && this.#ahead.isEmpty && this.#isReading && this.#reader.headBytes <= freeBytes;
    if (isSmall && this.#reader.isEmpty && this.#holding.isEmpty) return;
    const copied = Math.min(this.#copiedBytes, unsent);
    const tlsCopy = this.#isTls ? Math.min(unsent - copied, tlsBytesMax) : 0;
    const heads = this.#reader.heldBytes + (this.#head === undefined ? 0 : this.#reader.headBytes);
    const held = this.#ahead.heldBytes + heads + copied + socket.readableLength;
    // Without room for the copy of TLS, the reply goes on: its own memory counts in any case, and is no smaller.
    if (socket.destroyed || this.#holding.count(held + tlsCopy) || this.#holding.count(held)) return;
    if (copied > freeBytes) {
      socket.destroy();
    } else {
      this.#run(() => this.#onFlaw('overload'));
    }
  }

  // Reading.

  #onData(bytes: Buffer): void {
    holdClock();
    try {
      const mayReadOn = this.#share.countRead(bytes.length);
      // Bytes in `#ahead` arrived earlier, so they are read first. TLS records may arrive while the connection waits.
      const isNext = this.#reading === 'over' || (this.#ahead.isEmpty && !this.#share.isWaiting);
      const rest = isNext ? this.#take(bytes, false) : bytes;
      if (rest.length > 0) this.#ahead.hold(rest);
      if (!mayReadOn) this.#share.wait(this);
      this.#count();
      this.#setFlow();
    } catch (error) {
      this.#fail(error);
    } finally {
      releaseClock();
    }
  }

  // The socket is paused while the connection waits for its turn, and while `#ahead` is full.
  get #readsSocket(): boolean {
    return !this.#share.isWaiting && !this.#ahead.isFull;
  }

  // Only this method stops and starts the socket's reads.
  #setFlow(): void {
    if (this.#readsSocket !== this.#isReading) {
      this.#isReading = this.#readsSocket;
      setReading(this.socket, this.#isReading);
    }
  }

  get #mayTake(): boolean {
    const isWanted = this.#reading !== 'whole' && this.#reading !== 'held' && this.#reading !== 'over';
    // A destroyed socket emits `close` later, so `#reading` may not show the end yet.
    return isWanted && !this.socket.writableNeedDrain && !this.socket.destroyed;
  }

  // Reads requests from `bytes`. Stops when the next request must wait: for a reply, for the connection's turn, or
  // until the client has read its replies. Returns the unread bytes. A loop, because recursion over thousands of
  // pipelined requests would exhaust the stack.
  #take(bytes: Buffer, isAhead: boolean): Buffer {
    let at = 0;
    while (at < bytes.length && this.#mayTake) {
      if (this.#writing === 'nothing' && !this.#share.mayStart(isAhead || at > 0)) {
        this.#share.wait(this);
        break;
      }
      if (this.#reader.isDone) this.#reader.next();
      const from = at;
      at = this.#reader.read(bytes, from);
      const { flaw } = this.#reader;
      if (flaw !== undefined) {
        this.#onFlaw(flaw);
        return noBytes;
      }
      if (at === from) throw new Error('the reader consumed nothing');
      if (this.#isIdle && this.#reader.isInHead) this.#beginHead();
    }
    return at === bytes.length || this.#reading === 'over' ? noBytes : bytes.subarray(at);
  }

  // For the first head, the time limit started when the connection was opened.
  #beginHead(): void {
    if (this.#reading === 'idle') this.#since = monotonicMs();
    this.enter('head');
  }

  // Reads all bytes in `#ahead`, unless a request must wait.
  readonly #goOn = (): void => {
    try {
      if (!this.#share.isWaiting && this.#mayTake) {
        const bytes = this.#ahead.take();
        // The receiver may count these bytes now [D69].
        this.#count();
        this.#ahead.keep(this.#take(bytes, true));
        if (this.#ahead.hasEnded) this.#onSocketEnd();
      }
      this.#count();
      this.#setFlow();
    } catch (error) {
      this.#fail(error);
    }
  };

  takeTurn(): void {
    this.#share.begin();
    this.#goOn();
  }

  onHead(head: RequestHead): void {
    if (this.#isIdle) this.#beginHead();
    this.#share.countStart();
    this.#head = head;
    this.#bodyBytes = 0;
    this.enter(head.bodyLength === 0 ? 'whole' : 'body', head.expectation === 'continue' ? 'continue' : 'reply');
    this.#incoming = this.#context.handler.accept(head, this, this);
    this.#incoming.start();
  }

  onBody(piece: Buffer): void {
    this.#bodyBytes += piece.length;
    if (this.#incoming !== undefined) {
      this.#incoming.onBody(piece);
    } else if (this.#bodyBytes > this.#context.requestBytesMax) {
      this.#end();
    }
  }

  onEnd(): void {
    // Without a body, the request was already complete after its head.
    if (this.#reading !== 'body') return;
    if (this.#writing === 'replied') {
      this.#beginNext();
    } else {
      this.enter('whole');
      this.#incoming?.onBodyEnd();
    }
  }

  // Handles input that is malformed or has no room. If no request waits for its reply, this input is answered at once.
  #onFlaw(flaw: BrokenReason): void {
    if (this.#writing === 'nothing') {
      this.#refuse(flaw);
    } else if (this.#reading === 'body' || this.#reading === 'held') {
      this.#breakBody(flaw);
    } else if (this.#reading === 'whole') {
      this.#stopReading();
    }
    // Otherwise the last reply has been sent, and the input is ignored.
  }

  // Drops what the client has sent ahead, and all that it sends from now on.
  #stopReading(writing = this.#writing): void {
    this.enter('over', writing);
    this.#ahead.drop();
    this.#setFlow();
  }

  #breakBody(reason: BrokenReason): void {
    if (this.#incoming === undefined) {
      // The reply was already sent. The client would mistake a second reply for the reply to its next request.
      this.#end();
    } else {
      this.#stopReading();
      this.#incoming.onBroken(reason);
    }
  }

  // The client has ended its side. It may still read, but a client that has left looks the same. So a read that waits for
  // its reply is cancelled, and nothing behind it starts. Otherwise the bytes in `#ahead` are read first [D21].
  #onSocketEnd(): void {
    this.#ahead.hasEnded = true;
    const isRead = this.#head?.method === 'GET' || this.#head?.method === 'HEAD';
    if (this.#ahead.isEmpty || (this.#reading === 'whole' && isRead)) this.#finishAfterEnd();
  }

  #finishAfterEnd(): void {
    switch (this.#reading) {
      case 'new':
      case 'idle':
      case 'whole':
        this.#leave();
        break;
      case 'head':
        this.#refuse(endFlaw);
        break;
      case 'body':
      case 'held':
        this.#breakBody(endFlaw);
        break;
      case 'over':
      // Nothing to do: reading has already ended.
    }
  }

  // Called when the client has left. Pipelined requests do not start. The receiver of the current request is notified.
  #leave(): void {
    const incoming = this.#incoming;
    this.#incoming = undefined;
    this.#end();
    incoming?.onGone();
  }

  // Writing.

  holdBody(): void {
    if (this.#reading === 'body' && this.#writing !== 'replied') {
      this.enter('held');
      this.#since -= monotonicMs();
      this.#reader.isHeld = true;
    }
  }

  readBody(): void {
    this.#releaseBody();
    if (this.#writing === 'continue') {
      this.enter(this.#reading, 'reply');
      this.socket.write(continueText);
    }
  }

  #releaseBody(): void {
    if (this.#reading === 'held') {
      this.enter('body');
      this.#since += monotonicMs();
      this.#reader.isHeld = false;
      this.#goOnSoon();
    }
  }

  reply(reply: Reply): void {
    if (this.#incoming === undefined) throw new Error('the request has been answered, or its client has left');
    this.#send(reply);
  }

  cut(): void {
    this.socket.destroy();
  }

  #refuse(reason: BrokenReason): void {
    this.#send(this.#context.handler.refuse(reason, this));
  }

  #send(reply: Reply): void {
    this.#releaseBody();
    const goesOn = this.#goesOnAfter(reply);
    const head = writeReplyHead(reply, (goesOn ? this.#context.keepAliveLines : closeLine) + writeDate());
    if (this.#head?.method === 'HEAD') {
      this.socket.write(head, 'latin1');
      reply.body.release();
    } else {
      reply.body.sendTo(this.socket, head);
    }
    if (this.socket.writableLength > 0) {
      this.#copiedBytes += head.length + (reply.body.length <= oneWriteBytesMax ? reply.body.length : 0);
      this.#context.stallWatch.watch(this.socket, this.#incoming);
    }
    this.#incoming = undefined;
    if (!goesOn) {
      this.#end();
    } else if (this.#reading === 'whole') {
      this.#beginNext();
    } else {
      this.enter(this.#reading, 'replied');
    }
  }

  // Only this method decides whether the connection stays open after a reply [RFC 9112, 9.3].
  #goesOnAfter(reply: Reply): boolean {
    return (
      !reply.closes &&
      !this.#context.isEnding &&
      // After a malformed or late head there is no `#head`, and the start of the next request is unknown.
      this.#head?.persists === true &&
      this.#reading !== 'over' &&
      // The client still waits for `100 Continue`, so it is unknown whether it will send its body [RFC 9110, 10.1.1].
      this.#writing !== 'continue'
    );
  }

  #beginNext(): void {
    this.enter('idle', 'nothing');
    this.#since = monotonicMs();
    this.#head = undefined;
    if (!this.#ahead.isEmpty) this.#goOnSoon();
  }

  // Deferred, so that the caller finishes first.
  #goOnSoon(): void {
    queueMicrotask(this.#goOn);
  }

  #end(): void {
    this.#since = monotonicMs();
    this.#reader.drop();
    this.#stopReading('ended');
    this.socket.end();
  }
}

const noBytes = Buffer.alloc(0);
const endFlaw: BrokenReason = { kind: 'incomplete-request', reason: 'an incomplete request' };
