// One client's connection: reads its requests one after the other, hands each to the handler, writes the reply, and only
// then reads the next (RFC 9112, 9.3.2) [D27]. What a client sends ahead stays bytes until its turn. It knows nothing of
// operations or the backend.

import type { Socket } from 'node:net';

import { monotonicMs } from '../time/monotonic.ts';
import { lingerMs, type Connection, type ServerLimits } from './connection.ts';
import type { RequestHead } from './head.ts';
import type { Sink } from './reader.ts';
import { RequestReader } from './request-reader.ts';
import { SentAhead } from './sent-ahead.ts';
import { writeMessage } from './socket-writes.ts';
import type { StallWatch } from './stall-watch.ts';
import type { Broken, Client, Incoming, Reply, RequestHandler, Transport } from './transport.ts';
import { TurnShare, type TurnTaker } from './turns.ts';
import { writeDate, writeReplyHead } from './writer.ts';

/** What all connections of a server share. */
export interface ConnectionContext extends ServerLimits {
  readonly handler: RequestHandler;
  readonly stallWatch: StallWatch<Incoming | undefined>;
  /** What a reply says of a connection that is kept. */
  readonly keepAliveLines: string;
}

/**
 * What is read next.
 *
 * - `new`: nothing has come since the connection was opened.
 * - `idle`: nothing has come since the last request.
 * - `head`: a part of a head has come.
 * - `body`: the handler has the head, and the body is coming.
 * - `held`: the handler has the head and does not want the body yet. The body waits.
 * - `whole`: the request is whole. The next one is not read before the reply.
 * - `over`: nothing. Where the next request would begin is not known, or none is wanted.
 */
type Reading = 'new' | 'idle' | 'head' | 'body' | 'held' | 'whole' | 'over';

/**
 * What the client is owed.
 *
 * - `nothing`: no request has come.
 * - `continue`: `100 Continue` once the handler wants the body, and a reply.
 * - `reply`: a reply.
 * - `replied`: nothing more. The reply came before the end of the body, and the rest of the body is dropped.
 * - `ended`: nothing ever again. Our side of the connection has ended. What the client sends is dropped for a while: a
 *   connection that is closed at once is reset, and a client that is still sending loses its last reply.
 */
type Writing = 'nothing' | 'continue' | 'reply' | 'replied' | 'ended';

// All moves. `#goesOnAfter` decides whether a reply is the last one.
//
// | reading         | writing         | event                                    | reading       | writing           |
// | --------------- | --------------- | ---------------------------------------- | ------------- | ----------------- |
// | new, idle       | nothing         | the first byte of a head                 | head          | same              |
// | head            | nothing         | the head ends                            | body or whole | continue or reply |
// | body            | continue, reply | the handler holds the body               | held          | same              |
// | held            | continue, reply | the handler reads the body               | body          | same              |
// | any             | continue        | the handler reads the body               | same          | reply             |
// | body            | continue, reply | the body ends                            | whole         | same              |
// | body, held      | continue, reply | the body is malformed, late or cut off   | over          | same              |
// | body, held      | reply           | a reply                                  | body          | replied           |
// | body            | replied         | the body ends                            | idle          | nothing           |
// | body            | replied         | the body is malformed, late or too large | over          | ended             |
// | whole           | reply           | a reply                                  | idle          | nothing           |
// | any             | continue, reply | the last reply                           | over          | ended             |
// | new, idle, head | nothing         | bytes that are no request, or come late  | over          | ended             |
// | any             | any             | the client has gone                      | over          | ended             |

// A read of this size is most likely followed by another one at once.
const largeReadBytes = 65_536;

const continueText = 'HTTP/1.1 100 Continue\r\n\r\n';
const closeLine = 'connection: close\r\n';

export class ServerConnection implements Connection, Transport, Client, Sink<RequestHead>, TurnTaker {
  readonly socket: Socket;
  /** Read when the connection opens: after it has closed, the system no longer knows it. */
  readonly address: string | undefined;
  readonly #context: ConnectionContext;
  readonly #reader: RequestReader;
  readonly #ahead = new SentAhead();
  readonly #share = new TurnShare();
  #reading: Reading = 'new';
  #writing: Writing = 'nothing';
  // The start of the time that is allowed in this state, by `monotonicMs`.
  #since = monotonicMs();
  // The request that is read or answered; undefined between two of them.
  #head: RequestHead | undefined;
  // Who is told of it; undefined when the client is owed nothing.
  #incoming: Incoming | undefined;
  #bodyBytes = 0;

