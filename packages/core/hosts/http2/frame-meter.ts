// Where the frames of HTTP/2 begin and end among the bytes that a client sends [RFC 9113, 4.1], and so how much of them is
// one turn's work. Counts what the platform's library is silent about, or answers with the end of the connection: the
// fields of each head, and DATA beyond its content-length [RFC 9113, 8.1.1, 8.2.1]. Sans IO.

import { FieldCount } from './field-count.ts';

const prefaceBytes = 24;
const headerBytes = 9;
const dataType = 0x0;
const headersType = 0x1;
const continuationType = 0x9;
const endStreamFlag = 0x1;
const endHeadersFlag = 0x4;
const paddedFlag = 0x8;
const priorityFlag = 0x20;
// Heads that no stream came of are kept up to this number. A turn has fewer.
const headsKept = 256;

/**
 * Why a go has ended before its allowance has: behind the head of a request with a body, so that `expectData` can be called
 * before its DATA is taken; or in a frame with more DATA than its stream expects, until that is forgotten.
 */
type Stop = 'body' | 'excess' | undefined;

/** What may still be taken in a turn: frames of any kind, heads of requests among them, and bytes of heads. */
export interface Allowance {
  frames: number;
  heads: number;
  headBytes: number;
}

export class FrameMeter {
  /** Called with the number of a stream that gets more DATA than it expects. */
  onExcess: (stream: number) => void = () => undefined;
  // Of the preface, or of the payload of a frame.
  #bytesLeft = prefaceBytes;
  // Three bytes of length, one of type, one of flags, four that name the stream; how much of it has come, and what it says.
  readonly #header = Buffer.alloc(headerBytes);
  #headerLength = 0;
  #payloadLength = 0;
  #type = 0;
  #flags = 0;
  #stream = 0;
  // Bytes in front of the fields or data, the first of them the length of the padding where there is one; and behind them.
  #prefixLeft = 0;
  #padding = 0;
  #isInHead = false;
  #headsBegun = 0;
  #endsStream = false;
  #stop: Stop;
  readonly #fieldCount = new FieldCount();
  // Stream, fields, stream, fields, of the whole heads that have come.
  readonly #fields: number[] = [];
  readonly #dataLeft = new Map<number, number>();

  /** Which head of a request has begun and is not whole, counted from 1; 0 for none. */
  get headUnderWay(): number {
    return this.#isInHead ? this.#headsBegun : 0;
  }

  get stop(): Stop {
    return this.#stop;
  }

  /** How many fields the next head of `stream` had. To be asked in the order of the heads; undefined for an unknown one. */
  fieldsOf(stream: number): number | undefined {
    while (this.#fields.length > 0) {
      const ofStream = this.#fields.shift();
      const fields = this.#fields.shift();
      if (ofStream === stream) {
        return fields;
      }
    }
    return undefined;
  }

  /** `stream` may have `length` bytes of DATA from here on. */
  expectData(stream: number, length: number): void {
    this.#dataLeft.set(stream, length);
  }

  /** `stream` has closed. */
  forget(stream: number): void {
    this.#dataLeft.delete(stream);
    if (this.#stop === 'excess' && this.#stream === stream) {
      this.#stop = undefined;
    }
  }

  /**
   * Walks through `bytes` as far as `left` goes, reduces it, and returns how far that is. Frames that have begun are gone
   * through, but not those of heads: there one byte can be a field of thousands [RFC 7541, 6.1].
   */
  take(bytes: Uint8Array, left: Allowance): number {
    this.#stop = undefined;
    let at = 0;
    while (at < bytes.length && this.stop === undefined) {
      if (this.#bytesLeft > 0) {
        const isOfHead = this.#type === headersType || this.#type === continuationType;
        // The length of the padding alone: the data behind it may be too much.
        const ofOthers = this.#prefixLeft > 0 ? 1 : this.#bytesLeft;
        const most = isOfHead ? Math.min(this.#bytesLeft, left.headBytes) : ofOthers;
        const step = Math.min(most, bytes.length - at);
        if (step === 0) {
          break;
        }
        left.headBytes -= isOfHead ? step : 0;
        this.#takePayload(bytes, at, at + step, isOfHead);
        this.#bytesLeft -= step;
        at += step;
      } else {
        if (this.#headerLength === 0 && (left.frames === 0 || left.heads === 0)) {
          break;
        }
        this.#header[this.#headerLength] = bytes[at] ?? 0;
        this.#headerLength += 1;
        at += 1;
        if (this.#headerLength < headerBytes) {
          continue;
        }
        this.#beginPayload(left);
      }
      if (this.#bytesLeft === 0) {
        this.#endFrame();
      }
    }
    return at;
  }

  #beginPayload(left: Allowance): void {
    left.frames -= 1;
    this.#headerLength = 0;
    this.#payloadLength = this.#header.readUIntBE(0, 3);
    this.#type = this.#header.readUInt8(3);
    this.#flags = this.#header.readUInt8(4);
    // The first bit is reserved.
    this.#stream = this.#header.readUInt32BE(5) & 0x7fffffff;
    this.#bytesLeft = this.#payloadLength;
    this.#prefixLeft = 0;
    this.#padding = 0;
    const isPadded = (this.#flags & paddedFlag) !== 0;
    if (this.#type === headersType) {
      left.heads -= 1;
      this.#isInHead = true;
      this.#headsBegun += 1;
      this.#endsStream = (this.#flags & endStreamFlag) !== 0;
      this.#fieldCount.reset();
      this.#prefixLeft = (isPadded ? 1 : 0) + ((this.#flags & priorityFlag) !== 0 ? 5 : 0);
    } else if (this.#type === dataType) {
      this.#prefixLeft = isPadded ? 1 : 0;
      if (!isPadded) {
        this.#countData(this.#payloadLength);
      }
    }
  }

  #takePayload(bytes: Uint8Array, from: number, end: number, isOfHead: boolean): void {
    let at = from;
    for (; this.#prefixLeft > 0 && at < end; at += 1) {
      if (at === from && this.#bytesLeft === this.#payloadLength && (this.#flags & paddedFlag) !== 0) {
        this.#padding = bytes[at] ?? 0;
        if (!isOfHead) {
          this.#countData(this.#payloadLength - 1 - this.#padding);
        }
      }
      this.#prefixLeft -= 1;
    }
    if (isOfHead) {
      this.#fieldCount.take(bytes, at, Math.min(end, from + this.#bytesLeft - this.#padding));
    }
  }

  #countData(length: number): void {
    const left = this.#dataLeft.get(this.#stream);
    if (left !== undefined) {
      this.#dataLeft.set(this.#stream, left - length);
      if (length > left) {
        this.#stop = 'excess';
        this.onExcess(this.#stream);
      }
    }
  }

  #endFrame(): void {
    const isHead = this.#type === headersType || this.#type === continuationType;
    if (isHead && (this.#flags & endHeadersFlag) !== 0) {
      this.#isInHead = false;
      this.#stop = this.#endsStream ? undefined : 'body';
      this.#fields.push(this.#stream, this.#fieldCount.fields);
      if (this.#fields.length > 2 * headsKept) {
        this.#fields.splice(0, 2);
      }
    }
  }
}
