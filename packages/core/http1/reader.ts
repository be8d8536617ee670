// Reads HTTP/1.1 messages, requests and answers alike: bytes in, events out. No socket, no timer. It reads at most one
// message, so its caller pauses by not calling it. It looks at each byte once, however small the pieces are, and keeps
// nothing but an incomplete head. Start lines are in request-reader.ts and answer-reader.ts, chunks in chunk-reader.ts,
// the grammar in grammar.ts, the meaning of a head in head.ts.

import { fieldNameAt, type FieldName } from './fields.ts';
import { ChunkReader } from './chunk-reader.ts';
import { carriageReturn, colon, lineFeed, space, tab, textBytes, tokenBytes } from './grammar.ts';
import { appendBytes } from './growing-buffer.ts';
import type { AnswerHead, Flaw, RequestHead } from './head.ts';
import type { RepeatedText } from './repeated-text.ts';

/** Receives a message. What it throws comes out of `read`, and the reader must not be used again then. */
export interface Sink<Head> {
  onHead(head: Head): void;
  /** The next bytes of the body. Their memory belongs to the caller of `read`, who may write to it after this call. */
  onBody(piece: Buffer): void;
  /** The message has ended. Nothing follows until `next` is called. */
  onEnd(): void;
}

// What the next byte belongs to. First the head: a start line, which each role has of its own, and fields.
const stateStart = 0;
const stateEmptyLine = 1;
const stateStartLine = 2;
const stateLineEnd = 3;
const stateFieldStart = 4;
const stateFieldName = 5;
const stateValueStart = 6;
const stateValue = 7;
const stateHeadEnd = 8;
// The body.
const stateLength = 9;
const stateUntilClose = 10;
const stateChunks = 11;
// Nothing more is read.
const stateDone = 12;
const stateFlawed = 13;

// The first size of the memory for a head that comes in parts; it grows with the head.
const keptBytesMin = 512;

const noBytes = Buffer.alloc(0);

export type RepeatedValues = Readonly<Partial<Record<FieldName, RepeatedText>>>;

type AnyHead = RequestHead | AnswerHead;

/** Reads the messages of one connection, one after the other. */
export abstract class MessageReader<Head extends AnyHead> {
  /** Why nothing more can be read; undefined while all is well. */
  flaw: Flaw | undefined;
  /** `read` takes nothing of the body as long as this is true. The sink may set it in `onHead`. */
  isHeld = false;
  /** The version's second digit. */
  protected minorVersion = 1;
  readonly #sink: Sink<Head>;
  readonly #chunks: ChunkReader;
  readonly #headBytesMax: number;
  #state = stateStart;
  // Positions within a head are counted from its first byte, wherever that lies.
  #headStart = 0;
  #mark = 0;
  #nameStart = 0;
  #nameEnd = 0;
  #valueStart = 0;
  // The head so far, if it did not come in one piece.
  #kept: Buffer = noBytes;
  #isTrailer = false;
  // Bytes of the body that are still to come.
  #left = 0;

  constructor(sink: Sink<Head>, headBytesMax: number) {
    this.#sink = sink;
    this.#chunks = new ChunkReader(sink);
    this.#headBytesMax = headBytesMax;
  }

  /** No message has begun. Empty lines do not count. */
  get isBeforeMessage(): boolean {
    return this.#state <= stateEmptyLine;
  }

  /** A head has begun and not ended. */
  get isInHead(): boolean {
    return this.#state > stateEmptyLine && this.#state < stateLength && !this.#isTrailer;
  }

  /** The message has ended. */
  get isDone(): boolean {
    return this.#state === stateDone;
  }

  /** Begins the next message, after one that has ended. */
  next(): void {
    this.#state = stateStart;
    this.#isTrailer = false;
  }

