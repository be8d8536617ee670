// The connections to the backend. Idle connections are kept until they expire. client.ts sends the calls.

import { ClientConnection, type OpenSocket } from '../http1/client-connection.ts';
import { monotonicMs } from '../time/monotonic.ts';

// Subtracted from the backend's keep-alive timeout: a request in the timeout's last second could arrive too late.
const keepAliveMarginMs = 1_000;
const sweepMsMax = 1_000;

export class ConnectionPool {
  readonly #open: OpenSocket;
  readonly #idleTimeoutMs: number;
  readonly #connections = new Set<ClientConnection>();
  // The connection that was released last is reused first, so that unneeded connections stay idle and expire.
  readonly #idle: ClientConnection[] = [];
  #sweepTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(open: OpenSocket, idleTimeoutMs: number) {
    this.#open = open;
    this.#idleTimeoutMs = idleTimeoutMs;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Number of connections, open or being opened. */
  get size(): number {
    return this.#connections.size;
  }

  /** Returns an idle connection, or a new one if `fresh` is true or none is idle. The pool must not be closed. */
  acquire(fresh: boolean): ClientConnection {
    const idle = fresh ? undefined : this.#takeIdle();
    if (idle !== undefined) return idle;
    const connection = new ClientConnection(this.#open, () => this.discard(connection));
    this.#connections.add(connection);
    return connection;
  }

  #takeIdle(): ClientConnection | undefined {
    const now = monotonicMs();
    for (let last = this.#idle.pop(); last !== undefined; last = this.#idle.pop()) {
      if (last.expiresAt > now) return last;
      this.discard(last);
    }
    return undefined;
  }

  /** Keeps a connection for reuse after an exchange. Discards it if it cannot be reused. */
  release(connection: ClientConnection): void {
    const { keepAliveSeconds } = connection;
    const promisedMs = keepAliveSeconds === undefined ? Infinity : keepAliveSeconds * 1_000 - keepAliveMarginMs;
    const idleMs = Math.min(this.#idleTimeoutMs, promisedMs);
    if (idleMs <= 0 || !this.#connections.has(connection)) {
      this.discard(connection);
      return;
    }
    connection.expiresAt = monotonicMs() + idleMs;
    this.#idle.push(connection);
    this.#sweepTimer ??= setInterval(
      () => this.#sweep(),
      Math.min(sweepMsMax, Math.max(50, this.#idleTimeoutMs / 4)),
    ).unref();
  }

  /** Closes a connection if it is open, and removes it from the pool. */
  discard(connection: ClientConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
    connection.destroy();
  }

  /** Closes every connection. Calls in flight fail before the promise resolves, so no call is resent after `reopen`. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endSweeps();
    this.#idle.length = 0;
    const connections = [...this.#connections];
    this.#connections.clear();
    await Promise.all(connections.map((connection) => new Promise<void>((resolve) => connection.breakOff(resolve))));
  }

  /** Allows `acquire` again. `close` must have resolved. */
  reopen(): void {
    this.#isClosed = false;
  }

  #sweep(): void {
    const now = monotonicMs();
    for (const connection of this.#idle.filter(({ expiresAt }) => expiresAt <= now)) {
      this.discard(connection);
    }
    if (this.#idle.length === 0) this.#endSweeps();
  }

  #endSweeps(): void {
    clearInterval(this.#sweepTimer);
    this.#sweepTimer = undefined;
  }
}
