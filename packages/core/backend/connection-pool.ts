// The connections to the backend, and the calls that wait for one. Idle connections are kept until they expire.
// client.ts sends the calls.

import { BackendConnection, type Dial, type DialOwner, type OpenSocket } from '../http1/backend-connection.ts';
import { monotonicMs } from '../time/monotonic.ts';
import { Deadline, Deadlines } from './deadlines.ts';

// Subtracted from the backend's keep-alive timeout: a request in the timeout's last second could arrive too late.
const keepAliveMarginMs = 1_000;
const sweepMsMax = 1_000;
// After a connection has died in use without notice, writes use new connections for this time. A further death doubles it.
// It ends early, after `trialPart`, if `trialCount` connections are idle.
const avoidMsMin = 60_000;
const avoidMsMax = 3_600_000;
const trialCount = 64;
// Idle connections that writes avoid, at most. The sizing of file descriptors allows for them (docs/operating.md).
const avoidedMax = 128;
const trialPart = 1 / 12;
// A call that shares the dial of another call starts its own dial after this time.
const sharedMsMax = 250;

/** A call that needs a connection. */
export interface Caller {
  readonly isWrite: boolean;
  /** True: only a connection that has never been idle is suitable. */
  readonly needsNew: boolean;
  onConnection(connection: BackendConnection): void;
  /** No connection could be opened. `onFault` receives the exceptions of this method. */
  onBroken(error: Error): void;
  onFault(error: unknown): void;
}

interface PoolOptions {
  readonly open: OpenSocket;
  readonly connectTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** No call starts on a connection that is older; 0: no limit [D68]. */
  readonly connectionAgeMaxMs: number;
}

export class ConnectionPool {
  #isClosed = false;
  readonly #options: PoolOptions;
  readonly #connecting: Deadlines;
  readonly #sharing = new Deadlines(sharedMsMax);
  readonly #connections = new Set<BackendConnection>();
  // The connection that was released last is reused first, so that unneeded connections stay idle and expire.
  readonly #idle: BackendConnection[] = [];
  // At least one dial runs for each waiting call. A call also takes a connection that becomes free; then its dial serves
  // another call, or its connection becomes idle.
  readonly #waiting = new Set<Caller>();
  readonly #dials = new Map<Dial, Deadline>();
  // When a connection last died in use without notice. -Infinity: none has died, or since then the backend was down.
  #diedAt = -Infinity;
  #avoidMs = avoidMsMin;
  #renewedAt = 0;
  #sweepTimer: NodeJS.Timeout | undefined;

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
  takeIdle(caller: Caller): BackendConnection | undefined {
    const now = monotonicMs();
    while (!this.#needsNew(caller, now)) {
      const found = this.#idle.pop();
      if (found === undefined || found.expiresAt > now) return found;
      this.discard(found);
    }
    return undefined;
  }

  // A write is never repeated, so it avoids connections that the backend perhaps closes without notice [D20].
  #needsNew({ isWrite, needsNew }: Caller, now: number): boolean {
    const part = this.#idle.length < trialCount ? 1 : trialPart;
    return needsNew || (isWrite && now - this.#diedAt < this.#avoidMs * part);
  }

