// The requests that have come to the plugin and are not over: what is kept for them is let go of at their end, however
// they end, and the server's end waits for them [D55].

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export class OpenRequests {
  readonly #bySocket = new Map<Socket, Map<ServerResponse, () => void>>();
  #count = 0;
  #onNone: () => void = () => undefined;

  /** Calls `onOver` when the response has been sent, or never will be. */
  add(socket: Socket, response: ServerResponse, onOver: () => void): void {
    const ofSocket = this.#of(socket);
    if (ofSocket.has(response)) {
      return;
    }
    ofSocket.set(response, onOver);
    this.#count += 1;
    response.once('close', () => {
      this.#end(ofSocket, response);
    });
  }

  #of(socket: Socket): Map<ServerResponse, () => void> {
    let ofSocket = this.#bySocket.get(socket);
    if (ofSocket === undefined) {
      const opened = new Map<ServerResponse, () => void>();
      ofSocket = opened;
      this.#bySocket.set(socket, opened);
      // Node closes no response that still waits for those before it.
      socket.once('close', () => {
        this.#bySocket.delete(socket);
        for (const response of opened.keys()) {
          this.#end(opened, response);
        }
      });
    }
    return ofSocket;
  }

  #end(ofSocket: Map<ServerResponse, () => void>, response: ServerResponse): void {
    const onOver = ofSocket.get(response);
    if (onOver !== undefined) {
      ofSocket.delete(response);
      this.#count -= 1;
      onOver();
      if (this.#count === 0) {
        this.#onNone();
      }
    }
  }

  /** Resolves when none is open, or after `limitMs`. */
  async end(limitMs: number): Promise<void> {
    if (this.#count > 0) {
      const { promise, resolve } = Promise.withResolvers<undefined>();
      this.#onNone = () => {
        resolve(undefined);
      };
      const timer = setTimeout(this.#onNone, limitMs);
      await promise;
      clearTimeout(timer);
    }
  }

  /** Cuts the connections of those that are open. */
  cut(): void {
    for (const [socket, ofSocket] of this.#bySocket) {
      if (ofSocket.size > 0) {
        socket.destroy();
      }
    }
  }
}
