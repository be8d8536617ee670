// Finds the frames in the bytes from an HTTP/2 client [RFC 9113, 4.1], to limit the input per turn of the event loop. Counts
// the fields of each head, because Node drops malformed fields silently [RFC 9113, 8.2.1]. Detects DATA beyond a
// content-length, because Node would close the whole connection for it [RFC 9113, 8.1.1]. Does no IO.

import { FieldCount } from './field-count.ts';

const prefaceBytes = 24;
// The header of a frame: length (3 bytes), type (1), flags (1), stream id (4). After it, a frame can have the length of
// its padding (1) and a priority (5).
const headerBytes = 9;
const paddingBytes = 1;
const priorityBytes = 5;
const dataType = 0x0;
const headersType = 0x1;
const continuationType = 0x9;
const endStreamFlag = 0x1;
const endHeadersFlag = 0x4;
const paddedFlag = 0x8;
const priorityFlag = 0x20;
// Largest number of stored field counts. It exceeds the number of heads read in one turn. Without a limit, the field
// counts of heads for which Node opens no stream would accumulate.
const headsKept = 256;

/**
 * The reason why `take` stopped early.
 * - `body`: the head of a request with a body has been read. The caller can now call `expectData`, before the DATA is read.
 * - `excess`: the current frame has more DATA than its stream may still receive. `forget` ends this state.
 */
type Stop = 'body' | 'excess' | undefined;

/** The input that may still be read in the current turn. A head also counts as a frame. */
export interface Allowance {
  frames: number;
  heads: number;
  headBytes: number;
}

export class FrameMeter {
  /** Called with the id of a stream that receives more DATA than it expects. */
  onExcess: (stream: number) => void = () => undefined;
  isInHead = false;
  /** When the incomplete head began, in ms. The caller sets it; the meter clears it at its end. */
  headSince: number | undefined;
  // The number of unread bytes: first of the connection preface, then of the current frame's payload.
  #bytesLeft = prefaceBytes;
  readonly #header = Buffer.alloc(headerBytes + paddingBytes + priorityBytes);
  // `#headerLength`: the bytes that have been read of the header and of what can follow it. `#headerEnd`: all these bytes.
  #headerLength = 0;
  #headerEnd = headerBytes;
  #type = 0;
  #flags = 0;
  #stream = 0;
  #isPadded = false;
  #padding = 0;
  #endsStream = false;
  #stop: Stop;
  readonly #fieldCount = new FieldCount();
  // The field count of the last complete head of each stream, until it is read.
  readonly #fields = new Map<number, number>();
  readonly #dataLeft = new Map<number, number>();

  get stop(): Stop {
    return this.#stop;
  }

  /** Returns the field count of the last head of `stream`, once. */
  fieldsOf(stream: number): number | undefined {
    const fields = this.#fields.get(stream);
    this.#fields.delete(stream);
    return fields;
  }

  /** Sets how many bytes of DATA `stream` may still receive. */
  expectData(stream: number, length: number): void {
    this.#dataLeft.set(stream, length);
  }

  /** Must be called when `stream` has closed. */
  forget(stream: number): void {
    this.#dataLeft.delete(stream);
    if (this.#stop === 'excess' && this.#stream === stream) this.#stop = undefined;
  }

  /**
   * Reads as much of `bytes` as `left` allows, and reduces `left` by the input that was read. Returns the position
   * after the last byte read. A frame that has begun is read to its end, except a frame of a head: reading pauses when
   * `left.headBytes` is 0, because one byte of a head can stand for a field of thousands of bytes [RFC 7541, 6.1].
   */
  take(bytes: Uint8Array, left: Allowance): number {
    this.#stop = undefined;
    let at = 0;
    while (at < bytes.length && this.stop === undefined) {
      if (this.#headerLength === 0 && this.#bytesLeft > 0) {
        const step = Math.min(this.#bytesLeft, bytes.length - at, this.#isOfHead ? left.headBytes : Infinity);
        if (step === 0) break;
        this.#bytesLeft -= step;
        if (this.#isOfHead) {
          left.headBytes -= step;
          this.#fieldCount.take(bytes, at, at + step + Math.min(0, this.#bytesLeft - this.#padding));
        }
        at += step;
      } else {
        if (this.#headerLength === 0 && (left.frames === 0 || left.heads === 0)) break;
        this.#header[this.#headerLength] = bytes[at] ?? 0;
        this.#headerLength += 1;
        at += 1;
        if (this.#headerLength === headerBytes) this.#readHeader(left);
        if (this.#headerLength < this.#headerEnd) continue;
        this.#headerLength = 0;
        this.#padding = this.#isPadded && this.#headerEnd > headerBytes ? this.#header.readUInt8(headerBytes) : 0;
        if (this.#type === dataType) this.#countData(this.#bytesLeft - this.#padding);
      }
      if (this.#bytesLeft === 0) this.#endFrame();
    }
    return at;
  }

  get #isOfHead(): boolean {
    return this.#type === headersType || this.#type === continuationType;
  }

  #readHeader(left: Allowance): void {
    left.frames -= 1;
    this.#type = this.#header.readUInt8(3);
    this.#flags = this.#header.readUInt8(4);
    // Clears the first bit, which is reserved.
    this.#stream = this.#header.readUInt32BE(5) & 0x7fffffff;
    const isHeaders = this.#type === headersType;
    this.#isPadded = (this.#flags & paddedFlag) !== 0 && (isHeaders || this.#type === dataType);
    const hasPriority = isHeaders && (this.#flags & priorityFlag) !== 0;
    const length = this.#header.readUIntBE(0, 3);
    const more = Math.min(length, (this.#isPadded ? paddingBytes : 0) + (hasPriority ? priorityBytes : 0));
    this.#headerEnd = headerBytes + more;
    this.#bytesLeft = length - more;
    if (isHeaders) {
      left.heads -= 1;
      this.isInHead = true;
      this.#endsStream = (this.#flags & endStreamFlag) !== 0;
      this.#fieldCount.reset();
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
    if (this.#isOfHead && (this.#flags & endHeadersFlag) !== 0) {
      this.isInHead = false;
      this.headSince = undefined;
      this.#stop = this.#endsStream ? undefined : 'body';
      this.#fields.set(this.#stream, this.#fieldCount.fields);
      if (this.#fields.size > headsKept) this.#fields.delete(this.#fields.keys().next().value ?? 0);
    }
  }
}
