// Internal properties of Node's sockets and servers, used where Node has no public equivalent.
// test/wire/node-internals.test.ts fails if a version of Node changes one of them.

import type { Server, Socket } from 'node:net';

interface Handle {
  /** Bytes that the OS has not accepted yet. */
  readonly writeQueueSize?: number;
  /** The file descriptor; only on POSIX. */
  readonly fd?: number;
  /** listen(2). On a socket that already listens, it changes the length of the queue of new connections. */
  readonly listen?: (backlog: number) => number;
  readonly readStop?: () => number;
  readonly readStart?: () => number;
}

/** Returns Node's handle of a socket or a server; null or undefined if it is closed. */
export function handleOf(owner: Socket | Server): Handle | null | undefined {
  return (owner as { readonly _handle?: Handle | null })._handle;
}

/** Returns the plain socket below a TLS socket; undefined for a plain socket. */
export function carrierOf(socket: Socket): Socket | undefined {
  return (socket as { readonly _parent?: Socket | null })._parent ?? undefined;
}
