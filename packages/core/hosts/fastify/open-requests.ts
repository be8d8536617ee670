// Tracks the plugin's open requests and the server's connections. Releases the state of each request when the request ends,
// for any reason. Lets the server's shutdown wait for all open requests, and cut the connections that remain [D55].

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { startDeadline } from '../common/process-deadline.ts';

type Ends = Map<ServerResponse, () => void>;

export class OpenRequests {
  readonly #bySocket = new Map<Socket, Ends>();
  #count = 0;
  #onNone: () => void = () => undefined;

  /** Calls `onOver` when the response has been sent or can no longer be sent. Does nothing if the client has left. */
  add(socket: Socket, response: ServerResponse, onOver: () => void): void {
    if (socket.destroyed) return;
    const ends = this.#bySocket.get(socket) ?? this.watch(socket);
    ends.set(response, onOver);
    this.#count += 1;
    response.once('close', () => this.#end(ends, response));
  }

  watch(socket: Socket): Ends {
    const ends: Ends = new Map();
    this.#bySocket.set(socket, ends);
    // When a socket closes, Node emits no 'close' for responses that wait for earlier responses. So all requests of the
    // socket are ended here.
    socket.once('close', () => {
      this.#bySocket.delete(socket);
      for (const response of ends.keys()) {
        this.#end(ends, response);
      }
    });
    return ends;
  }

  #end(ends: Ends, response: ServerResponse): void {
    const onOver = ends.get(response);
    if (onOver === undefined) return;
    ends.delete(response);
    this.#count -= 1;
    onOver();
    if (this.#count === 0) this.#onNone();
  }

  /** Resolves when no request is open, or after `limitMs`. */
  async end(limitMs: number): Promise<void> {
    if (this.#count === 0) return;
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#onNone = () => resolve(undefined);
    const callOff = startDeadline(limitMs, this.#onNone);
    await promise;
    callOff();
  }

  /** Destroys all connections. Those of the server's further addresses, such as ::1, are known only after a request. */
  cut(): void {
    for (const socket of this.#bySocket.keys()) socket.destroy();
  }
}
