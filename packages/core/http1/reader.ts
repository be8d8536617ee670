// Reads HTTP/1.1 messages, both requests and answers: takes bytes and calls a `Sink`. Uses no socket and no timer. The
// reader stops after each message. To pause it, the caller stops calling `read`. Each byte is examined once, even if the
// input arrives in small pieces. Only incomplete elements of a head that the gateway reads are kept. Start lines are in
// request-reader.ts and answer-reader.ts, chunks in chunk-reader.ts, the grammar in grammar.ts, the meaning of a head in
// head.ts.

import { fieldNameAt, nameBytesMax, type FieldName } from './fields.ts';
import { ChunkReader } from './chunk-reader.ts';
import { carriageReturn, colon, lineFeed, space, tab, textBytes, tokenBytes } from './grammar.ts';
import { appendBytes } from './growing-buffer.ts';
import type { AnswerHead, Flaw, RequestHead } from './head.ts';
import type { RepeatedText } from './repeated-text.ts';

/** Receives the events of a message. If a method throws, `read` throws too, and the reader must not be used again. */
export interface Sink<Head> {
  onHead(head: Head): void;
  /** The next bytes of the body. The caller of `read` owns their memory and may overwrite it after this call. */
  onBody(piece: Buffer): void;
  /** The message has ended. Nothing follows until `next` is called. */
  onEnd(): void;
}

// The element of the message to which the next byte belongs. States of the head: a start line, which differs between
// requests and answers, and then fields.
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
// Final states.
const stateDone = 12;
const stateFlawed = 13;

// Initial memory for an element that arrives in parts, in bytes.
const keptBytesMin = 512;

const noBytes = Buffer.alloc(0);

export type RepeatedValues = Readonly<Partial<Record<FieldName, RepeatedText>>>;

type AnyHead = RequestHead | AnswerHead;

/** Reads the messages of one connection, one after the other. */
export abstract class MessageReader<Head extends AnyHead> {
  flaw: Flaw | undefined;
  headBytes = 0;
  /** While true, `read` consumes no bytes. If the sink sets it in `onHead`, the body waits. */
  isHeld = false;
  /** The digit after `HTTP/1.`. */
  protected minorVersion = 1;
  readonly #sink: Sink<Head>;
  readonly #chunks: ChunkReader;
  readonly #headBytesMax: number;
  readonly #fieldBytesMax: number;
  #state = stateStart;
  // The position of the head's first byte; negative if earlier parts have been dropped.
  #headStart = 0;
  // The start of the current element (a part of the start line, a name or a value), relative to `#headStart`.
  #mark = 0;
  // The name of the current field; undefined if the field is dropped.
  #name: FieldName | undefined;
  // The length of the incomplete head so far, and its last element, if needed.
  #passed = 0;
  #kept: Buffer = noBytes;
  #isTrailer = false;
  #left = 0;

  /** `fieldBytesMax` limits the value of a field that the gateway reads. Other fields are dropped, whatever their size. */
  constructor(sink: Sink<Head>, headBytesMax: number, fieldBytesMax = headBytesMax) {
    this.#sink = sink;
    this.#chunks = new ChunkReader(sink);
    this.#headBytesMax = headBytesMax;
    this.#fieldBytesMax = fieldBytesMax;
  }

  /** True if no message has begun. Empty lines before a message are not part of it. */
  get isBeforeMessage(): boolean {
    return this.#state <= stateEmptyLine;
  }

  get isInHead(): boolean {
    return this.#state > stateEmptyLine && this.#state < stateLength && !this.#isTrailer;
  }

  /** True if no head is incomplete. */
  get isEmpty(): boolean {
    return this.#passed === 0;
  }

  /** The memory of an incomplete head: its bytes as allocated, and at most its length for the fields read so far. */
  get heldBytes(): number {
    return this.#kept.buffer.byteLength + this.#passed;
  }

  get isDone(): boolean {
    return this.#state === stateDone;
  }

