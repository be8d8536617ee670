// Closes connections whose clients stop reading their reply [D35].
//
// Node's public properties do not show whether a client reads. Node treats a large reply as one write, so
// `writableLength` changes only when the reply's last byte has left. So this file reads the queue of the socket's
// handle, which shrinks with each piece that the OS accepts. On Linux this file also reads how many unacknowledged bytes
// the kernel holds, which can be 4 MB. Otherwise a client that reads 40 KB a second would look stalled, because the
// kernel accepts further bytes only once in half a minute.

import { readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';

import { monotonicMs } from '../time/monotonic.ts';
import { carrierOf, handleOf } from './node-internals.ts';

interface Progress<Call> {
  call: Call;
  /** The socket's inode on Linux, looked up when first needed. */
  inode: string | undefined;
  queued: number;
  unacknowledged: number | undefined;
  since: number;
}

// A connection is closed at most `sweepMsMax` + `tableMsMax` too late; [D35] allows 1 s.
const sweepMsMax = 100;
// Reading the kernel's table takes some microseconds per socket, so it is read only while a client seems stalled.
const tableMsMax = 250;

/** `Call` is the type of the values that `watch` gets. The value is undefined for a reply to a malformed request. */
export class StallWatch<Call> {
  readonly #timeoutMs: number;
  readonly #tableMs: number;
  readonly #onStall: (call: Call) => void;
  readonly #readTable: typeof readUnacknowledged;
  readonly #watched = new Map<Socket, Progress<Call>>();
  #timer: NodeJS.Timeout | undefined;
  // `Infinity` while the table is being read.
  #nextTableAt = -Infinity;

  /** Calls `onStall` with the call whose reply was not read. `onStall` must not throw. */
  constructor(timeoutMs: number, onStall: (call: Call) => void, readTable = readUnacknowledged) {
    this.#readTable = readTable;
    this.#timeoutMs = timeoutMs;
    this.#onStall = onStall;
    this.#tableMs = Math.min(tableMsMax, timeoutMs / 4);
  }

  /** Watches `socket` after a reply to `call` was written, until all bytes of the reply have left this process. */
  watch(socket: Socket, call: Call): void {
    const progress = this.#watched.get(socket);
    if (progress === undefined) {
      const queued = queuedBytes(socket);
      this.#watched.set(socket, { call, inode: undefined, queued, unacknowledged: undefined, since: monotonicMs() });
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
    if (isAnyStalled && now >= this.#nextTableAt) {
      this.#nextTableAt = Infinity;
      void this.#compareTable();
    }
  }

  async #compareTable(): Promise<void> {
    const unacknowledged = await this.#readTable();
    const now = monotonicMs();
    this.#nextTableAt = now + this.#tableMs;
    if (unacknowledged === undefined) return;
    for (const [socket, progress] of this.#watched) {
      progress.inode ??= inodeOf(socket);
      if (progress.inode !== undefined && now - progress.since >= this.#tableMs) {
        const bytes = unacknowledged.get(progress.inode) ?? 0;
        // The first number from the table counts as progress, because there is no earlier number to compare it with.
        if (bytes !== progress.unacknowledged) {
          progress.unacknowledged = bytes;
          progress.since = now;
        }
      }
    }
  }
}

// TLS encrypts a whole reply in one step, so only the plain socket below the TLS socket shows progress.
function queuedBytes(socket: Socket): number {
  return handleOf(carrierOf(socket) ?? socket)?.writeQueueSize ?? socket.writableLength;
}

/** Returns the inode of `socket` on Linux; undefined on other systems, and for a closed socket. */
export function inodeOf(socket: Socket): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${String(handleOf(socket)?.fd)}`).slice('socket:['.length, -1);
  } catch {
    return undefined;
  }
}

// Linux lists all TCP sockets in two tables (proc_pid_net(5)). Node cannot query a single socket.
const tables = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** Maps the inode of each TCP socket with unacknowledged bytes to their number; undefined if not on Linux. */
export async function readUnacknowledged(paths = tables): Promise<ReadonlyMap<string, number> | undefined> {
  const texts = await Promise.all(paths.map(async (path) => await readFile(path, 'latin1').catch(() => '')));
  // The first line of each table has the names of its columns. Without IPv6 the second table is missing.
  const rows = texts.flatMap((text) => text.split('\n').slice(1));
  if (rows.length === 0) return undefined;
  const bytes = new Map<string, number>();
  for (const row of rows) {
    if (!row.includes(' 00000000:')) {
      // The fifth field is `tx_queue:rx_queue`, the tenth is the inode (proc_pid_net(5)).
      const [, , , , queues, , , , , inode] = row.trim().split(/ +/);
      if (inode !== undefined) bytes.set(inode, Number.parseInt(String(queues), 16));
    }
  }
  return bytes;
}
