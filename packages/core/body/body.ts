// The bytes of one body as they come in, a request's or an answer's: gathered, and checked to be JSON on the
// way. How many there may be is its user's affair.

import { blockBytes, giveBackBlocks, takeBlock } from './blocks.ts';
import { createJsonChecker, isJson, type JsonChecker } from '../json/json.ts';

export abstract class Body {
  #length = 0;
  #first: Buffer | undefined;
  #checker: JsonChecker | undefined;
  #isValid = true;

  /** Bytes taken. */
  get length(): number {
    return this.#length;
  }

  /** Takes the next piece; false as soon as no continuation could make the whole JSON. */
  write(piece: Buffer): boolean {
    this.#length += piece.length;
    if (this.#checker === undefined) {
      // Nearly every body is one piece, and checked whole at the end.
      if (this.#first === undefined) {
        this.#first = this.keepFirst(piece);
        return true;
      }
      // The second begins a check that keeps up with the network.
      this.#checker = createJsonChecker();
      this.#isValid = this.#checker.write(this.#first);
    }
    this.#isValid &&= this.#checker.write(piece);
    this.keep(piece);
    return this.#isValid;
  }

  /** Whether all that was taken is one JSON text; to be called once, at the end. */
  isJson(): boolean {
    return this.#checker === undefined
      ? this.#first !== undefined && isJson(this.#first)
      : this.#isValid && this.#checker.end();
  }

  /** Gives the bytes away, as few pieces, and keeps nothing. */
  takePieces(): Buffer[] {
    const pieces = this.handOver();
    this.drop();
    return pieces;
  }

  /** Keeps nothing. */
  drop(): void {
    this.#first = undefined;
    this.#checker = undefined;
    this.#length = 0;
  }

  /** Keeps the first piece, and gives it as it is kept. */
  protected abstract keepFirst(piece: Buffer): Buffer;
  protected abstract keep(piece: Buffer): void;
  /** What is kept, as few pieces, which are the caller's from now on. */
  protected abstract handOver(): Buffer[];
}

// A piece is a buffer of its own, some 250 bytes beside its content. So small ones are copied together: a body
// in chunks of one byte took 400 times its size, and 4 MB of it were the end of the process.
const smallBytes = 4_096;
const joinedBytes = 16_384;

/** A client's: pieces are kept as they are. */
export class RequestBody extends Body {
  #pieces: Buffer[] = [];
  // Small pieces, copied together until they fill it.
  #joined: Buffer | undefined;
  #joinedLength = 0;

  override drop(): void {
    super.drop();
    this.#pieces = [];
    this.#joined = undefined;
    this.#joinedLength = 0;
  }

  protected override keepFirst(piece: Buffer): Buffer {
    this.#pieces.push(piece);
    return piece;
  }

  protected override keep(piece: Buffer): void {
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

  protected override handOver(): Buffer[] {
    this.#endJoined();
    return this.#pieces;
  }

  // Copied once more, to its own size: small and large pieces in turn must not leave half-empty buffers behind.
  #endJoined(): void {
    if (this.#joined !== undefined && this.#joinedLength > 0) {
      this.#pieces.push(Buffer.from(this.#joined.subarray(0, this.#joinedLength)));
      this.#joinedLength = 0;
    }
  }
}

const noBlocks: readonly Buffer[] = [];

/** The backend's: pieces of at most `blockBytes` bytes are copied, since their memory takes the next ones. */
export class AnswerBody extends Body {
  // A small beginning, which most often is the whole answer; everything else is in the blocks.
  #small: Buffer | undefined;
  #blocks: Buffer[] | undefined;
  #filled = blockBytes;

  /** What the pieces lie in; of the one who takes the pieces, who gives them back when nobody needs these any more. */
  get blocks(): readonly Buffer[] {
    return this.#blocks ?? noBlocks;
  }

  /** The last byte that was taken; undefined where there is none. */
  get lastByte(): number | undefined {
    return this.#blocks === undefined ? this.#small?.at(-1) : this.#blocks.at(-1)?.[this.#filled - 1];
  }

  override drop(): void {
    super.drop();
    giveBackBlocks(this.blocks);
    this.#forget();
  }

  protected override keepFirst(piece: Buffer): Buffer {
    if (piece.length < smallBytes) {
      this.#small = Buffer.from(piece);
      return this.#small;
    }
    this.keep(piece);
    return this.blocks[0]?.subarray(0, piece.length) ?? piece;
  }

  protected override keep(piece: Buffer): void {
    this.#blocks ??= [];
    for (let from = 0; from < piece.length;) {
      if (this.#filled === blockBytes) {
        this.#blocks.push(takeBlock());
        this.#filled = 0;
      }
      const room = blockBytes - this.#filled;
      const part = from === 0 && piece.length <= room ? piece : piece.subarray(from, from + room);
      this.#blocks.at(-1)?.set(part, this.#filled);
      this.#filled += part.length;
      from += part.length;
    }
  }

  protected override handOver(): Buffer[] {
    const pieces: Buffer[] = this.#small === undefined ? [] : [this.#small];
    const last = this.blocks.length - 1;
    for (const [index, block] of this.blocks.entries()) {
      pieces.push(index === last ? block.subarray(0, this.#filled) : block);
    }
    this.#forget();
    return pieces;
  }

  #forget(): void {
    this.#small = undefined;
    this.#blocks = undefined;
    this.#filled = blockBytes;
  }
}
