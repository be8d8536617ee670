// What the gateway knows of one client's connection: whose turn it is (requests of one connection are
// answered in order and a write ends before the next begins, RFC 9112, 9.3.2 [D27]) and whether a request is
// on its way. It knows nothing of operations or the backend.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Something that waits for its turn on a connection: a request, or a last reply before closing. */
export interface Turn {
  start(): void;
  /** The client has gone. Called once, only between `start` and `ClientConnection.finish`. */
  leave(): void;
}

// Requests sent ahead that may wait, or be answered without a pause, before the socket is read no further.
const waitingMax = 16;
const connectionKey = Symbol('work-item-gateway.connection');

export class ClientConnection {
  readonly socket: Socket;
  /** The request that was answered last, where its body had not come to its end by then. */
  answeredEarly: { readonly complete: boolean } | undefined;
  /** The last reply, where Node could not write all of it at once: others may come before it. */
  unwrittenReply: ServerResponse | undefined;
  /** A last reply was decided; what else the client sends on this connection is not looked at. */
  isClosing = false;
  /** How many turns have been taken in. */
  turnCount = 0;
  /** Called whenever a turn that had to wait has started, or the connection is read again. */
  onProgress: (() => void) | undefined;
  #current: Turn | undefined;
  #waiting: Turn[] = [];
  #hasLeft = false;
  #isStarting = false;
  #awaitsDrain = false;
  #isPaused = false;
  #dropsRest = false;
  #staysPaused = false;
  #quietSince = performance.now();
  #bytesReadWhenQuiet = 0;
  #sentAheadCount = 0;

  /** The connection of `socket`, made at its first mention. */
  static of(socket: Socket): ClientConnection {
    const holder = socket as Socket & { [connectionKey]?: ClientConnection | undefined };
    return (holder[connectionKey] ??= new ClientConnection(socket));
  }

  private constructor(socket: Socket) {
    this.socket = socket;
    // Listeners for the socket's life instead of some for each request. With the client's FIN Node has ended its own
    // side: no reply gets there any more, and calls are cancelled before their clients' sockets are closed. A request
    // that the FIN cuts off still gets its 400, and those before it their replies.
    socket.once('end', () => {
      if (socket.writableEnded) {
        this.#leave();
      }
    });
    socket.once('close', () => {
      this.#leave();
    });
  }

  #leave(): void {
    if (!this.#hasLeft) {
      this.#hasLeft = true;
      this.isClosing = true;
      this.#waiting = [];
      this.#current?.leave();
    }
  }

  /** The turn that was enqueued last and has not finished. */
  get newest(): Turn | undefined {
    return this.#waiting.at(-1) ?? this.#current;
  }

  /** The connection is read no further for now. */
  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** `turn` waits for those before it. */
  isWaiting(turn: Turn): boolean {
    return this.#waiting.includes(turn);
  }

  /**
   * Starts `turn` now, or when those before it have finished and the client has taken their replies, all but what a
   * socket holds; a connection that is closing starts nothing.
   */
  enqueue(turn: Turn): void {
    if (this.isClosing) {
      this.dropRest();
      return;
    }
    this.turnCount += 1;
    if (this.#current === undefined && this.#waiting.length === 0 && !this.socket.writableNeedDrain) {
      this.#current = turn;
      this.#countSentAhead();
      turn.start();
      return;
    }
    this.#waiting.push(turn);
    this.#startWaiting();
    if (this.#waiting.length >= waitingMax && !this.#isPaused) {
      this.#pause();
    }
  }

  // Thousands that are answered at once, such as with a 400, would keep everybody else waiting.
  #countSentAhead(): void {
    const isInSameRead = this.socket.bytesRead === this.#bytesReadWhenQuiet;
    this.#sentAheadCount = isInSameRead ? this.#sentAheadCount + 1 : 0;
    if (this.#sentAheadCount >= waitingMax && !this.#isPaused) {
      this.#pause();
      setImmediate(() => {
        if (this.#waiting.length === 0) {
          this.#readOn();
        }
      });
    }
  }

  #readOn(): void {
    if (this.#isPaused) {
      this.#isPaused = false;
      this.socket.resume();
      this.onProgress?.();
    }
  }

  /**
   * Throws away what else comes. Node would make a request of each that comes behind the last one, and keep it until the
   * connection closes: of 60,000, freeing them took 7 s in which nobody was served. Its parser lets go of a socket that
   * another reads.
   */
  dropRest(): void {
    if (!this.#dropsRest) {
      this.#dropsRest = true;
      process.nextTick(() => {
        if (!this.socket.destroyed) {
          this.socket.removeAllListeners('data');
          this.socket.on('data', () => undefined);
        }
      });
    }
  }

  // Node lets the socket flow again behind every request that it has read and every reply that it has written:
  // it stays paused only by being paused anew each time.
  #pause(): void {
    this.#isPaused = true;
    this.socket.pause();
    if (!this.#staysPaused) {
      this.#staysPaused = true;
      this.socket.on('resume', () => {
        if (this.#isPaused) {
          this.socket.pause();
        }
      });
    }
  }

  /** As `enqueue`, and nothing after it. */
  enqueueLast(turn: Turn): void {
    this.enqueue(turn);
    this.isClosing = true;
  }

  /** Ends `turn`; the next one starts. */
  finish(turn: Turn): void {
    if (this.#current !== turn) {
      return;
    }
    this.#current = undefined;
    this.#quietSince = performance.now();
    this.#bytesReadWhenQuiet = this.socket.bytesRead;
    if (this.#waiting.length > 0) {
      this.#startWaiting();
    }
  }

  /** Drops what waits: the connection closes after the current reply. */
  close(): void {
    this.isClosing = true;
    this.#waiting = [];
    if (this.#isPaused) {
      this.dropRest();
      this.#readOn();
    }
  }

  // A loop, not a chain of calls: thousands of requests sent ahead must not exhaust the stack.
  #startWaiting(): void {
    if (this.#isStarting) {
      return;
    }
    this.#isStarting = true;
    while (this.#current === undefined) {
      if (this.socket.writableNeedDrain && this.#waiting.length > 0) {
        this.#startWhenTaken();
        break;
      }
      const next = this.#waiting.shift();
      if (next === undefined) {
        break;
      }
      this.#current = next;
      next.start();
    }
    this.#isStarting = false;
    if (this.#waiting.length === 0) {
      this.#readOn();
    }
    this.onProgress?.();
  }

  // Otherwise a client that takes nothing could have replies put together, one after another, until nothing is left
  // of the memory for everybody's.
  #startWhenTaken(): void {
    if (!this.#awaitsDrain) {
      this.#awaitsDrain = true;
      this.socket.once('drain', () => {
        this.#awaitsDrain = false;
        this.#startWaiting();
      });
    }
  }

  /** For how long no request has been under way, a head that is on its way not counted, in ms; 0 while one is. */
  restsSince(now: number): number {
    const isAtWork =
      this.#current !== undefined || this.#waiting.length > 0 || this.socket.writableLength > 0;
    return isAtWork ? 0 : now - this.#quietSince;
  }

  /** No request is under way and none has begun to arrive, for `quietMs` since then or since `from`. */
  isQuiet(quietMs: number, from: number): boolean {
    return (
      this.#current === undefined &&
      this.#waiting.length === 0 &&
      this.socket.writableLength === 0 &&
      this.socket.bytesRead === this.#bytesReadWhenQuiet &&
      performance.now() - Math.max(this.#quietSince, from) >= quietMs
    );
  }
}
