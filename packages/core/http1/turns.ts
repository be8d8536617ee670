// Turns of the event loop, for connections that let others go first [D58]. One of them has its own in each turn: what all
// of them have sent ahead takes no more of everybody's time than what one has, however many they are.

export interface TurnTaker {
  /** Goes on, others having had their turn. Must not throw. */
  takeTurn(): void;
}

const { nodeTiming } = performance;

/** The number of this turn. Reading it takes 0.1 us. */
export function currentTurn(): number {
  return nodeTiming.uvMetricsInfo.loopCount;
}

const waiting: TurnTaker[] = [];

/** Has `taker` called in a turn of its own, behind those that wait already. */
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

// Requests of one connection that are started in one turn of the event loop [D58].
const startsMax = 16;

/** The share that one connection has in the turns: how many requests it may start in each [D58]. */
export class TurnShare {
  /** Others have their turn first. */
  isWaiting = false;
  // Requests started in the turn with the number `#turn`.
  #starts = 0;
  #turn = 0;
  // The last turn that was this connection's own.
  #ownTurn = 0;

  /**
   * Whether one more request may be started now. Requests that were sent ahead wait for the connection's own turn. In
   * another turn only one of them starts, when IO has brought the reply before it.
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

  /** Has `taker` called in the connection's next own turn, once. */
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
