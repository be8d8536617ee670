// Tracks the plugin's open requests and the server's connections. Releases the state of each request when the request ends,
// for any reason. Lets the server's shutdown wait for all open requests, and cut the connections that remain [D55].

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { startDeadline } from '../common/process-deadline.ts';

export class OpenRequests {
  readonly #bySocket = new Map<Socket, Map<ServerResponse, () => void>>();
  #count = 0;
  #onNone: () => void = () => undefined;

  /** Calls `onOver` when the response has been sent or can no longer be sent. Does nothing if the client has left. */
  add(socket: Socket, response: ServerResponse, onOver: () => void): void {
    if (socket.destroyed) return;
    const ofSocket = this.#bySocket.get(socket) ?? this.watch(socket);
    if (!ofSocket.has(response)) {
      ofSocket.set(response, onOver);
      this.#count += 1;
      response.once('close', () => this.#end(ofSocket, response));
    }
  }

  /** Tracks a connection, also before its first request. */
  watch(socket: Socket): Map<ServerResponse, () => void> {
    const ofSocket = new Map<ServerResponse, () => void>();
    this.#bySocket.set(socket, ofSocket);
    // When a socket closes, Node emits no 'close' for responses that wait for earlier responses. So all requests of the
    // socket are ended here.
    socket.once('close', () => {
      this.#bySocket.delete(socket);
      for (const response of ofSocket.keys()) {
        this.#end(ofSocket, response);
      }
    });
    return ofSocket;
  }

  #end(ofSocket: Map<ServerResponse, () => void>, response: ServerResponse): void {
    const onOver = ofSocket.get(response);
    if (onOver !== undefined) {
      ofSocket.delete(response);
      this.#count -= 1;
      onOver();
      if (this.#count === 0) this.#onNone();
    }
  }

  /** Resolves when no request is open, or after `limitMs`. */
  async end(limitMs: number): Promise<void> {
    if (this.#count > 0) {
      const { promise, resolve } = Promise.withResolvers<undefined>();
      this.#onNone = () => resolve(undefined);
      const callOff = startDeadline(limitMs, this.#onNone);
      await promise;
      callOff();
    }
  }

  /** Destroys all connections. Those of a second server, for another address, are known only after a request. */
  cut(): void {
    for (const socket of this.#bySocket.keys()) socket.destroy();
  }
}
