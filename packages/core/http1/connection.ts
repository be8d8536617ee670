// The interface of a client's connection, for any protocol, and the limits that the server enforces.

import type { Socket } from 'node:net';

export interface Connection {
  /** Destroying it closes the connection at once. */
  readonly socket: Socket;
  /** Number of open streams; missing if the protocol has no streams. */
  readonly streams?: number;
  /** Idle time in ms: 0 while a request is in flight or the client is reading its reply. */
  idleMs(now: number): number;
  /** True if no request was in flight or arriving in the last `quietMs`. False until `quietMs` after `from`. */
  isQuiet(quietMs: number, from: number): boolean;
  /** Enforces the client's time limits, as of `now` [D35]. */
  checkTime(now: number): void;
  /** Tells the client to send no more requests; missing if the protocol can do this only in a reply [D33]. */
  announceEnd?(): void;
}

/** Counts the memory that connections hold outside of calls [D69]. `hold` returns false if there is no room for more. */
export interface Ledger {
  hold(bytes: number): boolean;
}

// Bytes that each connection may hold uncounted. They are part of the constant for each connection (docs/operating.md).
export const freeBytes = 4_096;

/** The part of a ledger that one connection holds. */
export class Holding {
  readonly #ledger: Ledger | undefined;
  #counted = 0;

  constructor(ledger: Ledger | undefined) {
    this.#ledger = ledger;
  }

  get isEmpty(): boolean {
    return this.#counted === 0;
  }

  /** Counts that the connection now holds `bytes`. If there is no room for more, changes nothing and returns false. */
  count(bytes: number): boolean {
    const more = Math.max(0, bytes - freeBytes) - this.#counted;
    const isCounted = more === 0 || this.#ledger?.hold(more) !== false;
    if (isCounted) this.#counted += more;
    return isCounted;
  }
}

export interface ServerLimits {
  readonly connectionsMax: number;
  /**
   * If true, a connection beyond `connectionsMax` replaces the longest-idle one, or the oldest if none is idle. Use a
   * small limit, because the search examines all connections. If false, only connections idle for 1 s are replaced [D26].
   */
  readonly replacesOldest?: boolean;
  /** If false, requests of HTTP/1.1 may lack `Host`, contrary to RFC 9112, 3.2. Default true. */
  readonly requiresHost?: boolean;
  readonly requestHeadBytesMax: number;
  /**
   * Largest request body. If a reply is sent before the whole body has arrived, the rest of the body is read and
   * dropped. If such a body exceeds the limit, the connection is closed [D11].
   */
  readonly requestBytesMax: number;
  /** Time limit of a head, from its first byte. For the first head, the time starts when the connection opens [D35]. */
  readonly requestHeadersTimeoutMs: number;
  /** Time limit of head and body together [D35]. */
  readonly requestTimeoutMs: number;
  readonly replyStallTimeoutMs: number;
  readonly idleTimeoutMs: number;
}

/** Creates the connection for a socket on which the client may start to send requests. */
export type ConnectionFactory = (socket: Socket) => Connection;

/** How long a client may continue to send after a reply that closes its connection. */
export const lingerMs = 5_000;
