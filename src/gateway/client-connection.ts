// What the gateway knows of one client's connection: whose turn it is (requests of one connection are
// answered in order and a write ends before the next begins, RFC 9112, 9.3.2 [D27]) and whether a request is
// on its way. It knows nothing of operations or the backend.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { normalizeAddress } from '../guards/client-address.ts';

/** Something that waits for its turn on a connection: a request, or a last reply before closing. */
export interface Turn {
  start(): void;
  /** The client has gone. Called once, only between `start` and `ClientConnection.finish`. */
  leave(): void;
}

// Requests sent ahead that may wait before the socket is read no further.
const waitingMax = 16;
// Requests of one connection that may start in its turn, beside one as it comes: 16 in a turn of the event loop [D58].
const startsInTurnMax = 15;
// Connections that have their turn at once.
const turnsMax = 4;
const connectionKey = Symbol('work-item-gateway.connection');

export class ClientConnection {
  readonly socket: Socket;
  /** Who is at the other end; undefined where the system no longer knows, or it has no address. */
  readonly address: string | undefined;
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
  // Requests that the host of a plugin has in hand: they may become turns, or be answered by itself.
  #withHost = 0;
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
  #hasYielded = false;
  // How many may start before others have had their turn.
  #startsLeft = 1;
  #bytesReadAtStart = -1;

  /** The connection of `socket`, made at its first mention. */
  static of(socket: Socket): ClientConnection {
    const holder = socket as Socket & { [connectionKey]?: ClientConnection | undefined };
    return (holder[connectionKey] ??= new ClientConnection(socket));
  }

  private constructor(socket: Socket) {
    this.socket = socket;
    const { remoteAddress } = socket;
    this.address = remoteAddress === undefined ? undefined : normalizeAddress(remoteAddress);
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

  /** Requests wait for those before them. */
  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** How many more requests may be taken in. */
  get room(): number {
    return Math.max(1, waitingMax - this.#waiting.length - this.#withHost);
  }

  /** What else comes is thrown away. */
  get dropsRest(): boolean {
    return this.#dropsRest;
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
    if (this.socket.bytesRead !== this.#bytesReadAtStart) {
      // Whoever sends one request at a time waits for nobody.
      this.#startsLeft = Math.max(1, this.#startsLeft);
    }
    if (this.#canStart && this.#waiting.length === 0 && this.#startsLeft > 0) {
      this.#start(turn);
      return;
    }
    this.#waiting.push(turn);
    this.#startWaiting();
    if (this.#waiting.length >= waitingMax && !this.#isPaused) {
      this.pause();
    }
  }

  get #canStart(): boolean {
    return this.#current === undefined && !this.#hasYielded && !this.socket.writableNeedDrain;
  }

  #start(turn: Turn): void {
    this.#current = turn;
    this.#startsLeft -= 1;
    this.#bytesReadAtStart = this.socket.bytesRead;
    turn.start();
  }

  /**
   * Reads and starts nothing more before the other connections that want to have had their turn. Thousands of requests
   * that are answered at once, such as with a 400, would keep everybody else waiting [D58].
   */
  yieldTurn(): void {
    if (!this.#hasYielded) {
      this.#hasYielded = true;
      this.pause();
      if (turnQueue.push(this) === 1) {
        setImmediate(giveTurns);
      }
    }
  }

  /** Goes on after `yieldTurn`. */
  takeTurn(): void {
    this.#hasYielded = false;
    this.#startsLeft = startsInTurnMax;
    this.#startWaiting();
    if (this.#waiting.length + this.#withHost < waitingMax) {
      this.#readOn();
    }
  }

  /** A request has come that may become a turn, or be answered by the host of a plugin. */
  enterHost(): void {
    this.#withHost += 1;
  }

  /** Reads no further while too many requests are with the host. */
  holdBack(): void {
    if (this.#waiting.length + this.#withHost >= waitingMax && !this.#isPaused) {
      this.pause();
    }
  }

  /** It has become a turn, or been answered. */
  leaveHost(): void {
    this.#withHost -= 1;
    this.#noteQuiet();
    if (this.#waiting.length === 0 && this.#withHost < waitingMax) {
      this.#readOn();
    }
  }

  #readOn(): void {
    if (this.#isPaused && !this.#hasYielded) {
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

  /** Reads no further until no request waits, or the connection has had its turn. */
  // Node lets the socket flow again behind every request that it has read and every reply that it has written:
  // it stays paused only by being paused anew each time.
  pause(): void {
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
    this.#noteQuiet();
    if (this.#waiting.length > 0) {
      this.#startWaiting();
    }
  }

  // A request has been answered: what comes from now on is another.
  #noteQuiet(): void {
    this.#quietSince = performance.now();
    this.#bytesReadWhenQuiet = this.socket.bytesRead;
  }

  /** Drops what waits: the connection closes after the current reply. */
  close(): void {
    const isHeldBack = this.#isPaused && this.hasWaiting;
    this.isClosing = true;
    this.#waiting = [];
    if (isHeldBack) {
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
    while (this.#current === undefined && !this.#hasYielded) {
      if (this.socket.writableNeedDrain && this.#waiting.length > 0) {
        this.#startWhenTaken();
        break;
      }
      if (this.#startsLeft === 0 && this.#waiting.length > 0) {
        this.yieldTurn();
        break;
      }
      const next = this.#waiting.shift();
      if (next === undefined) {
        break;
      }
      this.#start(next);
    }
    this.#isStarting = false;
    if (this.#waiting.length === 0 && this.#withHost < waitingMax) {
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
      this.#current !== undefined ||
      this.#waiting.length > 0 ||
      this.#isPaused ||
      this.#withHost > 0 ||
      this.socket.writableLength > 0;
    return isAtWork ? 0 : now - this.#quietSince;
  }

  /** No request is under way and none has begun to arrive, for `quietMs` since then or since `from`. */
  isQuiet(quietMs: number, from: number): boolean {
    return (
      this.#current === undefined &&
      this.#waiting.length === 0 &&
      !this.#isPaused &&
      this.#withHost === 0 &&
      this.socket.writableLength === 0 &&
      this.socket.bytesRead === this.#bytesReadWhenQuiet &&
      performance.now() - Math.max(this.#quietSince, from) >= quietMs
    );
  }
}

// Those that have yielded, in order. A few of them have their turn in each turn of the event loop: all together take
// little more of everybody's time than one alone.
const turnQueue: ClientConnection[] = [];

function giveTurns(): void {
  const next = turnQueue.splice(0, turnsMax);
  if (turnQueue.length > 0) {
    setImmediate(giveTurns);
  }
  for (const connection of next) {
    connection.takeTurn();
  }
}
