// What the calls of one gateway share: its options, the backend client, the count of calls in flight, the
// observer. And what happens to bytes that are not a request at all. No settings, signals or Fastify here.

import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import type { BackendClient } from '../backend/client.ts';
import type { BufferBudget } from '../buffer-budget.ts';
import { clientAddress, type TrustedProxies } from '../guards/client-address.ts';
import { isAllowedHost } from '../guards/host-names.ts';
import { STATUS_CODES } from '../node-http.ts';
import { Call, replyToUnknownMethod, type CallRecord } from './call.ts';
import { ClientConnection, type Turn } from './client-connection.ts';
import type { GatheredBody } from './gathered-body.ts';
import type { ItemIdParsing } from './item-id.ts';
import { replies, type FixedReply, type Pages } from './replies.ts';
import { absoluteForm, createRequestId } from './request-head.ts';
import { StallWatch } from './stall-watch.ts';

export interface GatewayOptions {
  /** As `isAllowedHost` takes them; empty for any name [D57]. */
  readonly allowedHosts: readonly string[];
  readonly itemIdParsing: ItemIdParsing;
  readonly requestBytesMax: number;
  readonly inFlightMax: number;
  readonly replyStallTimeoutMs: number;
  readonly trustedProxies: TrustedProxies | undefined;
}

/** Is told of everything that ends; costs every request what it costs. What it throws goes to its `onBug`. */
export interface GatewayObserver {
  onCallEnd(record: CallRecord): void;
  /** Bytes that were no request: `reply` is what the client got, `client` the address of its connection [D27]. */
  onMalformed(requestId: string, reply: FixedReply, code: string, client: string | undefined): void;
  /** The client took nothing more of the reply, and was cut off; `onCallEnd` has had the record before [D35]. */
  onStall(record: CallRecord): void;
  /** A fault of our own that changes no reply any more; `record` is the request that it belongs to [D28]. */
  onBug(error: unknown, record: CallRecord | undefined): void;
}

// How long a connection that got its last reply may go on sending before it is cut.
const lingerMs = 1_000;

export class Gateway {
  readonly options: GatewayOptions;
  readonly backend: BackendClient;
  readonly budget: BufferBudget;
  readonly observer: GatewayObserver;
  /** With the prefix under which the plugin is mounted. */
  readonly collectionPath: string;
  readonly stallWatch: StallWatch;
  /** The server leaves `Expect: 100-continue` to us; otherwise Node has answered it before we see it. */
  readonly answersExpectations: boolean;
  /** Every reply now closes its connection [D33]. */
  isDraining = false;
  /** What is left is being cut: calls that end without a reply from now on end by our own doing [D51]. */
  isCutting = false;
  /** What is served beside the operations, on a server of our own; undefined for nothing [D5]. */
  pages: Pages | undefined;
  #inFlight = 0;

  constructor(
    options: GatewayOptions,
    backend: BackendClient,
    budget: BufferBudget,
    observer: GatewayObserver,
    collectionPath: string,
    answersExpectations: boolean,
  ) {
    this.options = options;
    this.backend = backend;
    this.budget = budget;
    this.observer = observer;
    this.collectionPath = collectionPath;
    this.answersExpectations = answersExpectations;
    this.stallWatch = new StallWatch(options.replyStallTimeoutMs, (call) => {
      this.#notifyStall(call);
    });
  }

  /** Calls between being sent to the backend and the end of their reply, or of their write. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Whether `target` and `Host` have no name but those under which we are called [D57]. */
  answersTo(target: string, host: string | undefined): boolean {
    const { allowedHosts } = this.options;
    if (allowedHosts.length === 0) {
      return true;
    }
    // In absolute-form there are two names, and others differ on which of them counts.
    const authority = absoluteForm.exec(target)?.[1];
    return (
      isAllowedHost(host, allowedHosts) && (authority === undefined || isAllowedHost(authority, allowedHosts))
    );
  }

  /** Another call would be one too many, or too many bytes are held already [D26]. */
  get isFull(): boolean {
    return this.#inFlight >= this.options.inFlightMax || this.budget.isExhausted;
  }

  /**
   * Counts a call in, or says that there are too many [D26]. To be called when the backend is: a client that
   * is slow with its body takes no place from others.
   */
  enter(): boolean {
    if (this.#inFlight >= this.options.inFlightMax) {
      return false;
    }
    this.#inFlight += 1;
    return true;
  }

