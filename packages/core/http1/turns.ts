// Shares the event loop fairly between connections [D58]. In each iteration, one waiting connection continues. So a
// hundred pipelining connections delay all other connections no more than a single one does.

export interface TurnTaker {
  /** Continues after other connections have continued. Must not throw. */
  takeTurn(): void;
}

const { nodeTiming } = performance;

/** Returns the number of the event loop's current iteration. Takes 0.1 us. */
export function currentTurn(): number {
  return nodeTiming.uvMetricsInfo.loopCount;
}

const waiting: TurnTaker[] = [];

/** Adds `taker` to a queue. Each iteration of the event loop calls `takeTurn` of the first taker in the queue. */
export function queueForTurn(taker: TurnTaker): void {
  if (waiting.push(taker) === 1) setImmediate(giveTurn);
}

function giveTurn(): void {
  const next = waiting.shift();
  if (waiting.length > 0) setImmediate(giveTurn);
  next?.takeTurn();
}

// Largest numbers of requests that a connection may start, of reads and of their bytes in one iteration [D58].
const startsMax = 16;
const readsMax = 64;
const readBytesMax = 65_536;

/** Limits the reads of one connection, and the requests that it starts, per iteration of the event loop [D58]. */
export class TurnShare {
  /** True while the connection is queued for its turn. */
  isWaiting = false;
  // Numbers of requests started, of reads and of their bytes in iteration `#turn`.
  #starts = 0;
  #reads = 0;
  #readBytes = 0;
  #turn = 0;
  // The last iteration that was this connection's turn.
  #ownTurn = 0;

  /**
   * Returns true if another request may start now. `isAhead` is true for a pipelined request. Outside the connection's
   * turn, a pipelined request may start only if it is the connection's first in this iteration. This is the case when
   * the answer to the previous request has just arrived from the backend.
   */
  mayStart(isAhead: boolean): boolean {
    // The first request of a read follows `countRead`.
    if (isAhead) this.#enterTurn();
    return this.#starts < (isAhead && this.#ownTurn !== this.#turn ? 1 : startsMax);
  }

  /** Counts a read of `bytes` bytes. Returns false if the connection must then wait for its turn. */
  countRead(bytes: number): boolean {
    this.#enterTurn();
    this.#reads += 1;
    this.#readBytes += bytes;
    return this.#reads < readsMax && this.#readBytes < readBytesMax;
  }

  #enterTurn(): void {
    const turn = currentTurn();
    if (this.#turn !== turn) {
      this.#turn = turn;
      this.#starts = this.#reads = this.#readBytes = 0;
    }
  }

  countStart(): void {
    this.#starts += 1;
  }

  /** Queues `taker` for the connection's next turn, unless it is already queued. */
  wait(taker: TurnTaker): void {
    if (!this.isWaiting) {
      this.isWaiting = true;
      queueForTurn(taker);
    }
  }

  begin(): void {
    this.isWaiting = false;
    this.#ownTurn = currentTurn();
  }
}
