// The bytes of a body on their way out. Their memory may be used again as soon as they are released. So they cannot be
// kept: our own sockets write them, and every other host gets a copy.

import type { ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';

/** Owns the memory of borrowed bytes. */
export interface Lender {
  /** Takes the memory back and stops counting it. Later calls do nothing. */
  drop(): void;
}

// Up to this size, in bytes, one string is cheaper to write than two buffers.
export const oneWriteBytesMax = 16_384;

export class BorrowedBytes {
  /** In bytes. */
  readonly length: number;
  #pieces: readonly Buffer[];
  readonly #lender: Lender | undefined;

  /** Without `lender`, the bytes are constant and can be released any number of times. */
  constructor(pieces: readonly Buffer[], lender?: Lender) {
    this.#pieces = pieces;
    this.#lender = lender;
    let length = 0;
    for (const piece of pieces) {
      length += piece.length;
    }
    this.length = length;
  }

  static ofConstant(bytes: Buffer): BorrowedBytes {
    return new BorrowedBytes([bytes]);
  }

  /** Returns a copy in memory of its own, and releases the bytes. */
  copy(): Buffer<ArrayBuffer> {
    const copy = Buffer.allocUnsafeSlow(this.length);
    let at = 0;
    for (const piece of this.#readable) {
      copy.set(piece, at);
      at += piece.length;
    }
    this.release();
    return copy;
  }

  /** Writes `head`, then the bytes. They stay borrowed. */
  writeTo(socket: Socket, head: string): void {
    this.#write(socket, head, false);
  }

  /** Writes `head`, then the bytes. Releases them when the OS has them, or when the socket has closed. */
  sendTo(socket: Socket, head: string): void {
    this.#write(socket, head, true);
  }

  /**
   * Writes at most `bytesMax` bytes from position `from`, and ends `stream` after the last one. Calls `onTaken` when
   * the client has taken them, or with an error. Returns the next position. The bytes stay borrowed.
   */
  writePartTo(
    stream: ServerHttp2Stream,
    from: number,
    bytesMax: number,
    onTaken: (error?: Error | null) => void,
  ): number {
    let start = from;
    const piece = this.#readable.find(({ length }) => {
      const isHere = start < length;
      if (!isHere) start -= length;
      return isHere;
    });
    const part = piece?.subarray(start, start + bytesMax) ?? noBytes;
    const next = from + part.length;
    if (next < this.length) {
      stream.write(part, onTaken);
    } else {
      stream.end(part, onTaken);
    }
    return next;
  }

  /** Allows the memory to be used again. No write of the bytes may be pending. */
  release(): void {
    if (this.#lender !== undefined) {
      this.#pieces = noPieces;
      this.#lender.drop();
    }
  }

  #write(socket: Socket, head: string, releases: boolean): void {
    const pieces = this.#readable;
    if (this.length <= oneWriteBytesMax) {
      let text = head;
      for (const piece of pieces) {
        // latin1 maps every byte to one character and back, whatever the encoding of the body is.
        text += piece.toString('latin1');
      }
      socket.write(text, 'latin1');
      // The text is a copy.
      if (releases) this.release();
      return;
    }
    socket.cork();
    socket.write(head, 'latin1');
    const last = pieces.length - 1;
    for (const [index, piece] of pieces.entries()) {
      socket.write(piece, releases && index === last ? () => this.release() : undefined);
    }
    socket.uncork();
  }

  get #readable(): readonly Buffer[] {
    if (this.#pieces === noPieces && this.length > 0) throw new Error('the bytes have been released');
    return this.#pieces;
  }
}

const noBytes = Buffer.alloc(0);
const noPieces: readonly Buffer[] = [];

/** The body of a message without a body. */
export const noBody = new BorrowedBytes(noPieces);
