// Internal properties of Node's sockets and servers, used where Node has no public equivalent.
// test/wire/node-internals.test.ts fails if a version of Node changes one of them.

import type { Server, Socket } from 'node:net';

interface Handle {
  /** Bytes that were written, and how many of them the OS has not accepted yet. */
  readonly bytesWritten?: number;
  readonly writeQueueSize?: number;
  /** True while the socket's owner reads. */
  readonly reading?: boolean;
  /** Both may be missing in other runtimes. */
  readonly readStart?: () => number;
  readonly readStop?: () => number;
  /** listen(2). On a socket that already listens, it changes the length of the queue of new connections. */
  readonly listen?: (backlog: number) => number;
}

/** Returns Node's handle of a socket or a server; null or undefined if it is closed. */
export function handleOf(owner: Socket | Server): Handle | null | undefined {
  return (owner as { readonly _handle?: Handle | null })._handle;
}

/** Returns the plain socket below a TLS socket; undefined for a plain socket. */
export function carrierOf(socket: Socket): Socket | undefined {
  return (socket as { readonly _parent?: Socket | null })._parent ?? undefined;
}

/**
 * Starts or stops reading from the OS. After `pause` alone, Node reads up to 128 KiB more, and keeps an object for each read.
 * A TLS socket is not paused, so that it passes on what it has read already: up to 64 KiB, in up to 2,800 pieces.
 */
export function setReading(socket: Socket, reads: boolean): void {
  const handle = handleOf(socket);
  if (reads) {
    socket.resume();
    if (handle?.reading === true) handle.readStart?.();
  } else {
    if (carrierOf(socket) === undefined || handle?.readStop === undefined) socket.pause();
    handle?.readStop?.();
  }
}

/** Makes Node read what has arrived before a failed write closes `socket`: an early answer, such as a 413, then a reset. */
export function readBeforeWriteErrors(socket: Socket): void {
  const destroy = socket.destroy.bind(socket);
  socket.destroy = (error?: NodeJS.ErrnoException) => {
    if (error?.syscall !== 'write') return destroy(error);
    // Node reads between the two callbacks.
    setImmediate(setImmediate, destroy, error);
    return socket;
  };
}
