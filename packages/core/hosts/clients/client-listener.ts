// Accepts client connections, limits their number [D26] and time [D35], and closes them. Makes room for a new
// connection by closing idle connections. If none is idle, only the admin listener closes a connection that is in use.

import { createServer, type Server, type Socket } from 'node:net';

import { catchUpMs, catchUpMsMax, monotonicMs } from '../../time/monotonic.ts';
import type { Connection, ConnectionFactory, ServerLimits } from '../../http1/connection.ts';
import { Handshakes, type ServerTls } from './handshake.ts';
import { ClientConnection, type ConnectionContext } from '../../http1/client-connection.ts';
import { Sweeper } from './sweeper.ts';
import { StallWatch } from './stall-watch.ts';
import type { RequestHandler } from '../../http1/transport.ts';

// Time limits are checked at this interval. So a connection may be closed 0.2 s after its limit; [D35] allows 1 s.
const sweepMs = 200;
// A connection that has been idle for this long may be closed to make room.
const idleMsMin = 1_000;
// A search for idle connections examines all connections. So one search closes up to this fraction of `connectionsMax`,
// and the next search begins at least `lookMsMin` later.
const freedPart = 1 / 32;
const lookMsMin = 50;
// During a drain, a connection that had no request for this long is closed. Within this time, a busy keep-alive client
// sends its next request and receives `connection: close` [D33].
const drainQuietMs = 1_000;
const drainPollMs = 20;

// The ALPN names of the protocols that `ClientConnection` serves [RFC 7301, 6].
const ownProtocols = ['http/1.1', 'http/1.0'];

/** TLS of a server, and the protocols that it speaks in addition to HTTP/1.1. */
interface SecureOptions {
  readonly tls: ServerTls;
  /** By ALPN name, preferred first. A client that supports one of these protocols uses it instead of HTTP/1.1. */
  readonly protocols?: Readonly<Record<string, ConnectionFactory>>;
}

