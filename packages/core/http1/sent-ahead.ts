// Stores bytes that cannot be read yet, such as pipelined requests [D58] or a body that the handler has paused. Also
// remembers whether the client has ended its side of the connection.

import { appendBytes } from './growing-buffer.ts';

// When this many bytes are stored, the client's socket is paused. The last read can add 64 KiB.
const bytesMax = 4_096;

const noBytes = Buffer.alloc(0);

export class SentAhead {
  hasEnded = false;
  /** Becomes true when `bytesMax` bytes are stored, and false again when all stored bytes have been read. */
  isFull = false;
  #bytes: Buffer = noBytes;

  get isEmpty(): boolean {
    return this.#bytes.length === 0;
  }

  /** The memory of the stored bytes, as allocated. */
  get heldBytes(): number {
    return this.#bytes.buffer.byteLength;
  }

  /** Copies `bytes`. */
  hold(bytes: Buffer): void {
    this.#bytes = appendBytes(this.#bytes, bytes, bytesMax);
    this.isFull ||= this.#bytes.length >= bytesMax;
  }

  /** Returns and removes all stored bytes. The caller then passes the unused bytes to `keep`. */
  take(): Buffer {
    const bytes = this.#bytes;
    this.#bytes = noBytes;
    return bytes;
  }

  /** Stores the unused rest of the bytes that `take` returned. */
  keep(rest: Buffer): void {
    this.#bytes = rest;
    this.isFull &&= rest.length > 0;
  }

  drop(): void {
    this.keep(noBytes);
  }
}
