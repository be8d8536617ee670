// One keep-alive connection to the backend: an undici Client of its own, so that what D20 asks (was it
// reused? did one byte of the answer come?) has exact answers, and a resend can go to a new connection.
// It knows nothing of calls, deadlines or outcomes.

import type { LookupFunction, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { buildConnector as BuildConnector, Dispatcher } from 'undici';

import { blockBytes } from '../blocks.ts';
import { buildConnector, Client, heldHeaders, setAnswerLength } from './undici.ts';

export type Connect = (...parameters: Parameters<BuildConnector.connector>) => Socket;

export interface BackendConnectionOptions {
  readonly backendUrl: URL;
  readonly idleTimeoutMs: number;
}

/** Of a call that waits for a connection. */
export interface ConnectingHandler {
  /** A socket has to be opened first. */
  onConnecting(): void;
}

export type BackendDispatch = Pick<Dispatcher.DispatchOptions, 'method' | 'path' | 'headers' | 'body'>;

// `localhost` is both loopback addresses, whatever the machine's hosts file says (RFC 6761, 6.3) [D30].
// All are asked for, since all are tried.
const lookupLocalhost: LookupFunction = (_hostname, _options, callback) => {
  callback(null, [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
};

// Where the bytes of every connection arrive. They are taken before the next ones come, on whichever connection: so no
// piece of an answer takes memory of its own, and what comes is in the processor's cache (measured, together with
// blocks.ts: a list of 42 KB takes 24 % less processor time, one of 417 KB 38 %).
const arrivals = Buffer.allocUnsafeSlow(blockBytes);

const arrivalKey = Symbol('work-item-gateway.arrival');
type BackendSocket = Socket & { [arrivalKey]?: ArrivalFilter };

const onread = {
  buffer: arrivals,
  callback(this: BackendSocket, length: number): boolean {
    this[arrivalKey]?.onArrival(arrivals.subarray(0, length));
    return true;
  },
};

/** Opens sockets to the backend: every address of its name is tried, HTTP/1.1 only, no time limit of its own. */
export function createConnect(): Connect {
  const options = { allowH2: false, timeout: 0, autoSelectFamily: true, onread };
  const connect = buildConnector(options);
  const connectLocalhost = buildConnector({
    ...options,
    lookup: lookupLocalhost,
  });
  return (target, callback) => {
    // undici's types leave out that a connector gives back the socket that it is opening.
    const open = (target.hostname === 'localhost' ? connectLocalhost : connect) as unknown as (
      ...parameters: Parameters<BuildConnector.connector>
    ) => Socket;
    return open(target, callback);
  };
}

// undici asks for the origin at each call, and a URL puts it together each time.
function withOwnOrigin({ origin }: URL): URL {
  return Object.defineProperty(new URL(origin), 'origin', { value: origin });
}

export class BackendConnection {
  readonly #client: InstanceType<typeof Client>;
  #socket: Socket | undefined;
  #filter: ArrivalFilter | undefined;
  #sentCount = 0;
  #bytesReadBefore = 0;
  // Of the call that is not sent yet.
  #waiting: ConnectingHandler | undefined;

  /** `onClosed` is called whenever the socket has closed, for whatever reason. */
  constructor(options: BackendConnectionOptions, connect: Connect, onClosed: () => void) {
    this.#client = new Client(withOwnOrigin(options.backendUrl), {
      pipelining: 1,
      // Its other parser, which a variable of the environment could choose, keeps bytes that are ours.
      useMilo: false,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: options.idleTimeoutMs,
      // What the backend announces counts where it is shorter, less a second for the way [lessons].
      keepAliveMaxTimeout: options.idleTimeoutMs,
      keepAliveTimeoutThreshold: 1_000,
      connect: (target, callback) => {
        this.#waiting?.onConnecting();
        this.#socket = connect(target, (...result) => {
          if (result[0] === null) {
            this.#filter = new ArrivalFilter(result[1]);
            (result[1] as BackendSocket)[arrivalKey] = this.#filter;
            this.#sentCount = 0;
          }
          callback(...result);
        });
      },
    });
    this.#client.on('disconnect', onClosed);
  }

  /** 0 for an answer in HTTP/1.0, 1 for HTTP/1.1. */
  get answerMinorVersion(): number {
    return this.#filter?.minorVersion ?? 1;
  }

  /**
   * The socket met an error, such as a reset: where an answer goes up to the end of its connection that is not its end,
   * though undici takes it for one.
   */
  get hasFailed(): boolean {
    return this.#socket?.errored instanceof Error;
  }

  /** To be called where the answer's `content-length` has spaces behind it: what it says without. */
  setAnswerLength(length: number): void {
    if (this.#socket !== undefined) {
      setAnswerLength(this.#socket, length);
    }
  }

  /** The last call was not the socket's first, and not one byte came back for it. */
  get diedReusedAndSilent(): boolean {
    return this.#sentCount > 1 && this.#socket?.bytesRead === this.#bytesReadBefore;
  }

  dispatch(request: BackendDispatch, handler: Dispatcher.DispatchHandler & ConnectingHandler): void {
    this.#waiting = handler;
    this.#client.dispatch(request, handler);
  }

  /** To be called as a call goes out on the socket. */
  onSent(): void {
    this.#waiting = undefined;
    this.#sentCount += 1;
    this.#bytesReadBefore = this.#socket?.bytesRead ?? 0;
    this.#filter?.expectHead();
  }

  /** Closes the connection at once, in whatever state it is; resolves when nothing is left of it. */
  async destroy(): Promise<void> {
    // While the connection is being opened undici does not hold the socket yet, and must not be told of an
    // error: it would report it for a connection that it never had.
    this.#socket?.destroy(this.#socket.readyState === 'open' ? closedByUs : undefined);
    // The socket first, the bookkeeping when the event loop has been round: where thousands of clients leave
    // at once, the last one's call is cancelled that much sooner.
    await new Promise((resolve) => setImmediate(resolve));
    await this.#client.destroy(closedByUs);
  }
}