  /** Calls `caller` when there is a suitable connection, or none can be opened. */
  wait(caller: Caller): void {
    this.#waiting.add(caller);
    // After `close`, because nothing would close a connection opened now.
    if (this.#isClosed) setImmediate(() => this.#refuse(caller, closedError()));
    else if (this.#dials.size < this.#waiting.size) this.#dialForWaiting();
    else this.#dialLater(caller);
  }

  /** Ends the wait of `caller`, and closes the oldest dial if it is no longer needed. */
  leave(caller: Caller): void {
    if (!this.#waiting.delete(caller) || this.#dials.size <= this.#waiting.size) return;
    const [oldest] = this.#dials.keys();
    if (oldest !== undefined) this.#endDial(oldest);
  }

  #dialForWaiting(): void {
    while (this.#dials.size < this.#waiting.size) this.#dial();
  }

  // For a call that counts on the dial of another call, which may never succeed.
  #dialLater(caller: Caller): void {
    const onDeadlinePassed = (): unknown => this.#waiting.has(caller) && this.#dial();
    this.#sharing.start(new Deadline({ onDeadlinePassed }));
  }

  #dial(): void {
    const { open, connectionAgeMaxMs, connectTimeoutMs } = this.#options;
    const usableUntil = connectionAgeMaxMs === 0 ? Infinity : monotonicMs() + connectionAgeMaxMs;
    let connection: BackendConnection | undefined;
    const owner: DialOwner = {
      onBytes: (bytes) => connection?.onBytes(bytes),
      onOpen: (socket) => {
        const [oldest] = this.#dials.keys();
        this.#endDial(dial);
        const opened = new BackendConnection(socket, () => this.discard(opened));
        connection = opened;
        opened.usableUntil = usableUntil;
        this.#connections.add(opened);
        const [first, second] = this.#waiting;
        if (first !== undefined) {
          if (second !== undefined && dial !== oldest) this.#dialLater(second);
          this.#waiting.delete(first);
          first.onConnection(opened);
        } else {
          opened.rest();
          this.release(opened, true);
        }
      },
      onFailed: (error) => {
        this.#endDial(dial);
        // A backend that is down explains why its connections died.
        this.#diedAt = -Infinity;
        const [first] = this.#waiting;
        if (first !== undefined && this.#dials.size < this.#waiting.size) this.#refuse(first, error);
      },
    };
    const dial = open(owner, connectTimeoutMs, this.#renewedAt);
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

  #refuse(caller: Caller, error: Error): void {
    if (!this.#waiting.delete(caller)) return;
    try {
      caller.onBroken(error);
    } catch (fault) {
      caller.onFault(fault);
    }
  }

  /** Receives a connection after an answer: gives it to a waiting call, keeps it, or discards it if it cannot be reused. */
  release(connection: BackendConnection, isReusable: boolean): void {
    const now = monotonicMs();
    const { keepAliveSeconds, usableUntil } = connection;
    const promisedMs = keepAliveSeconds === undefined ? Infinity : keepAliveSeconds * 1_000 - keepAliveMarginMs;
    const idleMs = Math.min(this.#options.idleTimeoutMs, promisedMs);
    connection.expiresAt = Math.min(now + idleMs, usableUntil);
    if (connection.expiresAt <= now || !isReusable || !this.#connections.has(connection)) {
      this.discard(connection);
      return;
    }
    const waiting =
      this.#waiting.size === 0 ? undefined : [...this.#waiting].find((each) => !this.#needsNew(each, now));
    if (waiting !== undefined) {
      this.#waiting.delete(waiting);
      waiting.onConnection(connection);
      return;
    }
    if (this.#idle.length >= avoidedMax && now - this.#diedAt < this.#avoidMs) this.discard(connection);
    else this.#idle.push(connection);
    this.#sweepTimer ??= setInterval(
      () => this.#sweep(),
      Math.min(sweepMsMax, Math.max(50, this.#options.idleTimeoutMs / 4)),
    ).unref();
  }

  /** Closes a connection if it is open, and removes it from the pool. */
  discard(connection: BackendConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
    connection.destroy();
  }

  /** Records that a connection died in use without notice. */
  recordDeath(): void {
    if (this.#isClosed) return;
    const now = monotonicMs();
    const quietMs = now - this.#diedAt;
    if (quietMs > 2 * avoidMsMax) this.#avoidMs = avoidMsMin;
    else if (quietMs > this.#avoidMs * trialPart) this.#avoidMs = Math.min(2 * this.#avoidMs, avoidMsMax);
    this.#diedAt = now;
  }

  /** Starts no call on a connection that is open or being opened now. Calls in flight continue [D68]. */
  renew(): void {
    this.#renewedAt = monotonicMs();
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
