// Collects the bytes of one body and checks that they are JSON. Counts the body's memory until it is dropped. The caller
// enforces the size limit.

import { BorrowedBytes, type Lender } from '../http1/borrowed-bytes.ts';
import { countJsonBytes, isJson, JsonChecker } from '../json/json.ts';
import { giveBackBlocks, takeBlock } from './blocks.ts';
import type { BufferBudget } from './budget.ts';
import { Pieces } from './pieces.ts';

export abstract class Body implements Lender {
  #length = 0;
  readonly #budget: BufferBudget;
  #heldBytes = 0;
  #first: Buffer | undefined;
  #checker: JsonChecker | undefined;
  #isValid = true;

  constructor(budget: BufferBudget) {
    this.#budget = budget;
  }

  get length(): number {
    return this.#length;
  }

  /** Takes the memory that `write` needs for `piece` [D69]. Returns false if there is no room. */
  abstract reserve(piece: Buffer): boolean;

  /** Counts `bytes` until `drop`. Returns false if there is no room. */
  protected hold(bytes: number): boolean {
    if (!this.#budget.take(bytes)) return false;
    this.#heldBytes += bytes;
    return true;
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
      this.#first = undefined;
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

  /** Says where a body that is not JSON is wrong, without its bytes. Only the first MiB is searched, to bound the time. */
  describeFlaw(): string {
    const searched = Buffer.concat(this.takePieces(), Math.min(this.length, 1_048_576));
    return `not JSON after byte ${countJsonBytes(searched)} of ${this.length}`;
  }

  /** Lends the bytes until they are released or `drop` is called. */
  lend(): BorrowedBytes {
    const pieces = this.#first === undefined ? this.takePieces() : [this.#first];
    this.#first = undefined;
    this.#checker = undefined;
    return new BorrowedBytes(pieces, this);
  }

  /** Frees the body's memory. Later calls do nothing. */
  drop(): void {
    this.#first = undefined;
    this.#checker = undefined;
    this.#length = 0;
    this.#budget.giveBack(this.#heldBytes);
    this.#heldBytes = 0;
  }

  /** Returns the bytes in a few pieces. */
  protected abstract takePieces(): Buffer[];
  /** Keeps the first piece or a copy of it, and returns the kept bytes. */
  protected abstract keepFirst(piece: Buffer): Buffer;
  protected abstract keep(piece: Buffer): void;
}

/** The body of a request. Large pieces are kept without a copy. */
export class RequestBody extends Body {
  readonly #pieces = new Pieces();

  override drop(): void {
    super.drop();
    this.#pieces.drop();
  }

  override reserve(piece: Buffer): boolean {
    return this.hold(this.#pieces.bytesFor(piece));
  }

  protected override takePieces(): Buffer[] {
    return this.#pieces.list;
  }

  protected override keepFirst(piece: Buffer): Buffer {
    return this.#pieces.add(piece);
  }

  protected override keep(piece: Buffer): void {
    this.#pieces.add(piece);
  }
}

/** The body of an answer. Copies pieces, because the next read overwrites them. */
export class AnswerBody extends Body {
  /** The length that the answer's head announces; 0 if it announces none. */
  announcedLength = 0;
  #blocks: Buffer[] = [];
  // The block that is being filled, the bytes in it, and the free bytes in all blocks.
  #block = 0;
  #filled = 0;
  #room = 0;

  get lastByte(): number | undefined {
    return this.#filled > 0 ? this.#blocks[this.#block]?.[this.#filled - 1] : this.#blocks[this.#block - 1]?.at(-1);
  }

  /** True if the body begins like HTML or XML. */
  get isPage(): boolean {
    return /^[\xef\xbb\xbf\s]*</.test(this.#blocks[0]?.toString('latin1', 0, Math.min(64, this.length)) ?? '');
  }

  override drop(): void {
    super.drop();
    if (this.#blocks.length === 0) return;
    giveBackBlocks(this.#blocks);
    this.#blocks = [];
    this.#block = this.#filled = this.#room = 0;
  }

  override reserve({ length }: Buffer): boolean {
    while (this.#room < length) {
      // Blocks grow with the answer, so that many small pieces take few blocks.
      const least = Math.min(8 * this.length, 16_384);
      const block = takeBlock(Math.max(least, Math.max(length, this.announcedLength - this.length) - this.#room));
      if (!this.hold(block.length)) {
        giveBackBlocks([block]);
        return false;
      }
      this.#blocks.push(block);
      this.#room += block.length;
    }
    return true;
  }

  protected override takePieces(): Buffer[] {
    const pieces = this.#blocks.slice(0, this.#block);
    const last = this.#blocks[this.#block]?.subarray(0, this.#filled);
    if (last !== undefined && last.length > 0) pieces.push(last);
    return pieces;
  }

  protected override keepFirst(piece: Buffer): Buffer {
    this.keep(piece);
    const first = this.#blocks[0]?.subarray(0, piece.length);
    if (first?.length !== piece.length) throw new Error('the first piece is larger than a block');
    return first;
  }

  protected override keep(piece: Buffer): void {
    this.#room -= piece.length;
    for (let from = 0; from < piece.length;) {
      const block = this.#blocks[this.#block];
      if (block === undefined) throw new Error('no memory was reserved');
      const room = block.length - this.#filled;
      const part = from === 0 && piece.length <= room ? piece : piece.subarray(from, from + room);
      block.set(part, this.#filled);
      from += part.length;
      this.#filled += part.length;
      if (this.#filled === block.length) {
        this.#block += 1;
        this.#filled = 0;
      }
    }
  }
}
