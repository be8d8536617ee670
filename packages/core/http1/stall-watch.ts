// Closes the connections of clients that take no byte of their reply [D35]. What a client takes is seen in two places:
// in what this process still holds of the reply, which only moves when the system wants more, and, as long as that
// stands still, in what the system holds (up to 4 MB), where Linux says so. A client that takes 40 KB a second would
// otherwise look for half a minute like one that takes nothing.

import type { Socket } from 'node:net';

import { monotonicMs } from '../time/monotonic.ts';
import { carrierOf, handleOf } from './node-internals.ts';
import { inodeOf, readUnacknowledged } from './tcp-table.ts';

interface Progress<Call> {
  /** The last call that has written to the socket. */
  call: Call;
  /** The number by which Linux knows the socket; looked up when it is first needed. */
  inode: string | undefined;
  queued: number;
  unacknowledged: number | undefined;
  since: number;
}

// Together they are how late a cut-off may come, of the second that it has [D35].
const sweepMsMax = 100;
// Reading the system's table costs some microseconds for each of its sockets: it is done only while somebody stalls.
const tableMsMax = 250;

/** `Call` is whatever stands for a call to whoever is told; undefined for a reply to what was no call. */
export class StallWatch<Call> {
  readonly #timeoutMs: number;
  readonly #tableMs: number;
  readonly #onStall: (call: Call) => void;
  readonly #readTable: typeof readUnacknowledged;
  readonly #watched = new Map<Socket, Progress<Call>>();
  #timer: NodeJS.Timeout | undefined;
  #isReadingTable = false;
  #tableReadAt = -Infinity;

  /** `onStall` is told of the call whose reply was not taken, and must not throw. */
  constructor(timeoutMs: number, onStall: (call: Call) => void, readTable = readUnacknowledged) {
    this.#readTable = readTable;
    this.#timeoutMs = timeoutMs;
    this.#onStall = onStall;
    this.#tableMs = Math.min(tableMsMax, timeoutMs / 4);
  }

  /** Watches `socket`, to which `call` has written, while anything of that has not left this process. */
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
    this.#timer ??= setInterval(
      () => {
        this.#sweep();
      },
      Math.min(sweepMsMax, Math.max(10, this.#timeoutMs / 4)),
    ).unref();
  }

  #sweep(): void {
    const now = monotonicMs();
    let areSomeStill = false;
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
        areSomeStill ||= now - progress.since >= this.#tableMs;
      }
    }
    if (this.#watched.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    if (areSomeStill && !this.#isReadingTable && now - this.#tableReadAt >= this.#tableMs) {
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
        // The first look counts as progress too: what the client took before it is not known.
        if (bytes !== progress.unacknowledged) {
          progress.unacknowledged = bytes;
          progress.since = now;
        }
      }
    }
  }
}

// A large reply is one write for Node, so that `writableLength` stands still until its last byte has gone;
// the handle's own queue shrinks with each piece that the system takes. Node's socket timeout reads it too. TLS has all of
// the reply encrypted at once, and only the socket below it shows what has left.
function queuedBytes(socket: Socket): number {
  return handleOf(carrierOf(socket) ?? socket)?.writeQueueSize ?? socket.writableLength;
}
