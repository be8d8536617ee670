// Closes connections whose clients stop reading their reply [D35]. Two numbers show that a client reads: the bytes queued
// in this process and, on Linux, the unacknowledged bytes in the kernel (up to 4 MB). The first number changes only when
// the kernel accepts more bytes. By this number alone, a client that reads 40 KB a second looks stalled for half a minute.

import type { Socket } from 'node:net';

import { monotonicMs } from '../time/monotonic.ts';
import { carrierOf, handleOf } from './node-internals.ts';
import { inodeOf, readUnacknowledged } from './tcp-table.ts';

interface Progress<Call> {
  call: Call;
  /** The socket's inode on Linux, looked up when first needed. */
  inode: string | undefined;
  queued: number;
  unacknowledged: number | undefined;
  since: number;
}

// A connection is closed at most the sum of these two times too late; [D35] allows a second.
const sweepMsMax = 100;
// Reading the kernel's table takes some microseconds per socket, so it is read only while a client seems stalled.
const tableMsMax = 250;

/** `Call` is the caller's type for a call. It is undefined for a reply to a malformed request. */
export class StallWatch<Call> {
  readonly #timeoutMs: number;
  readonly #tableMs: number;
  readonly #onStall: (call: Call) => void;
  readonly #readTable: typeof readUnacknowledged;
  readonly #watched = new Map<Socket, Progress<Call>>();
  #timer: NodeJS.Timeout | undefined;
  #isReadingTable = false;
  #tableReadAt = -Infinity;

  /** Calls `onStall` with the call whose reply was not read. `onStall` must not throw. */
  constructor(timeoutMs: number, onStall: (call: Call) => void, readTable = readUnacknowledged) {
    this.#readTable = readTable;
    this.#timeoutMs = timeoutMs;
    this.#onStall = onStall;
    this.#tableMs = Math.min(tableMsMax, timeoutMs / 4);
  }

  /** Watches `socket` after a reply to `call` was written, until all of its bytes have left this process. */
  watch(socket: Socket, call: Call): void {
    const progress = this.#watched.get(socket);
    if (progress === undefined) {
      this.#watched.set(socket, {
        call,
        inode: undefined,
        queued: queuedBytes(socket),
        unacknowledged: undefined,
        since: monotonicMs(),
      });
    } else {
      progress.call = call ?? progress.call;
    }
    this.#timer ??= setInterval(() => this.#sweep(), Math.min(sweepMsMax, Math.max(10, this.#timeoutMs / 4))).unref();
  }

  #sweep(): void {
    const now = monotonicMs();
    let isAnyStalled = false;
    for (const [socket, progress] of this.#watched) {
      const queued = queuedBytes(socket);
      if (socket.destroyed || socket.writableLength === 0) {
        this.#watched.delete(socket);
      } else if (queued !== progress.queued) {
        progress.queued = queued;
        progress.unacknowledged = undefined;
        progress.since = now;
      } else if (now - progress.since >= this.#timeoutMs) {
        this.#watched.delete(socket);
        socket.destroy();
        this.#onStall(progress.call);
      } else {
        isAnyStalled ||= now - progress.since >= this.#tableMs;
      }
    }
    if (this.#watched.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    if (isAnyStalled && !this.#isReadingTable && now - this.#tableReadAt >= this.#tableMs) {
      this.#isReadingTable = true;
      void this.#compareTable();
    }
  }

  async #compareTable(): Promise<void> {
    const unacknowledged = await this.#readTable();
    this.#isReadingTable = false;
    const now = monotonicMs();
    this.#tableReadAt = now;
    if (unacknowledged === undefined) {
      return;
    }
    for (const [socket, progress] of this.#watched) {
      progress.inode ??= inodeOf(socket);
      if (progress.inode !== undefined && now - progress.since >= this.#tableMs) {
        const bytes = unacknowledged.get(progress.inode) ?? 0;
        // The first number from the table counts as progress, because there is no earlier one to compare it with.
        if (bytes !== progress.unacknowledged) {
          progress.unacknowledged = bytes;
          progress.since = now;
        }
      }
    }
  }
}

// Node treats a large reply as one write, so `writableLength` changes only when its last byte has left. The queue of
// the handle shrinks with each piece that the OS accepts; Node's socket timeout uses this queue too. TLS encrypts a
// whole reply at once, so only the plain socket below it shows progress.
function queuedBytes(socket: Socket): number {
  return handleOf(carrierOf(socket) ?? socket)?.writeQueueSize ?? socket.writableLength;
}
