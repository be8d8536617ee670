// Hands what a client sends to Node's parser in portions, one in a turn of the event loop [D58]. The parser takes all
// that it is given at once: one read of 64 KiB can be 2,600 requests or 10,000 pieces of a body, and for that long
// nobody else is served. What is left waits here as bytes, and the socket is not read until they are used up.

import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

import { ClientConnection } from './client-connection.ts';
import { handleOf } from './tcp-table.ts';

// Of heads and of bodies in chunks, of which each has two. A usual head is one portion.
const linesMax = 64;
const lineFeed = 0x0a;

/** Has what comes on `socket`, which a server of node:http has just taken, parsed in portions. */
export function parseInPortions(socket: Socket): void {
  new Portions(socket).begin();
}

/** What node:http keeps with a socket. */
type HttpSocket = Socket & {
  /** Null when it has let go of the socket, and then perhaps that of another one. */
  readonly parser?: { readonly incoming?: IncomingMessage | null } | null;
  /** The parser takes nothing until the client has taken more of its replies. */
  readonly _paused?: boolean;
};

class Portions {
  readonly #socket: HttpSocket;
  readonly #connection: ClientConnection;
  #parse: (bytes: Buffer) => void = () => undefined;
  #rest: Buffer | undefined;
  // How much of a body with a known length is still to come: it is one piece a read, whatever its bytes.
  #bodyBytesLeft = 0;

  constructor(socket: HttpSocket) {
    this.#socket = socket;
    this.#connection = ClientConnection.of(socket);
  }

  begin(): void {
    const socket = this.#socket;
    const [parse] = socket.listeners('data') as [(bytes: Buffer) => void];
    this.#parse = parse;
    // Without this listener Node's parser would read the socket itself.
    socket.on('data', (bytes: Buffer) => {
      if (this.#rest === undefined) {
        this.#take(bytes, 1);
      } else {
        // Not while it is paused; but no bytes may ever overtake others.
        this.#rest = Buffer.concat([this.#rest, bytes]);
      }
    });
    socket.off('data', parse);
    // A paused stream reads on until it is full, which is another read or two: this one does not [D58].
    const read = socket._read.bind(socket);
    socket._read = (size) => {
      if (!socket.isPaused()) {
        read(size);
      }
    };
    socket.on('pause', () => {
      const handle = handleOf(socket);
      if (handle?.reading === true) {
        handle.reading = false;
        handle.readStop?.();
      }
    });
    socket.on('resume', () => {
      if (socket._paused === true) {
        socket.pause();
      } else if (!this.#connection.isPaused) {
        read(0);
        this.#takeRest();
      }
    });
  }

  #takeRest(): void {
    const rest = this.#rest;
    this.#rest = undefined;
    if (rest !== undefined) {
      this.#take(rest, this.#connection.room);
    }
  }

  // One request is parsed at once; whatever comes behind it waits for the connection's turn.
  #take(bytes: Buffer, headsMax: number): void {
    let start = 0;
    let heads = 0;
    let lines = 0;
    while (start < bytes.length && this.#socket.parser && !this.#connection.dropsRest) {
      const isInBody = this.#socket.parser.incoming?.complete === false;
      if (isInBody && this.#connection.hasWaiting) {
        // Of the request that waits last. Node would keep each piece of it as an object.
        this.#rest = bytes.subarray(start);
        this.#connection.pause();
        return;
      }
      if ((heads >= headsMax && !isInBody) || lines >= linesMax || this.#socket._paused === true) {
        this.#rest = bytes.subarray(start);
        this.#connection.yieldTurn();
        return;
      }
      let end = Math.min(start + this.#bodyBytesLeft, bytes.length);
      const isBody = end > start;
      let isEmptyLine = false;
      while (!isBody && !isEmptyLine && lines < linesMax && end < bytes.length) {
        const lineStart = end;
        end = bytes.indexOf(lineFeed, lineStart) + 1 || bytes.length;
        // It may begin in the bytes before these; one character too many here is a turn that ends early.
        isEmptyLine = end - lineStart <= 2;
        lines += 1;
      }
      this.#parse(bytes.subarray(start, end));
      if (isBody) {
        this.#bodyBytesLeft -= end - start;
      } else if (isEmptyLine) {
        // Every head ends with one, so that no portion has more requests than empty lines.
        heads += 1;
        this.#bodyBytesLeft = this.#measureBody();
      }
      start = end;
    }
  }

  // Of the request whose head has just been parsed; 0 where its length is not known.
  #measureBody(): number {
    const request = this.#socket.parser?.incoming;
    try {
      return request?.complete === false ? Number(request.headers['content-length'] ?? 0) : 0;
    } catch {
      // A fault of a host's, which has its reply by now [D28]; thrown from here, it would end the process.
      return 0;
    }
  }
}
