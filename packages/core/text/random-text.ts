// Generates random ids of requests and traces. Nearly every call needs one. Ids are generated in blocks, because a single
// id would cost more than writing the head that contains it.

// An `import` would load all of web cryptography as well.
const { randomFillSync } = process.getBuiltinModule('node:crypto');

const digits = '0123456789abcdef';
// For each value of a byte: the characters of its first and of its second hexadecimal digit.
const firstDigits = Buffer.from(
  digits.replace(/./g, (digit) => digit.repeat(16)),
  'latin1',
);
const secondDigits = Buffer.from(digits.repeat(16), 'latin1');
// Number of texts in a block. It is small, because a text in use keeps its whole block in memory. It is even, so that every
// block has an even number of random digits, because each random byte gives two digits.
const blockTexts = 32;
// Random bytes are requested from the OS for this many blocks at a time.
const filledBlocks = 64;

/** Generates texts of one form. Their digits come from a cryptographically strong source. */
export class RandomText {
  readonly #length: number;
  // The block being written, and the positions in it of the first and second digit of each random byte.
  readonly #written: Buffer;
  readonly #firstPlaces: Uint16Array;
  readonly #secondPlaces: Uint16Array;
  // Positions of the digits that are limited to 8, 9, a and b.
  readonly #variantPlaces: readonly number[];
  readonly #bytes: Buffer;
  // Position in `#bytes` of the random bytes for the next block.
  #at: number;
  #block = '';
  #next = blockTexts;

  /** In `form`, each `x` is a random hexadecimal digit and each `y` one of 8, 9, a and b. */
  constructor(form: string) {
    this.#length = form.length;
    const all = form.repeat(blockTexts);
    this.#written = Buffer.from(all, 'latin1');
    const places = Array.from(all.matchAll(/[xy]/g), ({ index }) => index);
    this.#firstPlaces = Uint16Array.from(places.filter((_, index) => index % 2 === 0));
    this.#secondPlaces = Uint16Array.from(places.filter((_, index) => index % 2 === 1));
    this.#variantPlaces = places.filter((place) => all.charAt(place) === 'y');
    this.#bytes = Buffer.allocUnsafeSlow(this.#firstPlaces.length * filledBlocks);
    this.#at = this.#bytes.length;
  }

  draw(): string {
    if (this.#next === blockTexts) {
      this.#makeBlock();
    }
    const from = this.#next * this.#length;
    this.#next += 1;
    return this.#block.slice(from, from + this.#length);
  }

  #makeBlock(): void {
    const bytes = this.#bytes;
    if (this.#at === bytes.length) {
      randomFillSync(bytes);
      this.#at = 0;
    }
    const written = this.#written;
    const firstPlaces = this.#firstPlaces;
    const secondPlaces = this.#secondPlaces;
    for (let index = 0; index < firstPlaces.length; index += 1) {
      const byte = bytes[this.#at + index] ?? 0;
      written[firstPlaces[index] ?? 0] = firstDigits[byte] ?? 0;
      written[secondPlaces[index] ?? 0] = secondDigits[byte] ?? 0;
    }
    for (const place of this.#variantPlaces) {
      written[place] = variantOf(written[place] ?? 0);
    }
    this.#at += firstPlaces.length;
    this.#block = written.toString('latin1');
    this.#next = 0;
  }
}

// Sets the first two bits of a digit to 1 and 0 (RFC 9562, 4.1).
function variantOf(digit: number): number {
  const value = secondDigits.indexOf(digit);
  return secondDigits[(value & 3) | 8] ?? 0;
}
