// Closes connections whose clients stop reading their reply [D35].
//
// Node's public properties do not show whether a client reads. Node treats a large reply as one write, so
// `writableLength` changes only when the reply's last byte has left. So this file reads how many bytes the OS has
// accepted. With the usual buffers of 4 MB, Linux accepts more after a third of them is free: from a client that reads
// 40 KB a second, once in half a minute. So the timeout should be a minute or more.

import type { Socket } from 'node:net';

import { monotonicMs } from '../../time/monotonic.ts';
import { carrierOf, handleOf } from '../../http1/node-internals.ts';
import { Sweeper } from './sweeper.ts';

interface Progress<Call> {
  call: Call;
  isDone: () => boolean;
  accepted: number;
  since: number;
}

// A connection is closed at most this many ms too late; [D35] allows 1 s.
const sweepMsMax = 200;

/** `Call` is the type of the values that `watch` gets. The value is undefined for a reply to a malformed request. */
export class StallWatch<Call> {
  readonly #timeoutMs: number;
  readonly #onStall: (call: Call) => void;
  readonly #watched = new Map<Socket, Progress<Call>>();
  readonly #sweeper: Sweeper;

  /** Calls `onStall` with the call whose reply was not read. `onStall` must not throw. */
  constructor(timeoutMs: number, onStall: (call: Call) => void) {
    this.#timeoutMs = timeoutMs;
    this.#onStall = onStall;
    const sweepMs = Math.min(sweepMsMax, Math.max(10, timeoutMs / 4));
    this.#sweeper = new Sweeper(sweepMs, (now, mayPass) => this.#sweep(now, mayPass));
  }

  /**
   * Watches `socket` after a reply to `call` was written, until `isDone` returns true. Default: until all bytes have left
   * this process. Without a connection, as in Fastify's `inject`, `writableLength` is undefined.
   */
  watch(socket: Socket, call: Call, isDone = (): boolean => !(socket.writableLength > 0)): void {
    const progress = this.#watched.get(socket);
    if (progress === undefined) {
      this.#watched.set(socket, { call, isDone, accepted: acceptedBytes(socket), since: monotonicMs() });
    } else {
      progress.call = call ?? progress.call;
      progress.isDone = isDone;
    }
    this.#sweeper.start();
  }

  #sweep(now: number, mayCut: boolean): boolean {
    for (const [socket, progress] of this.#watched) {
      const accepted = acceptedBytes(socket);
      if (socket.destroyed || progress.isDone()) {
        this.#watched.delete(socket);
      } else if (accepted !== progress.accepted || socket.writableLength === 0) {
        progress.accepted = accepted;
        progress.since = now;
      } else if (mayCut && now - progress.since >= this.#timeoutMs) {
        this.#watched.delete(socket);
        socket.destroy();
        this.#onStall(progress.call);
      }
    }
    return this.#watched.size > 0;
  }
}

// Further replies in the queue do not change this number. TLS encrypts a whole reply in one step, so only the carrier's
// number shows progress.
function acceptedBytes(socket: Socket): number {
  const { bytesWritten = socket.bytesWritten, writeQueueSize = socket.writableLength } =
    handleOf(carrierOf(socket) ?? socket) ?? {};
  return bytesWritten - writeQueueSize;
}
