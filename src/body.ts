// The bytes of one body as they come in, a request's or an answer's: gathered, and checked to be JSON on the
// way. How many there may be is its user's affair.

import { createJsonChecker, isJson, type JsonChecker } from './json/json.ts';

// A piece is a buffer of its own, some 250 bytes beside its content. So small ones are copied together: a body
// in chunks of one byte took 400 times its size, and 4 MB of it were the end of the process.
const smallBytes = 4_096;
const joinedBytes = 16_384;

export class Body {
  #pieces: Buffer[] = [];
  #length = 0;
  #checker: JsonChecker | undefined;
  #isValid = true;
  // Small pieces, copied together until they fill it.
  #joined: Buffer | undefined;
  #joinedLength = 0;

  /** Bytes taken. */
  get length(): number {
    return this.#length;
  }

  /** Takes the next piece; false as soon as no continuation could make the whole JSON. */
  write(piece: Buffer): boolean {
    this.#length += piece.length;
    if (this.#checker === undefined) {
      // Nearly every body is one piece: kept as it is, and checked whole at the end.
      const [first] = this.#pieces;
      if (first === undefined) {
        this.#pieces.push(piece);
        return true;
      }
      // The second begins a check that keeps up with the network.
      this.#checker = createJsonChecker();
      this.#pieces = [];
      this.#isValid = this.#checker.write(first);
      this.#gather(first);
    }
    this.#isValid &&= this.#checker.write(piece);
    this.#gather(piece);
    return this.#isValid;
  }

  /** Whether all that was taken is one JSON text; to be called once, at the end. */
  isJson(): boolean {
    const [first] = this.#pieces;
    return this.#checker === undefined
      ? first !== undefined && isJson(first)
      : this.#isValid && this.#checker.end();
  }

  /** Gives the bytes away, as few pieces, and keeps nothing. */
  takePieces(): Buffer[] {
    this.#endJoined();
    const pieces = this.#pieces;
    this.drop();
    return pieces;
  }

  /** Keeps nothing. */
  drop(): void {
    this.#pieces = [];
    this.#checker = undefined;
    this.#joined = undefined;
    this.#joinedLength = 0;
    this.#length = 0;
  }

  #gather(piece: Buffer): void {
    if (piece.length >= smallBytes) {
      this.#endJoined();
      this.#pieces.push(piece);
      return;
    }
    if (this.#joined !== undefined && this.#joinedLength + piece.length > joinedBytes) {
      this.#pieces.push(this.#joined.subarray(0, this.#joinedLength));
      this.#joined = undefined;
      this.#joinedLength = 0;
    }
    this.#joined ??= Buffer.allocUnsafeSlow(joinedBytes);
    this.#joined.set(piece, this.#joinedLength);
    this.#joinedLength += piece.length;
  }

  // Copied once more, to its own size: small and large pieces in turn must not leave half-empty buffers behind.
  #endJoined(): void {
    if (this.#joined !== undefined && this.#joinedLength > 0) {
      this.#pieces.push(Buffer.from(this.#joined.subarray(0, this.#joinedLength)));
      this.#joinedLength = 0;
    }
  }
}