  exit(): void {
    this.#inFlight -= 1;
  }

  /** The client's address: that of the connection, or what trusted proxies say of it [D46, D52]. */
  findClient({ address }: ClientConnection, request: IncomingMessage): string | undefined {
    const { trustedProxies } = this.options;
    return address === undefined || trustedProxies === undefined
      ? address
      : clientAddress(address, request.headersDistinct['x-forwarded-for'] ?? [], trustedProxies);
  }

  /** Tells the observer of a request's end. What it throws is a fault of its own, and the reply stands [D28]. */
  notifyEnd(record: CallRecord): void {
    try {
      this.observer.onCallEnd(record);
    } catch (error) {
      this.notifyBug(error, record);
    }
  }

  #notifyStall(record: CallRecord): void {
    try {
      this.observer.onStall(record);
    } catch (error) {
      this.notifyBug(error, record);
    }
  }

  /** Tells the observer of a fault that changes no reply any more. */
  notifyBug(error: unknown, record: CallRecord | undefined): void {
    try {
      this.observer.onBug(error, record);
    } catch {
      // Whoever would say so is broken.
    }
  }

  /**
   * Takes a request over; `inheritedHeaders` are added to its reply, as name, value, name, value. `gatheredBody` is its
   * body, where hooks have read it.
   */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    inheritedHeaders: readonly string[] = [],
    gatheredBody?: GatheredBody,
  ): void {
    const call = new Call(this, request, response, inheritedHeaders);
    call.gatheredBody = gatheredBody;
    call.enqueue();
  }

  /** Answers a request that no router has led to an operation: never with one [D60]. */
  handleUnrouted(request: IncomingMessage, response: ServerResponse): void {
    const call = new Call(this, request, response, []);
    call.isRouted = false;
    call.enqueue();
  }

  /** Answers a request that met a fault of our own, or of the server around us, on its way here [D28]. */
  handleFault(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    new Call(this, request, response, []).enqueueFault(error);
  }

  /**
   * Bytes that Node's parser gave up on, or that came too slowly: answered in turn, then closed [D27, D35].
   * `limits` are the server's.
   */
  handleClientError(error: ParserError, socket: Socket, limits: TimeLimits): void {
    const connection = ClientConnection.of(socket);
    const code = error.code ?? '';
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    if (connection.isClosing) {
      return;
    }
    const reply = this.#replyTo(code, error);
    const newest = connection.newest;
    if (code === requestTimeoutCode && isHeldBack(connection)) {
      this.#timeAnew(connection, error, limits);
    } else if (newest instanceof Call && !newest.hasWholeRequest) {
      // It broke off within that request's body.
      newest.interrupt(reply);
    } else if (newest === undefined && connection.answeredEarly?.complete === false) {
      // It broke off within the body of one that has its reply: a second one would be taken for that of the next.
      socket.destroy();
    } else {
      this.#refuseConnection(connection, reply, code);
    }
  }

  // Node's time for a request runs, once, while we do not read it because others of its client come first. That is none
  // of the client's doing: it gets all of its time when we read on [D35].
  #timeAnew(connection: ClientConnection, error: ParserError, limits: TimeLimits): void {
    const { newest, turnCount } = connection;
    const isHead = !(newest instanceof Call) || newest.hasWholeRequest;
    const slowTurn = isHead ? turnCount + 1 : turnCount;
    const onBodyTimeout = (): void => {
      const last = connection.newest;
      if (connection.turnCount === slowTurn && last instanceof Call && !last.hasWholeRequest) {
        this.handleClientError(error, connection.socket, limits);
      }
    };
    const onHeadTimeout = (): void => {
      if (connection.turnCount < slowTurn) {
        this.handleClientError(error, connection.socket, limits);
      } else {
        setTimeout(onBodyTimeout, limits.requestTimeout - limits.headersTimeout).unref();
      }
    };
    connection.onProgress = () => {
      if (!isHeldBack(connection)) {
        connection.onProgress = undefined;
        if (isHead) {
          setTimeout(onHeadTimeout, limits.headersTimeout).unref();
        } else {
          setTimeout(onBodyTimeout, limits.requestTimeout).unref();
        }
      }
    };
  }

  /** `CONNECT` asks for a tunnel; there is none [D27]. */
  handleConnect(socket: Socket): void {
    // Node has let go of it: nobody else would take its errors.
    socket.on('error', () => {
      socket.destroy();
    });
    this.#refuseConnection(ClientConnection.of(socket), replies.connectNotAllowed, 'CONNECT');
  }

  #replyTo(code: string, error: ParserError): FixedReply {
    switch (code) {
      case requestTimeoutCode:
        return replies.requestTimeout;
      case 'HPE_HEADER_OVERFLOW':
        return replies.headersTooLarge;
      case 'HPE_INVALID_METHOD': {
        // A method that the parser has never heard of is a method all the same [D6].
        const match = requestLine.exec(textFromMethod(error));
        return match === null
          ? replies.badRequest
          : replyToUnknownMethod(match[1] ?? '', this.collectionPath, this.pages);
      }
      default:
        return replies.badRequest;
    }
  }

  // A reply with no request to belong to: written by hand, after those before it.
  #refuseConnection(connection: ClientConnection, reply: FixedReply, code: string): void {
    const last: Turn = {
      start: () => {
        const requestId = createRequestId();
        try {
          this.observer.onMalformed(requestId, reply, code, connection.address);
        } catch (error) {
          this.notifyBug(error, undefined);
        }
        const send = (): void => {
          sendLastReply(connection.socket, reply, requestId);
          connection.finish(last);
        };
        if (connection.unwrittenReply?.writableFinished === false) {
          connection.unwrittenReply.once('finish', send);
        } else {
          send();
        }
      },
      leave: () => undefined,
    };
    connection.enqueueLast(last);
  }
}

