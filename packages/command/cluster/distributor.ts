// Passes the connections that the primary process has accepted to the workers, in turn. A connection belongs to the primary
// process until a worker confirms that it serves the connection. Until then another worker can get the connection.

import type { Socket } from 'node:net';

import { startDeadline } from '../../core/hosts/common/process-deadline.ts';

export interface Receiver {
  /** True if the worker has confirmed enough of its connections to get another one. */
  readonly hasRoom: boolean;
  /** True if the worker is slow to confirm a connection. */
  readonly isLate: boolean;
  /**
   * The worker's connections at its last heartbeat, and all that it got since. Connections that have closed since count
   * too: otherwise a new worker would get all short connections, as long as the others have idle ones.
   */
  readonly connections: number;
  take(socket: Socket): void;
}

interface Limits {
  readonly connectionsMax: number;
  readonly requestHeadersTimeoutMs: number;
}

interface Waiting {
  readonly socket: Socket;
  readonly since: number;
  callOff?: () => void;
}

// If a connection cannot be passed on, because the worker with the fewest connections has no room, this is tried again
// after the time in which that worker becomes late.
export const lateMs = 50;
// After about this time, any worker with room gets the connection.
const patienceMs = 200;

export class Distributor<Worker extends Receiver> {
  readonly #workers: () => readonly Worker[];
  readonly #limits: () => Limits;
  readonly #onRefused: () => void;
  // Connections that were handed back come first, then the oldest.
  readonly #waiting: Waiting[] = [];
  readonly #turns = new WeakMap<Worker, number>();
  // When a connection was first handed back.
  readonly #backSince = new WeakMap<Socket, number>();
  #turn = 0;
  #retry: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `workers` returns the workers that serve. `onRefused` is called for each connection that no worker gets. */
  constructor(workers: () => readonly Worker[], limits: () => Limits, onRefused: () => void) {
    this.#workers = workers;
    this.#limits = limits;
    this.#onRefused = onRefused;
  }

  /** Passes a new connection to a worker. While no worker can get it, up to CONNECTIONS_MAX connections wait. */
  accept(socket: Socket): void {
    socket.on('error', () => undefined);
    if (!this.#isClosed && this.#waiting.length < this.#limits().connectionsMax) {
      this.#wait([socket], Infinity, performance.now());
    } else {
      this.#refuse(socket);
    }
  }

  /**
   * Passes connections to other workers, before all new connections. Any worker with room gets them. A connection that is
   * handed back again and again is closed, because no worker has a file descriptor for it.
   */
  handBack(sockets: readonly Socket[]): void {
    const now = performance.now();
    const limitMs = this.#isClosed ? 0 : this.#limits().requestHeadersTimeoutMs;
    const kept = sockets.filter((socket) => {
      const since = this.#backSince.get(socket) ?? now;
      this.#backSince.set(socket, since);
      if (now - since >= limitMs) this.#refuse(socket);
      return now - since < limitMs;
    });
    if (kept.length > 0) this.#wait(kept, 0, -Infinity);
  }

  /** Passes waiting connections on. Called when a worker has room again, or when the workers have changed. */
  distribute(): void {
    while (this.#waiting.length > 0) {
      const workers = this.#workers();
      const waited = performance.now() - (this.#waiting[0]?.since ?? 0);
      const next = choose(workers, this.#turns, waited >= patienceMs);
      if (next === undefined) {
        this.#retryLater();
        return;
      }
      this.#pass(next);
    }
  }

  /** Passes all waiting connections on, even to workers without room. Afterwards no connection waits. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    const workers = this.#workers();
    for (let count = 0; this.#waiting.length > 0; count += 1) {
      const next = workers[count % workers.length];
      if (next === undefined) this.#refuse(this.#takeFirst());
      else this.#pass(next);
    }
  }

  #wait(sockets: readonly Socket[], index: number, since: number): void {
    const added: Waiting[] = sockets.map((socket) => ({ socket, since }));
    this.#waiting.splice(index, 0, ...added);
    this.distribute();
    // A client waits for a worker no longer than the gateway waits for a client's request.
    for (const each of added.filter((one) => this.#waiting.includes(one))) {
      each.callOff = startDeadline(this.#limits().requestHeadersTimeoutMs, () => {
        this.#waiting.splice(this.#waiting.indexOf(each), 1);
        this.#refuse(each.socket);
      });
    }
  }

  #takeFirst(): Socket | undefined {
    const first = this.#waiting.shift();
    first?.callOff?.();
    return first?.socket;
  }

  #pass(worker: Worker): void {
    const socket = this.#takeFirst();
    if (socket === undefined) return;
    this.#turn += 1;
    this.#turns.set(worker, this.#turn);
    worker.take(socket);
  }

  #refuse(socket: Socket | undefined): void {
    socket?.destroy();
    this.#onRefused();
  }

  #retryLater(): void {
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.distribute();
    }, lateMs);
  }
}

/**
 * Returns the worker whose turn is next, or undefined if none can get a connection now. Unless `takesAny`, a worker with
 * more connections than another is left out, so that connections that stay open are spread evenly. It may have an
 * eighth more, so that a busy gateway does not wait for its slowest worker.
 */
function choose<Worker extends Receiver>(
  workers: readonly Worker[],
  turns: WeakMap<Worker, number>,
  takesAny: boolean,
): Worker | undefined {
  const prompt = workers.filter(({ isLate }) => !isLate);
  const fewest = Math.min(...prompt.map(({ connections }) => connections));
  const most = takesAny ? Infinity : fewest + Math.floor(fewest / 8);
  const turnOf = (worker: Worker): number => turns.get(worker) ?? 0;
  return prompt
    .filter(({ hasRoom, connections }) => hasRoom && connections <= most)
    .reduce<Worker | undefined>(
      (first, each) => (first === undefined || turnOf(each) < turnOf(first) ? each : first),
      undefined,
    );
}
