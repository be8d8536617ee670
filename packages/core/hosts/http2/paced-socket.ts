// A socket whose bytes are handed on in turns [D58]. The platform's HTTP/2 reads a socket for as long as there is
// something to read, up to 512 KB in one go; 50,000 frames of one byte are in that, and everybody else waits. And what
// has to be kept is bounded here for all streams together: the library bounds it for each.

import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

import { monotonicMs } from '../../time/monotonic.ts';
import { currentTurn, queueForTurn, type TurnTaker } from '../../http1/turns.ts';
import { FrameMeter, type Allowance } from './frame-meter.ts';

/** Of bodies that nobody reads yet, in bytes, for a connection [D58]. */
export const keptBytesMax = 65_536;

// In each turn of the event loop: a client that sends little never waits for others.
const inAnyTurn: Readonly<Allowance> = { frames: 64, heads: 4, headBytes: 4_096 };
// Besides, in a turn of its own.
const inOwnTurn: Readonly<Allowance> = { frames: 256, heads: 12, headBytes: 4_096 };

export class PacedSocket extends Duplex implements TurnTaker {
  readonly #socket: Socket;
  readonly meter = new FrameMeter();
  readonly #keptBytes: () => number;
  // The head that is under way, and since when it is.
  #head = 0;
  #headSince: number | undefined;
  // What has come and was not handed on; the socket is paused meanwhile.
  #held: Buffer | undefined;
  #isYielding = false;
  // What may still be handed on in the turn of the event loop with the number `#turn`.
  #left: Allowance = { ...inAnyTurn };
  #turn = 0;

  /** `keptBytes` says how many bytes of what was handed on are kept unread. */
  constructor(socket: Socket, keptBytes: () => number) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
    this.#keptBytes = keptBytes;
    socket
      .on('data', (bytes: Buffer) => {
        this.#held = this.#held === undefined ? bytes : Buffer.concat([this.#held, bytes]);
        if (this.#isYielding || this.isPaused()) {
          socket.pause();
        } else {
          this.#give();
        }
      })
      .on('error', () => {
        socket.destroy();
      })
      // A client that sends no more has gone.
      .once('end', () => {
        socket.destroy();
      })
      .once('close', () => {
        this.destroy();
      });
  }

  /** For how long a request's head has been on its way, in ms as of `now`; 0 while none is. */
  headTook(now: number): number {
    return this.#headSince === undefined ? 0 : now - this.#headSince;
  }

  /** Sends a frame of ours between those of the library, which hands over whole ones. */
  sendFrame(frame: Buffer): void {
    if (!this.destroyed && !this.writableEnded) {
      this.write(frame);
    }
  }

  /** Less is kept than before. */
  goOn(): void {
    if (!this.#isYielding && !this.isPaused()) {
      this.#give();
    }
  }

  /** @internal */
  takeTurn(): void {
    this.#left = { ...inOwnTurn };
    this.#turn = currentTurn();
    this.#giveMore();
  }

  /** @internal The library goes on reading. Deferred, as the stream tells of nothing that is pushed meanwhile. */
  override _read(): void {
    if (!this.#isYielding && this.#held !== undefined) {
      this.#isYielding = true;
      process.nextTick(this.#giveMore);
    }
  }

  readonly #giveMore = (): void => {
    this.#isYielding = false;
    if (!this.isPaused()) {
      this.#give();
    }
  };

  #give(): void {
    const bytes = this.#held;
    if (bytes === undefined || this.destroyed) {
      return;
    }
    const turn = currentTurn();
    if (this.#turn !== turn) {
      this.#left = { ...inAnyTurn };
      this.#turn = turn;
    }
    const room = this.meter.stop === 'excess' ? 0 : keptBytesMax - this.#keptBytes();
    if (room <= 0) {
      // It is we who keep a head from coming.
      this.#headSince = undefined;
      this.#socket.pause();
      return;
    }
    const end = this.meter.take(bytes.length > room ? bytes.subarray(0, room) : bytes, this.#left);
    const head = this.meter.headUnderWay;
    this.#headSince =
      head === 0 ? undefined : head === this.#head ? (this.#headSince ?? monotonicMs()) : monotonicMs();
    this.#head = head;
    const { stop } = this.meter;
    this.#held = end < bytes.length ? bytes.subarray(end) : undefined;
    this.#isYielding = stop === 'body' || (stop === undefined && this.#held !== undefined);
    if (this.#held === undefined) {
      if (this.#socket.isPaused()) {
        this.#socket.resume();
      }
    } else if (stop === undefined) {
      this.#socket.pause();
      queueForTurn(this);
    }
    if (end > 0) {
      this.push(end < bytes.length ? bytes.subarray(0, end) : bytes);
    }
    if (stop === 'body') {
      // The library tells of the stream in the ticks that it has queued by now.
      process.nextTick(this.#giveMore);
    }
  }

  /** @internal */
  override _write(bytes: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#socket.write(bytes, done);
  }

  /** @internal */
  override _writev(pieces: { readonly chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#socket.write(Buffer.concat(pieces.map(({ chunk }) => chunk)), done);
  }

  /** @internal */
  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  /** @internal */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#held = undefined;
    this.#socket.destroy();
    done(error);
  }
}
