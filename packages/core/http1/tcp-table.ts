// What the system still holds of what was written to a TCP socket: Linux says it of all of them in one table
// (proc_pid_net(5)); Node has no way to ask for one.

import { readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';

import { handleOf } from './node-internals.ts';

/** The number by which Linux knows `socket`; undefined elsewhere, and when it is closed. */
export function inodeOf(socket: Socket): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${String(handleOf(socket)?.fd)}`).slice('socket:['.length, -1);
  } catch {
    return undefined;
  }
}

const tables = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** Of each TCP socket that has any, the bytes that the other side has not taken yet, by inode; undefined if not on Linux. */
export async function readUnacknowledged(
  paths: readonly string[] = tables,
): Promise<ReadonlyMap<string, number> | undefined> {
  const texts = await Promise.all(paths.map(async (path) => await readFile(path, 'latin1').catch(() => '')));
  // The first line of each table names its columns. The second table is missing where IPv6 is switched off.
  const rows = texts.flatMap((text) => text.split('\n').slice(1));
  if (rows.length === 0) {
    return undefined;
  }
  const bytes = new Map<string, number>();
  for (const row of rows) {
    if (!row.includes(' 00000000:')) {
      // The fifth field is `tx_queue:rx_queue`, the tenth the inode (proc_pid_net(5)).
      const [, , , , queues, , , , , inode] = row.trim().split(/ +/);
      if (inode !== undefined) {
        bytes.set(inode, Number.parseInt(String(queues), 16));
      }
    }
  }
  return bytes;
}
