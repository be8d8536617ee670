// What the system still holds of what was written to a TCP socket: Linux says it of all of them in one table
// (proc_pid_net(5)); Node has no way to ask for one.

import { readlinkSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';

/** What Node keeps behind `socket`; null or undefined when it is closed. */
export function handleOf(
  socket: Socket,
): { readonly writeQueueSize?: number; readonly fd?: number } | null | undefined {
  return (socket as Socket & { readonly _handle?: { writeQueueSize?: number; fd?: number } | null })._handle;
}

/** The plain socket below `socket` where that is one of TLS. */
export function carrierOf(socket: Socket): Socket | undefined {
  return (socket as Socket & { readonly _parent?: Socket | null })._parent ?? undefined;
}

/** The number by which Linux knows `socket`; undefined elsewhere, and when it is closed. */
export function inodeOf(socket: Socket): string | undefined {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${handleOf(socket)?.fd ?? -1}`))?.[1];
  } catch {
    return undefined;
  }
}

const tables = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** Of each TCP socket that has any, the bytes that the other side has not taken yet, by inode; undefined if not on Linux. */
export async function readUnacknowledged(): Promise<ReadonlyMap<string, number> | undefined> {
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
