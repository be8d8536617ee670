// The ledger of the memory that clients and the backend make the process hold [D69]. One ledger serves the whole process, so
// that its limit causes refusals and not a crash. Memory counts as allocated, until it can be used again.

export class BufferBudget {
  /** The limit, in bytes. A lower limit takes nothing back: nothing more is counted until enough has been given back. */
  bytesMax: number;
  /** The calls in flight of all gateways that share the ledger [D65]. */
  calls = 0;
  #bytes = 0;
  #connectionBytes = 0;

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

  /**
   * Like `take`, for memory that connections hold outside of calls, and without a token. All connections together hold at
   * most half of the limit, so that calls find room. A negative number of bytes is given back.
   */
  hold(bytes: number): boolean {
    if (bytes > 0 && (this.#connectionBytes + bytes > this.bytesMax / 2 || !this.take(bytes))) return false;
    if (bytes < 0) this.giveBack(-bytes);
    this.#connectionBytes += bytes;
    return true;
  }
}
