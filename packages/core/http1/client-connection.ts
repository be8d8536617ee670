// One keep-alive connection to a server. It carries one exchange at a time: a request and its answer. The owner of the
// exchange receives its events, and decides on deadlines and resending.

import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import type { ConnectionOptions, DetailedPeerCertificate, SecureContext, TLSSocket } from 'node:tls';

import { holdClock, releaseClock } from '../time/monotonic.ts';
import type { AnswerHead, Flaw } from './head.ts';
import { AnswerReader } from './answer-reader.ts';
import { noBody, type BorrowedBytes } from './borrowed-bytes.ts';

/** Receives the events of an exchange. `onFault` receives the exceptions of the other methods. */
export interface ExchangeOwner {
  onSent(): void;
  onAnswerHead(head: AnswerHead): void;
  /** The next bytes of the answer's body. Their memory is overwritten after this call. */
  onAnswerBody(piece: Buffer): void;
  /** The answer is complete. `isReusable` is true if the connection can carry another exchange. */
  onAnswerEnd(isReusable: boolean): void;
  /** The answer is missing, malformed or incomplete. The connection is closed. */
  onBroken(error: Error | Flaw): void;
  onFault(error: unknown): void;
}

// `looking`: a request waits until all input that has already arrived is handled.
type State = 'connecting' | 'idle' | 'looking' | 'busy' | 'closed';

// Limit of an answer's head, and of its trailers, in bytes.
const headBytesMax = 16_384;

// The receive buffer of all connections. Its bytes are consumed before the next read on any connection. So the pieces of
// an answer need no memory of their own, and they stay in the processor's cache. Together with body/body.ts, this buffer
// saves 24 % of the processor time of a 42 KB list, and 38 % for a 417 KB list.
const arrivals = Buffer.allocUnsafeSlow(65_536);

// Connections that send a request in the event loop's next check phase. One callback sends all of these requests.
let looking: ClientConnection[] = [];

function sendAll(): void {
  const connections = looking;
  looking = [];
  for (const connection of connections) {
    connection.sendWaiting();
  }
}

export class ClientConnection {
  /** When the idle connection expires, on the clock of `monotonicMs`. */
  expiresAt = 0;
  /** Seconds for which the server keeps an idle connection; undefined if the server announces none. */
  keepAliveSeconds: number | undefined;
  #state: State = 'connecting';
  #owner: ExchangeOwner | undefined = undefined;
  readonly #socket: Socket;
  readonly #reader: AnswerReader;
  readonly #onClose: () => void;
  #persists = true;
  #sentCount = 0;
  #isSilent = true;
  #error: Error | undefined;
  #hasDiedUnsent = false;
  // True if an answer ended before its request was fully sent. The connection then waits for one event-loop iteration.
  #hasWaited = false;
  #waitingHead = '';
  #waitingBody = noBody;

