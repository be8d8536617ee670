// The server of clients' connections: takes them in, keeps the limits on their number [D26] and time [D35], and lets go of
// them. A connection that is at work is never taken from its client; one that rests makes room for a new one.

import { createServer, type Server, type Socket } from 'node:net';

import { monotonicMs } from '../time/monotonic.ts';
import type { Connection, Serve, ServerLimits } from './connection.ts';
import { Handshakes, type ServerTls } from './handshake.ts';
import { ServerConnection, type ConnectionContext } from './server-connection.ts';
import { StallWatch } from './stall-watch.ts';
import type { RequestHandler } from './transport.ts';

// How late a cut-off may be, of the second that it has [D35].
const sweepMs = 200;
// A connection that has had no request in flight for so long may be closed for a new one.
const restMsMin = 1_000;
// Looking for those that rest means looking at all of them: so it frees a part of them at once, and is not done more
// often than this.
const freedPart = 1 / 32;
const lookMsMin = 50;
const reportMsMin = 1_000;
// A connection with no request on its way for this long is closed while draining: long enough for a keep-alive client
// under load to send its next request and be told to close [D33].
const drainQuietMs = 1_000;
const drainPollMs = 20;

// What `ServerConnection` speaks, by its names for ALPN [RFC 7301, 6].
const ownProtocols = ['http/1.1', 'http/1.0'];

/** TLS of a server, and what is spoken on its connections beside HTTP/1.1. */
export interface SecureOptions {
  readonly tls: ServerTls;
  /** By their names for ALPN, the preferred one first: clients that know them get them before HTTP/1.1. */
  readonly protocols?: Readonly<Record<string, Serve>>;
}

export class ClientServer implements Iterable<Connection> {
  /** Listens where it is told to; every connection that it emits is served, as with `take`. */
  readonly listener: Server;
  /** Is told, at most once a second, that the limit on connections has been met. */
  onFull: () => void = () => undefined;
  /** Is told of each connection that is closed because there are too many. */
  onShed: () => void = () => undefined;
  /** Is told why a connection was closed before TLS was set up, and whose it was. */
  onHandshakeFailure: (error: Error, address: string | undefined) => void = () => undefined;
  /** Is told of each connection that is closed because its client takes nothing of a refusal: no request is told of it. */
  onStalledRefusal: () => void = () => undefined;
  readonly #max: number;
  readonly #context: ConnectionContext;
  readonly #connections = new Set<Connection>();
  readonly #protocols: Readonly<Record<string, Serve>>;
  readonly #handshakes: Handshakes | undefined;
  #sweepTimer: NodeJS.Timeout | undefined;
  #lookedAt = -Infinity;
  #reportedAt = -Infinity;

  /** With `secure` every connection is one of TLS. Throws what the platform says of certificates that it cannot use. */
  constructor(limits: ServerLimits, handler: RequestHandler, secure?: SecureOptions) {
    this.#max = limits.connectionsMax;
    this.#context = {
      ...limits,
      handler,
      stallWatch: new StallWatch(limits.replyStallTimeoutMs, (incoming) => {
        if (incoming === undefined) {
          this.onStalledRefusal();
        } else {
          incoming.onStall();
        }
      }),
      keepAliveLines: `connection: keep-alive\r\nkeep-alive: timeout=${Math.floor(limits.idleTimeoutMs / 1_000)}\r\n`,
    };
    this.#protocols = secure?.protocols ?? {};
    this.#handshakes = secure && this.#createHandshakes(secure.tls, limits.requestHeadersTimeoutMs);
    this.listener = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.take(socket);
    });
  }

  /** Of its addresses. */
  get scheme(): 'http' | 'https' {
    return this.#handshakes === undefined ? 'http' : 'https';
  }

  /** How many are open, those that have not set up TLS included. */
  get size(): number {
    return this.#connections.size;
  }

  [Symbol.iterator](): Iterator<Connection> {
    return this.#connections.values();
  }

  /** New connections get these certificates, open ones live on [D37]. Throws as the constructor does, with no change. */
  renewTls(tls: ServerTls): void {
    this.#handshakes?.renew(tls);
  }

  /**
   * Resolves when the last connection has closed by itself, and `isDone` says so, or when `signal` is aborted [D33]. A
   * connection with no request on its way is closed; nothing new must be taken meanwhile.
   */
  async drain(signal: AbortSignal, isDone: () => boolean): Promise<void> {
    const from = monotonicMs();
    while (!signal.aborted && (this.#connections.size > 0 || !isDone())) {
      for (const connection of this.#connections) {
        connection.announceEnd?.();
        if (connection.isQuiet(drainQuietMs, from)) {
          connection.socket.destroy();
        }
      }
      // A timer comes before what has arrived is read: without the turn behind it, a request that is here already is lost.
      await new Promise((resolve) => setTimeout(setImmediate, drainPollMs, resolve));
    }
  }

  /** Closes all connections at once. */
  closeAll(): void {
    for (const { socket } of this.#connections) {
      socket.destroy();
    }
  }

  /** Serves a new connection, or closes it when there are too many and none of them rests. */
  take(socket: Socket): void {
    if (this.#connections.size >= this.#max) {
      this.#report();
      if (!this.#makeRoom()) {
        socket.destroy();
        this.onShed();
        return;
      }
    }
    this.#add(this.#handshakes?.begin(socket) ?? new ServerConnection(socket, this.#context));
    this.#sweepTimer ??= setInterval(() => {
      this.#sweep();
    }, sweepMs).unref();
  }

  #add(connection: Connection): void {
    this.#connections.add(connection);
    connection.socket.once('close', () => this.#connections.delete(connection));
  }

  // A connection is one and the same before and after its handshake, and counts as one.
  #createHandshakes(tls: ServerTls, timeoutMs: number): Handshakes {
    return new Handshakes(tls, [...Object.keys(this.#protocols), ...ownProtocols], timeoutMs, {
      onSecure: (handshake, socket) => {
        if (!this.#connections.delete(handshake)) {
          socket.destroy();
          return;
        }
        const serve = this.#protocols[String(socket.alpnProtocol)];
        this.#add(serve?.(socket) ?? new ServerConnection(socket, this.#context));
      },
      onFailure: (handshake, error) => {
        // One that has ended, or made room for another, has not failed.
        if (this.#connections.delete(handshake)) {
          this.onHandshakeFailure(error, handshake.address);
        }
      },
    });
  }

  #sweep(): void {
    const now = monotonicMs();
    for (const connection of this.#connections) {
      connection.checkTime(now);
    }
    if (this.#connections.size === 0) {
      clearInterval(this.#sweepTimer);
      this.#sweepTimer = undefined;
    }
  }

  #makeRoom(): boolean {
    const now = monotonicMs();
    if (now - this.#lookedAt < lookMsMin) {
      return false;
    }
    this.#lookedAt = now;
    const resting = [...this]
      .filter((connection) => connection.restsSince(now) >= restMsMin)
      .toSorted((a, b) => b.restsSince(now) - a.restsSince(now))
      .slice(0, Math.ceil(this.#max * freedPart));
    for (const connection of resting) {
      this.#connections.delete(connection);
      connection.socket.destroy();
      this.onShed();
    }
    return resting.length > 0;
  }

  #report(): void {
    const now = monotonicMs();
    if (now - this.#reportedAt >= reportMsMin) {
      this.#reportedAt = now;
      this.onFull();
    }
  }
}
