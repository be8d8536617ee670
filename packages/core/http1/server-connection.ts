// One client's connection: reads its requests one after the other, hands each to the handler, writes the reply, and only
// then reads the next (RFC 9112, 9.3.2) [D27]. What a client sends ahead stays bytes until its turn. It knows nothing of
// operations or the backend.

import type { Socket } from 'node:net';

import { monotonicMs } from '../time/monotonic.ts';
import { lingerMs, type Connection } from './connection.ts';
import type { RequestHead } from './head.ts';
import { RequestReader, type Sink } from './reader.ts';
import type { StallWatch } from './stall-watch.ts';
import type { Broken, Client, Incoming, Reply, RequestHandler, Transport } from './transport.ts';
import { currentTurn, queueForTurn, type TurnTaker } from './turns.ts';
import { oneWriteBytesMax, writeDate, writeReplyHead } from './writer.ts';

/** What all connections of a server share. */
export interface ConnectionContext {
  readonly handler: RequestHandler;
  readonly stallWatch: StallWatch<Incoming | undefined>;
  /** Of a request's head, in bytes [D27]. */
  readonly requestHeadBytesMax: number;
  /** Of a body whose rest is dropped behind its reply, in bytes: past it the connection closes [D11]. */
  readonly requestBytesMax: number;
  /** For a head, from its first byte, in milliseconds; also for the first byte of a connection [D35]. */
  readonly requestHeadersTimeoutMs: number;
  /** For head and body together [D35]. */
  readonly requestTimeoutMs: number;
  /** Between two requests [D35]. */
  readonly idleTimeoutMs: number;
  /** What a reply says of a connection that is kept. */
  readonly keepAliveLines: string;
}

/**
 * What the connection is doing. `idle` → `head` → `body` → `answering` → `idle`, or `dropping` between the last two when
 * the reply comes before the end of the body; from each of them to `lingering` and `closed`.
 *
 * - `idle`: nothing of a request has come.
 * - `head`: a part of a head has come.
 * - `body`: the head is with the handler, the body is coming.
 * - `answering`: the request is whole, the reply is to come.
 * - `dropping`: the reply has gone out, and what is left of the body is dropped.
 * - `lingering`: the last reply has gone out, and what the client sends is dropped: closed at once, the connection would
 *   be reset under what is still on its way, and the reply lost.
 * - `closed`.
 */
type Phase = 'idle' | 'head' | 'body' | 'answering' | 'dropping' | 'lingering' | 'closed';

const noBytes = Buffer.alloc(0);
// What a client may send ahead before its socket is read no further [D58].
const aheadBytesMax = 65_536;
const aheadBytesMin = 4_096;
// Requests of one connection that are started in one turn of the event loop [D58].
const turnStartsMax = 16;
// A read of this size is most likely followed by another one at once.
const largeReadBytes = 65_536;

const continueText = 'HTTP/1.1 100 Continue\r\n\r\n';
const closeLine = 'connection: close\r\n';

export class ServerConnection implements Connection, Transport, Client, Sink<RequestHead>, TurnTaker {
  readonly socket: Socket;
  readonly #context: ConnectionContext;
  readonly #reader: RequestReader;
  // Asked for at once: of a connection that has closed the system no longer knows it.
  readonly #address: string | undefined;
  #phase: Phase = 'idle';
  // When the time began that this phase is allowed, as `monotonicMs` tells it.
  #since = monotonicMs();
  #isFirst = true;
  #head: RequestHead | undefined;
  #incoming: Incoming | undefined;
  #owesContinue = false;
  // The body of the request does not come to its end: the reply that comes next is the last.
  #isBroken = false;
  #bodyBytes = 0;
  // What has been sent ahead, in memory of its own, often with room after it.
  #ahead: Buffer = noBytes;
  // Others have their turn first.
  #isYielding = false;
  // Requests started in the turn of the event loop with the number `#turn`.
  #starts = 0;
  #turn = 0;
  // The last turn that was given to this connection.
  #ownTurn = 0;
  // The client sends nothing more.
  #hasEnded = false;

  constructor(socket: Socket, context: ConnectionContext) {
    this.socket = socket;
    this.#address = socket.remoteAddress;
    this.#context = context;
    this.#reader = new RequestReader(this, context.requestHeadBytesMax);
    socket
      .on('data', (bytes: Buffer) => {
        try {
          this.#onData(bytes);
        } catch (error) {
          this.#fail(error);
        }
      })
      .on('end', () => {
        try {
          this.#onEnd();
        } catch (error) {
          this.#fail(error);
        }
      })
      .on('drain', () => {
        this.#goOn();
      })
      // Its close follows.
      .on('error', () => undefined)
      .on('close', () => {
        try {
          this.#forget();
        } catch (error) {
          this.#fail(error);
        }
      });
  }

