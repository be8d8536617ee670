// The connections to the backend: which are idle, and until when. What a call does with one is client.ts's affair.

import { ClientConnection, type OpenSocket } from '../http1/client-connection.ts';
import { monotonicMs } from '../time/monotonic.ts';

// The way to the backend takes time too: a connection that it promises to keep is not used in the last second.
const keepAliveMarginMs = 1_000;
const sweepMsMax = 1_000;

export class ConnectionPool {
  readonly #open: OpenSocket;
  readonly #idleTimeoutMs: number;
  readonly #connections = new Set<ClientConnection>();
  // Last in, first out: the warmest connection is used, the others age and close.
  readonly #idle: ClientConnection[] = [];
  #sweepTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(open: OpenSocket, idleTimeoutMs: number) {
    this.#open = open;
    this.#idleTimeoutMs = idleTimeoutMs;
  }

  /** It gives no connection out. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Connections that are open or being opened. */
  get size(): number {
    return this.#connections.size;
  }

  /** An idle connection, or a new one when `fresh` is asked for or none is idle. It must not be closed. */
  acquire(fresh: boolean): ClientConnection {
    const idle = fresh ? undefined : this.#takeIdle();
    if (idle !== undefined) {
      return idle;
    }
    const connection = new ClientConnection(this.#open, () => {
      this.discard(connection);
    });
    this.#connections.add(connection);
    return connection;
  }

  #takeIdle(): ClientConnection | undefined {
    const now = monotonicMs();
    for (let last = this.#idle.pop(); last !== undefined; last = this.#idle.pop()) {
      if (last.expiresAt > now) {
        return last;
      }
      this.discard(last);
    }
    return undefined;
  }

  /** Takes a connection back whose call has ended well. */
  release(connection: ClientConnection): void {
    const { keepAliveSeconds } = connection;
    const promisedMs =
      keepAliveSeconds === undefined ? Infinity : keepAliveSeconds * 1_000 - keepAliveMarginMs;
    const idleMs = Math.min(this.#idleTimeoutMs, promisedMs);
    if (idleMs <= 0 || !this.#connections.has(connection)) {
      this.discard(connection);
      return;
    }
    connection.expiresAt = monotonicMs() + idleMs;
    this.#idle.push(connection);
    this.#sweepTimer ??= setInterval(
      () => {
        this.#sweep();
      },
      Math.min(sweepMsMax, Math.max(50, this.#idleTimeoutMs / 4)),
    ).unref();
  }

  /** Closes a connection whose call has not ended well, or that has expired; forgets one that has closed. */
  discard(connection: ClientConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) {
      this.#idle.splice(index, 1);
    }
    connection.destroy();
  }

  /**
   * Closes every connection, and gives out no other. Calls under way fail: they have been told when the promise resolves,
   * and so none of them is sent again on what is opened after that.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endSweeps();
    this.#idle.length = 0;
    const connections = [...this.#connections];
    this.#connections.clear();
    await Promise.all(
      connections.map(
        (connection) =>
          new Promise<void>((resolve) => {
            connection.breakOff(resolve);
          }),
      ),
    );
  }

  /** Gives out connections again. To be called when `close` has resolved. */
  reopen(): void {
    this.#isClosed = false;
  }

  #sweep(): void {
    const now = monotonicMs();
    for (const connection of this.#idle.filter(({ expiresAt }) => expiresAt <= now)) {
      this.discard(connection);
    }
    if (this.#idle.length === 0) {
      this.#endSweeps();
    }
  }

  #endSweeps(): void {
    clearInterval(this.#sweepTimer);
    this.#sweepTimer = undefined;
  }
}