  /**
   * Reads `bytes` from `from` on and returns the position after what it has taken: all of them, unless the message has
   * ended, is held or has a flaw. It may write to what it has taken.
   */
  read(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length && this.#state < stateDone && !this.isHeld) {
      if (this.#state === stateChunks) {
        at = this.#readChunks(bytes, at);
      } else if (this.#state >= stateLength) {
        at = this.#readBody(bytes, at);
      } else if (this.#kept.length === 0) {
        this.#headStart = at;
        at = this.#readHead(bytes, at, bytes.length);
        if (this.#state > stateEmptyLine && this.#state < stateLength) {
          this.#keep(bytes.subarray(this.#headStart));
        }
      } else {
        at = this.#readBehindKept(bytes, at);
      }
    }
    return at;
  }

  /** No byte follows. Returns true if that ends the message well: its body goes up to the end of the connection. */
  end(): boolean {
    if (this.#state === stateUntilClose) {
      this.#state = stateDone;
      this.#sink.onEnd();
    }
    return this.#state === stateDone;
  }

  /**
   * Reads a start line from `at` on, to `end` at most, and returns the position after what it has taken. When the line
   * has come up to its CR, which is taken too, it calls `endStartLine`.
   */
  protected abstract readStartLine(bytes: Buffer, at: number, end: number): number;
  /** Takes the fields of the head that anything reads. Trailers are dropped. */
  protected abstract readonly fields: { take(name: FieldName, value: string): void };
  /** The head as a whole, or its flaw. Another head may follow. */
  protected abstract finishHead(): Head | Flaw;

  protected fail(reason: string): void {
    this.flaw = { kind: 'malformed', reason };
    this.#state = stateFlawed;
  }

  protected endStartLine(): void {
    this.#state = stateLineEnd;
  }

  protected setMark(at: number): void {
    this.#mark = at - this.#headStart;
  }

  /** Bytes from the mark to `at`. */
  protected sinceMark(at: number): number {
    return at - this.#headStart - this.#mark;
  }

  /** The text from the mark to `end`. */
  protected textSinceMark(bytes: Buffer, end: number): string {
    return bytes.toString('latin1', this.#headStart + this.#mark, end);
  }

  // A head that comes in parts is copied into memory of its own; what was read of it is not read again.
  #keep(bytes: Buffer): void {
    this.#kept = appendBytes(this.#kept, bytes, keptBytesMin);
  }

  #readBehindKept(bytes: Buffer, from: number): number {
    const before = this.#kept.length;
    // Nothing after the largest head is looked at.
    const part = Math.min(bytes.length - from, this.#headBytesMax + 1 - before);
    this.#keep(part === bytes.length ? bytes : bytes.subarray(from, from + part));
    this.#headStart = 0;
    const at = this.#readHead(this.#kept, before, this.#kept.length);
    if (this.#state > stateEmptyLine && this.#state < stateLength) {
      return from + part;
    }
    this.#kept = noBytes;
    return from + at - before;
  }

  // Returns the position after the head, or `end` if the head goes on, or the position of the flaw.
  #readHead(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.#state < stateLineEnd) {
      at = this.#readStart(bytes, at, end);
    }
    const limit = Math.min(end, this.#headStart + this.#headBytesMax);
    while (at < limit && this.#state < stateLength) {
      if (this.#state === stateHeadEnd) {
        if (bytes[at] !== lineFeed) {
          this.fail('a head that does not end in CR LF');
          return at;
        }
        this.#endHead();
        return at + 1;
      }
      if (this.#state === stateLineEnd) {
        if (bytes[at] !== lineFeed) {
          this.fail('a line that does not end in CR LF');
          return at;
        }
        this.#state = stateFieldStart;
        at += 1;
      } else if (this.#state === stateFieldStart && bytes[at] === carriageReturn) {
        this.#state = stateHeadEnd;
        at += 1;
      } else {
        at = this.#readField(bytes, at, limit);
      }
    }
    if (at >= this.#headStart + this.#headBytesMax && this.#state < stateLength && !this.isBeforeMessage) {
      this.flaw = { kind: 'head-too-large', reason: `a head of more than ${this.#headBytesMax} bytes` };
      this.#state = stateFlawed;
    }
    return at;
  }

  // One field, up to its CR or to the end of what there is.
  #readField(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.#state === stateFieldStart) {
      this.#nameStart = at - this.#headStart;
      this.#state = stateFieldName;
    }
    if (this.#state === stateFieldName) {
      while (at < end && tokenBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      if (at === end) {
        return at;
      }
      this.#nameEnd = at - this.#headStart;
      if (bytes[at] !== colon || this.#nameEnd === this.#nameStart) {
        this.fail('a field name that is none');
        return at;
      }
      this.#state = stateValueStart;
      at += 1;
    }
    if (this.#state === stateValueStart) {
      while (at < end && (bytes[at] === space || bytes[at] === tab)) {
        at += 1;
      }
      if (at === end) {
        return at;
      }
      this.#valueStart = at - this.#headStart;
      this.#state = stateValue;
    }
    while (at < end && textBytes[bytes[at] ?? 0] === 1) {
      at += 1;
    }
    if (at === end) {
      return at;
    }
    if (bytes[at] !== carriageReturn) {
      this.fail('a control character in a field value');
      return at;
    }
    if (!this.#isTrailer) {
      this.#takeField(bytes, at);
    }
    this.#state = stateLineEnd;
    return at + 1;
  }

  #readStart(bytes: Buffer, from: number, end: number): number {
    let at = from;
    while (this.skipsEmptyLines && at < end && this.#state <= stateEmptyLine) {
      const expected = this.#state === stateStart ? carriageReturn : lineFeed;
      if (bytes[at] === expected) {
        this.#state = this.#state === stateStart ? stateEmptyLine : stateStart;
        at += 1;
        this.#headStart = at;
      } else if (this.#state === stateEmptyLine) {
        this.fail('an empty line that does not end in CR LF');
        return at;
      } else {
        break;
      }
    }
    const limit = Math.min(end, this.#headStart + this.#headBytesMax);
    if (at < limit) {
      if (this.#state === stateStart) {
        this.setMark(at);
        this.#state = stateStartLine;
      }
      return this.readStartLine(bytes, at, limit);
    }
    return at;
  }

  /** For fields that mostly have the same value as in the last message, on whichever connection that came. */
  protected abstract readonly repeatedValues: RepeatedValues;
  /** Empty lines may come before a message [RFC 9112, 2.2]. */
  protected abstract readonly skipsEmptyLines: boolean;

  #takeField(bytes: Buffer, valueEnd: number): void {
    const start = this.#headStart;
    const name = fieldNameAt(bytes, start + this.#nameStart, start + this.#nameEnd);
    if (name === undefined) {
      return;
    }
    const valueStart = start + this.#valueStart;
    let end = valueEnd;
    // White space after a value is not part of it [RFC 9112, 5.1].
    while (end > valueStart && (bytes[end - 1] === space || bytes[end - 1] === tab)) {
      end -= 1;
    }
    const repeated = this.repeatedValues[name];
    this.fields.take(
      name,
      repeated === undefined
        ? bytes.toString('latin1', valueStart, end)
        : repeated.read(bytes, valueStart, end),
    );
  }

  #endHead(): void {
    if (this.#isTrailer) {
      this.#finish();
      return;
    }
    const head = this.finishHead();
    if ('reason' in head) {
      this.flaw = head;
      this.#state = stateFlawed;
      return;
    }
    const length = head.bodyLength;
    switch (length) {
      case 'interim':
        this.#state = stateStart;
        return;
      case 'chunked':
        this.#state = stateChunks;
        this.#chunks.begin();
        break;
      case 'until-close':
        this.#state = stateUntilClose;
        break;
      default:
        this.#state = stateLength;
        this.#left = length;
    }
    this.#sink.onHead(head);
    if (length === 0) {
      this.#finish();
    }
  }

  #finish(): void {
    this.#state = stateDone;
    this.#sink.onEnd();
  }

  #readBody(bytes: Buffer, from: number): number {
    if (this.#state === stateUntilClose) {
      this.#sink.onBody(from === 0 ? bytes : bytes.subarray(from));
      return bytes.length;
    }
    const end = Math.min(bytes.length, from + this.#left);
    this.#left -= end - from;
    this.#sink.onBody(from === 0 && end === bytes.length ? bytes : bytes.subarray(from, end));
    if (this.#left === 0) {
      this.#finish();
    }
    return end;
  }
  #readChunks(bytes: Buffer, from: number): number {
    const chunks = this.#chunks;
    const at = chunks.read(bytes, from);
    if (chunks.flaw !== undefined) {
      this.fail(chunks.flaw);
    } else if (chunks.isOver) {
      this.#state = stateFieldStart;
      this.#isTrailer = true;
    }
    return at;
  }
}
