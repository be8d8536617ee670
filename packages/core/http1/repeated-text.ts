// Text that is the same in most messages: a method, the host that a client calls, how long a connection is kept. It is
// found again by looking at its bytes, which costs a fifth of making it of them.

/** Finds one of few texts (latin1), and makes any other. */
export class KnownText {
  readonly #known: readonly { readonly text: string; readonly bytes: Uint8Array }[];

  constructor(texts: readonly string[]) {
    this.#known = texts.map((text) => ({ text, bytes: Buffer.from(text, 'latin1') }));
  }

  /** The text of `bytes` from `start` to `end`. */
  read(bytes: Buffer, start: number, end: number): string {
    const length = end - start;
    for (const known of this.#known) {
      if (known.bytes.length === length && isAt(bytes, start, known.bytes, length)) {
        return known.text;
      }
    }
    return bytes.toString('latin1', start, end);
  }
}

const rememberedBytesMax = 64;

/** Makes text of bytes (latin1), and remembers the last one that is not long. */
export class RepeatedText {
  readonly #bytes = new Uint8Array(rememberedBytesMax);
  #length = 0;
  #text = '';

  /** The text of `bytes` from `start` to `end`. */
  read(bytes: Buffer, start: number, end: number): string {
    const length = end - start;
    if (length === this.#length && isAt(bytes, start, this.#bytes, length)) {
      return this.#text;
    }
    const text = bytes.toString('latin1', start, end);
    if (length <= rememberedBytesMax) {
      this.#bytes.set(bytes.subarray(start, end));
      this.#length = length;
      this.#text = text;
    }
    return text;
  }
}

function isAt(bytes: Buffer, start: number, other: Uint8Array, length: number): boolean {
  for (let index = 0; index < length; index += 1) {
    if (bytes[start + index] !== other[index]) {
      return false;
    }
  }
  return true;
}
