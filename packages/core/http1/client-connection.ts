// One keep-alive connection to a server: one exchange at a time, each a request and its answer. It knows nothing of
// deadlines, of resending, or of what an answer is for; whoever has the connection is told what comes.

import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import type { ConnectionOptions, SecureContext } from 'node:tls';

import type { AnswerHead, Flaw } from './head.ts';
import { AnswerReader } from './answer-reader.ts';
import { writeMessage } from './socket-writes.ts';

/** Whoever has an exchange on a connection. What it throws goes to its `onFault`. */
export interface ExchangeOwner {
  /** The request goes out now. */
  onSent(): void;
  onAnswerHead(head: AnswerHead): void;
  /** The next bytes of the answer's body; their memory takes others after this call. */
  onAnswerBody(piece: Buffer): void;
  /** The answer is whole. `isReusable`: the connection can take another exchange. */
  onAnswerEnd(isReusable: boolean): void;
  /** No answer comes, or no whole one; the connection is closed. */
  onBroken(error: Error | Flaw): void;
  onFault(error: unknown): void;
}

// `looking`: a request is about to go out.
type State = 'connecting' | 'idle' | 'looking' | 'busy' | 'closed';

// An answer's head may have this many bytes, and so may its trailers.
const headBytesMax = 16_384;

// Where the bytes of every connection arrive. They are taken before the next ones come, on whichever connection: so no
// piece of an answer takes memory of its own, and what comes is in the processor's cache (measured, together with
// blocks.ts: a list of 42 KB takes 24 % less processor time, one of 417 KB 38 %).
const arrivals = Buffer.allocUnsafeSlow(65_536);

// Those that send when the event loop has been round: one callback for all of them.
let looking: ClientConnection[] = [];

function sendAll(): void {
  const connections = looking;
  looking = [];
  for (const connection of connections) {
    connection.sendWaiting();
  }
}

export class ClientConnection {
  /** When an idle connection is to be closed, as `monotonicMs` tells it. */
  expiresAt = 0;
  /** For how long the server keeps an idle connection, in seconds; undefined where it has not said. */
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
  // For the request to have gone out, though its answer is whole.
  #hasWaited = false;
  #waitingHead = '';
  #waitingBody: Buffer | undefined;

  /** Opens a socket with `open`; `onClose` is called when the connection has closed for whatever reason, maybe twice. */
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
      (length) => {
        this.#onBytes(arrivals.subarray(0, length));
      },
      () => {
        this.#onConnected();
      },
    );
    this.#socket
      .on('end', () => {
        this.#onEnd();
      })
      .on('error', (error) => {
        this.#error = error;
      })
      .on('close', () => {
        this.#onSocketClose();
      });
  }

  get isConnecting(): boolean {
    return this.#state === 'connecting';
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /**
   * The exchange that is under way is not the connection's first, and not one byte has come back for it: what happens
   * where the server closes an idle connection while a request goes out.
   */
  get isReusedAndSilent(): boolean {
    return this.#sentCount > 1 && this.#isSilent;
  }

  /** The connection had been open, and closed before the request of its exchange went out on it. */
  get hasDiedUnsent(): boolean {
    return this.#hasDiedUnsent;
  }

  /**
   * Sends a request, when the connection is open, or when what has arrived on it already has been looked at: that may be
   * its end, or bytes that belong to no request and would be taken for this one's answer. There must be no exchange
   * under way.
   */
  send(head: string, body: Buffer | undefined, owner: ExchangeOwner): void {
    this.#owner = owner;
    this.#waitingHead = head;
    this.#waitingBody = body;
    if (this.#state === 'idle') {
      this.#state = 'looking';
      this.#socket.ref();
      if (looking.push(this) === 1) {
        setImmediate(sendAll);
      }
    }
  }

  /** @internal */
  sendWaiting(): void {
    // A socket that has died just now says so only when it has closed: its owner is told then that nothing was sent.
    const owner = this.#owner;
    if (owner !== undefined && !this.#socket.destroyed) {
      const body = this.#waitingBody;
      this.#waitingBody = undefined;
      try {
        this.#write(owner, this.#waitingHead, body);
      } catch (error) {
        this.#fail(owner, error);
      }
    }
  }

  /** Closes the connection at once, whatever it is doing; nobody is told. Safe at any time. */
  destroy(): void {
    this.#owner = undefined;
    this.#state = 'closed';
    this.#socket.destroy();
  }

  /** Closes the connection; whoever has an exchange on it is told, later, and before `onClosed` is called. */
  breakOff(onClosed?: () => void): void {
    if (onClosed !== undefined) {
      this.#socket.once('close', onClosed);
    }
    this.#hasDiedUnsent = this.#state === 'looking';
    this.#state = 'closed';
    this.#socket.destroy();
    if (this.#owner === undefined) {
      // Forgotten now: until its socket has closed, nobody must take it for an idle one.
      this.#onClose();
    }
  }

  #onConnected(): void {
    this.#state = 'looking';
    this.sendWaiting();
  }

  #write(owner: ExchangeOwner, head: string, body: Buffer | undefined): void {
    this.#state = 'busy';
    this.#sentCount += 1;
    this.#isSilent = true;
    owner.onSent();
    writeMessage(this.#socket, head, body === undefined ? [] : [body]);
  }

  #onBytes(bytes: Buffer): void {
    const owner = this.#owner;
    if (owner === undefined || this.#state !== 'busy') {
      // Nobody has asked for anything yet, or nobody wants it any more.
      this.breakOff();
      return;
    }
    this.#isSilent = false;
    try {
      const position = this.#reader.read(bytes, 0);
      this.#settle(owner, position === bytes.length);
    } catch (error) {
      this.#fail(owner, error);
    }
  }

  #onEnd(): void {
    const owner = this.#owner;
    if (owner !== undefined && this.#reader.end()) {
      this.#finish(owner, false);
    } else {
      // Now: a socket that is still sending its request would close when that has gone out, if ever.
      this.breakOff();
    }
  }

  // What the bytes just read have come to. The owner may have closed the connection meanwhile.
  #settle(owner: ExchangeOwner, isAllTaken: boolean): void {
    if (this.#owner !== owner) {
      return;
    }
    const { flaw, isDone } = this.#reader;
    if (flaw !== undefined) {
      this.#breakOff(owner, flaw);
    } else if (isDone) {
      // Bytes behind an answer belong to nothing, and a request that is still going out has been answered early.
      const isLast = !this.#persists || !isAllTaken;
      const isGoingOut = this.#socket.writableLength > 0;
      if (isGoingOut && !isLast && !this.#hasWaited) {
        // TLS says only in the next turn of the event loop that a request has gone out.
        this.#hasWaited = true;
        setImmediate(() => {
          this.#settle(owner, true);
        });
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
      // A process whose work is done ends, however long idle connections are kept.
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
      this.#breakOff(
        owner,
        this.#error ?? new Error('the connection was closed before the answer was whole'),
      );
    }
  }
}

