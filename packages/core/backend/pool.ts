// The connections to the backend, and the calls that wait for one. Idle connections are kept until they expire.
// client.ts sends the calls.

import { ClientConnection, type Dial, type OpenSocket } from '../http1/client-connection.ts';
import { monotonicMs } from '../time/monotonic.ts';
import { Deadline, type Deadlines } from './deadlines.ts';

// Subtracted from the backend's keep-alive timeout: a request in the timeout's last second could arrive too late.
const keepAliveMarginMs = 1_000;
const sweepMsMax = 1_000;
// Covers differences in the time after which the backend closes a connection.
const closeMarginMs = 100;
// How long writes use only new connections after even a connection that seemed safe has died.
const distrustMs = 60_000;

/** A call that needs a connection. */
export interface Caller {
  readonly isWrite: boolean;
  /** True: only a connection that has never been idle is suitable. */
  readonly needsNew: boolean;
  onConnection(connection: ClientConnection): void;
  /** No connection could be opened. `onFault` receives the exceptions of this method. */
  onBroken(error: Error): void;
  onFault(error: unknown): void;
}

interface PoolOptions {
  readonly open: OpenSocket;
  readonly idleTimeoutMs: number;
  /** No call starts on a connection that is older; 0: connections have no age limit [D68]. */
  readonly connectionAgeMaxMs: number;
}

