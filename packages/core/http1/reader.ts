// Reads HTTP/1.1 messages, requests and answers alike: bytes in, events out. No socket, no timer. It reads one message at
// most, so pausing is simply not calling it; each byte is looked at once, however small the pieces are, and nothing but
// a head that is not whole yet is kept. The grammar is in grammar.ts, what a head says in head.ts.

import { fieldNameAt, type FieldName } from './fields.ts';
import {
  backslash,
  carriageReturn,
  chunkSizeDigitsMax,
  chunkSizeMax,
  colon,
  digitZero,
  doubleQuote,
  equals,
  extensionBytesMax,
  hexadecimalValues,
  lineFeed,
  methodBytes,
  methodBytesMax,
  notHexadecimal,
  semicolon,
  space,
  tab,
  targetBytes,
  textBytes,
  tokenBytes,
} from './grammar.ts';
import {
  AnswerFields,
  RequestFields,
  type AnswerHead,
  type BodyLength,
  type Flaw,
  type RequestHead,
} from './head.ts';
import { KnownText, RepeatedText } from './repeated-text.ts';

/** Who is told of a message. What it throws comes out of `read`, and the reader must not be used again then. */
export interface Sink<Head> {
  onHead(head: Head): void;
  /** The next bytes of the body; their memory is the reader's caller's, and may be written to after this call. */
  onBody(piece: Buffer): void;
  /** The message has ended. Nothing follows until `next` is called. */
  onEnd(): void;
}

// Where in a message the next byte belongs. First the head: a start line, which each role has of its own, and fields.
const stateStart = 0;
const stateEmptyLine = 1;
const stateMethod = 2;
const stateTarget = 3;
const stateVersion = 4;
const stateStatus = 5;
const stateReason = 6;
const stateLineEnd = 7;
const stateFieldStart = 8;
const stateFieldName = 9;
const stateValueStart = 10;
const stateValue = 11;
const stateHeadEnd = 12;
// The body.
const stateLength = 20;
const stateUntilClose = 21;
const stateChunkSizeStart = 22;
const stateChunkSize = 23;
const stateChunkSizeEnd = 24;
const stateExtensionName = 25;
const stateExtensionValueStart = 26;
const stateExtensionValue = 27;
const stateExtensionQuoted = 28;
const stateExtensionEscape = 29;
const stateExtensionQuotedEnd = 30;
const stateChunkData = 31;
const stateChunkDataEnd = 32;
const stateChunkLineEnd = 33;
// Over.
const stateDone = 40;
const stateFlawed = 41;

// Runs of chunked data up to this size are moved together, so that whoever takes them is called once for many.
const movedBytesMax = 1_024;
// The first size of the memory for a head that comes in parts; it grows with the head.
const keptBytesMin = 512;

const noBytes = Buffer.alloc(0);

type RepeatedValues = Readonly<Partial<Record<FieldName, RepeatedText>>>;

/** Reads the messages of one connection, one after the other. */
export abstract class MessageReader<Head extends object> {
  /** Why nothing more can be read; undefined while all is well. */
  flaw: Flaw | undefined;
  /** `read` takes nothing of the body as long as this is true; the sink may set it when it is told of the head. */
  isHeld = false;
  protected state = stateStart;
  /** The version's second digit. */
  protected minorVersion = 1;
  readonly #sink: Sink<Head>;
  readonly #headBytesMax: number;
  // Positions within a head are counted from its first byte, wherever that lies.
  #headStart = 0;
  #mark = 0;
  #nameStart = 0;
  #nameEnd = 0;
  #valueStart = 0;
  // The head so far, where it did not come in one piece.
  #kept = noBytes;
  #keptLength = 0;
  #isTrailer = false;
  /** Bytes that are to come of the body or of the chunk. */
  #left = 0;
  #digits = 0;
  #extensionBytes = 0;

  constructor(sink: Sink<Head>, headBytesMax: number) {
    this.#sink = sink;
    this.#headBytesMax = headBytesMax;
  }

  /** Nothing of a message has come yet; empty lines are nothing. */
  get isBeforeMessage(): boolean {
    return this.state <= stateEmptyLine;
  }

  /** A head has begun and not ended. */
  get isInHead(): boolean {
    return this.state > stateEmptyLine && this.state < stateLength && !this.#isTrailer;
  }

  /** The message has ended. */
  get isDone(): boolean {
    return this.state === stateDone;
  }

