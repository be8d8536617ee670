// How many bytes of bodies the process holds at this moment, requests and answers together, and the limit:
// many large bodies at once must lead to a refusal, not to the death of the process.

export class BufferBudget {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  get isExhausted(): boolean {
    return this.#bytes >= this.#bytesMax;
  }

  /** Counts `bytes` in; false, and nothing counted, when they would not fit. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > this.#bytesMax) {
      return false;
    }
    this.#bytes += bytes;
    return true;
  }

  /** Counts `bytes` out that were taken before. */
  giveBack(bytes: number): void {
    this.#bytes -= bytes;
  }
}
