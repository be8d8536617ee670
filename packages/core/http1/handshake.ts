// TLS of clients' connections, up to the end of the handshake [D36, D38]. What is spoken behind it, where certificates
// come from and when they are renewed is not its affair. `node:tls` is loaded with the first of these, and not before.

import type { Socket } from 'node:net';
import type { Server as TlsServer, TLSSocket } from 'node:tls';

import { monotonicMs } from '../time/monotonic.ts';
import type { Connection } from './connection.ts';
import { carrierOf } from './node-internals.ts';

/** The certificates that clients are shown and asked for; all of it PEM. */
export interface ServerTls {
  /** The server's own certificate first, then those between it and its authority. */
  readonly cert: string;
  /** The private key of the first of them. */
  readonly key: string;
  /** Authorities: a client must show a certificate of one of them [D38]. Default: none is asked for. */
  readonly clientCa?: string | undefined;
  /** The oldest version that a client may speak. Default `1.2`. */
  readonly minVersion?: '1.2' | '1.3' | undefined;
  /** 48 bytes that processes share which resume each other's sessions. Default: own ones, made anew each time. */
  readonly ticketKeys?: Uint8Array | undefined;
}

/** What comes of a handshake: the socket to read requests from, or why there is none. What is told first counts. */
interface HandshakeOwner {
  onSecure(handshake: Handshake, socket: TLSSocket): void;
  /** The connection is closed, maybe long after its handshake. */
  onFailure(handshake: Handshake, error: Error): void;
}

/** Makes connections secure, with the certificates that were given last. */
export class Handshakes {
  readonly #owner: HandshakeOwner;
  readonly #timeoutMs: number;
  readonly #protocols: readonly string[];
  readonly #underWay = new WeakMap<Socket, Handshake>();
  #server: TlsServer;

  /**
   * `protocols` are the names for ALPN, the preferred one first (RFC 7301); a handshake may take `timeoutMs`. Throws what
   * the platform says of certificates that it cannot use.
   */
  constructor(tls: ServerTls, protocols: readonly string[], timeoutMs: number, owner: HandshakeOwner) {
    this.#owner = owner;
    this.#timeoutMs = timeoutMs;
    this.#protocols = protocols;
    this.#server = this.#createServer(tls);
  }

  /** From now on new connections get these; sessions of before are not resumed. Throws, and keeps the old ones, as above. */
  renew(tls: ServerTls): void {
    this.#server = this.#createServer(tls);
  }

  /** Begins with a new connection. */
  begin(socket: Socket): Handshake {
    const handshake = new Handshake(socket, this.#timeoutMs, this.#owner);
    this.#underWay.set(socket, handshake);
    this.#server.emit('connection', socket);
    return handshake;
  }

  // Never listens: it is handed the connections. A new one each time, since the platform's way to renew one keeps
  // whatever it is not told again.
  #createServer({ cert, key, clientCa, minVersion = '1.2', ticketKeys }: ServerTls): TlsServer {
    const { createServer } = process.getBuiltinModule('node:tls');
    const { SSL_OP_NO_RENEGOTIATION } = process.getBuiltinModule('node:crypto').constants;
    return createServer({
      cert,
      key,
      minVersion: `TLSv${minVersion}`,
      ALPNProtocols: [...this.#protocols],
      // Node's own would be two minutes. It closes nothing: that is done below.
      handshakeTimeout: this.#timeoutMs,
      // A client could have a new key exchange made as often as it likes.
      secureOptions: SSL_OP_NO_RENEGOTIATION,
      // The same in every worker: sessions are resumed only where it is.
      sessionIdContext: 'work-item-gateway',
      ...(clientCa !== undefined && { ca: clientCa, requestCert: true, rejectUnauthorized: true }),
      ...(ticketKeys !== undefined && { ticketKeys: Buffer.from(ticketKeys) }),
    })
      .on('secureConnection', (socket) => {
        this.#handshakeOf(socket)?.succeed(socket);
      })
      .on('tlsClientError', (error, socket) => {
        const handshake = this.#handshakeOf(socket);
        socket.destroy();
        handshake?.fail(error);
      });
  }

  #handshakeOf(socket: TLSSocket): Handshake | undefined {
    return this.#underWay.get(carrierOf(socket) ?? socket);
  }
}

/** A connection whose handshake has not ended. It counts as one that rests: for a new connection it may be closed. */
class Handshake implements Connection {
  readonly socket: Socket;
  /** Asked for at once: of a connection that has closed the system no longer knows it. */
  readonly address: string | undefined;
  readonly #timeoutMs: number;
  readonly #owner: HandshakeOwner;
  readonly #since = monotonicMs();

  constructor(socket: Socket, timeoutMs: number, owner: HandshakeOwner) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    // A client that ends before it has set up TLS has gone; the socket of TLS takes this over as it is made.
    socket.allowHalfOpen = false;
    this.#timeoutMs = timeoutMs;
    this.#owner = owner;
    socket
      // Its close follows.
      .on('error', () => undefined)
      .once('close', () => {
        this.fail(new Error('the connection was closed before TLS was set up'));
      });
  }

  restsSince(now: number): number {
    return now - this.#since;
  }

  isQuiet(quietMs: number, from: number): boolean {
    return monotonicMs() - Math.max(this.#since, from) >= quietMs;
  }

  // Not left to the platform: it says so, and closes nothing.
  checkTime(now: number): void {
    if (now - this.#since >= this.#timeoutMs) {
      this.socket.destroy();
      this.fail(new Error('TLS was not set up in time'));
    }
  }

  /** @internal */
  succeed(socket: TLSSocket): void {
    socket.allowHalfOpen = true;
    this.#owner.onSecure(this, socket);
  }

  /** @internal */
  fail(error: Error): void {
    this.#owner.onFailure(this, error);
  }
}
