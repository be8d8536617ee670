// Counts the fields of a received HPACK head [RFC 7541, 6]. Node's HTTP/2 drops malformed fields silently [RFC 9113,
// 8.2.1]. So a head is malformed if Node reports fewer fields than this file counts.

/** Reads a field as an index, followed by up to two texts. Each text follows its length. */
export class FieldCount {
  fields = 0;
  // The number of texts in the current field whose length is unread.
  #texts = 0;
  // `#length`: the unread bytes of the current text. `#scale`: the factor for the next byte of an incomplete integer
  // [RFC 7541, 5.1]; 0 if no integer is incomplete. `#isLength`: the integer is the length of a text.
  #length = 0;
  #scale = 0;
  #isLength = false;

  reset(): void {
    this.fields = this.#texts = this.#length = this.#scale = 0;
  }

  take(bytes: Uint8Array, from: number, end: number): void {
    let at = from;
    while (at < end) {
      if (this.#scale === 0 && this.#length > 0) {
        const step = Math.min(this.#length, end - at);
        this.#length -= step;
        at += step;
      } else {
        this.#takeByte(bytes[at] ?? 0);
        at += 1;
      }
    }
  }

  #takeByte(byte: number): void {
    if (this.#scale > 0) {
      if (this.#isLength) this.#length += (byte & 0x7f) * this.#scale;
      this.#scale = byte >= 0x80 ? this.#scale * 128 : 0;
      return;
    }
    this.#isLength = this.#texts > 0;
    const mask = this.#isLength ? 0x7f : this.#begin(byte);
    this.#scale = (byte & mask) === mask ? 1 : 0;
    if (this.#isLength) {
      this.#texts -= 1;
      this.#length = byte & mask;
    }
  }

  /** Begins a field with its first byte. Returns the bits of `byte` that belong to the index. */
  #begin(byte: number): number {
    const isIndexed = byte >= 0x80;
    const isTableSize = (byte & 0xe0) === 0x20;
    const mask = isIndexed ? 0x7f : byte >= 0x40 ? 0x3f : isTableSize ? 0x1f : 0x0f;
    this.fields += isTableSize ? 0 : 1;
    this.#texts = isIndexed || isTableSize ? 0 : (byte & mask) === 0 ? 2 : 1;
    return mask;
  }
}
