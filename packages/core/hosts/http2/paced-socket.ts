// Limits the bytes that a socket passes to node:http2 per turn of the event loop [D58]. Otherwise Node reads up to
// 512 KB in one turn, for example 50,000 frames of one byte, while all other connections wait. Also limits the buffered
// body bytes per connection; Node limits them only per stream.

import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

import { monotonicMs } from '../../time/monotonic.ts';
import { appendBytes } from '../../http1/growing-buffer.ts';
import { setReading } from '../../http1/node-internals.ts';
import { currentTurn, TurnShare, type TurnTaker } from '../../http1/turns.ts';
import { FrameMeter, type Allowance } from './frame-meter.ts';

/** Largest number of unread body bytes that are buffered per connection [D58]. */
export const keptBytesMax = 65_536;

// Input that is passed on without waiting, per turn of the event loop. So a client that sends little never waits for
// other clients. Further input waits in the queue of turns.ts.
const inAnyTurn: Readonly<Allowance> = { frames: 64, heads: 4, headBytes: 4_096 };
// Input that is passed on when the queue reaches this connection.
const inOwnTurn: Readonly<Allowance> = { frames: 256, heads: 12, headBytes: 4_096 };

const noBytes = Buffer.alloc(0);
const copyBytesMin = 4_096;

export class PacedSocket extends Duplex implements TurnTaker {
  readonly #socket: Socket;
  readonly meter = new FrameMeter();
  readonly #keptBytes: () => number;
  readonly #share = new TurnShare();
  // Received bytes that are not yet passed on. `#isCopy`: they are in a buffer of `appendBytes`.
  #held: Buffer | undefined;
  #unreadSince: number | undefined;
  #isCopy = false;
  #isReading = true;
  #isYielding = false;
  // The allowance that is left in the event-loop turn with the number `#turn`.
  #left: Allowance = { ...inAnyTurn };
  #turn = 0;

  /** `keptBytes` returns how many body bytes were passed on and are still unread. */
  constructor(socket: Socket, keptBytes: () => number) {
    super();
    // node:http2 pauses and resumes this stream. Bytes are held back while it is paused.
    this.on('resume', () => {
      this.#unreadSince = undefined;
      this.goOn();
    });
    this.#socket = socket;
    this.#keptBytes = keptBytes;
    socket
      .on('data', (bytes: Buffer) => {
        this.#hold(bytes);
        const waits = !this.#share.countRead(bytes.length);
        if (this.#mayGive) this.#give();
        else this.#setReading(false);
        if (waits) this.#wait();
      })
      .on('error', () => socket.destroy())
      // A client that half-closes the connection is treated as gone.
      .once('end', () => socket.destroy())
      .once('close', () => this.destroy());
  }

  /** The memory of received bytes that wait to be passed on, and of sent bytes that the OS has not accepted. */
  get heldBytes(): number {
    return (this.#held?.buffer.byteLength ?? 0) + this.readableLength + this.#socket.readableLength;
  }

  /** The memory of output that the OS does not have yet. TLS encrypts a copy of it. */
  get unsentBytes(): number {
    return this.writableLength + this.#socket.writableLength;
  }

  /**
   * Milliseconds for which node:http2 has not read, although all that it wrote has left. After some errors, node:http2
   * never reads again, and so never receives the client's FIN.
   */
  unreadFor(now: number): number {
    const isUnread = this.isPaused() && this.#socket.writableLength === 0;
    this.#unreadSince = isUnread ? (this.#unreadSince ?? now) : undefined;
    return now - (this.#unreadSince ?? now);
  }

  /** Must be called when fewer body bytes are buffered than before. */
  goOn(): void {
    if (this.#mayGive) this.#give();
  }

  get #mayGive(): boolean {
    return !this.#isYielding && !this.#share.isWaiting && !this.isPaused();
  }

  #wait(): void {
    this.#setReading(false);
    this.#share.wait(this);
  }

  /** @internal */
  takeTurn(): void {
    this.#share.begin();
    this.#left = { ...inOwnTurn };
    this.#turn = currentTurn();
    this.goOn();
  }

  /** @internal */
  override _read(): void {
    // Bytes are passed on when they arrive, in this connection's turn, and after `goOn` or `resume`.
  }

  #hold(bytes: Buffer): void {
    if (this.#held === undefined) {
      this.#held = bytes;
      this.#isCopy = false;
    } else {
      // Copied once, because bytes that arrive in many pieces would otherwise be copied with each piece.
      const held = this.#isCopy ? this.#held : appendBytes(noBytes, this.#held, copyBytesMin);
      this.#held = appendBytes(held, bytes, copyBytesMin);
      this.#isCopy = true;
    }
  }

  #setReading(reads: boolean): void {
    if (reads !== this.#isReading) {
      this.#isReading = reads;
      setReading(this.#socket, reads);
    }
  }

  readonly #giveMore = (): void => {
    this.#isYielding = false;
    this.goOn();
  };

  #give(): void {
    const bytes = this.#held;
    if (bytes === undefined) this.#setReading(true);
    if (bytes === undefined || this.destroyed) return;
    const turn = currentTurn();
    if (this.#turn !== turn) {
      this.#left = { ...inAnyTurn };
      this.#turn = turn;
    }
    const room = this.meter.stop === 'excess' ? 0 : keptBytesMax - this.#keptBytes();
    if (room <= 0) {
      this.#setReading(false);
      return;
    }
    const end = this.meter.take(bytes.subarray(0, room), this.#left);
    if (this.meter.isInHead) this.meter.headSince ??= monotonicMs();
    const { stop } = this.meter;
    this.#held = end < bytes.length ? bytes.subarray(end) : undefined;
    this.#isYielding = stop === 'body';
    if (this.#held === undefined) {
      this.#setReading(true);
    } else if (stop === undefined) {
      this.#wait();
    }
    if (end > 0) this.push(bytes.subarray(0, end));
    if (stop === 'body') {
      // Runs after node:http2 has emitted 'stream', because node:http2 has already called `nextTick` to emit it.
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