// One for all: with a stack each, making them cost more than closing the connection.
const closedByUs = new Error('the gateway has closed the connection');

const firstDigitOfStatus = 9;
const digitOne = 0x31;
const digitTwo = 0x32;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const headBytesMax = 16_384;
const statusLineStart = /^HTTP\/1\.[01] (\d\d\d)/;
const versionStart = 'HTTP/1.';
const statusLineStartLength = 'HTTP/1.1 100'.length;

// What stands between the socket and undici, and hands on what arrives.
//
// undici fails a call whose answer is preceded by a `100 Continue` that nobody asked for, though a client must
// skip it (RFC 9110, 15.2) [D15]. It does skip a 102. So where the head of an answer is awaited, the 100 of an
// interim head is handed on as a 102: one byte changed, and undici's own parser still reads and checks the head,
// this one and every other. It also refuses HTTP versions that no answer of ours can have.
class ArrivalFilter {
  minorVersion = 1;
  readonly #socket: Duplex;
  readonly #read: () => Buffer | null;
  #awaitsHead = false;
  #held: Buffer | undefined;
  #arrived: Buffer | undefined;

  constructor(socket: Duplex) {
    this.#socket = socket;
    this.#read = socket.read.bind(socket) as () => Buffer | null;
    socket.read = () => this.#filter();
  }

  /** Has undici take `bytes`, and own what it keeps of them: the parts of a head that is not whole yet, of trailers. */
  onArrival(bytes: Buffer): void {
    this.#arrived = bytes;
    this.#socket.emit('readable');
    // What it does not take comes on a connection that it is closing.
    this.#arrived = undefined;
    const headers = heldHeaders(this.#socket);
    for (let index = 0; index < headers.length; index += 1) {
      const header = headers[index];
      if (header?.buffer === arrivals.buffer) {
        headers[index] = Buffer.from(header);
      }
    }
  }

  expectHead(): void {
    this.#awaitsHead = true;
  }

  #filter(): Buffer | null {
    const chunk = this.#arrived ?? this.#read();
    this.#arrived = undefined;
    if (!this.#awaitsHead || chunk === null) {
      return chunk;
    }
    // Nearly every answer: the whole status line is here and it is not an interim one.
    if (
      this.#held === undefined &&
      chunk.length >= statusLineStartLength &&
      chunk[firstDigitOfStatus] !== digitOne &&
      chunk.includes(lineFeed)
    ) {
      return this.#passFinalHead(chunk);
    }
    const bytes = this.#held === undefined ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = undefined;
    return this.#passInterimHeads(bytes);
  }

  #passFinalHead(bytes: Buffer): Buffer | null {
    const version = bytes.toString('latin1', 0, 8);
    if (version !== 'HTTP/1.1' && version !== 'HTTP/1.0') {
      this.#socket.destroy(new Error('an answer that is not HTTP/1.1'));
      return null;
    }
    this.minorVersion = version === 'HTTP/1.1' ? 1 : 0;
    this.#awaitsHead = false;
    return bytes;
  }

  // Holds bytes back until an interim head, or the status line of the final one, is whole: so that a 100 split over
  // pieces is found too, and a reason is looked at in one piece.
  #passInterimHeads(bytes: Buffer): Buffer | null {
    let position = 0;
    for (;;) {
      if (bytes.length - position < statusLineStartLength && mayBeginStatusLine(bytes, position)) {
        return this.#hold(bytes, position);
      }
      const status = statusLineStart.exec(
        bytes.toString('latin1', position, position + statusLineStartLength),
      )?.[1];
      if (status === undefined || !status.startsWith('1') || status === '101') {
        if (status !== undefined && isCutInLine(bytes, position)) {
          return this.#awaitStatusLine(bytes, position);
        }
        const final = this.#passFinalHead(bytes.subarray(position));
        return final === null ? null : bytes;
      }
      const end = bytes.indexOf('\r\n\r\n', position);
      if (end === -1) {
        return bytes.length - position > headBytesMax ? bytes : this.#hold(bytes, position);
      }
      if (status === '100') {
        bytes[position + statusLineStartLength - 1] = digitTwo;
      }
      position = end + 4;
    }
  }

  // undici keeps the last piece of a reason only, and all of it is looked at [D18].
  #awaitStatusLine(bytes: Buffer, position: number): Buffer | null {
    if (bytes.length - position > headBytesMax) {
      this.#socket.destroy(new Error('an answer whose status line does not end'));
      return null;
    }
    return this.#hold(bytes, position);
  }

  #hold(bytes: Buffer, position: number): Buffer | null {
    this.#held = Buffer.from(bytes.subarray(position));
    return position === 0 ? null : bytes.subarray(0, position);
  }
}

/** A line begins there that may yet end well: a CR without its LF does not. */
function isCutInLine(bytes: Buffer, position: number): boolean {
  const end = bytes.indexOf(carriageReturn, position);
  return !bytes.includes(lineFeed, position) && (end === -1 || end === bytes.length - 1);
}

function mayBeginStatusLine(bytes: Buffer, position: number): boolean {
  const start = bytes.toString('latin1', position, position + versionStart.length);
  return versionStart.startsWith(start);
}
