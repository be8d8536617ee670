// Who a client is, by address: that of its connection, or what trusted proxies say of it in `x-forwarded-for`
// [D46, D52]. Knows neither settings nor requests.

import { BlockList, isIP, isIPv4, isIPv6, SocketAddress } from 'node:net';
import { splitList } from '../text/lists.ts';

/** The proxies whose word is taken; from `createTrustedProxies`. */
export interface TrustedProxies {
  has(address: string): boolean;
}

// An address, and how many of its bits count.
const rangePattern = /^([^/]+?)(?:\/(\d{1,3}))?$/;

/** Whether `range` is an IP address or a range of them (CIDR). */
export function isAddressRange(range: unknown): boolean {
  return typeof range === 'string' && readRange(range) !== undefined;
}

/** The ranges (CIDR) and addresses of a comma list; undefined when one is neither. */
export function parseAddressRanges(text: string): readonly string[] | undefined {
  const ranges = splitList(text);
  return ranges.every(isAddressRange) ? ranges : undefined;
}

interface Range {
  readonly address: string;
  readonly bits: number;
  readonly family: 'ipv4' | 'ipv6';
}

function readRange(range: string): Range | undefined {
  const [, address = '', bits] = rangePattern.exec(range) ?? [];
  const version = address.includes('%') ? 0 : isIP(address);
  const bitsMax = version === 4 ? 32 : 128;
  if (version === 0 || Number(bits ?? bitsMax) > bitsMax) {
    return undefined;
  }
  return { address, bits: Number(bits ?? bitsMax), family: version === 4 ? 'ipv4' : 'ipv6' };
}

/** Of ranges from `parseAddressRanges`; undefined for none. Throws a `TypeError` for what is no range. */
export function createTrustedProxies(ranges: readonly string[]): TrustedProxies | undefined {
  if (ranges.length === 0) {
    return undefined;
  }
  const list = new BlockList();
  for (const each of ranges) {
    const range = readRange(each);
    if (range === undefined) {
      throw new TypeError(`${JSON.stringify(each)} is neither an IP address nor a range of them`);
    }
    list.addSubnet(range.address, range.bits, range.family);
  }
  return { has: (address) => list.check(address, isIPv4(address) ? 'ipv4' : 'ipv6') };
}

/** One spelling for each address: an IPv4 address in IPv6 is that IPv4 address, and none has a zone. */
export function normalizeAddress(address: string): string {
  if (isIPv4(address)) {
    return address;
  }
  const withoutZone = address.replace(/%.*/s, '');
  const canonical = isIPv6(withoutZone)
    ? new SocketAddress({ address: withoutZone, family: 'ipv6' }).address
    : withoutZone;
  const mapped = canonical.startsWith(mappedPrefix) ? canonical.slice(mappedPrefix.length) : '';
  return isIPv4(mapped) ? mapped : canonical;
}

const mappedPrefix = '::ffff:';

/**
 * The client's address: `peer` is that of the connection, from `normalizeAddress`, and `forwardedFor` the values of
 * its `x-forwarded-for` headers, in order. These are read from the right, since each proxy adds to the end who called
 * it, as long as whoever says so is trusted; what is no address ends it at the last one that was.
 */
export function clientAddress(
  peer: string,
  forwardedFor: readonly string[],
  trusted: TrustedProxies | undefined,
): string {
  let address = peer;
  if (trusted === undefined) {
    return address;
  }
  const text = forwardedFor.join(',');
  let end = text.length;
  while (end > 0 && trusted.has(address)) {
    const start = text.lastIndexOf(',', end - 1);
    const hop = readHop(text.slice(start + 1, end));
    if (hop === undefined) {
      break;
    }
    address = hop;
    end = start;
  }
  return address;
}

// An address as proxies write it: plain, with a port behind it, or in brackets, with or without one.
const hopPattern =
  /^[ \t]*(?:\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([\d.]+)(?::\d{1,5})?|([0-9A-Fa-f:.]+))[ \t]*$/;

function readHop(text: string): string | undefined {
  const [, inBrackets, beforePort, plain] = hopPattern.exec(text) ?? [];
  if (beforePort !== undefined) {
    return isIPv4(beforePort) ? beforePort : undefined;
  }
  const address = inBrackets ?? plain;
  return address !== undefined && isIPv6(address) ? normalizeAddress(address) : undefined;
}
