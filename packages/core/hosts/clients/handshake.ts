// Performs the TLS handshakes of client connections [D36, D38]. Loads `node:tls` only when TLS is used.

import type { Socket } from 'node:net';
import type { Server as TlsServer, TLSSocket } from 'node:tls';

import { monotonicMs } from '../../time/monotonic.ts';
import type { Connection } from '../../http1/connection.ts';
import { carrierOf } from '../../http1/node-internals.ts';
import { watchRecords } from './record-watch.ts';

/** TLS of client connections; certificates and key in PEM. */
export interface ServerTls {
  /** The server's certificate, followed by the intermediate certificates. */
  readonly cert: string;
  readonly key: string;
  /** A client's certificate must come from one of these authorities [D38]. Default: no certificate is requested. */
  readonly clientCa?: string | undefined;
  /** Oldest TLS version that is accepted. Default `1.2`. */
  readonly minVersion?: '1.2' | '1.3' | undefined;
  /** 48 bytes, shared by processes that resume each other's sessions. Default: random bytes, new at each renewal. */
  readonly ticketKeys?: Uint8Array | undefined;
}

/** Receives the results of handshakes. The owner must ignore all results of a handshake except the first. */
interface HandshakeOwner {
  onSecure(handshake: Handshake, socket: TLSSocket): void;
  /** The handshake failed. Also called when the connection closes, even long after the handshake. */
  onFailure(handshake: Handshake, error: Error): void;
}

/** Performs handshakes with the certificates that were set last. */
export class Handshakes {
  readonly #owner: HandshakeOwner;
  readonly #timeoutMs: number;
  readonly #protocols: readonly string[];
  readonly #pending = new WeakMap<Socket, Handshake>();
  #server: TlsServer;

  /**
   * `protocols` are ALPN names in order of preference (RFC 7301). `timeoutMs` is the time limit of a handshake. Throws
   * the platform's error if the certificates are unusable.
   */
  constructor(tls: ServerTls, protocols: readonly string[], timeoutMs: number, owner: HandshakeOwner) {
    this.#owner = owner;
    this.#timeoutMs = timeoutMs;
    this.#protocols = protocols;
    this.#server = this.#createServer(tls);
  }

  /** Uses `tls` for new connections. New `ticketKeys` end old sessions. If this throws, nothing has changed. */
  renew(tls: ServerTls): void {
    this.#server = this.#createServer(tls);
  }

  begin(socket: Socket): Handshake {
    const handshake = new Handshake(socket, this.#timeoutMs, this.#owner);
    this.#pending.set(socket, handshake);
    this.#server.emit('connection', socket);
    return handshake;
  }

  // The server never listens, because `begin` passes connections to it. A renewal creates a new server, because Node's
  // `setSecureContext` would keep old `ticketKeys` and the old setting for client certificates.
  #createServer({ cert, key, clientCa, minVersion = '1.2', ticketKeys }: ServerTls): TlsServer {
    const { createServer } = process.getBuiltinModule('node:tls');
    const { SSL_OP_NO_RENEGOTIATION, SSL_OP_NO_TICKET } = process.getBuiltinModule('node:crypto').constants;
    return createServer({
      cert,
      key,
      minVersion: `TLSv${minVersion}`,
      ALPNProtocols: [...this.#protocols],
      // `Handshake.checkTime` has the time limit. Node would check its own before it reads what has arrived.
      handshakeTimeout: 2_147_483_647,
      // Against new key exchanges without limit; and against resumed sessions, which skip the check of a client's
      // certificate [D38].
      secureOptions: SSL_OP_NO_RENEGOTIATION | (clientCa === undefined ? 0 : SSL_OP_NO_TICKET),
      // A server resumes only sessions with its own value, so all workers share one value.
      sessionIdContext: 'work-item-gateway',
      ...(clientCa !== undefined && { ca: clientCa, requestCert: true, rejectUnauthorized: true }),
      ...(ticketKeys !== undefined && { ticketKeys: Buffer.from(ticketKeys) }),
    })
      .on('secureConnection', (socket) => {
        socket.allowHalfOpen = true;
        watchRecords(socket);
        const handshake = this.#handshakeOf(socket);
        if (handshake !== undefined) this.#owner.onSecure(handshake, socket);
      })
      .on('tlsClientError', (error, socket) => {
        const handshake = this.#handshakeOf(socket);
        socket.destroy();
        if (handshake !== undefined) this.#owner.onFailure(handshake, error);
      });
  }

  #handshakeOf(socket: TLSSocket): Handshake | undefined {
    return this.#pending.get(carrierOf(socket) ?? socket);
  }
}

/** A connection during its handshake. It counts as idle and may be closed to make room. */
class Handshake implements Connection {
  readonly socket: Socket;
  /** Read when the connection opens, because a closed socket has no address. */
  readonly address: string | undefined;
  readonly #timeoutMs: number;
  readonly #owner: HandshakeOwner;
  readonly #since = monotonicMs();

  constructor(socket: Socket, timeoutMs: number, owner: HandshakeOwner) {
    this.socket = socket;
    this.address = socket.remoteAddress;
    // Makes Node close the socket if the client ends its side during the handshake. The TLS socket inherits the value.
    socket.allowHalfOpen = false;
    this.#timeoutMs = timeoutMs;
    this.#owner = owner;
    socket
      // The `close` event follows and is handled.
      .on('error', () => undefined)
      .once('close', () => owner.onFailure(this, new Error('the connection was closed during the TLS handshake')));
  }

  idleMs(now: number): number {
    return now - this.#since;
  }

  isQuiet(quietMs: number, from: number): boolean {
    return monotonicMs() - Math.max(this.#since, from) >= quietMs;
  }

  checkTime(now: number): void {
    if (now - this.#since >= this.#timeoutMs) {
      this.socket.destroy();
      this.#owner.onFailure(this, new Error('the TLS handshake timed out'));
    }
  }
}
