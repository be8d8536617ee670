// The connections that clients have to one server, and the limits on their number [D26] and on their rest
// [D35]. A connection that is at work is never taken from its client; one that rests makes room for a newcomer.

import type { Socket } from 'node:net';

import { ClientConnection } from './client-connection.ts';

// A connection that has had no request under way for so long may be closed for a newcomer.
const restMsMin = 1_000;
// Looking for those that rest means looking at all of them: so it frees a part of them at once, and is not done
// more often than this.
const freedPart = 1 / 32;
const lookMsMin = 50;
const reportMsMin = 1_000;
const sweepMs = 500;

export class ClientConnections implements Iterable<ClientConnection> {
  /** Is told, at most once a second, that the limit has been met. */
  onFull: () => void = () => undefined;
  /** Is told of each connection that is closed because there are too many: one that rested, or a newcomer. */
  onShed: () => void = () => undefined;
  readonly #max: number;
  readonly #restMsMax: number;
  readonly #connections = new Set<ClientConnection>();
  #sweepTimer: NodeJS.Timeout | undefined;
  #lookedAt = -Infinity;
  #reportedAt = -Infinity;

  /**
   * At most `max` connections, each closed when it has had no request for `restMsMax`. Node closes one on which
   * nothing comes; but to it any byte is a sign of life, also the empty lines that it skips between requests.
   */
  constructor(max: number, restMsMax: number) {
    this.#max = max;
    this.#restMsMax = restMsMax;
  }

  /** How many are open. */
  get size(): number {
    return this.#connections.size;
  }

  [Symbol.iterator](): Iterator<ClientConnection> {
    return this.#connections.values();
  }

  /** Takes a new connection in, or closes it when there are too many and none of them rests. */
  admit(socket: Socket): void {
    if (this.#connections.size >= this.#max) {
      this.#report();
      if (!this.#makeRoom()) {
        socket.destroy();
        this.onShed();
        return;
      }
    }
    const connection = ClientConnection.of(socket);
    this.#connections.add(connection);
    socket.once('close', () => this.#connections.delete(connection));
    this.#sweepTimer ??= setInterval(() => {
      this.#sweep();
    }, sweepMs).unref();
  }

  #sweep(): void {
    const now = performance.now();
    for (const connection of this.#connections) {
      if (connection.restsSince(now) >= this.#restMsMax) {
        connection.socket.destroy();
      }
    }
    if (this.#connections.size === 0) {
      clearInterval(this.#sweepTimer);
      this.#sweepTimer = undefined;
    }
  }

  #makeRoom(): boolean {
    const now = performance.now();
    if (now - this.#lookedAt < lookMsMin) {
      return false;
    }
    this.#lookedAt = now;
    const resting = [...this]
      .filter((connection) => connection.restsSince(now) >= restMsMin)
      .toSorted((a, b) => b.restsSince(now) - a.restsSince(now))
      .slice(0, Math.ceil(this.#max * freedPart));
    for (const connection of resting) {
      this.#connections.delete(connection);
      connection.socket.destroy();
      this.onShed();
    }
    return resting.length > 0;
  }

  #report(): void {
    const now = performance.now();
    if (now - this.#reportedAt >= reportMsMin) {
      this.#reportedAt = now;
      this.onFull();
    }
  }
}
