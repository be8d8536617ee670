// Turns of the event loop for a body that a host has ready: pieces that are always ready would keep everybody else waiting
// for ever [D58].

import { queueForTurn } from '../../http1/turns.ts';

/** The number of pieces that are read in one turn. */
export const piecesPerTurn = 16;

/** Resolves in a turn of its own. */
export function nextTurn(): Promise<void> {
  return new Promise((takeTurn) => {
    queueForTurn({ takeTurn });
  });
}