  /** Begins the next message, behind one that has ended. */
  next(): void {
    this.state = stateStart;
    this.#isTrailer = false;
  }

  /**
   * Reads `bytes` from `from` on and gives the position behind what it has taken: all of them, unless the message has
   * ended, is held or has a flaw. It may write to what it has taken.
   */
  read(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length && this.state < stateDone && !this.isHeld) {
      if (this.state >= stateChunkSizeStart) {
        at = this.#readChunks(bytes, at);
      } else if (this.state >= stateLength) {
        at = this.#readBody(bytes, at);
      } else if (this.#keptLength === 0) {
        this.#headStart = at;
        at = this.#readHead(bytes, at, bytes.length);
        if (this.state > stateEmptyLine && this.state < stateLength) {
          this.#keep(bytes, this.#headStart, bytes.length);
        }
      } else {
        at = this.#readBehindKept(bytes, at);
      }
    }
    return at;
  }

  /** No byte follows. True when the message ends well with that: one that goes up to the end of its connection. */
  end(): boolean {
    if (this.state === stateUntilClose) {
      this.state = stateDone;
      this.#sink.onEnd();
    }
    return this.state === stateDone;
  }

  /**
   * Reads a start line from `at` on, to `end` at most, and gives the position behind what it has taken. When the line
   * has ended it calls `endStartLine`.
   */
  protected abstract readStartLine(bytes: Buffer, at: number, end: number): number;
  /** Takes a field that is looked at; only fields of the head, not trailers. */
  protected abstract takeField(name: FieldName, value: string): void;
  /** The head as a whole; a flaw where it makes none. */
  protected abstract finishHead(): Head | Flaw;
  /** How long the body behind `head` is; `interim` where another head follows instead. */
  protected abstract bodyLengthOf(head: Head): BodyLength | 'interim';

  protected fail(reason: string): void {
    this.flaw = { kind: 'malformed', reason };
    this.state = stateFlawed;
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
  #keep(bytes: Buffer, start: number, end: number): void {
    const length = this.#keptLength + end - start;
    if (length > this.#kept.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(keptBytesMin, 2 * length));
      larger.set(this.#kept.subarray(0, this.#keptLength));
      this.#kept = larger;
    }
    bytes.copy(this.#kept, this.#keptLength, start, end);
    this.#keptLength = length;
  }

  #readBehindKept(bytes: Buffer, from: number): number {
    const before = this.#keptLength;
    // Behind the largest head nothing is looked at.
    const part = Math.min(bytes.length - from, this.#headBytesMax + 1 - before);
    this.#keep(bytes, from, from + part);
    this.#headStart = 0;
    const at = this.#readHead(this.#kept, before, this.#keptLength);
    if (this.state > stateEmptyLine && this.state < stateLength) {
      return from + part;
    }
    this.#kept = noBytes;
    this.#keptLength = 0;
    return from + at - before;
  }

  // Gives the position behind the head, or `end` when the head goes on, or where the flaw is.
  #readHead(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.state < stateLineEnd) {
      at = this.#readStart(bytes, at, end);
    }
    const limit = Math.min(end, this.#headStart + this.#headBytesMax);
    while (at < limit && this.state < stateLength) {
      if (this.state === stateHeadEnd) {
        if (bytes[at] !== lineFeed) {
          this.fail('a head that does not end in CR LF');
          return at;
        }
        this.#endHead();
        return at + 1;
      }
      if (this.state === stateLineEnd) {
        if (bytes[at] !== lineFeed) {
          this.fail('a line that does not end in CR LF');
          return at;
        }
        this.state = stateFieldStart;
        at += 1;
      } else if (this.state === stateFieldStart && bytes[at] === carriageReturn) {
        this.state = stateHeadEnd;
        at += 1;
      } else {
        at = this.#readField(bytes, at, limit);
      }
    }
    if (at >= this.#headStart + this.#headBytesMax && this.state < stateLength && !this.isBeforeMessage) {
      this.flaw = { kind: 'head-too-large', reason: `a head of more than ${this.#headBytesMax} bytes` };
      this.state = stateFlawed;
    }
    return at;
  }

  // One field, up to its CR or to the end of what there is.
  #readField(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.state === stateFieldStart) {
      this.#nameStart = at - this.#headStart;
      this.state = stateFieldName;
    }
    if (this.state === stateFieldName) {
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
      this.state = stateValueStart;
      at += 1;
    }
    if (this.state === stateValueStart) {
      while (at < end && (bytes[at] === space || bytes[at] === tab)) {
        at += 1;
      }
      if (at === end) {
        return at;
      }
      this.#valueStart = at - this.#headStart;
      this.state = stateValue;
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
    this.state = stateLineEnd;
    return at + 1;
  }

  #readStart(bytes: Buffer, from: number, end: number): number {
    let at = from;
    while (this.skipsEmptyLines && at < end && this.state <= stateEmptyLine) {
      const expected = this.state === stateStart ? carriageReturn : lineFeed;
      if (bytes[at] === expected) {
        this.state = this.state === stateStart ? stateEmptyLine : stateStart;
        at += 1;
        this.#headStart = at;
      } else if (this.state === stateEmptyLine) {
        this.fail('an empty line that does not end in CR LF');
        return at;
      } else {
        break;
      }
    }
    const limit = Math.min(end, this.#headStart + this.#headBytesMax);
    if (at < limit) {
      if (this.state === stateStart) {
        this.setMark(at);
      }
      return this.readStartLine(bytes, at, limit);
    }
    return at;
  }

  /** Of fields that mostly have the value that they had in the message before, whosever it was. */
  protected abstract readonly repeatedValues: RepeatedValues;
  /** Empty lines may stand before a message [RFC 9112, 2.2]. */
  protected abstract readonly skipsEmptyLines: boolean;

  #takeField(bytes: Buffer, valueEnd: number): void {
    const start = this.#headStart;
    const name = fieldNameAt(bytes, start + this.#nameStart, start + this.#nameEnd);
    if (name === undefined) {
      return;
    }
    const valueStart = start + this.#valueStart;
    let end = valueEnd;
    // White space behind a value is no part of it [RFC 9112, 5.1].
    while (end > valueStart && (bytes[end - 1] === space || bytes[end - 1] === tab)) {
      end -= 1;
    }
    const repeated = this.repeatedValues[name];
    this.takeField(
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
      this.state = stateFlawed;
      return;
    }
    const length = this.bodyLengthOf(head);
    switch (length) {
      case 'interim':
        this.state = stateStart;
        return;
      case 'chunked':
        this.state = stateChunkSizeStart;
        this.#extensionBytes = 0;
        break;
      case 'until-close':
        this.state = stateUntilClose;
        break;
      default:
        this.state = stateLength;
        this.#left = length;
    }
    this.#sink.onHead(head);
    if (length === 0) {
      this.#finish();
    }
  }

  #finish(): void {
    this.state = stateDone;
    this.#sink.onEnd();
  }

  #readBody(bytes: Buffer, from: number): number {
    if (this.state === stateUntilClose) {
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

  // The data of small chunks is moved together and handed on in few pieces: a body in chunks of one byte would
  // otherwise cost a call for each.
  #readChunks(bytes: Buffer, from: number): number {
    let at = from;
    let dataStart = from;
    let dataEnd = from;
    while (at < bytes.length && this.state >= stateChunkSizeStart && this.state < stateDone) {
      if (this.state !== stateChunkData) {
        this.#readChunkFrame(bytes[at] ?? 0);
        if (this.state !== stateFlawed) {
          at += 1;
        }
        continue;
      }
      const end = Math.min(bytes.length, at + this.#left);
      this.#left -= end - at;
      if (dataEnd === dataStart) {
        dataStart = at;
        dataEnd = end;
      } else if (end - at <= movedBytesMax) {
        for (let index = at; index < end; index += 1) {
          bytes[dataEnd] = bytes[index] ?? 0;
          dataEnd += 1;
        }
      } else {
        this.#sink.onBody(bytes.subarray(dataStart, dataEnd));
        dataStart = at;
        dataEnd = end;
      }
      at = end;
      if (this.#left === 0) {
        this.state = stateChunkDataEnd;
      }
    }
    if (dataEnd > dataStart) {
      this.#sink.onBody(bytes.subarray(dataStart, dataEnd));
    }
    return at;
  }

  // A byte around the data of chunks [RFC 9112, 7.1].
  #readChunkFrame(byte: number): void {
    switch (this.state) {
      case stateChunkDataEnd:
        this.#expect(byte, carriageReturn, stateChunkLineEnd, 'a chunk that is longer than its size');
        break;
      case stateChunkLineEnd:
        this.#expect(byte, lineFeed, stateChunkSizeStart, 'a chunk that does not end in CR LF');
        break;
      case stateChunkSizeStart:
        this.#left = 0;
        this.#digits = 0;
        this.state = stateChunkSize;
        this.#readChunkSize(byte);
        break;
      case stateChunkSize:
        this.#readChunkSize(byte);
        break;
      case stateChunkSizeEnd:
        if (this.#left > 0) {
          this.#expect(byte, lineFeed, stateChunkData, 'a chunk size that does not end in CR LF');
        } else {
          // The last chunk; trailers follow, and are read as fields are.
          this.#expect(byte, lineFeed, stateFieldStart, 'a chunk size that does not end in CR LF');
          this.#isTrailer = true;
        }
        break;
      default:
        this.#extensionBytes += 1;
        if (this.#extensionBytes > extensionBytesMax || !this.#readExtension(byte)) {
          this.fail('a chunk extension that is none');
        }
    }
  }

  #expect(byte: number, expected: number, state: number, reason: string): void {
    if (byte === expected) {
      this.state = state;
    } else {
      this.fail(reason);
    }
  }

  #readChunkSize(byte: number): void {
    const value = hexadecimalValues[byte] ?? notHexadecimal;
    if (value !== notHexadecimal) {
      this.#left = this.#left * 16 + value;
      this.#digits += 1;
      if (this.#left > chunkSizeMax || this.#digits > chunkSizeDigitsMax) {
        this.fail('a chunk size without bound');
      }
    } else if (this.#digits === 0 || (byte !== carriageReturn && byte !== semicolon)) {
      this.fail('a chunk size that is no number');
    } else {
      this.#digits = 0;
      this.state = byte === carriageReturn ? stateChunkSizeEnd : stateExtensionName;
    }
  }

  // `;name`, `;name=token` and `;name="text"` are checked and dropped [RFC 9112, 7.1.1]; false for anything else.
  // #digits counts the bytes of a name.
  #readExtension(byte: number): boolean {
    switch (this.state) {
      case stateExtensionName:
        if (tokenBytes[byte] === 1) {
          this.#digits += 1;
          return true;
        }
        if (this.#digits === 0) {
          return false;
        }
        if (byte === equals) {
          this.state = stateExtensionValueStart;
          return true;
        }
        return this.#endExtension(byte);
      case stateExtensionValueStart:
        this.state = byte === doubleQuote ? stateExtensionQuoted : stateExtensionValue;
        return byte === doubleQuote || tokenBytes[byte] === 1;
      case stateExtensionValue:
        return tokenBytes[byte] === 1 || this.#endExtension(byte);
      case stateExtensionQuoted:
        if (byte === doubleQuote) {
          this.state = stateExtensionQuotedEnd;
        } else if (byte === backslash) {
          this.state = stateExtensionEscape;
        } else {
          return textBytes[byte] === 1;
        }
        return true;
      case stateExtensionEscape:
        this.state = stateExtensionQuoted;
        return textBytes[byte] === 1;
      default:
        return this.#endExtension(byte);
    }
  }

  #endExtension(byte: number): boolean {
    this.#digits = 0;
    this.state = byte === carriageReturn ? stateChunkSizeEnd : stateExtensionName;
    return byte === carriageReturn || byte === semicolon;
  }
}

