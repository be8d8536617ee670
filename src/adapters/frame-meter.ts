// Where the frames of HTTP/2 begin and end among the bytes that a client sends [RFC 9113, 4.1], and so how much of them is
// one turn's work. Sans IO; what the frames say, and whether they may come as they do, is the library's affair.

const prefaceBytes = 24;
const headerBytes = 9;
const headersType = 0x1;
const continuationType = 0x9;
const endHeadersFlag = 0x4;

/** What is taken in one go: frames of any kind, heads of requests among them, and bytes of heads. */
export interface Allowance {
  readonly frames: number;
  readonly heads: number;
  readonly headBytes: number;
}

export class FrameMeter {
  // Of the preface, or of the payload of a frame.
  #bytesLeft = prefaceBytes;
  // How much of a frame's header has come, and what it says.
  #headerLength = 0;
  #payloadLength = 0;
  #type = 0;
  #flags = 0;
  #isInHead = false;
  #headsBegun = 0;

  /** Which head of a request has begun and is not whole, counted from 1; 0 for none. */
  get headUnderWay(): number {
    return this.#isInHead ? this.#headsBegun : 0;
  }

  /**
   * Walks through `bytes` as far as `allowance` goes, and says how far that is. Frames that have begun are gone through,
   * but not those of heads: there one byte can be a field of thousands [RFC 7541, 6.1].
   */
  take(bytes: Uint8Array, allowance: Allowance): number {
    let { frames, heads, headBytes } = allowance;
    let at = 0;
    while (at < bytes.length) {
      if (this.#bytesLeft > 0) {
        const isOfHead = this.#type === headersType || this.#type === continuationType;
        const most = isOfHead ? Math.min(this.#bytesLeft, headBytes) : this.#bytesLeft;
        const step = Math.min(most, bytes.length - at);
        if (step === 0) {
          break;
        }
        headBytes -= isOfHead ? step : 0;
        this.#bytesLeft -= step;
        at += step;
        if (this.#bytesLeft === 0) {
          this.#endFrame();
        }
        continue;
      }
      if (this.#headerLength === 0 && (frames === 0 || heads === 0)) {
        break;
      }
      this.#takeHeaderByte(bytes[at] ?? 0);
      at += 1;
      if (this.#headerLength === headerBytes) {
        frames -= 1;
        if (this.#type === headersType) {
          heads -= 1;
          this.#isInHead = true;
          this.#headsBegun += 1;
        }
        this.#headerLength = 0;
        this.#bytesLeft = this.#payloadLength;
        if (this.#bytesLeft === 0) {
          this.#endFrame();
        }
      }
    }
    return at;
  }

  // Three bytes of length, one of type, one of flags, four that name the stream.
  #takeHeaderByte(byte: number): void {
    const index = this.#headerLength;
    this.#headerLength += 1;
    if (index === 0) {
      this.#payloadLength = byte;
    } else if (index < 3) {
      this.#payloadLength = this.#payloadLength * 256 + byte;
    } else if (index === 3) {
      this.#type = byte;
    } else if (index === 4) {
      this.#flags = byte;
    }
  }

  #endFrame(): void {
    const isHead = this.#type === headersType || this.#type === continuationType;
    if (isHead && (this.#flags & endHeadersFlag) !== 0) {
      this.#isInHead = false;
    }
  }
}