export class ClientListener implements Iterable<Connection> {
  /** Passes each new connection to `take`. The caller may call `listener.listen`, or call `take` itself. */
  readonly listener: Server;
  /** Called for each new connection beyond the limit on connections. */
  onFull: () => void = () => undefined;
  /** Called for each connection that is closed because there are too many. */
  onShed: () => void = () => undefined;
  /** Called for each TLS handshake that fails, with the client's address. */
  onHandshakeFailure: (error: Error, address: string | undefined) => void = () => undefined;
  /** Called for each connection closed because its client does not read the reply to a malformed or late request. */
  onStalledRefusal: () => void = () => undefined;
  readonly #max: number;
  readonly #context: ConnectionContext;
  readonly #connections = new Set<Connection>();
  readonly #all: Set<Connection>;
  readonly #protocols: Readonly<Record<string, ConnectionFactory>>;
  readonly #handshakes: Handshakes | undefined;
  readonly #sweeper = new Sweeper(sweepMs, (now, mayPass) => {
    for (const connection of mayPass ? this.#connections : []) connection.checkTime(now);
    return this.#connections.size > 0;
  });
  #lookedAt = -Infinity;

  /**
   * With `secure` every connection uses TLS; throws the platform's error if the certificates are unusable. Servers with
   * the same `all` share the limit on connections.
   */
  constructor(limits: ServerLimits, handler: RequestHandler, secure?: SecureOptions, all = new Set<Connection>()) {
    // A request that a client sends in the last second of the announced time must arrive before the connection closes.
    const announcedSeconds = Math.max(0, Math.floor(limits.idleTimeoutMs / 1_000) - 1);
    this.#max = limits.connectionsMax;
    this.#all = all;
    this.#context = {
      ...limits,
      handler,
      isEnding: false,
      stallWatch: new StallWatch(limits.replyStallTimeoutMs, (incoming) => {
        if (incoming === undefined) {
          this.onStalledRefusal();
        } else {
          incoming.onStall();
        }
      }),
      keepAliveLines: `connection: keep-alive\r\nkeep-alive: timeout=${announcedSeconds}\r\n`,
    };
    this.#protocols = secure?.protocols ?? {};
    this.#handshakes = secure && this.#createHandshakes(secure.tls, limits.requestHeadersTimeoutMs);
    this.listener = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.take(socket));
  }

  get scheme(): 'http' | 'https' {
    return this.#handshakes === undefined ? 'http' : 'https';
  }

  /** Includes connections in their TLS handshake. */
  get size(): number {
    return this.#connections.size;
  }

  [Symbol.iterator](): Iterator<Connection> {
    return this.#connections.values();
  }

  /** Uses `tls` for new connections only [D37]. If this throws, the old certificates stay in use. */
  renewTls(tls: ServerTls): void {
    this.#handshakes?.renew(tls);
  }

  /**
   * Closes connections that have no request [D33]. Resolves when all connections have closed and `isDone` returns true,
   * or when `signal` is aborted. `take` must not be called meanwhile.
   */
  async drain(signal: AbortSignal, isDone: () => boolean): Promise<void> {
    let from = monotonicMs();
    let spareMs = catchUpMsMax;
    this.#context.isEnding = true;
    while (!signal.aborted && (this.#connections.size > 0 || !isDone())) {
      for (const connection of this.#connections) {
        connection.announceEnd?.();
        if (connection.isQuiet(drainQuietMs, from)) connection.socket.destroy();
      }
      // Without `setImmediate`, a request that has just arrived would be lost.
      const dueAt = monotonicMs() + drainPollMs;
      await new Promise((resolve) => setTimeout(setImmediate, drainPollMs, resolve));
      // After a pause of the process, the clients get their time again.
      const extraMs = catchUpMs(dueAt, monotonicMs());
      if (extraMs > 0 && spareMs > 0) from = monotonicMs();
      spareMs -= extraMs;
    }
  }

  closeAll(): void {
    for (const { socket } of this.#connections) {
      socket.destroy();
    }
  }

  /** Serves a new connection, or closes it if there are too many and none of them is idle. */
  take(socket: Socket): void {
    if (this.#all.size >= this.#max) {
      this.onFull();
      if (!this.#makeRoom()) {
        socket.destroy();
        this.onShed();
        return;
      }
    }
    this.#add(this.#handshakes?.begin(socket) ?? new ClientConnection(socket, this.#context));
    this.#sweeper.start();
  }

  #add(connection: Connection): void {
    this.#connections.add(connection);
    this.#all.add(connection);
    connection.socket.once('close', () => this.#remove(connection));
  }

  // Returns false if the connection was removed before, even by another server.
  #remove(connection: Connection): boolean {
    this.#connections.delete(connection);
    return this.#all.delete(connection);
  }

  // A connection and its handshake count as one connection.
  #createHandshakes(tls: ServerTls, timeoutMs: number): Handshakes {
    return new Handshakes(tls, [...Object.keys(this.#protocols), ...ownProtocols], timeoutMs, {
      onSecure: (handshake, socket) => {
        if (!this.#remove(handshake)) {
          socket.destroy();
          return;
        }
        const serve = this.#protocols[String(socket.alpnProtocol)];
        this.#add(serve?.(socket) ?? new ClientConnection(socket, this.#context));
      },
      onFailure: (handshake, error) => {
        // Ignores errors after a handshake has succeeded, or after its connection was closed to make room.
        if (this.#remove(handshake)) this.onHandshakeFailure(error, handshake.address);
      },
    });
  }

  #makeRoom(): boolean {
    const now = monotonicMs();
    const closesAny = this.#context.replacesOldest === true;
    if (!closesAny && now - this.#lookedAt < lookMsMin) return false;
    this.#lookedAt = now;
    // The longest idle first; if equal, the oldest first.
    const closed = [...this.#all]
      .filter((connection) => closesAny || connection.idleMs(now) >= idleMsMin)
      .toSorted((a, b) => b.idleMs(now) - a.idleMs(now))
      .slice(0, closesAny ? 1 : Math.ceil(this.#max * freedPart));
    for (const connection of closed) {
      this.#remove(connection);
      connection.socket.destroy();
      this.onShed();
    }
    return closed.length > 0;
  }
}