  get address(): string | undefined {
    return this.#address;
  }

  restsSince(now: number): number {
    const rests = this.#isWaiting && this.socket.writableLength === 0;
    return rests ? now - this.#since : 0;
  }

  isQuiet(quietMs: number, from: number): boolean {
    return (
      (this.#phase === 'idle' || this.#phase === 'lingering') &&
      this.#ahead.length === 0 &&
      this.socket.writableLength === 0 &&
      monotonicMs() - Math.max(this.#since, from) >= quietMs
    );
  }

  get #isWaiting(): boolean {
    return (this.#phase === 'idle' || this.#phase === 'head') && this.#ahead.length === 0;
  }

  checkTime(now: number): void {
    try {
      this.#checkTime(now);
    } catch (error) {
      this.#fail(error);
    }
  }

  #checkTime(now: number): void {
    const { requestHeadersTimeoutMs, requestTimeoutMs, idleTimeoutMs } = this.#context;
    const took = now - this.#since;
    switch (this.#phase) {
      case 'idle':
        if (this.#ahead.length > 0) {
          break;
        }
        if (this.socket.writableLength > 0) {
          // The reply is still being taken.
          this.#since = now;
        } else if (this.#isFirst ? took >= requestHeadersTimeoutMs : took >= idleTimeoutMs) {
          this.socket.destroy();
        }
        break;
      case 'head':
        if (!this.socket.isPaused() && took >= Math.min(requestHeadersTimeoutMs, requestTimeoutMs)) {
          this.#refuse('timeout');
        }
        break;
      case 'body':
      case 'dropping':
        if (took >= requestTimeoutMs) {
          this.#breakBody('timeout');
        }
        break;
      case 'lingering':
        if (this.socket.writableLength > 0) {
          // The last reply is still being taken.
          this.#since = now;
        } else if (took >= lingerMs) {
          this.socket.destroy();
        }
        break;
      default:
      // What a request waits for is no client's time.
    }
  }

  #onData(bytes: Buffer): void {
    // Never past what is held already: that came first.
    const rest = this.#ahead.length === 0 ? this.#take(bytes, false) : bytes;
    if (rest.length > 0) {
      this.#hold(rest);
    }
    // Whoever sends much has had its turn.
    if (bytes.length >= largeReadBytes) {
      this.#yield();
    }
  }