/** Of an HTTP server, in milliseconds. */
export type TimeLimits = Pick<Server, 'headersTimeout' | 'requestTimeout'>;

const requestTimeoutCode = 'ERR_HTTP_REQUEST_TIMEOUT';

// What is missing of the request that comes in is not read because those before it are not done.
function isHeldBack(connection: ClientConnection): boolean {
  const { newest, isPaused, hasWaiting } = connection;
  return (
    (isPaused && hasWaiting) ||
    (newest instanceof Call && !newest.hasWholeRequest && connection.isWaiting(newest))
  );
}

/** What Node's parser says of bytes that it gave up on: the packet that they came in, and where in it it stopped. */
type ParserError = Error & {
  readonly code?: string;
  readonly rawPacket?: unknown;
  readonly bytesParsed?: number;
};

const methodCharacters = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZ-');

// The packet may begin with a request before this one, and the parser stops within the method.
function textFromMethod({ rawPacket, bytesParsed = 0 }: ParserError): string {
  if (!Buffer.isBuffer(rawPacket)) {
    return '';
  }
  let start = bytesParsed;
  while (start > 0 && methodCharacters.includes(rawPacket[start - 1] ?? 0)) {
    start -= 1;
  }
  return rawPacket.toString('latin1', start, start + requestLineBytesMax);
}

// One that is not cut off, with a method in capitals, as all are that anyone has registered, and a path or
// absolute-form target. `get` is none: some would read it as GET, so it is a bad request.
const requestLine = /^[A-Z][A-Z0-9_-]* (\/[^\s#]*|https?:\/\/[^\s#]*) HTTP\/1\.[01]\r\n/;
const requestLineBytesMax = 16_384;

function sendLastReply(socket: Socket, reply: FixedReply, requestId: string): void {
  const headers = [
    `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status] ?? ''}`,
    'content-type: application/json',
    `content-length: ${reply.body.length}`,
    'cache-control: no-store',
    'x-content-type-options: nosniff',
    `x-request-id: ${requestId}`,
    ...pairs(reply.headers).map(([name, value]) => `${name}: ${value}`),
    `date: ${new Date().toUTCString()}`,
    'connection: close',
  ];
  socket.end(Buffer.concat([Buffer.from(`${headers.join('\r\n')}\r\n\r\n`, 'latin1'), reply.body]));
  // Closed at once, the connection would be reset under what the client is still sending, and the reply lost.
  setTimeout(() => socket.destroy(), lingerMs).unref();
}

function pairs(flat: readonly string[]): [string, string][] {
  const result: [string, string][] = [];
  for (let index = 0; index + 1 < flat.length; index += 2) {
    result.push([flat[index] ?? '', flat[index + 1] ?? '']);
  }
  return result;
}