  /**
   * Opens a socket with `open`. Calls `onClose` when the socket has closed, for any reason. `breakOff` also calls
   * `onClose` if there is no exchange.
   */
  constructor(open: OpenSocket, onClose: () => void) {
    this.#onClose = onClose;
    this.#reader = new AnswerReader(
      {
        onHead: (head) => {
          this.#persists = head.persists;
          this.keepAliveSeconds = head.keepAliveSeconds;
          this.#owner?.onAnswerHead(head);
        },
        onBody: (piece) => this.#owner?.onAnswerBody(piece),
        onEnd: () => undefined,
      },
      headBytesMax,
    );
    this.#socket = open(
      (length) => this.#onBytes(arrivals.subarray(0, length)),
      () => this.#onConnected(),
    );
    this.#socket
      .on('end', () => this.#onEnd())
      .on('error', (error) => {
        this.#error = error;
      })
      .on('close', () => this.#onSocketClose());
  }

  get isConnecting(): boolean {
    return this.#state === 'connecting';
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** True if a reused connection got no byte of this answer. Perhaps the server closed it before the request arrived. */
  get isReusedAndSilent(): boolean {
    return this.#sentCount > 1 && this.#isSilent;
  }

  /** True if the connection had opened, but closed before the request was sent. */
  get hasDiedUnsent(): boolean {
    return this.#hasDiedUnsent;
  }

  /**
   * Sends a request. A new connection sends it after opening. An idle connection first handles the input that has already
   * arrived: the end of the connection, or stray bytes that could be mistaken for the answer. Call `send` only when no
   * exchange is in progress.
   */
  send(head: string, body: BorrowedBytes, owner: ExchangeOwner): void {
    this.#owner = owner;
    this.#waitingHead = head;
    this.#waitingBody = body;
    if (this.#state === 'idle') {
      this.#state = 'looking';
      this.#socket.ref();
      if (looking.push(this) === 1) setImmediate(sendAll);
    }
  }

  /** @internal */
  sendWaiting(): void {
    // A destroyed socket emits `close` later. Then the owner is notified that nothing was sent.
    const owner = this.#owner;
    if (owner !== undefined && !this.#socket.destroyed) {
      const body = this.#waitingBody;
      this.#waitingBody = noBody;
      try {
        this.#write(owner, this.#waitingHead, body);
      } catch (error) {
        this.#fail(owner, error);
      }
    }
  }

  /** Closes the connection at once, in any state. The owner is not notified. */
  destroy(): void {
    this.#owner = undefined;
    this.#state = 'closed';
    this.#socket.destroy();
  }

  /** Closes the connection. Then notifies the owner of an exchange, if there is one, and then calls `onClosed`. */
  breakOff(onClosed?: () => void): void {
    if (onClosed !== undefined) this.#socket.once('close', onClosed);
    this.#hasDiedUnsent = this.#state === 'looking';
    this.#state = 'closed';
    this.#socket.destroy();
    if (this.#owner === undefined) {
      // Called at once, because otherwise the pool could use this connection again before the socket closes.
      this.#onClose();
    }
  }

  #onConnected(): void {
    this.#state = 'looking';
    this.sendWaiting();
  }

  #write(owner: ExchangeOwner, head: string, body: BorrowedBytes): void {
    this.#state = 'busy';
    this.#sentCount += 1;
    this.#isSilent = true;
    owner.onSent();
    body.writeTo(this.#socket, head);
  }

  #onBytes(bytes: Buffer): void {
    const owner = this.#owner;
    if (owner === undefined || this.#state !== 'busy') {
      // These bytes are stray: every request that was sent already has its answer.
      this.breakOff();
      return;
    }
    this.#isSilent = false;
    holdClock();
    try {
      const position = this.#reader.read(bytes, 0);
      this.#settle(owner, position === bytes.length);
    } catch (error) {
      this.#fail(owner, error);
    } finally {
      releaseClock();
    }
  }

  #onEnd(): void {
    const owner = this.#owner;
    if (owner !== undefined && this.#reader.end()) {
      this.#finish(owner, false);
    } else {
      // Closed at once. Otherwise the socket stays open until the whole request is sent, perhaps forever.
      this.breakOff();
    }
  }

  // Acts on the bytes just read. The owner may have closed the connection in the meantime.
  #settle(owner: ExchangeOwner, isAllTaken: boolean): void {
    if (this.#owner !== owner) return;
    const { flaw, isDone } = this.#reader;
    if (flaw !== undefined) {
      this.#breakOff(owner, flaw);
    } else if (isDone) {
      // The connection is not reused if bytes follow the answer, or if the request is still being sent.
      const isLast = !this.#persists || !isAllTaken;
      const isGoingOut = this.#socket.writableLength > 0;
      if (isGoingOut && !isLast && !this.#hasWaited) {
        // With TLS, Node reports the end of sending only in the next iteration of the event loop.
        this.#hasWaited = true;
        setImmediate(() => this.#settle(owner, true));
      } else {
        this.#finish(owner, !isGoingOut && !isLast);
      }
    }
  }

  #finish(owner: ExchangeOwner, isReusable: boolean): void {
    if (isReusable) {
      this.#owner = undefined;
      this.#hasWaited = false;
      this.#state = 'idle';
      // An idle connection does not keep the process alive.
      this.#socket.unref();
      this.#reader.next();
    } else {
      this.destroy();
    }
    try {
      owner.onAnswerEnd(isReusable);
    } catch (error) {
      owner.onFault(error);
    }
  }

  #breakOff(owner: ExchangeOwner, error: Error | Flaw): void {
    this.destroy();
    try {
      owner.onBroken(error);
    } catch (fault) {
      owner.onFault(fault);
    }
  }

  #fail(owner: ExchangeOwner, error: unknown): void {
    this.destroy();
    owner.onFault(error);
  }

  #onSocketClose(): void {
    const owner = this.#owner;
    this.#hasDiedUnsent ||= this.#state === 'looking';
    this.#owner = undefined;
    this.#state = 'closed';
    this.#onClose();
    if (owner !== undefined && this.#reader.isDone) {
      this.#finish(owner, false);
    } else if (owner !== undefined) {
      this.#breakOff(owner, this.#error ?? new Error('the connection was closed before the answer was complete'));
    }
  }
}

