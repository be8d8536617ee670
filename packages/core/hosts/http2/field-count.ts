// Counts the fields of a received HPACK head [RFC 7541, 6]. Node's HTTP/2 drops malformed fields silently [RFC 9113,
// 8.2.1]. So a head is malformed if Node reports fewer fields than this file counts.

/** The part of a field representation to which the next byte belongs. `index`: the rest of the first integer. */
type Part = 'start' | 'index' | 'name-length' | 'value-length' | 'name' | 'value';

export class FieldCount {
  #part: Part = 'start';
  // `#hasValue`: the current representation contains the text of a value. `#hasName`: it contains the text of a name.
  #hasValue = false;
  #hasName = false;
  // `#goesOn`: the next byte continues the current integer. `#value`: that integer so far. `#scale`: the factor for the
  // next byte [RFC 7541, 5.1].
  #goesOn = false;
  #value = 0;
  #scale = 1;
  #fields = 0;

  get fields(): number {
    return this.#fields;
  }

  reset(): void {
    this.#part = 'start';
    this.#goesOn = false;
    this.#fields = 0;
  }

  take(bytes: Uint8Array, from: number, end: number): void {
    let at = from;
    while (at < end) {
      if (this.#part === 'name' || this.#part === 'value') {
        const step = Math.min(this.#value, end - at);
        this.#value -= step;
        at += step;
        if (this.#value === 0) {
          this.#part = this.#part === 'name' ? 'value-length' : 'start';
        }
        continue;
      }
      this.#takeByte(bytes[at] ?? 0);
      at += 1;
    }
  }

  #takeByte(byte: number): void {
    if (this.#goesOn) {
      this.#value += (byte & 0x7f) * this.#scale;
      this.#scale *= 128;
      this.#goesOn = byte >= 0x80;
    } else if (this.#part === 'start') {
      this.#begin(byte);
    } else {
      this.#takePrefix(byte, 0x7f);
    }
    if (!this.#goesOn) {
      this.#endInteger();
    }
  }

  #begin(byte: number): void {
    this.#part = 'index';
    const isIndexed = byte >= 0x80;
    const isTableSize = (byte & 0xe0) === 0x20;
    const mask = isIndexed ? 0x7f : byte >= 0x40 ? 0x3f : isTableSize ? 0x1f : 0x0f;
    this.#hasValue = !isIndexed && !isTableSize;
    this.#hasName = this.#hasValue && (byte & mask) === 0;
    this.#fields += isTableSize ? 0 : 1;
    this.#takePrefix(byte, mask);
  }

  #takePrefix(byte: number, mask: number): void {
    this.#value = byte & mask;
    this.#scale = 1;
    this.#goesOn = this.#value === mask;
  }

  #endInteger(): void {
    if (this.#part === 'index') {
      this.#part = this.#hasName ? 'name-length' : this.#hasValue ? 'value-length' : 'start';
    } else {
      this.#part = this.#part === 'name-length' ? 'name' : 'value';
    }
  }
}
