// Finds the addresses of the backend's host.

import dns from 'node:dns';
import { isIP } from 'node:net';

/** Resolves with at least one IP address. */
export type FindAddresses = () => Promise<readonly string[]> | readonly string[];

/** Looks up the addresses of a host name, in the order in which they should be tried. */
export type LookUp = (name: string) => Promise<readonly string[]>;

// No new attempt waits for a lookup that is older than this.
const lookupMsMax = 5_000;

/** Returns a function that finds the addresses of `host`. It makes one lookup at a time, and keeps no result [D68]. */
export function createFindAddresses(host: string, lookUp: LookUp = askSystem): FindAddresses {
  if (isIP(host) !== 0) return () => [host];
  // RFC 6761, 6.3: whatever the hosts file contains [D30].
  if (withoutEndDot(host) === 'localhost') return () => ['127.0.0.1', '::1'];
  let current: { readonly addresses: Promise<readonly string[]>; readonly startedAt: number } | undefined;
  return () => {
    if (current !== undefined && performance.now() - current.startedAt < lookupMsMax) return current.addresses;
    const lookup = {
      addresses: lookUp(host).finally(() => {
        if (current === lookup) current = undefined;
      }),
      startedAt: performance.now(),
    };
    current = lookup;
    return lookup.addresses;
  };
}

/** Returns a host name without the dot that marks a complete name. */
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