/** Opens a socket. Calls `onConnected` when the socket is writable, and `onArrival` with the number of bytes read. */
export type OpenSocket = (onArrival: (length: number) => void, onConnected: () => void) => Socket;

/** Called for each opened socket. The returned function receives arriving bytes before the connection does. */
export type SocketTap = (socket: Socket) => (bytes: Buffer) => void;

/** Returns a version of `open` that also passes arriving bytes to `tap`. Their memory is overwritten after the call. */
export function tapSockets(open: OpenSocket, tap: SocketTap): OpenSocket {
  return (onArrival, onConnected) => {
    const socket = open((length) => {
      onBytes(arrivals.subarray(0, length));
      onArrival(length);
    }, onConnected);
    const onBytes = tap(socket);
    return socket;
  };
}

// The addresses of `localhost`, whatever the hosts file contains (RFC 6761, 6.3) [D30]. `autoSelectFamily` tries both.
const lookupLocalhost: LookupFunction = (_hostname, _options, callback) => {
  callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};

/** TLS of connections to a server. Certificates and key are PEM. The server's certificate is always verified [D40]. */
export interface ClientTls {
  /** Certificates of trusted authorities. Default: those that Node trusts. */
  readonly ca?: string | undefined;
  /** A client certificate and its private key, `key`. Set both or neither. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  /** The name that the server's certificate must have. Default: the host of the server's URL. */
  readonly serverName?: string | undefined;
}

// The state for one `ClientTls`. A resumed session skips the certificate check, so new options get a new state without a
// session, and no session is used after the server's chain has expired [D40].
interface TlsState {
  readonly tls: ClientTls | undefined;
  readonly secureContext: SecureContext;
  /** The next connection resumes this session, which saves a full handshake. */
  session: { readonly bytes: Buffer; readonly expiresAt: number } | undefined;
}

/**
 * Returns a function that opens sockets to the server at `url`. The function tries every address of the host. For
 * `https:` it uses TLS, with the options that `tlsInForce` returns for each socket.
 */
export function createOpenSocket(url: URL, tlsInForce: () => ClientTls | undefined = () => undefined): OpenSocket {
  const isTls = url.protocol === 'https:';
  const host = url.hostname.replace(/[[\]]/g, '');
  const target = {
    host,
    port: Number(url.port === '' ? (isTls ? 443 : 80) : url.port),
    noDelay: true,
    autoSelectFamily: true,
    ...(host === 'localhost' && { lookup: lookupLocalhost }),
  };
  // `node:tls` needs 5 MB of memory, so it is loaded only for TLS.
  const platform = isTls ? process.getBuiltinModule('node:tls') : undefined;
  let state: TlsState | undefined;
  return (onArrival, onConnected) => {
    const onread = {
      buffer: arrivals,
      callback: (length: number): boolean => {
        onArrival(length);
        return true;
      },
    };
    if (platform === undefined) return connectTcp({ ...target, onread }, onConnected);
    const tls = tlsInForce();
    if (state === undefined || state.tls !== tls) {
      const { ca, cert, key } = tls ?? {};
      state = { tls, secureContext: platform.createSecureContext({ ca, cert, key }), session: undefined };
    }
    const current = state;
    const { secureContext } = current;
    const session =
      current.session !== undefined && Date.now() < current.session.expiresAt ? current.session : undefined;
    const options: ConnectionOptions = {
      ...target,
      onread,
      ALPNProtocols: ['http/1.1'],
      secureContext,
      // Always set, because otherwise the variable NODE_TLS_REJECT_UNAUTHORIZED decides [D40].
      rejectUnauthorized: true,
      // An IP address is not a server name [RFC 6066, 3].
      ...(isIP(host) === 0 && { servername: host }),
      ...(tls?.serverName !== undefined && { servername: tls.serverName }),
      ...(session !== undefined && { session: session.bytes }),
    } as ConnectionOptions;
    const socket = platform.connect(options, onConnected);
    return socket.on('session', (bytes: Buffer) => {
      // A resumed connection shows no certificates.
      const expiresAt = session !== undefined && socket.isSessionReused() ? session.expiresAt : expiryOf(socket);
      current.session = { bytes, expiresAt };
    });
  };
}

// When the first certificate of the server's chain expires, in milliseconds since 1970. A root is its own issuer.
function expiryOf(socket: TLSSocket): number {
  const chain = new Set<Partial<DetailedPeerCertificate>>();
  let next: Partial<DetailedPeerCertificate> | null | undefined = socket.getPeerCertificate(true);
  for (; next && !chain.has(next); next = next.issuerCertificate) chain.add(next);
  return Math.min(...Array.from(chain, ({ valid_to: end = '' }) => Date.parse(end)));
}
