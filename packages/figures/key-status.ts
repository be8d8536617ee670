// What is known of the issuer's keys, for metrics: kept by whoever fetches them.

export interface KeyStatus {
  /** How many there are that can be used. */
  readonly keys: number;
  /** When they were last fetched, in milliseconds since 1970; undefined where they never were. */
  readonly fetchedAt: number | undefined;
  /** Why the last fetch brought none; undefined where it did. */
  readonly cause: string | undefined;
}

export class KeyRecords {
  #status: KeyStatus | undefined;

  noteKeys(keys: number): void {
    this.#status = { fetchedAt: undefined, cause: undefined, ...this.#status, keys };
  }

  /** They were fetched elsewhere, so many milliseconds ago. */
  noteInherited(ageMs: number): void {
    this.#status = { keys: 0, cause: undefined, ...this.#status, fetchedAt: Date.now() - ageMs };
  }

  noteFetch(cause: string | undefined): void {
    const { keys = 0, fetchedAt } = this.#status ?? {};
    this.#status = { keys, fetchedAt: cause === undefined ? Date.now() : fetchedAt, cause };
  }

  /** Undefined as long as nobody has fetched any. */
  get status(): KeyStatus | undefined {
    return this.#status;
  }
}