  constructor(socket: Socket, context: ConnectionContext) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    this.#context = context;
    this.#reader = new RequestReader(this, context.requestHeadBytesMax);
    socket
      .on('data', (bytes: Buffer) => {
        this.#run(() => {
          this.#onData(bytes);
        });
      })
      .on('end', () => {
        this.#run(() => {
          this.#onSocketEnd();
        });
      })
      .on('drain', this.#goOn)
      // Its close follows.
      .on('error', () => undefined)
      .on('close', () => {
        this.#run(() => {
          this.#leave();
        });
      });
  }

  // A fault of our own outside of a request: this connection ends, and no other [D28].
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

  // Times and rest.

  restsSince(now: number): number {
    const rests = this.#writing === 'nothing' && this.#ahead.isEmpty && this.socket.writableLength === 0;
    return rests ? now - this.#since : 0;
  }

  isQuiet(quietMs: number, from: number): boolean {
    return (
      (this.#isIdle || this.#writing === 'ended') &&
      this.#ahead.isEmpty &&
      this.socket.writableLength === 0 &&
      monotonicMs() - Math.max(this.#since, from) >= quietMs
    );
  }

  get #isIdle(): boolean {
    return this.#reading === 'new' || this.#reading === 'idle';
  }

  checkTime(now: number): void {
    const { requestHeadersTimeoutMs, requestTimeoutMs, idleTimeoutMs } = this.#context;
    const took = now - this.#since;
    switch (this.#reading) {
      case 'new':
        this.#checkRest(now, requestHeadersTimeoutMs);
        break;
      case 'idle':
        this.#checkRest(now, idleTimeoutMs);
        break;
      case 'head':
        if (this.#readsSocket && took >= Math.min(requestHeadersTimeoutMs, requestTimeoutMs)) {
          this.#run(() => {
            this.#refuse('timeout');
          });
        }
        break;
      case 'body':
      case 'held':
        if (took >= requestTimeoutMs) {
          this.#run(() => {
            this.#breakBody('timeout');
          });
        }
        break;
      case 'over':
        if (this.#writing === 'ended') {
          this.#checkRest(now, lingerMs);
        }
        break;
      case 'whole':
      // The handler takes this time, and not the client.
    }
  }

  #checkRest(now: number, restMsMax: number): void {
    if (this.socket.writableLength > 0) {
      // The client is still taking the last reply.
      this.#since = now;
    } else if (this.#ahead.isEmpty && now - this.#since >= restMsMax) {
      this.socket.destroy();
    }
  }

  // Reading.

  #onData(bytes: Buffer): void {
    // What is held already came first.
    const rest = this.#ahead.isEmpty ? this.#take(bytes, false) : bytes;
    if (rest.length > 0) {
      this.#ahead.hold(rest);
    }
    // A client that sends much has had its turn.
    if (bytes.length >= largeReadBytes) {
      this.#share.wait(this);
    }
    this.#setFlow();
  }

  // The socket is read as long as the connection does not wait for its turn, and not too much is held.
  get #readsSocket(): boolean {
    return !this.#share.isWaiting && !this.#ahead.isFull;
  }

  // The only place that pauses and resumes the socket.
  #setFlow(): void {
    if (this.#readsSocket === this.socket.isPaused()) {
      if (this.#readsSocket) {
        this.socket.resume();
      } else {
        this.socket.pause();
      }
    }
  }

  get #mayTake(): boolean {
    const isWanted = this.#reading !== 'whole' && this.#reading !== 'held' && this.#reading !== 'over';
    // A socket that is destroyed closes only later.
    return isWanted && !this.socket.writableNeedDrain && !this.socket.destroyed;
  }

  // Takes requests from `bytes` until these end, or until the client must wait: for a reply, for its turn, or to take what
  // it has got. Returns what is left to be held. A loop, not a chain of calls: thousands of requests that are answered at
  // once must not exhaust the stack.
  #take(bytes: Buffer, isAhead: boolean): Buffer {
    let at = 0;
    while (at < bytes.length && this.#mayTake) {
      if (this.#writing === 'nothing' && !this.#share.mayStart(isAhead || at > 0)) {
        this.#share.wait(this);
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
      if (this.#isIdle && this.#reader.isInHead) {
        this.#beginHead();
      }
    }
    return at === bytes.length || this.#writing === 'ended' ? noBytes : bytes.subarray(at);
  }

  // The time of the first head begins with the connection.
  #beginHead(): void {
    if (this.#reading === 'idle') {
      this.#since = monotonicMs();
    }
    this.#reading = 'head';
  }

  // Goes on with what was sent ahead, as far as that is possible now.
  readonly #goOn = (): void => {
    try {
      if (!this.#share.isWaiting && this.#mayTake) {
        this.#ahead.keep(this.#take(this.#ahead.take(), true));
        if (this.#ahead.hasEnded && this.#ahead.isEmpty && this.#readsSocket) {
          this.#finishAfterEnd();
        }
      }
      this.#setFlow();
    } catch (error) {
      this.#fail(error);
    }
  };

  /** @internal Goes on, after others have had their turn. */
  takeTurn(): void {
    this.#share.begin();
    this.#goOn();
  }

  /** @internal */
  onHead(head: RequestHead): void {
    if (this.#isIdle) {
      this.#beginHead();
    }
    this.#share.countStart();
    this.#head = head;
    this.#bodyBytes = 0;
    this.#reading = head.bodyLength === 0 ? 'whole' : 'body';
    this.#writing = head.expectation === 'continue' ? 'continue' : 'reply';
    this.#incoming = this.#context.handler.accept(head, this, this);
    this.#incoming.start();
  }

  /** @internal */
  onBody(piece: Buffer): void {
    this.#bodyBytes += piece.length;
    if (this.#incoming !== undefined) {
      this.#incoming.onBody(piece);
    } else if (this.#bodyBytes > this.#context.requestBytesMax) {
      this.#end();
    }
  }

  /** @internal */
  onEnd(): void {
    // A request without a body was whole before.
    if (this.#reading === 'body') {
      this.#reading = 'whole';
      if (this.#writing === 'replied') {
        this.#beginNext();
      } else {
        this.#incoming?.onBodyEnd();
      }
    }
  }

  // Bytes that are not HTTP. Requests before them have had their replies.
  #onFlaw(flaw: Broken): void {
    if (this.#writing === 'nothing') {
      this.#refuse(flaw);
    } else if (this.#reading === 'body') {
      this.#breakBody(flaw);
    }
    // Otherwise the last reply has been sent: whatever follows it is ignored.
  }

  #breakBody(reason: Broken): void {
    if (this.#incoming === undefined) {
      // The client would take a second reply for that of its next request.
      this.#end();
    } else {
      this.#reading = 'over';
      this.#ahead.drop();
      this.#setFlow();
      this.#incoming.onBroken(reason);
    }
  }

  // The client sends nothing more. It has gone, unless it waits for what it has sent only a part of. What is held comes
  // first.
  #onSocketEnd(): void {
    this.#ahead.hasEnded = true;
    const { requestHeadBytesMax } = this.#context;
    if (this.#reading === 'whole' ? !this.#ahead.isCutOff(requestHeadBytesMax) : this.#ahead.isEmpty) {
      this.#finishAfterEnd();
    }
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
      // The last reply is still to come, or was sent, or the client has gone already.
    }
  }

  // The client has gone: nothing that it sent ahead starts, and whoever answers it is told.
  #leave(): void {
    const incoming = this.#incoming;
    this.#incoming = undefined;
    this.#end();
    incoming?.onGone();
  }

  // Writing.

  holdBody(): void {
    if (this.#reading === 'body' && this.#writing !== 'replied') {
      this.#reading = 'held';
      this.#reader.isHeld = true;
    }
  }

  readBody(): void {
    this.#releaseBody();
    if (this.#writing === 'continue') {
      this.#writing = 'reply';
      this.socket.write(continueText);
    }
  }

  #releaseBody(): void {
    if (this.#reading === 'held') {
      this.#reading = 'body';
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

  cut(): void {
    this.socket.destroy();
  }

  #refuse(reason: Broken): void {
    this.#send(this.#context.handler.refuse(reason, this), () => undefined);
  }

  #send(reply: Reply, onTaken: () => void): void {
    this.#releaseBody();
    const goesOn = this.#goesOnAfter(reply);
    const head = writeReplyHead(reply, (goesOn ? this.#context.keepAliveLines : closeLine) + writeDate());
    writeMessage(this.socket, head, this.#head?.method === 'HEAD' ? noPieces : reply.pieces, onTaken);
    if (this.socket.writableLength > 0) {
      this.#context.stallWatch.watch(this.socket, this.#incoming);
    }
    this.#incoming = undefined;
    if (!goesOn) {
      this.#end();
    } else if (this.#reading === 'whole') {
      this.#beginNext();
    } else {
      this.#writing = 'replied';
    }
  }

  // The only place that decides whether the connection goes on after a reply [RFC 9112, 9.3].
  #goesOnAfter(reply: Reply): boolean {
    return (
      !reply.closes &&
      // A refusal has no head: nobody knows where the next request begins.
      this.#head?.persists === true &&
      this.#reading !== 'over' &&
      // A client that still waits for `100 Continue` may send its body or not [RFC 9110, 10.1.1].
      this.#writing !== 'continue'
    );
  }

  #beginNext(): void {
    this.#reading = 'idle';
    this.#writing = 'nothing';
    this.#since = monotonicMs();
    this.#head = undefined;
    if (!this.#ahead.isEmpty || this.#ahead.hasEnded) {
      this.#goOnSoon();
    }
  }

  // Deferred, so that the caller finishes first.
  #goOnSoon(): void {
    queueMicrotask(this.#goOn);
  }

  #end(): void {
    this.#reading = 'over';
    this.#writing = 'ended';
    this.#since = monotonicMs();
    this.#ahead.drop();
    this.#setFlow();
    this.socket.end();
  }
}

const noBytes = Buffer.alloc(0);
const noPieces: readonly Buffer[] = [];
const endFlaw: Broken = { kind: 'malformed', reason: 'a request that is cut off' };
