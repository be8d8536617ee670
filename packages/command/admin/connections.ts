// The connections of the admin listener [D59]: few, one request each, and little time. node:http, which makes an
// object of every request that it is sent ahead, is given the head of one and never a byte behind it.

import type { RequestListener } from 'node:http';
import { createServer as createNetServer, type Server, type Socket } from 'node:net';
import { Duplex } from 'node:stream';

import { createServer } from '../../core/http1/node-http.ts';

/** Connections at once, those that `keep` was called for not among them. */
export const connectionsMax = 64;
const headBytesMax = 8_192;
// From accepting a connection to the end of a head.
const headMs = 5_000;
// From there to the client having taken its reply.
const replyMs = 10_000;
// What is sent behind a head is read and dropped, since a reset could take the reply from its client; so much of it.
const droppedBytesMax = 1_048_576;
// How long a client that has its reply may take to close.
const lingerMs = 1_000;

const headEnd = '\r\n\r\n';

/**
 * Where a connection is: not looked at yet, without a request, its reply being made, being sent, sent; or a stream.
 * A newcomer takes the place of the oldest in the first of `yielding` that there is.
 */
type Phase = 'arrived' | 'waiting' | 'answering' | 'replying' | 'closing' | 'streaming';

const yielding: readonly Phase[] = ['closing', 'waiting', 'arrived', 'replying', 'answering'];

export interface ConnectionServer {
  /** Not yet listening. */
  readonly server: Server;
  /** Cuts every connection. */
  readonly cut: () => void;
}

/** A server that has `listener` answer the first request of each connection, and then closes it. */
export function createConnectionServer(listener: RequestListener): ConnectionServer {
  const answer: RequestListener = (request, response) => {
    connectionOf(request).begin();
    response.shouldKeepAlive = false;
    listener(request, response);
  };
  // No reply depends on a body or on an expectation, and a missing `Host` is for the listener to refuse.
  const http = createServer({ requireHostHeader: false }, answer)
    .on('checkContinue', answer)
    .on('checkExpectation', answer)
    .on('connect', (request) => {
      connectionOf(request).refuse('405 Method Not Allowed', 'Method not allowed');
    })
    .on('clientError', (_error, socket) => {
      connectionOf({ socket }).refuse('400 Bad Request', 'Bad request');
    });
  const connections = new Set<Connection>();
  // One in each turn of the event loop: however many come, they hold up nobody who calls the gateway.
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
    connection.once('close', () => {
      connections.delete(connection);
    });
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

/** Has the connection of `request` live for as long as its reply, which is a stream. */
export function keep(request: { readonly socket: Duplex }): void {
  connectionOf(request).keep();
}

function connectionOf({ socket }: { readonly socket: Duplex }): Connection {
  if (socket instanceof Connection) {
    return socket;
  }
  throw new TypeError('no connection of the admin listener');
}

function makeRoom(connections: Set<Connection>): void {
  const counted = [...connections].filter(({ phase }) => phase !== 'streaming');
  const rankOf = ({ phase }: Connection): number => yielding.indexOf(phase);
  const [oldest] = counted.sort((one, other) => rankOf(one) - rankOf(other));
  if (oldest !== undefined && counted.length >= connectionsMax) {
    oldest.destroy();
    // Its `close` comes later, maybe after the next newcomer.
    connections.delete(oldest);
  }
}

/** What node:http sees of a socket. */
class Connection extends Duplex {
  readonly #socket: Socket;
  phase: Phase = 'arrived';
  #timer: NodeJS.Timeout | undefined;
  // What has come of the head, one character a byte; undefined when it is whole.
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
        // A client that waits for its reply may have ended its own side.
        if (this.phase === 'waiting' || this.phase === 'streaming') {
          this.destroy();
        }
      })
      // `close` follows.
      .on('error', () => undefined)
      .on('close', () => {
        this.destroy();
      });
  }

  /** Begins to read. */
  start(): void {
    this.phase = 'waiting';
    this.#socket.resume();
  }

  /** A request has been made of its head. */
  begin(): void {
    this.#enter('answering', replyMs);
  }

  keep(): void {
    this.phase = 'streaming';
    clearTimeout(this.#timer);
  }

  /** Replies in place of the listener, and closes. */
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
    // What there is has been pushed.
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
    this.#timer = setTimeout(() => {
      this.destroy();
    }, ms).unref();
  }

  // Hands on what is of the head, of which `before` has come; gives where that ends.
  #feed(bytes: Buffer, before: string): number {
    const text = bytes.toString('latin1');
    // Empty lines in front of a request are none (RFC 9112, 2.2).
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
      // To HTTP/2's preface, for instance, node:http says nothing.
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
