// What is known of the issuer's keys, for metrics: kept by whoever fetches them.

export interface KeyStatus {
  /** How many there are that can be used. */
  readonly keys: number;
  /** When they were last fetched, in milliseconds since 1970; undefined where they never were. */
  readonly fetchedAt: number | undefined;
}

export class KeyRecords {
  #status: KeyStatus | undefined;

  noteKeys(keys: number): void {
    this.#status = { fetchedAt: undefined, ...this.#status, keys };
  }

  /** They were fetched elsewhere, so many milliseconds ago. */
  noteInherited(ageMs: number): void {
    this.#status = { keys: 0, ...this.#status, fetchedAt: Date.now() - ageMs };
  }

  /** A fetch has ended, with keys or without. */
  noteFetch(hasKeys: boolean): void {
    const { keys = 0, fetchedAt } = this.#status ?? {};
    this.#status = { keys, fetchedAt: hasKeys ? Date.now() : fetchedAt };
  }

  /** Undefined as long as nobody has fetched any. */
  get status(): KeyStatus | undefined {
    return this.#status;
  }
}
