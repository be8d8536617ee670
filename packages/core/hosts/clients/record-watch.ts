// Closes TLS connections whose records carry almost nothing [D58]. A KeyUpdate takes as much time as a large record, and
// JavaScript never sees it.

import type { Socket } from 'node:net';

import { carrierOf } from '../../http1/node-internals.ts';

// A period is nearly empty if more than `bytesMax` bytes arrive and less than `payloadPart` of them is payload: in TLS
// 1.3, more than 700 records of at most 3 bytes. A connection is closed after three such periods, because the first may
// have begun at its end. Any other period makes up for `madeUp` of one, so that bursts with pauses count, too.
const periodMs = 500;
const bytesMax = 16_384;
const payloadPart = 1 / 8;
const periodsMax = 3;
const madeUp = 1 / 8;

interface Period {
  readonly carrier: Socket;
  bytes: number;
  payload: number;
  empty: number;
}

const watched = new Map<Socket, Period>();

/** Watches `socket` until it closes. Ignores plain sockets, and sockets that are watched already. */
export function watchRecords(socket: Socket): void {
  const carrier = carrierOf(socket);
  if (carrier === undefined || socket.destroyed || watched.has(socket)) return;
  if (watched.size === 0) setTimeout(sweep, periodMs).unref();
  watched.set(socket, { carrier, bytes: carrier.bytesRead, payload: socket.bytesRead, empty: 0 });
}

function sweep(): void {
  for (const [socket, period] of watched) {
    const { bytesRead } = socket;
    const bytes = period.carrier.bytesRead - period.bytes;
    const isEmpty = bytes > bytesMax && bytesRead - period.payload < bytes * payloadPart;
    period.empty = isEmpty ? period.empty + 1 : Math.max(0, period.empty - madeUp);
    if (period.empty >= periodsMax) socket.destroy();
    if (socket.destroyed) watched.delete(socket);
    period.bytes += bytes;
    period.payload = bytesRead;
  }
  if (watched.size > 0) setTimeout(sweep, periodMs).unref();
}
