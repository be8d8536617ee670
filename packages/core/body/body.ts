// Collects the bytes of one body and checks that they are JSON. The caller enforces the size limit.

import { appendBytes } from '../http1/growing-buffer.ts';
import { isJson, JsonChecker } from '../json/json.ts';

const noBytes: Buffer = Buffer.alloc(0);

export abstract class Body {
  #length = 0;
  #first: Buffer | undefined;
  #checker: JsonChecker | undefined;
  #isValid = true;

  get length(): number {
    return this.#length;
  }

  /** Adds the next piece. Returns false once the body can no longer become JSON; the first call always returns true. */
  write(piece: Buffer): boolean {
    this.#length += piece.length;
    if (this.#checker === undefined) {
      // Nearly every body is one piece, which is checked at the end.
      if (this.#first === undefined) {
        this.#first = this.keepFirst(piece);
        return true;
      }
      // From the second piece on, each piece is checked as it arrives.
      this.#checker = new JsonChecker();
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

  drop(): void {
    this.#first = undefined;
    this.#checker = undefined;
    this.#length = 0;
  }

  /** Returns the bytes in a few pieces, which then belong to the caller. The body is empty afterwards. */
  abstract takePieces(): Buffer[];
  /** Keeps the first piece or a copy of it, and returns the kept bytes. */
  protected abstract keepFirst(piece: Buffer): Buffer;
  protected abstract keep(piece: Buffer): void;
}

// A buffer takes some 250 bytes in addition to its content, so small pieces are copied into one buffer. Otherwise a body
// in one-byte chunks needs 400 times its size, and such a body of 4 MB crashes the process.
const smallBytes = 4_096;
const joinedBytesMin = 256;
const joinedBytesMax = 16_384;

/** The body of a request. Large pieces are kept without a copy. */
export class RequestBody extends Body {
  #pieces: Buffer[] = [];
  // The last piece, if it was joined from small pieces; otherwise empty.
  #joined = noBytes;

  override takePieces(): Buffer[] {
    const pieces = this.#pieces;
    this.drop();
    return pieces;
  }

  override drop(): void {
    super.drop();
    this.#pieces = [];
    this.#joined = noBytes;
  }

  protected override keepFirst(piece: Buffer): Buffer {
    this.#pieces.push(piece);
    return piece;
  }

  protected override keep(piece: Buffer): void {
    if (piece.length >= smallBytes) {
      this.#joined = noBytes;
      this.#pieces.push(piece);
      return;
    }
    if (this.#joined.length + piece.length > joinedBytesMax) this.#joined = noBytes;
    if (this.#joined.length > 0) this.#pieces.pop();
    this.#joined = appendBytes(this.#joined, piece, joinedBytesMin);
    this.#pieces.push(this.#joined);
  }
}

// Answers are copied into reusable memory blocks. With a new buffer for each piece, a list of 42 KB needs a third more
// processor time, and a list of 417 KB over 50 % more.
export const blockBytes = 65_536;
// Largest number of unused blocks that are kept. Together they take 16 MiB.
const spareBlocksMax = 256;
const spareBlocks: Buffer[] = [];

/** Returns a block. It may still contain old data. */
export function takeBlock(): Buffer {
  return spareBlocks.pop() ?? Buffer.allocUnsafeSlow(blockBytes);
}

/** Takes back blocks. The caller must not use them any more, and no write of their bytes may be pending. */
export function giveBackBlocks(blocks: readonly Buffer[]): void {
  for (const block of blocks) {
    if (spareBlocks.length < spareBlocksMax) spareBlocks.push(block);
  }
}

const noBlocks: readonly Buffer[] = [];

/** The body of an answer. Copies pieces, because the next read overwrites them. A piece has at most `blockBytes`. */
export class AnswerBody extends Body {
  // A small first piece, which is most often the whole answer. All other bytes are in the blocks.
  #small: Buffer | undefined;
  #blocks: Buffer[] | undefined;
  #filled = blockBytes;

  /**
   * The blocks that contain the pieces. Read `blocks` before you call `takePieces`, which forgets the blocks. The
   * caller gives the blocks back when it no longer needs the pieces.
   */
  get blocks(): readonly Buffer[] {
    return this.#blocks ?? noBlocks;
  }

  /** The body's last byte; undefined if the body is empty. */
  get lastByte(): number | undefined {
    return this.#blocks === undefined ? this.#small?.at(-1) : this.#blocks.at(-1)?.[this.#filled - 1];
  }

  override takePieces(): Buffer[] {
    const pieces = this.#small === undefined ? [...this.blocks] : [this.#small, ...this.blocks];
    const last = this.#blocks?.at(-1);
    if (last !== undefined) pieces[pieces.length - 1] = last.subarray(0, this.#filled);
    super.drop();
    this.#forget();
    return pieces;
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

  #forget(): void {
    this.#small = undefined;
    this.#blocks = undefined;
    this.#filled = blockBytes;
  }
}
