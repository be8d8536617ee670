// The properties of Node's sockets and servers that are read though they are not public: Node has no other way to them.
// test/wire/node-internals.test.ts fails where a new version of Node changes one.

import type { Server, Socket } from 'node:net';

interface Handle {
  /** Bytes that the system has not taken yet. */
  readonly writeQueueSize?: number;
  /** The file descriptor; only on POSIX. */
  readonly fd?: number;
  /** listen(2), which on a socket that listens already sets the length of its queue. */
  readonly listen?: (backlog: number) => number;
}

/** What Node keeps behind a socket or a server; null or undefined when it is closed. */
export function handleOf(owner: Socket | Server): Handle | null | undefined {
  return (owner as { readonly _handle?: Handle | null })._handle;
}

/** The plain socket below `socket` where that is one of TLS. */
export function carrierOf(socket: Socket): Socket | undefined {
  return (socket as { readonly _parent?: Socket | null })._parent ?? undefined;
}
