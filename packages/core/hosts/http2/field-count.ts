// Counts the fields of a received HPACK head [RFC 7541, 6]. Node's HTTP/2 drops malformed fields silently [RFC 9113,
// 8.2.1]. So a head is malformed if Node reports fewer fields than this file counts.

/**
 * The part of a field to which the next byte belongs. A field is an index, followed by up to two texts. Each text follows
 * its length. `integer`: a further byte of an index or a length.
 */
type Part = 'index' | 'length' | 'integer' | 'text';

export class FieldCount {
  #part: Part = 'index';
  // The number of texts in the current field that are still incomplete.
  #texts = 0;
  // `#value`: the current integer so far; in a text, the number of bytes left. `#scale`: the factor for the next byte of
  // the integer [RFC 7541, 5.1]. `#isLength`: the integer is the length of a text.
  #value = 0;
  #scale = 1;
  #isLength = false;
  #fields = 0;

  get fields(): number {
    return this.#fields;
  }

  reset(): void {
    this.#part = 'index';
    this.#fields = 0;
  }

  take(bytes: Uint8Array, from: number, end: number): void {
    let at = from;
    while (at < end) {
      if (this.#part === 'text') {
        const step = Math.min(this.#value, end - at);
        this.#value -= step;
        at += step;
      } else {
        this.#takeByte(bytes[at] ?? 0);
        at += 1;
      }
      if (this.#part === 'text' && this.#value === 0) {
        this.#texts -= 1;
        this.#part = this.#texts > 0 ? 'length' : 'index';
      }
    }
  }

  #takeByte(byte: number): void {
    let goesOn: boolean;
    if (this.#part === 'integer') {
      this.#value += (byte & 0x7f) * this.#scale;
      this.#scale *= 128;
      goesOn = byte >= 0x80;
    } else {
      this.#isLength = this.#part === 'length';
      const mask = this.#isLength ? 0x7f : this.#begin(byte);
      this.#value = byte & mask;
      this.#scale = 1;
      goesOn = this.#value === mask;
    }
    if (goesOn) {
      this.#part = 'integer';
    } else if (this.#isLength) {
      this.#part = 'text';
    } else {
      this.#part = this.#texts > 0 ? 'length' : 'index';
    }
  }

  /** Begins a field with its first byte. Returns the bits of `byte` that belong to the index. */
  #begin(byte: number): number {
    const isIndexed = byte >= 0x80;
    const isTableSize = (byte & 0xe0) === 0x20;
    const mask = isIndexed ? 0x7f : byte >= 0x40 ? 0x3f : isTableSize ? 0x1f : 0x0f;
    this.#fields += isTableSize ? 0 : 1;
    if (isIndexed || isTableSize) {
      this.#texts = 0;
    } else {
      this.#texts = (byte & mask) === 0 ? 2 : 1;
    }
    return mask;
  }
}