  get #mayTake(): boolean {
    const isWanted = this.#phase !== 'answering' && this.#phase !== 'lingering';
    const { socket } = this;
    // What is destroyed closes only later.
    return isWanted && !this.#reader.isHeld && !socket.writableNeedDrain && !socket.destroyed;
  }

  // Takes requests from `bytes` until they are at their end, or wait for a reply, for the client to take what it has, or
  // for others to have their turn; returns what is left to be held. A loop, not a chain of calls: thousands of requests
  // that are answered at once must not exhaust the stack.
  #take(bytes: Buffer, isAhead: boolean): Buffer {
    let at = 0;
    while (at < bytes.length && this.#mayTake) {
      const isBetween = this.#phase === 'idle' || this.#phase === 'head';
      if (isBetween && !this.#mayStart(isAhead || at > 0)) {
        this.#yield();
        break;
      }
      if (this.#reader.isDone) {
        this.#reader.next();
      }
      const from = at;
      at = this.#reader.read(bytes, from);
      const { flaw } = this.#reader;
      if (flaw !== undefined) {
        this.#onFlaw(flaw);
        return noBytes;
      }
      if (at === from) {
        throw new Error('the reader takes nothing');
      }
      if (this.#phase === 'idle' && this.#reader.isInHead) {
        this.#beginHead();
      }
    }
    return at === bytes.length || this.#phase === 'lingering' ? noBytes : bytes.subarray(at);
  }

  // Whether one more request may be started in this turn of the event loop [D58]. Requests that were sent ahead wait for
  // this connection's own turn. In another turn only one of them starts, when IO has brought the reply before it.
  #mayStart(isAhead: boolean): boolean {
    const turn = currentTurn();
    if (this.#turn !== turn) {
      this.#turn = turn;
      this.#starts = 0;
    }
    return this.#starts < (isAhead && this.#ownTurn !== turn ? 1 : turnStartsMax);
  }

  #beginHead(): void {
    this.#phase = 'head';
    if (!this.#isFirst) {
      this.#since = monotonicMs();
    }
    this.#isFirst = false;
  }

  // Copied together: thousands of small pieces would take many times their size. Memory that is full is replaced by one
  // twice as large as what it holds, so that no byte is copied more than a few times.
  #hold(bytes: Buffer): void {
    const held = this.#ahead;
    const length = held.length + bytes.length;
    if (held.byteOffset + length <= held.buffer.byteLength) {
      this.#ahead = Buffer.from(held.buffer, held.byteOffset, length);
    } else {
      const memory = Buffer.allocUnsafeSlow(Math.max(aheadBytesMin, length, 2 * held.length));
      memory.set(held);
      this.#ahead = memory.subarray(0, length);
    }
    this.#ahead.set(bytes, held.length);
    if (length >= aheadBytesMax) {
      this.socket.pause();
    }
  }

  #dropAhead(): void {
    this.#ahead = noBytes;
    this.socket.resume();
  }

  // Goes on with what was sent ahead, if it is its turn.
  #takeAhead(): void {
    if (this.#isYielding || !this.#mayTake) {
      return;
    }
    const bytes = this.#ahead;
    this.#ahead = noBytes;
    this.#ahead = this.#take(bytes, true);
    this.#readOn();
  }

  // Reads on when nothing is left of what was sent ahead.
  #readOn(): void {
    if (this.#ahead.length === 0 && !this.#isYielding) {
      this.socket.resume();
      if (this.#hasEnded) {
        this.#finishAfterEnd();
      }
    }
  }

  // Lets others have their turn; then it goes on.
  #yield(): void {
    if (!this.#isYielding) {
      this.#isYielding = true;
      this.socket.pause();
      queueForTurn(this);
    }
  }

  /** @internal Goes on, others having had their turn. */
  takeTurn(): void {
    this.#isYielding = false;
    this.#ownTurn = currentTurn();
    if (this.#ahead.length < aheadBytesMax) {
      this.socket.resume();
    }
    this.#goOn();
  }

  /** @internal */
  onHead(head: RequestHead): void {
    if (this.#phase === 'idle') {
      this.#beginHead();
    }
    this.#starts += 1;
    this.#head = head;
    this.#owesContinue = head.expectation === 'continue';
    this.#bodyBytes = 0;
    this.#phase = head.bodyLength === 0 ? 'answering' : 'body';
    this.#incoming = this.#context.handler.accept(head, this, this);
    this.#incoming.start();
  }

  /** @internal */
  onBody(piece: Buffer): void {
    this.#bodyBytes += piece.length;
    if (this.#incoming !== undefined) {
      this.#incoming.onBody(piece);
    } else if (this.#bodyBytes > this.#context.requestBytesMax) {
      this.#linger();
    }
  }

  /** @internal */
  onEnd(): void {
    switch (this.#phase) {
      case 'body':
        this.#phase = 'answering';
        this.#incoming?.onBodyEnd();
        break;
      case 'dropping':
        this.#beginNext();
        break;
      default:
      // A request without a body, or whose reply was the last.
    }
  }

  holdBody(): void {
    this.#reader.isHeld = this.#phase === 'body';
  }

  readBody(): void {
    this.#releaseBody();
    if (this.#owesContinue) {
      this.#owesContinue = false;
      this.socket.write(continueText);
    }
  }

  #releaseBody(): void {
    if (this.#reader.isHeld) {
      this.#reader.isHeld = false;
      this.#goOnSoon();
    }
  }

  reply(reply: Reply, onTaken: () => void): void {
    if (this.#incoming === undefined) {
      throw new Error('the request has had its reply, or its client has gone');
    }
    this.#send(reply, onTaken);
  }

  #send(reply: Reply, onTaken: () => void): void {
    this.#releaseBody();
    const head = this.#head;
    // Without a head it is a refusal, and nobody knows where the next request begins.
    const closes = reply.closes || this.#isBroken || head?.persists !== true || this.#owesContinue;
    this.#write(reply, closes, head?.method === 'HEAD', onTaken);
    if (this.socket.writableLength > 0) {
      this.#context.stallWatch.watch(this.socket, this.#incoming);
    }
    this.#incoming = undefined;
    if (closes) {
      this.#linger();
    } else if (this.#reader.isDone) {
      this.#beginNext();
    } else {
      this.#phase = 'dropping';
    }
  }

  cut(): void {
    this.socket.destroy();
  }

  #write(reply: Reply, closes: boolean, isHead: boolean, onTaken: () => void): void {
    const { socket } = this;
    const { pieces, length } = reply;
    let text = writeReplyHead(reply, (closes ? closeLine : this.#context.keepAliveLines) + writeDate());
    if (isHead) {
      socket.write(text, 'latin1');
      onTaken();
    } else if (length <= oneWriteBytesMax) {
      for (const piece of pieces) {
        // latin1 is one byte a character, whatever the bytes mean.
        text += piece.toString('latin1');
      }
      socket.write(text, 'latin1');
      onTaken();
    } else {
      socket.cork();
      socket.write(text, 'latin1');
      const last = pieces.length - 1;
      for (const [index, piece] of pieces.entries()) {
        if (index === last) {
          socket.write(piece, onTaken);
        } else {
          socket.write(piece);
        }
      }
      socket.uncork();
    }
  }

  #beginNext(): void {
    this.#phase = 'idle';
    this.#since = monotonicMs();
    this.#head = undefined;
    if (this.#ahead.length > 0 || this.socket.isPaused() || this.#hasEnded) {
      this.#goOnSoon();
    }
  }

  // Whoever has called comes to its end first.
  #goOnSoon(): void {
    queueMicrotask(() => {
      this.#goOn();
    });
  }

  #linger(): void {
    this.#phase = 'lingering';
    this.#since = monotonicMs();
    this.#dropAhead();
    this.socket.end();
  }

  // Bytes that are no HTTP. Requests before them have had their replies.
  #onFlaw(flaw: Broken): void {
    switch (this.#phase) {
      case 'idle':
      case 'head':
        this.#refuse(flaw);
        break;
      case 'body':
      case 'dropping':
        this.#breakBody(flaw);
        break;
      default:
      // The last reply has gone out: what is behind it is nobody's.
    }
  }

  #refuse(reason: Broken): void {
    this.#send(this.#context.handler.refuse(reason, this), () => undefined);
  }

  #breakBody(reason: Broken): void {
    if (this.#incoming === undefined) {
      // A second reply would be taken for that of the next request.
      this.#linger();
      return;
    }
    this.#phase = 'answering';
    this.#isBroken = true;
    this.#dropAhead();
    this.#incoming.onBroken(reason);
  }

  // The client sends nothing more, and so has gone, unless it waits for what it has sent in part. What is held comes first.
  #onEnd(): void {
    this.#hasEnded = true;
    if (this.#phase === 'answering' ? !this.#isCutInAhead() : this.#ahead.length === 0) {
      this.#finishAfterEnd();
    }
  }

  #finishAfterEnd(): void {
    switch (this.#phase) {
      case 'idle':
        this.#leave();
        break;
      case 'head':
        this.#refuse(endFlaw);
        break;
      case 'body':
      case 'dropping':
        this.#breakBody(endFlaw);
        break;
      case 'answering':
        if (!this.#isBroken) {
          this.#leave();
        }
        break;
      default:
      // The last reply has gone out, or the client has gone already.
    }
  }

  // Whether what was sent ahead ends within a request.
  #isCutInAhead(): boolean {
    const reader = new RequestReader(
      {
        onHead: () => undefined,
        onBody: () => undefined,
        onEnd: () => undefined,
      },
      this.#context.requestHeadBytesMax,
    );
    const bytes = Buffer.from(this.#ahead);
    for (let at = 0; at < bytes.length && reader.flaw === undefined;) {
      reader.next();
      at = reader.read(bytes, at);
    }
    return !reader.isDone && !reader.isBeforeMessage;
  }

  #leave(): void {
    this.socket.end();
    this.#forget();
  }

  // The client has gone: what it sent ahead never starts, and whoever answers it is told.
  #forget(): void {
    const incoming = this.#incoming;
    this.#incoming = undefined;
    this.#phase = 'closed';
    this.#dropAhead();
    incoming?.onGone();
  }

  #goOn(): void {
    try {
      this.#takeAhead();
    } catch (error) {
      this.#fail(error);
    }
  }

  // A fault of our own outside of a request: this connection ends, and no other [D28].
  #fail(error: unknown): void {
    this.socket.destroy();
    this.#context.handler.onFault(error);
  }
}

const endFlaw: Broken = { kind: 'malformed', reason: 'a request that is cut off' };
