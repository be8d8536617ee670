// Finds the frames in the bytes from an HTTP/2 client [RFC 9113, 4.1], to limit the input per turn of the event loop. Counts
// the fields of each head, because Node drops malformed fields silently [RFC 9113, 8.2.1]. Detects DATA beyond a
// content-length, because Node would close the whole connection for it [RFC 9113, 8.1.1]. Does no IO.

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
  // A frame's header: length (3 bytes), type (1), flags (1), stream id (4).
  readonly #header = Buffer.alloc(headerBytes);
  #headerLength = 0;
  #type = 0;
  #flags = 0;
  #stream = 0;
  // `#isPadded`: the length of the padding is unread. `#priorityLeft`: unread bytes between it and the fields of a head.
  #isPadded = false;
  #padding = 0;
  #priorityLeft = 0;
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
      if (this.#bytesLeft > 0) {
        const isOfHead = this.#type === headersType || this.#type === continuationType;
        // The padding length is read in a step of its own, because the length of the data depends on it.
        const most = this.#isPadded ? 1 : this.#bytesLeft;
        const step = Math.min(most, bytes.length - at, isOfHead ? left.headBytes : Infinity);
        if (step === 0) break;
        left.headBytes -= isOfHead ? step : 0;
        this.#bytesLeft -= step;
        this.#takePayload(bytes, at, at + step, isOfHead);
        at += step;
      } else {
        if (this.#headerLength === 0 && (left.frames === 0 || left.heads === 0)) break;
        this.#header[this.#headerLength] = bytes[at] ?? 0;
        this.#headerLength += 1;
        at += 1;
        if (this.#headerLength < headerBytes) continue;
        this.#beginPayload(left);
      }
      if (this.#bytesLeft === 0) this.#endFrame();
    }
    return at;
  }

  #beginPayload(left: Allowance): void {
    left.frames -= 1;
    this.#headerLength = 0;
    this.#type = this.#header.readUInt8(3);
    this.#flags = this.#header.readUInt8(4);
    // Clears the first bit, which is reserved.
    this.#stream = this.#header.readUInt32BE(5) & 0x7fffffff;
    this.#bytesLeft = this.#header.readUIntBE(0, 3);
    this.#padding = 0;
    this.#priorityLeft = 0;
    this.#isPadded = (this.#flags & paddedFlag) !== 0 && (this.#type === headersType || this.#type === dataType);
    if (this.#type === headersType) {
      left.heads -= 1;
      this.isInHead = true;
      this.#endsStream = (this.#flags & endStreamFlag) !== 0;
      this.#fieldCount.reset();
      this.#priorityLeft = (this.#flags & priorityFlag) !== 0 ? 5 : 0;
    } else if (this.#type === dataType && !this.#isPadded) {
      this.#countData(this.#bytesLeft);
    }
  }

  #takePayload(bytes: Uint8Array, from: number, end: number, isOfHead: boolean): void {
    if (this.#isPadded) {
      this.#isPadded = false;
      this.#padding = bytes[from] ?? 0;
      if (!isOfHead) this.#countData(this.#bytesLeft - this.#padding);
    } else if (isOfHead) {
      const skipped = Math.min(this.#priorityLeft, end - from);
      this.#priorityLeft -= skipped;
      this.#fieldCount.take(bytes, from + skipped, Math.min(end, end + this.#bytesLeft - this.#padding));
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
      this.isInHead = false;
      this.headSince = undefined;
      this.#stop = this.#endsStream ? undefined : 'body';
      this.#fields.set(this.#stream, this.#fieldCount.fields);
      if (this.#fields.size > headsKept) this.#fields.delete(this.#fields.keys().next().value ?? 0);
    }
  }
}
