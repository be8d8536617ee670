// Shares the event loop between connections [D58]. In each turn of the loop, one of the connections that wait goes on: so
// all that have sent ahead cost the others no more than one does, however many they are.

export interface TurnTaker {
  /** Goes on, after others have had their turn. Must not throw. */
  takeTurn(): void;
}

const { nodeTiming } = performance;

/** The number of this turn. Reading it takes 0.1 us. */
export function currentTurn(): number {
  return nodeTiming.uvMetricsInfo.loopCount;
}

const waiting: TurnTaker[] = [];

/** Calls `taker` in a turn of its own, after those that wait already. */
export function queueForTurn(taker: TurnTaker): void {
  if (waiting.push(taker) === 1) {
    setImmediate(giveTurn);
  }
}

function giveTurn(): void {
  const next = waiting.shift();
  if (waiting.length > 0) {
    setImmediate(giveTurn);
  }
  next?.takeTurn();
}

// Requests that one connection may start in one turn of the event loop [D58].
const startsMax = 16;

/** One connection's share of the turns: how many requests it may start in each [D58]. */
export class TurnShare {
  /** The connection waits for its own turn. */
  isWaiting = false;
  // Requests started in the turn with the number `#turn`.
  #starts = 0;
  #turn = 0;
  // The last turn that was this connection's own.
  #ownTurn = 0;

  /**
   * Whether one more request may be started now. Requests that were sent ahead wait for the connection's own turn. Only
   * one of them starts in another turn, after IO has brought the reply before it.
   */
  mayStart(isAhead: boolean): boolean {
    const turn = currentTurn();
    if (this.#turn !== turn) {
      this.#turn = turn;
      this.#starts = 0;
    }
    return this.#starts < (isAhead && this.#ownTurn !== turn ? 1 : startsMax);
  }

  countStart(): void {
    this.#starts += 1;
  }

  /** Calls `taker` once, in the connection's next own turn. */
  wait(taker: TurnTaker): void {
    if (!this.isWaiting) {
      this.isWaiting = true;
      queueForTurn(taker);
    }
  }

  /** The own turn has come. */
  begin(): void {
    this.isWaiting = false;
    this.#ownTurn = currentTurn();
  }
}
