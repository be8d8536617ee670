// Reads chunked bodies [RFC 9112, 7.1] and passes on their data. reader.ts reads the trailers, because they are fields.

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

// The element to which the next byte belongs.
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
// Final states.
const stateOver = 11;
const stateFlawed = 12;

// Pieces of chunk data up to this size, in bytes, are moved together, so that the sink is called once for many pieces.
const movedBytesMax = 1_024;

interface DataSink {
  onBody(piece: Buffer): void;
}

/** Reads the chunked bodies of one connection, one after the other. */
export class ChunkReader {
  /** The flaw that ended reading; undefined if there is none. */
  flaw: string | undefined;
  readonly #sink: DataSink;
  #state = stateSize;
  // Unread bytes of the current chunk; 0 when the size of a chunk begins.
  #left = 0;
  // How many digits of the current size, or bytes of the current extension's name, have been read.
  #digits = 0;
  #extensionBytes = 0;

  constructor(sink: DataSink) {
    this.#sink = sink;
  }

  /** True after the last chunk, when trailers follow. */
  get isOver(): boolean {
    return this.#state === stateOver;
  }

  begin(): void {
    this.#state = stateSize;
    this.#extensionBytes = 0;
  }

  /**
   * Reads `bytes` from position `from` on. Returns the position after the consumed bytes: the end of `bytes`, unless the
   * last chunk has ended or there is a flaw. Moves the data of small chunks together within `bytes`. Passes the data on in
   * few pieces, because otherwise the sink is called for every byte of a body in one-byte chunks.
   */
  read(bytes: Buffer, from: number): number {
    let at = from;
    let dataStart = from;
    let dataEnd = from;
    while (at < bytes.length && this.#state < stateOver) {
      if (this.#state !== stateData) {
        this.#readFrame(bytes[at] ?? 0);
        if (this.flaw === undefined) at += 1;
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
      if (this.#left === 0) this.#state = stateDataEnd;
    }
    if (dataEnd > dataStart) this.#sink.onBody(bytes.subarray(dataStart, dataEnd));
    return at;
  }

  // Reads one byte of a size, an extension or a line end [RFC 9112, 7.1].
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
        this.#expect(byte, lineFeed, this.#left > 0 ? stateData : stateOver, 'a chunk size that does not end in CR LF');
        break;
      default:
        this.#extensionBytes += 1;
        if (this.#extensionBytes > extensionBytesMax || !this.#readExtension(byte)) {
          this.#fail('an invalid chunk extension');
        }
    }
  }

  #expect(byte: number, expected: number, state: number, reason: string): void {
    if (byte === expected) this.#state = state;
    else this.#fail(reason);
  }

  #readSize(byte: number): void {
    const value = hexadecimalValues[byte] ?? notHexadecimal;
    if (value !== notHexadecimal) {
      this.#left = this.#left * 16 + value;
      this.#digits += 1;
      if (this.#left > chunkSizeMax || this.#digits > chunkSizeDigitsMax) this.#fail('a chunk size over the limit');
    } else if (this.#digits === 0 || (byte !== carriageReturn && byte !== semicolon)) {
      this.#fail('an invalid chunk size');
    } else {
      this.#digits = 0;
      this.#state = byte === carriageReturn ? stateSizeEnd : stateExtensionName;
    }
  }

  // Checks one byte of `;name`, `;name=token` or `;name="text"` [RFC 9112, 7.1.1]. Returns whether the byte is valid.
  #readExtension(byte: number): boolean {
    switch (this.#state) {
      case stateExtensionName:
        if (tokenBytes[byte] === 1) {
          this.#digits += 1;
          return true;
        }
        if (this.#digits === 0) return false;
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