export class ConnectionPool {
  readonly #options: PoolOptions;
  readonly #connecting: Deadlines;
  readonly #connections = new Set<ClientConnection>();
  // The connection that was released last is reused first, so that unneeded connections stay idle and expire.
  readonly #idle: ClientConnection[] = [];
  // At least one dial runs for each waiting call. A call also takes a connection that becomes free; then its dial serves
  // another call, or its connection becomes idle.
  readonly #waiting = new Set<Caller>();
  readonly #dials = new Map<Dial, Deadline>();
  // The shortest time after which the backend closed an idle connection without notice. Infinity: none was closed since a
  // connection answered after a longer time, or an answer announced the end of its connection.
  #closedAfterMs = Infinity;
  #distrustsUntil = 0;
  #sweepTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `connecting` limits each dial. */
  constructor(options: PoolOptions, connecting: Deadlines) {
    this.#options = options;
    this.#connecting = connecting;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Number of sockets, open or being opened. A dial that waits for a lookup counts as one. */
  get size(): number {
    let size = this.#connections.size;
    for (const dial of this.#dials.keys()) size += Math.max(1, dial.socketCount);
    return size;
  }

  /** The failures of the oldest dial so far, and its step that has not ended. */
  get troubles(): readonly Error[] {
    const [oldest] = this.#dials.keys();
    return oldest?.troubles ?? [];
  }

  /** Returns a suitable idle connection, or undefined if there is none. */
  takeIdle({ isWrite, needsNew }: Caller): ClientConnection | undefined {
    if (needsNew) return undefined;
    const now = monotonicMs();
    for (let found = this.#pick(isWrite, now); found !== undefined; found = this.#pick(isWrite, now)) {
      if (found.expiresAt > now) {
        found.idleMs = now - found.idleSince;
        return found;
      }
      this.discard(found);
    }
    return undefined;
  }

  /** Calls `caller` when there is a suitable connection, or none can be opened. */
  wait(caller: Caller): void {
    this.#waiting.add(caller);
    // After `close`, because nothing would close a connection opened now.
    if (this.#isClosed) setImmediate(() => this.#refuse(caller, closedError()));
    else this.#dialForWaiting();
  }

  /** Ends the wait of `caller`, and closes the oldest dial if it is no longer needed. */
  leave(caller: Caller): void {
    if (!this.#waiting.delete(caller) || this.#dials.size <= this.#waiting.size) return;
    const [oldest] = this.#dials.keys();
    if (oldest !== undefined) this.#endDial(oldest);
  }

  #pick(isWrite: boolean, now: number): ClientConnection | undefined {
    const newest = this.#idle.at(-1);
    if (newest === undefined || !isWrite || this.#isSafe(newest, now)) return this.#idle.pop();
    const oldest = this.#idle[0] ?? newest;
    return this.#isSafe(oldest, now) ? this.#idle.shift() : undefined;
  }

  // A write is never repeated, so it avoids connections that the backend may be closing [D20].
  #isSafe({ idleSince }: ClientConnection, now: number): boolean {
    const idleMs = now - idleSince;
    return (
      idleMs < this.#closedAfterMs / 2 - closeMarginMs ||
      (idleMs > this.#closedAfterMs + closeMarginMs && now > this.#distrustsUntil)
    );
  }

  #dialForWaiting(): void {
    while (this.#dials.size < this.#waiting.size) this.#dial();
  }

  #dial(): void {
    const { open, connectionAgeMaxMs } = this.#options;
    const usableUntil = connectionAgeMaxMs === 0 ? Infinity : monotonicMs() + connectionAgeMaxMs;
    let connection: ClientConnection | undefined;
    const dial = open({
      onBytes: (bytes) => connection?.onBytes(bytes),
      onOpen: (socket) => {
        this.#endDial(dial);
        const opened = new ClientConnection(socket, () => this.#onClosed(opened));
        connection = opened;
        opened.usableUntil = usableUntil;
        this.#connections.add(opened);
        const [first] = this.#waiting;
        if (first !== undefined) {
          this.#give(opened, first);
        } else {
          opened.rest();
          this.release(opened, true);
        }
      },
      onFailed: (error) => {
        this.#endDial(dial);
        const [first] = this.#waiting;
        if (first !== undefined && this.#dials.size < this.#waiting.size) this.#refuse(first, error);
      },
    });
    const deadline = new Deadline({
      onDeadlinePassed: () => {
        this.#endDial(dial);
        this.#dialForWaiting();
      },
    });
    this.#dials.set(dial, deadline);
    this.#connecting.start(deadline);
  }

  #endDial(dial: Dial): void {
    this.#dials.get(dial)?.clear();
    this.#dials.delete(dial);
    dial.close();
  }

  #give(connection: ClientConnection, caller: Caller): void {
    this.#waiting.delete(caller);
    caller.onConnection(connection);
  }

  #refuse(caller: Caller, error: Error): void {
    if (!this.#waiting.delete(caller)) return;
    try {
      caller.onBroken(error);
    } catch (fault) {
      caller.onFault(fault);
    }
  }

  /** Receives a connection after an answer: gives it to a waiting call, keeps it, or discards it if it cannot be reused. */
  release(connection: ClientConnection, isReusable: boolean): void {
    const now = monotonicMs();
    const { keepAliveSeconds, usableUntil, idleMs: wasIdleMs } = connection;
    const promisedMs = keepAliveSeconds === undefined ? Infinity : keepAliveSeconds * 1_000 - keepAliveMarginMs;
    const idleMs = Math.min(this.#options.idleTimeoutMs, promisedMs);
    connection.expiresAt = Math.min(now + idleMs, usableUntil);
    if (wasIdleMs > this.#closedAfterMs || !isReusable) this.#closedAfterMs = Infinity;
    if (connection.expiresAt <= now || !isReusable || !this.#connections.has(connection)) {
      this.discard(connection);
      return;
    }
    connection.idleSince = now;
    connection.idleMs = 0;
    for (const caller of this.#waiting.size === 0 ? [] : this.#waiting) {
      if (!caller.needsNew && (!caller.isWrite || this.#isSafe(connection, now))) {
        this.#give(connection, caller);
        return;
      }
    }
    this.#idle.push(connection);
    this.#sweepTimer ??= setInterval(
      () => this.#sweep(),
      Math.min(sweepMsMax, Math.max(50, this.#options.idleTimeoutMs / 4)),
    ).unref();
  }

  /** Closes a connection if it is open, and removes it from the pool. */
  discard(connection: ClientConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
    connection.destroy();
  }

  #onClosed(connection: ClientConnection): void {
    if (this.#connections.has(connection) && connection.isReusedAndSilent) {
      const now = monotonicMs();
      if (connection.idleMs > this.#closedAfterMs + closeMarginMs) this.#distrustsUntil = now + distrustMs;
      this.#closedAfterMs = Math.min(this.#closedAfterMs, now - connection.idleSince);
    }
    this.discard(connection);
  }

  /** Starts no call on a connection that is open or being opened now. Calls in flight continue [D68]. */
  renew(): void {
    for (const connection of this.#connections) connection.usableUntil = 0;
    for (const connection of this.#idle.splice(0)) this.discard(connection);
    for (const dial of this.#dials.keys()) this.#endDial(dial);
    this.#dialForWaiting();
  }

  /** Closes every connection. Calls in flight fail before the promise resolves, so no call is resent after `reopen`. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endSweeps();
    this.#idle.length = 0;
    for (const dial of this.#dials.keys()) this.#endDial(dial);
    for (const caller of this.#waiting) this.#refuse(caller, closedError());
    const connections = [...this.#connections];
    this.#connections.clear();
    await Promise.all(connections.map((connection) => new Promise<void>((resolve) => connection.breakOff(resolve))));
  }

  /** Allows calls again. `close` must have resolved. */
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

function closedError(): Error {
  return Object.assign(new Error('the connections to the backend have been closed'), { code: 'ERR_CLIENT_CLOSED' });
}
