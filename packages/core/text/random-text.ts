// Makes texts with random digits: request ids, and the ids of traces. Many at once, since nearly every call needs one:
// one by one they would cost more than the head that they stand in.

// Imported as a module it would bring all of web cryptography along.
const { randomFillSync } = process.getBuiltinModule('node:crypto');

const digits = '0123456789abcdef';
// The two digits of each byte, as characters.
const firstDigits = Buffer.from(
  digits.replace(/./g, (digit) => digit.repeat(16)),
  'latin1',
);
const secondDigits = Buffer.from(digits.repeat(16), 'latin1');
// Each text that is still used holds its block. An even number: so has a block of random digits, whatever the form.
const blockTexts = 32;
// The system is asked for bytes once for so many blocks.
const filledBlocks = 64;

/** Texts of one form, from a cryptographically strong source. */
export class RandomText {
  readonly #length: number;
  // A block as it is written, and where in it the two digits of each random byte stand.
  readonly #written: Buffer;
  readonly #firstPlaces: Uint16Array;
  readonly #secondPlaces: Uint16Array;
  // Where digits stand that are only one of 8, 9, a and b.
  readonly #variantPlaces: readonly number[];
  readonly #bytes: Buffer;
  // Where the next block begins among the bytes.
  #at: number;
  #block = '';
  #next = blockTexts;

  /** In `form` each `x` is a random hexadecimal digit, each `y` one of 8, 9, a and b. */
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

// The digit with its first two bits set to 1 and 0 (RFC 9562, 4.1).
function variantOf(digit: number): number {
  const value = secondDigits.indexOf(digit);
  return secondDigits[(value & 3) | 8] ?? 0;
}