/** Opens a socket; `onArrival` is told how many bytes have arrived, `onConnected` when it can be written to. */
export type OpenSocket = (onArrival: (length: number) => void, onConnected: () => void) => Socket;

/** Is told of each socket that is opened; what it gives is told of the bytes that arrive on it, before anybody else. */
export type SocketTap = (socket: Socket) => (bytes: Buffer) => void;

/** As `open`, with somebody who looks on. The bytes' memory takes others after the call. */
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

// `localhost` is both loopback addresses, whatever the machine's hosts file says (RFC 6761, 6.3) [D30].
// All are asked for, since all are tried.
const lookupLocalhost: LookupFunction = (_hostname, _options, callback) => {
  callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};

/** What a server is shown and asked for over TLS; all of it PEM. Its certificate is always verified [D40]. */
export interface ClientTls {
  /** Authorities to trust. Default: those that Node trusts. */
  readonly ca?: string | undefined;
  /** A client's certificate and its private key: both or neither. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  /** The name that the server's certificate must have. Default: that of its address. */
  readonly serverName?: string | undefined;
}

// Made of one `ClientTls`, and gone with it: a session is trusted without another look at the certificate.
interface TlsState {
  readonly tls: ClientTls;
  readonly secureContext: SecureContext;
  /** Kept for the next connection, which then needs no whole handshake. */
  session: Buffer | undefined;
}

const nothingSpecial: ClientTls = {};

/**
 * How sockets to the server at `url` are opened: every address of its name is tried, TLS where it is `https:`, with what
 * `tlsInForce` gives then.
 */
export function createOpenSocket(
  url: URL,
  tlsInForce: () => ClientTls | undefined = () => undefined,
): OpenSocket {
  const isTls = url.protocol === 'https:';
  const host = url.hostname.replace(/[[\]]/g, '');
  const target = {
    host,
    port: Number(url.port === '' ? (isTls ? 443 : 80) : url.port),
    noDelay: true,
    autoSelectFamily: true,
    ...(host === 'localhost' && { lookup: lookupLocalhost }),
  };
  // Loaded only where it is needed: it takes 5 MB.
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
    if (platform === undefined) {
      return connectTcp({ ...target, onread }, onConnected);
    }
    const tls = tlsInForce() ?? nothingSpecial;
    if (state?.tls !== tls) {
      const { ca, cert, key } = tls;
      state = { tls, secureContext: platform.createSecureContext({ ca, cert, key }), session: undefined };
    }
    const current = state;
    const { secureContext, session } = current;
    const options: ConnectionOptions = {
      ...target,
      onread,
      ALPNProtocols: ['http/1.1'],
      secureContext,
      // Said at each connection of the gateway: otherwise NODE_TLS_REJECT_UNAUTHORIZED decides [D40].
      rejectUnauthorized: true,
      ...(isName(host) && { servername: host }),
      ...(tls.serverName !== undefined && { servername: tls.serverName }),
      ...(session !== undefined && { session }),
    } as ConnectionOptions;
    return platform.connect(options, onConnected).on('session', (next: Buffer) => {
      current.session = next;
    });
  };
}

// An address is no server name [RFC 6066, 3].
function isName(host: string): boolean {
  return isIP(host) === 0;
}