const versionStart = Buffer.from('HTTP/1.', 'latin1');

// Whether `byte` may stand at `index` of a version, HTTP/1.0 or HTTP/1.1.
function isVersionByte(byte: number, index: number): boolean {
  return index < versionStart.length
    ? byte === versionStart[index]
    : byte === digitZero || byte === digitZero + 1;
}

const versionLength = versionStart.length + 1;

const methods = new KnownText(['GET', 'PUT', 'POST', 'DELETE']);
const repeatedInRequests: RepeatedValues = {
  host: new RepeatedText(),
  connection: new RepeatedText(),
  'user-agent': new RepeatedText(),
  'content-length': new RepeatedText(),
  'transfer-encoding': new RepeatedText(),
  'x-forwarded-for': new RepeatedText(),
};

/** Reads requests [RFC 9112, 3]. */
export class RequestReader extends MessageReader<RequestHead> {
  protected readonly repeatedValues = repeatedInRequests;
  protected readonly skipsEmptyLines = true;
  #method = '';
  #target = '';
  #fields = new RequestFields();

  protected readStartLine(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.state === stateStart) {
      this.state = stateMethod;
    }
    if (this.state === stateMethod) {
      while (at < end && methodBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      const length = this.sinceMark(at);
      if (length > methodBytesMax || (at < end && (bytes[at] !== space || length === 0))) {
        this.fail('a method that is none');
        return at;
      }
      if (at === end) {
        return at;
      }
      this.#method = methods.read(bytes, at - length, at);
      at += 1;
      this.setMark(at);
      this.state = stateTarget;
    }
    if (this.state === stateTarget) {
      while (at < end && targetBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      if (at === end) {
        return at;
      }
      if (bytes[at] !== space || this.sinceMark(at) === 0) {
        this.fail('a target that is none, or no version behind it');
        return at;
      }
      this.#target = this.textSinceMark(bytes, at);
      at += 1;
      this.setMark(at);
      this.state = stateVersion;
    }
    if (this.state === stateVersion) {
      for (; at < end && this.sinceMark(at) < versionLength; at += 1) {
        if (!isVersionByte(bytes[at] ?? 0, this.sinceMark(at))) {
          this.fail('a version that is neither HTTP/1.0 nor HTTP/1.1');
          return at;
        }
        this.minorVersion = (bytes[at] ?? 0) - digitZero;
      }
      if (at < end) {
        if (bytes[at] !== carriageReturn) {
          this.fail('a request line with something behind its version');
          return at;
        }
        this.state = stateLineEnd;
        at += 1;
      }
    }
    return at;
  }

  protected takeField(name: FieldName, value: string): void {
    this.#fields.take(name, value);
  }

  protected finishHead(): RequestHead | Flaw {
    const fields = this.#fields;
    this.#fields = new RequestFields();
    return fields.finish(this.#method, this.#target, this.minorVersion);
  }

  protected bodyLengthOf(head: RequestHead): BodyLength {
    return head.bodyLength;
  }
}

const statusStart = versionLength + 1;
const statusEnd = statusStart + 3;

const repeatedInAnswers: RepeatedValues = {
  connection: new RepeatedText(),
  'keep-alive': new RepeatedText(),
  'content-length': new RepeatedText(),
  'transfer-encoding': new RepeatedText(),
};

/** Reads answers; interim ones are skipped [RFC 9112, 4; RFC 9110, 15.2]. Only of requests whose answers have bodies. */
export class AnswerReader extends MessageReader<AnswerHead> {
  protected readonly repeatedValues = repeatedInAnswers;
  protected readonly skipsEmptyLines = false;
  #status = 0;
  #fields = new AnswerFields();

  protected readStartLine(bytes: Buffer, from: number, end: number): number {
    let at = from;
    if (this.state === stateStart) {
      this.#status = 0;
      this.state = stateStatus;
    }
    for (; at < end && this.state === stateStatus; at += 1) {
      if (!this.#readStatus(bytes[at] ?? 0, this.sinceMark(at))) {
        this.fail('an answer that is not HTTP/1.1');
        return at;
      }
    }
    if (this.state === stateReason) {
      while (at < end && textBytes[bytes[at] ?? 0] === 1) {
        at += 1;
      }
      if (at < end) {
        if (bytes[at] !== carriageReturn) {
          this.fail('an answer with a control character in its status line');
          return at;
        }
        this.state = stateLineEnd;
        at += 1;
      }
    }
    return at;
  }

  // `HTTP/1.1 200 reason`; without a reason, the space before it may be missing too.
  #readStatus(byte: number, index: number): boolean {
    if (index < versionLength) {
      this.minorVersion = byte - digitZero;
      return isVersionByte(byte, index);
    }
    if (index < statusStart) {
      return byte === space;
    }
    if (index < statusEnd) {
      const digit = byte - digitZero;
      this.#status = this.#status * 10 + digit;
      return digit >= 0 && digit <= 9;
    }
    this.state = byte === space ? stateReason : stateLineEnd;
    return byte === space || byte === carriageReturn;
  }

  protected takeField(name: FieldName, value: string): void {
    this.#fields.take(name, value);
  }

  protected finishHead(): AnswerHead | Flaw {
    const fields = this.#fields;
    this.#fields = new AnswerFields();
    return fields.finish(this.#status, this.minorVersion);
  }

  protected bodyLengthOf(head: AnswerHead): BodyLength | 'interim' {
    return head.status < 200 ? 'interim' : head.bodyLength;
  }
}
