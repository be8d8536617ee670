// Limits the connections of the admin listener [D59]. Their number is small, each has one request, and timeouts are short.
// node:http would make an object for every pipelined request, so node:http receives only the first head of a connection.

import type { RequestListener } from 'node:http';
import { createServer as createNetServer, type Server, type Socket } from 'node:net';
import { Duplex } from 'node:stream';

import { createServer } from '../../core/http1/node-http.ts';

/** Largest number of connections. */
export const connectionsMax = 64;
const headBytesMax = 8_192;
// Longest time from accepting a connection to the end of its request head.
const headMs = 5_000;
// Longest time from the end of the head until the whole reply is passed to the OS.
const replyMs = 10_000;
// Largest number of bytes after the head that are read and dropped. Closing a socket with unread bytes resets the
// connection, and the client could lose the reply.
const droppedBytesMax = 1_048_576;
// After the reply, the client has this long to close the connection.
const lingerMs = 1_000;

const headEnd = '\r\n\r\n';

/** In this order: accepted, waiting for a request, making the reply, sending the reply, reply sent. */
type Phase = 'arrived' | 'waiting' | 'answering' | 'replying' | 'closing';

// At the limit, a new connection replaces the oldest connection of the first phase in this list that has connections.
const yielding: readonly Phase[] = ['closing', 'waiting', 'arrived', 'replying', 'answering'];

export interface ConnectionServer {
  /** Not yet listening. */
  readonly server: Server;
  /** Destroys every connection. */
  readonly cut: () => void;
}

/** Creates a server that answers the first request of each connection by `listener`, then closes the connection. */
export function createConnectionServer(listener: RequestListener): ConnectionServer {
  const answer: RequestListener = (request, response) => {
    connectionOf(request).begin();
    response.shouldKeepAlive = false;
    listener(request, response);
  };
  // No reply depends on a body or on `Expect`, so requests with them are answered like all others. The listener handles a
  // missing `Host`.
  const http = createServer({ requireHostHeader: false }, answer)
    .on('checkContinue', answer)
    .on('checkExpectation', answer)
    .on('connect', (request) => connectionOf(request).refuse('405 Method Not Allowed', 'Method not allowed'))
    .on('clientError', (_error, socket) => connectionOf({ socket }).refuse('400 Bad Request', 'Bad request'));
  const connections = new Set<Connection>();
  // Admits one new connection per turn of the event loop, so that many new ones do not delay the gateway's clients.
  let isAdmitting = false;
  const admitNext = (): void => {
    const next = [...connections].find(({ phase }) => phase === 'arrived');
    isAdmitting = next !== undefined;
    if (next !== undefined) {
      http.emit('connection', next);
      next.start();
      setImmediate(admitNext);
    }
  };
  const server = createNetServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    makeRoom(connections);
    const connection = new Connection(socket);
    connections.add(connection);
    connection.once('close', () => connections.delete(connection));
    if (!isAdmitting) {
      isAdmitting = true;
      setImmediate(admitNext);
    }
  });
  return {
    server,
    cut: () => {
      for (const connection of connections) {
        connection.destroy();
      }
    },
  };
}

function connectionOf({ socket }: { readonly socket: Duplex }): Connection {
  if (socket instanceof Connection) {
    return socket;
  }
  throw new TypeError('not a connection of the admin listener');
}

function makeRoom(connections: Set<Connection>): void {
  const rankOf = ({ phase }: Connection): number => yielding.indexOf(phase);
  const [oldest] = [...connections].sort((one, other) => rankOf(one) - rankOf(other));
  if (oldest !== undefined && connections.size >= connectionsMax) {
    oldest.destroy();
    // Removed here, because the event `close` may come after the next new connection.
    connections.delete(oldest);
  }
}

/** The stream that node:http uses in place of a socket. */
class Connection extends Duplex {
  readonly #socket: Socket;
  phase: Phase = 'arrived';
  #timer: NodeJS.Timeout | undefined;
  // The head received so far, one character per byte; undefined once complete.
  #head: string | undefined = '';
  #droppedBytes = 0;

  constructor(socket: Socket) {
    super();
    this.#socket = socket;
    this.#enter('arrived', headMs);
    socket
      .pause()
      .on('data', (bytes: Buffer) => {
        const head = this.phase === 'waiting' ? this.#head : undefined;
        this.#drop(head === undefined ? bytes : bytes.subarray(this.#feed(bytes, head)));
      })
      .on('end', () => {
        // The client may half-close while its reply is made or sent.
        if (this.phase === 'waiting') {
          this.destroy();
        }
      })
      // The event `close` follows.
      .on('error', () => undefined)
      .on('close', () => this.destroy());
  }

  start(): void {
    this.phase = 'waiting';
    this.#socket.resume();
  }

  /** Called when node:http has parsed the head. */
  begin(): void {
    this.#enter('answering', replyMs);
  }

  /** Sends this error instead of calling the listener, then closes the connection. */
  refuse(status: string, error: string): void {
    if (!this.destroyed) {
      this.begin();
      const body = JSON.stringify({ error });
      this.end(
        `HTTP/1.1 ${status}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
      );
    }
  }

  override _read(): void {
    // Bytes are pushed as they arrive.
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, onTaken: (error?: Error | null) => void): void {
    if (this.phase === 'answering') {
      this.phase = 'replying';
    }
    this.#socket.write(bytes, onTaken);
  }

  override _final(onEnded: (error?: Error | null) => void): void {
    this.#enter('closing', lingerMs);
    this.#socket.end(onEnded);
  }

  override _destroy(_error: Error | null, onDestroyed: (error?: Error | null) => void): void {
    clearTimeout(this.#timer);
    this.#socket.destroy();
    onDestroyed();
  }

  #enter(phase: Phase, ms: number): void {
    this.phase = phase;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.destroy(), ms).unref();
  }

  // Passes the bytes of the head on to node:http. `before` is the part of the head that arrived earlier. Returns the
  // number of bytes used from `bytes`.
  #feed(bytes: Buffer, before: string): number {
    const text = bytes.toString('latin1');
    // Skips empty lines before a request (RFC 9112, 2.2).
    const start = before === '' ? text.search(/[^\r\n]/) : 0;
    if (start < 0) {
      return bytes.length;
    }
    const head = before + text.slice(start);
    const isWhole = head.includes(headEnd);
    const length = isWhole ? head.indexOf(headEnd) + headEnd.length : head.length;
    if (length > headBytesMax) {
      this.refuse('431 Request Header Fields Too Large', 'Request header fields too large');
      return 0;
    }
    this.#head = isWhole ? undefined : head;
    const end = start + length - before.length;
    this.push(bytes.subarray(start, end));
    if (isWhole) {
      // node:http ignores some heads silently, such as HTTP/2's preface.
      setImmediate(() => {
        if (this.phase === 'waiting') {
          this.refuse('400 Bad Request', 'Bad request');
        }
      });
    }
    return end;
  }

  #drop({ length }: Buffer): void {
    this.#droppedBytes += length;
    if (this.#droppedBytes > droppedBytesMax) {
      this.#socket.pause();
    }
  }
}
