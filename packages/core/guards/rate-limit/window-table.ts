// Counts in fixed windows, one per key. A window begins with the key's first request. With too many keys, the oldest
// window is dropped early. Callers pass the current time.

interface Window {
  readonly key: string;
  /** In milliseconds, on the caller's clock. */
  readonly endsAt: number;
  count: number;
  next: Window | undefined;
}

// Each new window removes up to this many of the oldest windows, if they have ended. So ended windows do not
// accumulate, and no request has to remove many.
const lookedAtMax = 2;

export class WindowTable {
  readonly #keysMax: number;
  readonly #windows = new Map<string, Window>();
  // A linked list of all open windows and some that have ended, in order of opening.
  #oldest: Window | undefined;
  #newest: Window | undefined;

  constructor(keysMax: number) {
    this.#keysMax = keysMax;
  }

  get size(): number {
    return this.#windows.size;
  }

  /** Returns the window of `key` that is open at `now`; undefined if there is none. */
  find(key: string, now: number): Window | undefined {
    const window = this.#windows.get(key);
    return window !== undefined && now < window.endsAt ? window : undefined;
  }

  /** Opens a window for `key` and replaces its previous one. */
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
      if (oldest === undefined || (now < oldest.endsAt && this.size < this.#keysMax)) return;
      this.#oldest = oldest.next;
      if (this.#oldest === undefined) this.#newest = undefined;
      // The key may have a newer window.
      if (this.#windows.get(oldest.key) === oldest) this.#windows.delete(oldest.key);
    }
  }
}
