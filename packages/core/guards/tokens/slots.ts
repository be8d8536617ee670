// Limits concurrency: runs a few tasks at a time, and queues others in order, up to a limit.

export class Slots {
  #free: number;
  readonly #waitingMax: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number, waitingMax: number) {
    this.#free = count;
    this.#waitingMax = waitingMax;
  }

  /** True if neither a slot nor a place in the queue is free. */
  get isFull(): boolean {
    return this.#free === 0 && this.#waiting.length >= this.#waitingMax;
  }

  /** Runs `act` as soon as a slot is free, in order of the calls. The caller must check `isFull` first. */
  async run<T>(act: () => Promise<T>): Promise<T> {
    if (this.#free > 0) {
      this.#free -= 1;
    } else {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await act();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) {
        this.#free += 1;
      } else {
        next();
      }
    }
  }
}
