// Yields to the event loop while a request's body is read from a host. Otherwise a body whose chunks are always ready
// would block all other work [D58].

import { queueForTurn } from '../../http1/turns.ts';

export const piecesPerTurn = 16;

/** Resolves in a later turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((takeTurn) => queueForTurn({ takeTurn }));
}
