// Limits the bytes of all bodies in memory, so that many large bodies cause refusals and not a crash. Also counts the calls
// in flight of all gateways that share the budget [D65].

export class BufferBudget {
  bytesMax: number;
  calls = 0;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isExhausted(): boolean {
    return this.#bytes >= this.bytesMax;
  }

  /** Counts `bytes` and returns true. If the total would exceed the limit, counts nothing and returns false. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > this.bytesMax) return false;
    this.#bytes += bytes;
    return true;
  }

  /** Counts `bytes` that are already held, whatever the limit is. */
  add(bytes: number): void {
    this.#bytes += bytes;
  }

  giveBack(bytes: number): void {
    this.#bytes -= bytes;
  }
}
