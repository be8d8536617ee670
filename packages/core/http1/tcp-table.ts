// Reads how many written bytes the kernel still holds for each TCP socket. Linux lists all sockets in one table
// (proc_pid_net(5)); Node cannot query a single socket.

import { readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';

import { handleOf } from './node-internals.ts';

/** Returns the inode of `socket` on Linux; undefined on other systems, and for a closed socket. */
export function inodeOf(socket: Socket): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${String(handleOf(socket)?.fd)}`).slice('socket:['.length, -1);
  } catch {
    return undefined;
  }
}

const tables = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** Returns the number of unacknowledged bytes by inode, for TCP sockets that have any; undefined if not on Linux. */
export async function readUnacknowledged(
  paths: readonly string[] = tables,
): Promise<ReadonlyMap<string, number> | undefined> {
  const texts = await Promise.all(paths.map(async (path) => await readFile(path, 'latin1').catch(() => '')));
  // The first line of each table has the names of its columns. Without IPv6 the second table is missing.
  const rows = texts.flatMap((text) => text.split('\n').slice(1));
  if (rows.length === 0) {
    return undefined;
  }
  const bytes = new Map<string, number>();
  for (const row of rows) {
    if (!row.includes(' 00000000:')) {
      // The fifth field is `tx_queue:rx_queue`, the tenth is the inode (proc_pid_net(5)).
      const [, , , , queues, , , , , inode] = row.trim().split(/ +/);
      if (inode !== undefined) {
        bytes.set(inode, Number.parseInt(String(queues), 16));
      }
    }
  }
  return bytes;
}
