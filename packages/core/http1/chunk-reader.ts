// Reads the chunks of a body [RFC 9112, 7.1]: bytes in, data out. Trailers are read by reader.ts, as fields are.

import {
  backslash,
  carriageReturn,
  chunkSizeDigitsMax,
  chunkSizeMax,
  doubleQuote,
  equals,
  extensionBytesMax,
  hexadecimalValues,
  lineFeed,
  notHexadecimal,
  semicolon,
  textBytes,
  tokenBytes,
} from './grammar.ts';

// What the next byte belongs to.
const stateSize = 0;
const stateSizeEnd = 1;
const stateExtensionName = 2;
const stateExtensionValueStart = 3;
const stateExtensionValue = 4;
const stateExtensionQuoted = 5;
const stateExtensionEscape = 6;
const stateExtensionQuotedEnd = 7;
const stateData = 8;
const stateDataEnd = 9;
const stateLineEnd = 10;
// Nothing more is read.
const stateOver = 11;
const stateFlawed = 12;

// Runs of data up to this size are moved together, so that the sink is called once for many of them.
const movedBytesMax = 1_024;

interface DataSink {
  /** The next bytes of the body. */
  onBody(piece: Buffer): void;
}

/** Reads the bodies of one connection that come in chunks, one after the other. */
export class ChunkReader {
  /** Why nothing more can be read; undefined while all is well. */
  flaw: string | undefined;
  readonly #sink: DataSink;
  #state = stateSize;
  // Bytes of the chunk that are still to come: none when a size begins.
  #left = 0;
  // Bytes so far of a size or of an extension's name: none when either begins.
  #digits = 0;
  #extensionBytes = 0;

  constructor(sink: DataSink) {
    this.#sink = sink;
  }

  /** The last chunk has ended: trailers follow. */
  get isOver(): boolean {
    return this.#state === stateOver;
  }

  /** Begins a body. */
  begin(): void {
    this.#state = stateSize;
    this.#extensionBytes = 0;
  }

  /**
   * Reads `bytes` from `from` on and returns the position after what it has taken: all of them, unless the last chunk has
   * ended or there is a flaw. The data of small chunks is moved together, within `bytes`, and handed on in few pieces: a
   * body in chunks of one byte would otherwise cost a call for each.
   */
  read(bytes: Buffer, from: number): number {
    let at = from;
    let dataStart = from;
    let dataEnd = from;
    while (at < bytes.length && this.#state < stateOver) {
      if (this.#state !== stateData) {
        this.#readFrame(bytes[at] ?? 0);
        if (this.flaw === undefined) {
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
        this.#state = stateDataEnd;
      }
    }
    if (dataEnd > dataStart) {
      this.#sink.onBody(bytes.subarray(dataStart, dataEnd));
    }
    return at;
  }

  // A byte around the data of chunks [RFC 9112, 7.1].
  #readFrame(byte: number): void {
    switch (this.#state) {
      case stateDataEnd:
        this.#expect(byte, carriageReturn, stateLineEnd, 'a chunk that is longer than its size');
        break;
      case stateLineEnd:
        this.#expect(byte, lineFeed, stateSize, 'a chunk that does not end in CR LF');
        break;
      case stateSize:
        this.#readSize(byte);
        break;
      case stateSizeEnd:
        if (this.#left > 0) {
          this.#expect(byte, lineFeed, stateData, 'a chunk size that does not end in CR LF');
        } else {
          // The last chunk.
          this.#expect(byte, lineFeed, stateOver, 'a chunk size that does not end in CR LF');
        }
        break;
      default:
        this.#extensionBytes += 1;
        if (this.#extensionBytes > extensionBytesMax || !this.#readExtension(byte)) {
          this.#fail('a chunk extension that is none');
        }
    }
  }

  #expect(byte: number, expected: number, state: number, reason: string): void {
    if (byte === expected) {
      this.#state = state;
    } else {
      this.#fail(reason);
    }
  }

  #readSize(byte: number): void {
    const value = hexadecimalValues[byte] ?? notHexadecimal;
    if (value !== notHexadecimal) {
      this.#left = this.#left * 16 + value;
      this.#digits += 1;
      if (this.#left > chunkSizeMax || this.#digits > chunkSizeDigitsMax) {
        this.#fail('a chunk size without bound');
      }
    } else if (this.#digits === 0 || (byte !== carriageReturn && byte !== semicolon)) {
      this.#fail('a chunk size that is no number');
    } else {
      this.#digits = 0;
      this.#state = byte === carriageReturn ? stateSizeEnd : stateExtensionName;
    }
  }

  // `;name`, `;name=token` and `;name="text"` are checked and dropped [RFC 9112, 7.1.1]; false for anything else.
  #readExtension(byte: number): boolean {
    switch (this.#state) {
      case stateExtensionName:
        if (tokenBytes[byte] === 1) {
          this.#digits += 1;
          return true;
        }
        if (this.#digits === 0) {
          return false;
        }
        if (byte === equals) {
          this.#state = stateExtensionValueStart;
          return true;
        }
        return this.#endExtension(byte);
      case stateExtensionValueStart:
        this.#state = byte === doubleQuote ? stateExtensionQuoted : stateExtensionValue;
        return byte === doubleQuote || tokenBytes[byte] === 1;
      case stateExtensionValue:
        return tokenBytes[byte] === 1 || this.#endExtension(byte);
      case stateExtensionQuoted:
        if (byte === doubleQuote) {
          this.#state = stateExtensionQuotedEnd;
        } else if (byte === backslash) {
          this.#state = stateExtensionEscape;
        } else {
          return textBytes[byte] === 1;
        }
        return true;
      case stateExtensionEscape:
        this.#state = stateExtensionQuoted;
        return textBytes[byte] === 1;
      default:
        return this.#endExtension(byte);
    }
  }

  #endExtension(byte: number): boolean {
    this.#digits = 0;
    this.#state = byte === carriageReturn ? stateSizeEnd : stateExtensionName;
    return byte === carriageReturn || byte === semicolon;
  }

  #fail(reason: string): void {
    this.flaw = reason;
    this.#state = stateFlawed;
  }
}
