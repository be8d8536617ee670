// Finds a client's address. It is the connection's address, or the address that trusted proxies report in `x-forwarded-for`
// [D46, D52].

import { BlockList, isIP, isIPv4, isIPv6, SocketAddress } from 'node:net';
import { splitList } from '../text/lists.ts';

/** The proxies whose `x-forwarded-for` is trusted. Created by `createTrustedProxies`. */
export interface TrustedProxies {
  has(address: string): boolean;
}

// An address, then optionally a slash and the length of a prefix.
const rangePattern = /^([^/]+?)(?:\/(\d{1,3}))?$/;

/** True if `range` is an IP address or a range in CIDR notation. */
export function isAddressRange(range: unknown): boolean {
  return typeof range === 'string' && readRange(range) !== undefined;
}

/** Parses a comma-separated list of addresses and CIDR ranges; undefined if an entry is invalid. */
export function parseAddressRanges(text: string): readonly string[] | undefined {
  const ranges = splitList(text);
  return ranges.every(isAddressRange) ? ranges : undefined;
}

function readRange(range: string): [address: string, bits: number, family: 'ipv4' | 'ipv6'] | undefined {
  const [, address = '', bits] = rangePattern.exec(range) ?? [];
  const version = address.includes('%') ? 0 : isIP(address);
  const bitsMax = version === 4 ? 32 : 128;
  if (version === 0 || Number(bits ?? bitsMax) > bitsMax) return undefined;
  return [address, Number(bits ?? bitsMax), version === 4 ? 'ipv4' : 'ipv6'];
}

/** Returns the set of proxies in `ranges`; undefined for an empty list. Throws a `TypeError` for an invalid range. */
export function createTrustedProxies(ranges: readonly string[]): TrustedProxies | undefined {
  if (ranges.length === 0) return undefined;
  const list = new BlockList();
  for (const each of ranges) {
    const range = readRange(each);
    if (range === undefined) throw new TypeError(`${JSON.stringify(each)} is neither an IP address nor a CIDR range`);
    list.addSubnet(...range);
  }
  return { has: (address) => list.check(address, isIPv4(address) ? 'ipv4' : 'ipv6') };
}

/** Returns `address` in canonical form, without a zone. An IPv4 address that is mapped into IPv6 becomes plain IPv4. */
export function normalizeAddress(address: string): string {
  if (isIPv4(address)) return address;
  const withoutZone = address.replace(/%.*/s, '');
  const canonical = isIPv6(withoutZone)
    ? new SocketAddress({ address: withoutZone, family: 'ipv6' }).address
    : withoutZone;
  const mapped = canonical.startsWith(mappedPrefix) ? canonical.slice(mappedPrefix.length) : '';
  return isIPv4(mapped) ? mapped : canonical;
}

const mappedPrefix = '::ffff:';

/**
 * Returns the client's address. `peer` is the connection's address, from `normalizeAddress`. `forwardedFor` has the
 * values of `x-forwarded-for`, in order. Each proxy appends the address from which it received the request. So the
 * search starts at `peer` and goes through the list from right to left. The result is the first address that is not a
 * trusted proxy's. If a malformed entry or the end of the list comes before that, the result is the last address
 * found.
 */
export function clientAddress(
  peer: string,
  forwardedFor: readonly string[],
  trusted: TrustedProxies | undefined,
): string {
  let address = peer;
  if (trusted === undefined) return address;
  const text = forwardedFor.join(',');
  let end = text.length;
  while (end > 0 && trusted.has(address)) {
    const start = text.lastIndexOf(',', end - 1);
    const hop = readHop(text.slice(start + 1, end));
    if (hop === undefined) break;
    address = hop;
    end = start;
  }
  return address;
}

// An address as proxies write it: plain, with a port, or in brackets with or without a port.
const hopPattern = /^[ \t]*(?:\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([\d.]+)(?::\d{1,5})?|([0-9A-Fa-f:.]+))[ \t]*$/;

function readHop(text: string): string | undefined {
  const [, inBrackets, beforePort, plain] = hopPattern.exec(text) ?? [];
  if (beforePort !== undefined) return isIPv4(beforePort) ? beforePort : undefined;
  const address = inBrackets ?? plain;
  return address !== undefined && isIPv6(address) ? normalizeAddress(address) : undefined;
}
