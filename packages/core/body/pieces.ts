// Keeps the bytes of a request's body in a few buffers, with little memory in addition to the bytes.

import { appendBytes, memoryAfter } from '../http1/growing-buffer.ts';

const noBytes: Buffer = Buffer.alloc(0);

// A buffer takes some 250 bytes in addition to its content, so small pieces are copied into one buffer. Otherwise a body
// in one-byte chunks needs 400 times its size, and such a body of 4 MB crashes the process.
export const smallBytes = 4_096;
const joinedBytesMin = 256;
const joinedBytesMax = 16_384;

export class Pieces {
  list: Buffer[] = [];
  // The last piece, if it was joined from small pieces; otherwise empty.
  #joined = noBytes;

  /** The memory that `add` needs for `piece`, as allocated. */
  bytesFor(piece: Buffer): number {
    if (this.#isKept(piece)) return piece.buffer.byteLength;
    if (piece.length >= smallBytes) return piece.length;
    const joined = this.#joinable(piece);
    return memoryAfter(joined, piece.length, joinedBytesMin) - joined.buffer.byteLength;
  }

  /** Adds the piece or a copy of it. Returns a buffer that ends with the piece's bytes. */
  add(piece: Buffer): Buffer {
    let kept = piece;
    if (this.#isKept(piece)) {
      this.#joined = noBytes;
    } else if (piece.length >= smallBytes) {
      kept = appendBytes(noBytes, piece, 0);
      this.#joined = noBytes;
    } else {
      const joined = this.#joinable(piece);
      if (joined.length > 0) this.list.pop();
      kept = appendBytes(joined, piece, joinedBytesMin);
      this.#joined = kept;
    }
    this.list.push(kept);
    return kept;
  }

  drop(): void {
    this.list = [];
    this.#joined = noBytes;
  }

  // A piece of 4 KB can keep a read of 64 KB in memory. So a piece is copied unless it fills most of its memory. Two pieces
  // of one buffer are never both kept, so no memory counts twice. A small first piece is most often the whole body.
  #isKept(piece: Buffer): boolean {
    const memory = piece.buffer.byteLength;
    return this.list.length === 0
      ? memory <= smallBytes || 2 * piece.length > memory
      : piece.length >= smallBytes && 2 * piece.length > memory;
  }

  // Returns the buffer to which `piece` is appended; an empty one if a new buffer begins.
  #joinable(piece: Buffer): Buffer {
    return this.#joined.length + piece.length > joinedBytesMax ? noBytes : this.#joined;
  }
}
