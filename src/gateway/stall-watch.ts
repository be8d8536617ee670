// Closes the connections of clients that take no byte of their reply [D35]. What a client takes is seen in two places:
// in what this process still holds of the reply, which only moves when the system wants more, and, as long as that
// stands still, in what the system holds (up to 4 MB), where Linux says so. A client that takes 40 KB a second would
// otherwise look for half a minute like one that takes nothing.

import { readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';

interface Progress {
  /** The number by which Linux knows the socket; looked up when it is first needed. */
  inode: string | undefined;
  queued: number;
  unacknowledged: number | undefined;
  since: number;
}

const sweepMsMax = 250;
// Reading the system's table costs some microseconds for each of its sockets: it is done only while somebody stalls.
const tableMsMax = 500;

export class StallWatch {
  readonly #timeoutMs: number;
  readonly #tableMs: number;
  readonly #watched = new Map<Socket, Progress>();
  #timer: NodeJS.Timeout | undefined;
  #isReadingTable = false;
  #tableReadAt = -Infinity;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.#tableMs = Math.min(tableMsMax, timeoutMs / 4);
  }

  /** Watches `socket` while anything written to it has not left this process. */
  watch(socket: Socket): void {
    if (!this.#watched.has(socket)) {
      this.#watched.set(socket, {
        inode: undefined,
        queued: queuedBytes(socket),
        unacknowledged: undefined,
        since: performance.now(),
      });
    }
    this.#timer ??= setInterval(
      () => {
        this.#sweep();
      },
      Math.min(sweepMsMax, Math.max(10, this.#timeoutMs / 4)),
    ).unref();
  }

  #sweep(): void {
    const now = performance.now();
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
    const unacknowledged = await readUnacknowledged();
    this.#isReadingTable = false;
    const now = performance.now();
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
// the handle's own queue shrinks with each piece that the system takes. Node's socket timeout reads it too.
function queuedBytes(socket: Socket): number {
  return handleOf(socket)?.writeQueueSize ?? socket.writableLength;
}

function handleOf(
  socket: Socket,
): { readonly writeQueueSize?: number; readonly fd?: number } | null | undefined {
  return (socket as Socket & { readonly _handle?: { writeQueueSize?: number; fd?: number } | null })._handle;
}

function inodeOf(socket: Socket): string | undefined {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${handleOf(socket)?.fd ?? -1}`))?.[1];
  } catch {
    return undefined;
  }
}

const tables = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** Of each TCP socket that has any, the bytes that the other side has not taken yet, by inode; undefined if not on Linux. */
async function readUnacknowledged(): Promise<ReadonlyMap<string, number> | undefined> {
  const texts = await Promise.all(tables.map(async (path) => await readFile(path, 'latin1').catch(() => '')));
  const text = texts.join('');
  if (text === '') {
    return undefined;
  }
  const bytes = new Map<string, number>();
  for (const line of text.split('\n')) {
    // The fifth field is `tx_queue:rx_queue`, the tenth the inode (proc_pid_net(5)).
    const fields = line.includes(' 00000000:') ? [] : line.trim().split(/ +/);
    if (fields[4] !== undefined && fields[9] !== undefined) {
      bytes.set(fields[9], Number.parseInt(fields[4], 16));
    }
  }
  return bytes;
}
