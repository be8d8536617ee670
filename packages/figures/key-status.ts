// The state of the issuer's keys, for metrics.

export interface KeyStatus {
  /** Number of usable keys. */
  readonly keys: number;
  /** Time of the last successful fetch, in milliseconds since 1970; undefined before the first. */
  readonly fetchedAt: number | undefined;
}

export class KeyRecords {
  #status: KeyStatus | undefined;

  noteKeys(keys: number): void {
    this.#status = { fetchedAt: undefined, ...this.#status, keys };
  }

  /** Notes that another process fetched the keys `ageMs` ago. */
  noteInherited(ageMs: number): void {
    this.#status = { keys: 0, ...this.#status, fetchedAt: Date.now() - ageMs };
  }

  /** Notes the end of a fetch. `hasKeys`: the fetch returned usable keys. */
  noteFetch(hasKeys: boolean): void {
    const { keys = 0, fetchedAt } = this.#status ?? {};
    this.#status = { keys, fetchedAt: hasKeys ? Date.now() : fetchedAt };
  }

  /** Undefined before the first note. */
  get status(): KeyStatus | undefined {
    return this.#status;
  }
}
