// Writes a whole message to a socket in as few writes as possible.

import type { Socket } from 'node:net';

// Up to this size, in bytes, one string is cheaper to write than two buffers.
const oneWriteBytesMax = 16_384;

/** Writes `head`, then `pieces`. Calls `onTaken` when the OS has the bytes or they are no longer needed. */
export function writeMessage(socket: Socket, head: string, pieces: readonly Buffer[], onTaken?: () => void): void {
  let length = 0;
  for (const piece of pieces) {
    length += piece.length;
  }
  if (length <= oneWriteBytesMax) {
    let text = head;
    for (const piece of pieces) {
      // latin1 maps every byte to one character and back, whatever the encoding of the body is.
      text += piece.toString('latin1');
    }
    socket.write(text, 'latin1');
    onTaken?.();
    return;
  }
  socket.cork();
  socket.write(head, 'latin1');
  const last = pieces.length - 1;
  for (const [index, piece] of pieces.entries()) {
    socket.write(piece, index === last ? onTaken : undefined);
  }
  socket.uncork();
}