  /** Releases an incomplete head. Nothing may be read afterwards. */
  drop(): void {
    this.#passed = 0;
    this.#kept = noBytes;
  }

  next(): void {
    this.#state = stateStart;
    this.#isTrailer = false;
  }

  /**
   * Reads `bytes` from position `from` on. Returns the position after the consumed bytes: the end of `bytes`, unless
   * the message has ended, waits (`isHeld`) or has a flaw. May overwrite the consumed bytes.
   */
  read(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length && this.#state < stateDone && !this.isHeld) {
      if (this.#state === stateChunks) {
        at = this.#readChunks(bytes, at);
      } else if (this.#state >= stateLength) {
        at = this.#readBody(bytes, at);
      } else if (this.#kept.length === 0) {
        this.#headStart = at - this.#passed;
        at = this.#readHead(bytes, at, bytes.length);
        this.#keep(bytes, at);
      } else {
        at = this.#readAfterKept(bytes, at);
      }
    }
    return at;
  }

  /** Ends the input. This completes a body without a length. Returns true if the message is complete. */
  end(): boolean {
    if (this.#state === stateUntilClose) this.#finish();
    return this.#state === stateDone;
  }

  /**
   * Reads a start line, or its next part, from `at` up to `end`. Returns the position after the consumed bytes. After
   * the CR of the line it calls `endStartLine`.
   */
  protected abstract readStartLine(bytes: Buffer, at: number, end: number): number;
  /** Collects the fields of the head. Trailers are dropped. */
  protected abstract readonly fields: { take(name: FieldName, value: string): void };
  /** Returns the head, or its flaw. Called once for each head, including the heads of interim answers. */
  protected abstract finishHead(): Head | Flaw;

  protected fail(reason: string, kind: Flaw['kind'] = this.#isTrailer ? 'invalid-chunks' : 'invalid-head'): void {
    this.flaw = { kind, reason };
    this.#state = stateFlawed;
  }

  protected endStartLine(): void {
    this.#state = stateLineEnd;
  }

  protected setMark(at: number): void {
    this.#mark = at - this.#headStart;
  }

  /** Number of bytes from the mark to `at`. */
  protected sinceMark(at: number): number {
    return at - this.#headStart - this.#mark;
  }

  protected textSinceMark(bytes: Buffer, end: number): string {
    return bytes.toString('latin1', this.#headStart + this.#mark, end);
  }

  // Keeps the needed part of a head that was read up to `at`. No part is read twice.
  #keep(bytes: Buffer, at: number): void {
    const state = this.#state;
    const isIncomplete = state > stateEmptyLine && state < stateLength;
    this.#passed = isIncomplete ? at - this.#headStart : 0;
    const isNeeded =
      (state === stateStartLine && this.isRequest) ||
      (state === stateFieldName && this.sinceMark(at) <= nameBytesMax) ||
      (state === stateValue && this.#name !== undefined);
    const from = this.#headStart + this.#mark;
    if (!isNeeded) {
      this.#kept = noBytes;
    } else if (from > 0 || bytes !== this.#kept) {
      this.#kept = appendBytes(noBytes, bytes.subarray(from, at), keptBytesMin);
    }
  }

  #readAfterKept(bytes: Buffer, from: number): number {
    const before = this.#kept.length;
    // Examines no bytes beyond the size limit of a head.
    const part = Math.min(bytes.length - from, this.#headBytesMax + 1 - this.#passed);
    this.#kept = appendBytes(this.#kept, bytes.subarray(from, from + part), keptBytesMin);
    this.#headStart = before - this.#passed;
    const at = this.#readHead(this.#kept, before, this.#kept.length);
    this.#keep(this.#kept, at);
    return from + at - before;
  }

  // Returns the position after the head; `end` if the head is incomplete; the position of the flaw if there is one.
  #readHead(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.#state < stateLineEnd) at = this.#readStart(bytes, at, end);
    const limit = Math.min(end, this.#headStart + this.#headBytesMax);
    while (at < limit && this.#state < stateLength) {
      if (this.#state === stateHeadEnd || this.#state === stateLineEnd) {
        const isHeadEnd = this.#state === stateHeadEnd;
        if (bytes[at] !== lineFeed) {
          this.fail(`a ${isHeadEnd ? 'head' : 'line'} that does not end in CR LF`);
          return at;
        }
        at += 1;
        if (isHeadEnd) {
          if (!this.#isTrailer) this.headBytes = at - this.#headStart;
          this.#endHead();
          return at;
        }
        this.#state = stateFieldStart;
      } else if (this.#state === stateFieldStart && bytes[at] === carriageReturn) {
        this.#state = stateHeadEnd;
        at += 1;
      } else {
        at = this.#readField(bytes, at, limit);
      }
    }
    if (at >= this.#headStart + this.#headBytesMax && this.#state < stateLength && !this.isBeforeMessage) {
      this.fail(`a head of more than ${this.#headBytesMax} bytes`, 'head-too-large');
    }
    return at;
  }

  // Reads one field, up to and including its CR, or up to `end`.
  #readField(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.#state === stateFieldStart) {
      this.setMark(at);
      this.#state = stateFieldName;
    }
    if (this.#state === stateFieldName) {
      while (at < end && tokenBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      if (at === end) return at;
      const length = this.sinceMark(at);
      if (bytes[at] !== colon || length === 0) {
        this.fail('an invalid field name');
        return at;
      }
      const name = this.#isTrailer ? undefined : fieldNameAt(bytes, at - length, at);
      this.#name = this.isRequest || (name !== undefined && name in this.repeatedValues) ? name : undefined;
      this.#state = stateValueStart;
      at += 1;
    }
    if (this.#state === stateValueStart) {
      while (at < end && (bytes[at] === space || bytes[at] === tab)) {
        at += 1;
      }
      if (at === end) return at;
      this.setMark(at);
      this.#state = stateValue;
    }
    while (at < end && textBytes[bytes[at] ?? 0] === 1) {
      at += 1;
    }
    if (this.#name !== undefined && this.sinceMark(at) > this.#fieldBytesMax) {
      this.fail(`a field of more than ${this.#fieldBytesMax} bytes`, 'head-too-large');
      return at;
    }
    if (at === end) return at;
    if (bytes[at] !== carriageReturn) {
      this.fail('a control character in a field value');
      return at;
    }
    if (this.#name !== undefined) this.#takeField(this.#name, bytes, at);
    this.#state = stateLineEnd;
    return at + 1;
  }

  #readStart(bytes: Buffer, from: number, end: number): number {
    let at = from;
    while (this.isRequest && at < end && this.#state <= stateEmptyLine) {
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

  /** The last values of fields that rarely change. All connections share them. An answer's other fields are not read. */
  protected abstract readonly repeatedValues: RepeatedValues;
  /** True for requests, whose start line is read as text. Empty lines may precede them [RFC 9112, 2.2]. */
  protected abstract readonly isRequest: boolean;

  #takeField(name: FieldName, bytes: Buffer, valueEnd: number): void {
    const valueStart = this.#headStart + this.#mark;
    let end = valueEnd;
    // White space after a value is not part of it [RFC 9112, 5.1].
    while (end > valueStart && (bytes[end - 1] === space || bytes[end - 1] === tab)) {
      end -= 1;
    }
    const repeated = this.repeatedValues[name]?.read(bytes, valueStart, end);
    this.fields.take(name, repeated ?? bytes.toString('latin1', valueStart, end));
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
    if (length === 0) this.#finish();
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
    if (this.#left === 0) this.#finish();
    return end;
  }

  #readChunks(bytes: Buffer, from: number): number {
    const chunks = this.#chunks;
    const at = chunks.read(bytes, from);
    if (chunks.flaw !== undefined) {
      this.fail(chunks.flaw, 'invalid-chunks');
    } else if (chunks.isOver) {
      this.#state = stateFieldStart;
      this.#isTrailer = true;
    }
    return at;
  }
}
