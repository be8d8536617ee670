// Collects the bytes of one body and checks that they are JSON. The caller enforces the size limit.

import { blockBytes, giveBackBlocks, takeBlock } from './blocks.ts';
import { createJsonChecker, isJson, type JsonChecker } from '../json/json.ts';

export abstract class Body {
  #length = 0;
  #first: Buffer | undefined;
  #checker: JsonChecker | undefined;
  #isValid = true;

  get length(): number {
    return this.#length;
  }

  /** Adds the next piece. From the second piece on, returns false once no continuation can make the body JSON. */
  write(piece: Buffer): boolean {
    this.#length += piece.length;
    if (this.#checker === undefined) {
      // Nearly every body is one piece, which is checked at the end.
      if (this.#first === undefined) {
        this.#first = this.keepFirst(piece);
        return true;
      }
      // From the second piece on, each piece is checked as it arrives.
      this.#checker = createJsonChecker();
      this.#isValid = this.#checker.write(this.#first);
    }
    this.#isValid &&= this.#checker.write(piece);
    this.keep(piece);
    return this.#isValid;
  }

  /** True if the body is one JSON text. Call it once, at the end. */
  isJson(): boolean {
    return this.#checker === undefined
      ? this.#first !== undefined && isJson(this.#first)
      : this.#isValid && this.#checker.end();
  }

  /** Returns the bytes in few pieces and keeps nothing. */
  takePieces(): Buffer[] {
    const pieces = this.handOver();
    this.drop();
    return pieces;
  }

  drop(): void {
    this.#first = undefined;
    this.#checker = undefined;
    this.#length = 0;
  }

  /** Keeps the first piece or a copy of it, and returns the kept bytes. */
  protected abstract keepFirst(piece: Buffer): Buffer;
  protected abstract keep(piece: Buffer): void;
  /** Returns everything kept, in few pieces, which then belong to the caller. */
  protected abstract handOver(): Buffer[];
}

// A buffer takes some 250 bytes in addition to its content, so small pieces are copied into one buffer. Otherwise a body in
// one-byte chunks needs 400 times its size, and a body of 4 MB crashed the process.
const smallBytes = 4_096;
const joinedBytes = 16_384;

/** The body of a request. Large pieces are kept without a copy. */
export class RequestBody extends Body {
  #pieces: Buffer[] = [];
  // Small pieces are copied into this buffer until it is full.
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

  // Copies the joined bytes again, into a buffer of their exact size. Otherwise a body of alternating small and large
  // pieces would keep many half-empty buffers.
  #endJoined(): void {
    if (this.#joined !== undefined && this.#joinedLength > 0) {
      this.#pieces.push(Buffer.from(this.#joined.subarray(0, this.#joinedLength)));
      this.#joinedLength = 0;
    }
  }
}

const noBlocks: readonly Buffer[] = [];

/** The body of an answer. Pieces of up to `blockBytes` are copied, because the next read overwrites their memory. */
export class AnswerBody extends Body {
  // A small first piece, which is most often the whole answer. All other bytes are in the blocks.
  #small: Buffer | undefined;
  #blocks: Buffer[] | undefined;
  #filled = blockBytes;

  /**
   * The blocks that contain the pieces. Read this before `takePieces`, which forgets the blocks. The caller gives them
   * back when the pieces are no longer needed.
   */
  get blocks(): readonly Buffer[] {
    return this.#blocks ?? noBlocks;
  }

  /** The body's last byte; undefined if the body is empty. */
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
