// Finds the addresses of the backend's host.

import dns from 'node:dns';
import { isIP } from 'node:net';

/**
 * Finds at least one IP address, for a dial of at most `timeoutMs`, by a lookup that began no earlier than `from`, on the
 * clock of `performance`.
 */
type FindAddresses = (timeoutMs?: number, from?: number) => Promise<readonly string[]> | readonly string[];

/** Looks up the addresses of a host name, in the order in which they should be tried. */
export type LookUp = (name: string) => Promise<readonly string[]>;

// A lookup that takes longer than this, or than half of the shortest dial that waits for it, may be lost. Then the same
// dials also wait for a new lookup.
const lookupMsMax = 5_000;

/** Returns a function that finds the addresses of `host`. Dials share a lookup, and no result is kept [D68]. */
export function createFindAddresses(host: string, lookUp: LookUp = askSystem): FindAddresses {
  if (isIP(host) !== 0) return () => [host];
  // RFC 6761, 6.3: whatever the hosts file contains [D30].
  if (withoutEndDot(host) === 'localhost') return () => ['127.0.0.1', '::1'];
  let current: SharedLookup | undefined;
  return (timeoutMs = Infinity, from = 0) => {
    if (current === undefined || current.hasEnded || current.startedAt < from) {
      current = new SharedLookup(() => lookUp(host));
    }
    return current.join(timeoutMs);
  };
}

// One lookup, and those that replace it while it takes too long. The first result counts. An error counts only of the
// last lookup.
class SharedLookup {
  readonly startedAt = performance.now();
  hasEnded = false;
  readonly #lookUp: () => Promise<readonly string[]>;
  readonly #result = Promise.withResolvers<readonly string[]>();
  #last: Promise<readonly string[]> | undefined;
  #lastAt = 0;
  #replaceMs = lookupMsMax;
  #wantedUntil = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(lookUp: () => Promise<readonly string[]>) {
    this.#lookUp = lookUp;
    this.#start();
  }

  join(timeoutMs: number): Promise<readonly string[]> {
    this.#wantedUntil = Math.max(this.#wantedUntil, performance.now() + timeoutMs);
    this.#replaceMs = Math.min(this.#replaceMs, timeoutMs / 2);
    this.#replaceIfLate();
    return this.#result.promise;
  }

  #start(): void {
    this.#lastAt = performance.now();
    const lookup = this.#lookUp();
    this.#last = lookup;
    lookup.then(
      (addresses) => this.#end(() => this.#result.resolve(addresses)),
      (error: unknown) => {
        if (lookup === this.#last) this.#end(() => this.#result.reject(error));
      },
    );
  }

  readonly #replaceIfLate = (): void => {
    clearTimeout(this.#timer);
    if (this.hasEnded) return;
    const now = performance.now();
    if (now - this.#lastAt >= this.#replaceMs) {
      if (now >= this.#wantedUntil) return;
      this.#start();
    }
    this.#timer = setTimeout(this.#replaceIfLate, this.#lastAt + this.#replaceMs - now).unref();
  };

  #end(settle: () => void): void {
    this.hasEnded = true;
    clearTimeout(this.#timer);
    settle();
  }
}

export function withoutEndDot(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1) : name;
}

// `ADDRCONFIG`: no address of a family that this machine does not use. Windows has its own rule.
const hints = process.platform === 'win32' ? 0 : dns.ADDRCONFIG;

function askSystem(name: string): Promise<readonly string[]> {
  return new Promise((resolve, reject) => {
    dns.lookup(name, { all: true, hints }, (error, found) => {
      if (error === null) resolve(alternate(found));
      else reject(error);
    });
  });
}

// Alternates between the families, beginning with that of the first address [RFC 8305, 4].
function alternate(found: readonly dns.LookupAddress[]): string[] {
  const of = (isFirst: boolean): string[] =>
    found.filter(({ family }) => (family === found[0]?.family) === isFirst).map(({ address }) => address);
  const [first, other] = [of(true), of(false)];
  const longest = Math.max(first.length, other.length);
  return Array.from({ length: longest }, (_, index) =>
    [first[index], other[index]].filter((each) => each !== undefined),
  ).flat();
}
