// Generates random ids of requests and traces. Nearly every call needs one. Ids are generated in blocks, because a single
// id would cost more than writing the head that contains it.

// An `import` would load all of web cryptography as well.
const { randomFillSync } = process.getBuiltinModule('node:crypto');

// The hexadecimal digits whose first two bits are 1 and 0 (RFC 9562, 4.1).
const variantDigits = Buffer.from('89ab', 'latin1');
// Number of texts in a block. It is small, because a text in use keeps its whole block in memory. It is even, because a
// block takes a whole number of random bytes and each byte gives two digits.
const blockTexts = 32;
// Random bytes are requested from the OS for this many blocks at a time.
const filledBlocks = 64;

/** Generates texts of one form. Their digits come from a cryptographically strong source. */
export class RandomText {
  readonly #length: number;
  // The block being written, and the positions of its random digits.
  readonly #written: Buffer;
  readonly #places: Uint16Array;
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
    this.#places = Uint16Array.from(places);
    this.#variantPlaces = places.filter((place) => all.charAt(place) === 'y');
    this.#bytes = Buffer.allocUnsafeSlow((places.length / 2) * filledBlocks);
    this.#at = this.#bytes.length;
  }

  draw(): string {
    if (this.#next === blockTexts) this.#makeBlock();
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
    const places = this.#places;
    const digits = bytes.toString('hex', this.#at, this.#at + places.length / 2);
    this.#at += places.length / 2;
    for (let index = 0; index < places.length; index += 1) {
      written[places[index] ?? 0] = digits.charCodeAt(index);
    }
    for (const place of this.#variantPlaces) {
      const code = written[place] ?? 0;
      // The lowest four bits of a digit's code are its value for `0` to `9`, and its value minus 9 for `a` to `f`.
      const value = code + 9 * (code >> 6);
      written[place] = variantDigits[value & 3] ?? 0;
    }
    this.#block = written.toString('latin1');
    this.#next = 0;
  }
}
