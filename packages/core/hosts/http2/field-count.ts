// Counts the fields of a head as it comes, in HPACK [RFC 7541, 6]. The platform's library drops malformed fields without a
// word; a head of which it hands on fewer than came is malformed [RFC 9113, 8.2.1]. Needs neither the table of fields nor
// their text: each representation says where it ends.

/** Reads an integer, the length of the name, or that of the value; or skips the bytes of a string. */
type Part = 'start' | 'index' | 'name-length' | 'value-length' | 'name' | 'value';

export class FieldCount {
  #part: Part = 'start';
  // The representation is one with a value of its own, and one with a name of its own.
  #hasValue = false;
  #hasName = false;
  // The integer is longer than its prefix; and what it adds up to so far.
  #goesOn = false;
  #value = 0;
  #scale = 1;
  #fields = 0;

  /** Fields that have begun. */
  get fields(): number {
    return this.#fields;
  }

  /** Another head begins. */
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
    } else if (this.#part === 'name-length') {
      this.#part = this.#value === 0 ? 'value-length' : 'name';
    } else {
      this.#part = this.#value === 0 ? 'start' : 'value';
    }
  }
}
