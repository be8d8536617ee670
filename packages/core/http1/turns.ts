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

/** So many pieces of a body that a host has ready are read in one turn. */
export const piecesPerTurn = 16;

/** Resolves in a turn of its own. */
export function nextTurn(): Promise<void> {
  return new Promise((takeTurn) => {
    queueForTurn({ takeTurn });
  });
}
