// The interface of a client's connection towards the server, for any protocol, and the limits that the server keeps.

import type { Socket } from 'node:net';

export interface Connection {
  /** The socket that it is served on; destroyed when the connection must go at once. */
  readonly socket: Socket;
  /** Open streams; missing where the protocol has none. */
  readonly streams?: number;
  /** For how long no request has been in flight, in ms; 0 while one is, and while a client takes its reply. */
  restsSince(now: number): number;
  /** No request is in flight and none has begun to arrive, for `quietMs` since then or since `from`. */
  isQuiet(quietMs: number, from: number): boolean;
  /** Looks whether the client has taken too long, as of `now` [D35]. */
  checkTime(now: number): void;
  /** Tells the client to send no more requests; missing where the protocol has no word for it but in a reply [D33]. */
  announceEnd?(): void;
}

export interface ServerLimits {
  readonly connectionsMax: number;
  /** Largest head of a request, in bytes [D27]. */
  readonly requestHeadBytesMax: number;
  /** Largest body whose rest is dropped after its reply, in bytes. After a larger one the connection closes [D11]. */
  readonly requestBytesMax: number;
  /** Time for a head, from its first byte, and for the first byte of a connection [D35]. */
  readonly requestHeadersTimeoutMs: number;
  /** Time for head and body together [D35]. */
  readonly requestTimeoutMs: number;
  /** Time for which a client may take no byte of its reply [D35]. */
  readonly replyStallTimeoutMs: number;
  /** Time between two requests [D35]. */
  readonly idleTimeoutMs: number;
}

/** Takes a socket whose client may begin to speak, and serves it. */
export type Serve = (socket: Socket) => Connection;

/** How long a client may go on sending after a reply that closes its connection. */
export const lingerMs = 5_000;
