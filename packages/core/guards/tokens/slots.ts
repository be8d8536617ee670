// Runs a few things at a time; others wait, in order and up to a bound.

export class Slots {
  #free: number;
  readonly #waitingMax: number;
  readonly #waiting: (() => void)[] = [];

  /** `count` run at a time, and `waitingMax` wait. */
  constructor(count: number, waitingMax: number) {
    this.#free = count;
    this.#waitingMax = waitingMax;
  }

  /** Whether one more would be refused. */
  get isFull(): boolean {
    return this.#free === 0 && this.#waiting.length >= this.#waitingMax;
  }

  /** Runs `act` when it is its turn. The caller looks at `isFull` before. */
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
