// Pipelined requests on a connection of Node's HTTP server [D58]. Node parses all bytes that one read returns, so a
// thousand requests can wait for their turn. This file starts at most 16 of them per iteration of the event loop, and
// stops reading from the connection while many requests wait.

import type { ServerResponse } from 'node:http';
import { Socket } from 'node:net';

import { setReading } from '../../http1/node-internals.ts';
import { watchRecords } from '../clients/record-watch.ts';
import { TurnShare } from '../../http1/turns.ts';

// While more than `waitingMax` requests wait, the connection is not read.
const waitingMax = 16;

class RequestsAhead {
  readonly #socket: Socket;
  readonly #share = new TurnShare();
  #waiting = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
    // Node resumes the socket for each request whose body has been read, so this listener pauses the socket again.
    socket.on('resume', () => this.#pauseIfFull());
  }

  #pauseIfFull(): void {
    if (this.#waiting > waitingMax) this.#socket.pause();
  }

  add(response: ServerResponse, begin: () => void): void {
    this.#waiting += 1;
    this.#pauseIfFull();
    response.once('socket', () => this.#start(response, begin));
  }

  #start(response: ServerResponse, begin: () => void): void {
    if (!this.#share.mayStart(true)) {
      const takeTurn = (): void => {
        this.#share.begin();
        this.#start(response, begin);
      };
      this.#share.wait({ takeTurn });
      return;
    }
    this.#share.countStart();
    this.#waiting -= 1;
    if (this.#waiting === waitingMax) this.#socket.resume();
    if (!response.destroyed) begin();
  }
}

const bySocket = new WeakMap<Socket, RequestsAhead>();

/** Calls `begin` when `response` is next to be sent on its connection, and other connections have had their turn. */
export function beginInTurn(socket: Socket, response: ServerResponse, begin: () => void): void {
  // Node assigns the socket to the response when all earlier responses have been sent [D27].
  if (response.socket !== null) {
    begin();
    return;
  }
  const ahead = bySocket.get(socket) ?? new RequestsAhead(socket);
  bySocket.set(socket, ahead);
  ahead.add(response, begin);
}

const readsOf = new WeakMap<Socket, TurnShare>();

/** Counts a piece of a body as a read. After too many, `socket` is not read until its turn comes [D58]. */
export function countRead(socket: object, bytes: number): void {
  // Test tools pass requests without a connection.
  if (!(socket instanceof Socket)) return;
  watchRecords(socket);
  const share = readsOf.get(socket) ?? new TurnShare();
  readsOf.set(socket, share);
  if (share.countRead(bytes) || share.isWaiting) return;
  setReading(socket, false);
  const takeTurn = (): void => {
    share.begin();
    setReading(socket, true);
  };
  share.wait({ takeTurn });
}
