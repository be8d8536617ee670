// How much each of many keys has had in its window: a fixed window, which begins with a key's first request and ends so
// much later. Bounded: where there are too many keys the oldest window is forgotten early. No timers, no clock of its own.

interface Window {
  readonly key: string;
  /** In milliseconds, on the clock of whoever asks. */
  readonly endsAt: number;
  count: number;
  /** The one that was opened after it. */
  next: Window | undefined;
}

// For each window that is opened as many are looked at whether they have ended: so there are never more than twice as
// many as are wanted, and no request pays for the end of many at once.
const lookedAtMax = 2;

export class WindowTable {
  readonly #keysMax: number;
  readonly #windows = new Map<string, Window>();
  // All that are open, and some that have ended, in the order in which they were opened.
  #oldest: Window | undefined;
  #newest: Window | undefined;

  /** Of at most `keysMax` keys. */
  constructor(keysMax: number) {
    this.#keysMax = keysMax;
  }

  /** How many keys it holds. */
  get size(): number {
    return this.#windows.size;
  }

  /** The window of `key` that is open at `now`. */
  find(key: string, now: number): Window | undefined {
    const window = this.#windows.get(key);
    return window !== undefined && now < window.endsAt ? window : undefined;
  }

  /** Opens a window for `key`, in place of any that it has. */
  open(key: string, endsAt: number, now: number): Window {
    this.#makeRoom(now);
    const window: Window = { key, endsAt, count: 0, next: undefined };
    this.#windows.set(key, window);
    if (this.#newest === undefined) {
      this.#oldest = window;
    } else {
      this.#newest.next = window;
    }
    this.#newest = window;
    return window;
  }

  #makeRoom(now: number): void {
    for (let lookedAt = 0; lookedAt < lookedAtMax || this.size >= this.#keysMax; lookedAt += 1) {
      const oldest = this.#oldest;
      if (oldest === undefined || (now < oldest.endsAt && this.size < this.#keysMax)) {
        return;
      }
      this.#oldest = oldest.next;
      if (this.#oldest === undefined) {
        this.#newest = undefined;
      }
      // Its key may have a younger one.
      if (this.#windows.get(oldest.key) === oldest) {
        this.#windows.delete(oldest.key);
      }
    }
  }
}
