// Parses the addresses and ranges of proxies whose forwarded addresses are trusted [D46, D52].

import { BlockList, isIP, isIPv4 } from 'node:net';
import { normalizeAddress, type TrustedProxies } from '../admission/client-address.ts';
import { splitList } from '../text/lists.ts';
import { Problem } from './problem.ts';

type Range = [address: string, bits: number, family: 'ipv4' | 'ipv6'];

// An address, then optionally a slash and the length of a prefix.
const rangePattern = /^([^/]+?)(?:\/(\d{1,3}))?$/;

/** Parses a comma-separated list of addresses and CIDR ranges. `requirement` is the text of a problem. */
export function parseAddressRanges(text: string, requirement: string): readonly string[] | Problem {
  const ranges = splitList(text);
  return ranges.map((range) => readRange(range, requirement)).find((range) => range instanceof Problem) ?? ranges;
}

/** Returns the set of proxies in `ranges`; undefined for an empty list. Throws a `TypeError` for an invalid range. */
export function createTrustedProxies(ranges: readonly string[]): TrustedProxies | undefined {
  if (ranges.length === 0) return undefined;
  const list = new BlockList();
  for (const each of ranges) {
    const range = readRange(each);
    if (range instanceof Problem) throw new TypeError(`${JSON.stringify(each)} ${range.text}`);
    list.addSubnet(...range);
  }
  return { has: (address) => list.check(address, isIPv4(address) ? 'ipv4' : 'ipv6') };
}

function readRange(text: string, requirement = 'must be an IP address or a CIDR range'): Range | Problem {
  const [, address = '', bits] = rangePattern.exec(text) ?? [];
  const version = address.includes('%') ? 0 : isIP(address);
  const bitsMax = version === 4 ? 32 : 128;
  const range: Range = [address, Number(bits ?? bitsMax), version === 4 ? 'ipv4' : 'ipv6'];
  if (version === 0 || range[1] > bitsMax) return new Problem(requirement);
  const instead = replacementFor(range);
  return instead === undefined
    ? range
    : new Problem(`must not have ${text}, because this range contains all IPv4 addresses: write ${instead}`);
}

// `BlockList` finds an IPv4 address in an IPv6 range that contains its mapped form. So a short prefix contains all IPv4
// addresses. This is intended only in `0.0.0.0/0` and its mapped form. For other ranges, returns what to write instead.
function replacementFor(range: Range): string | undefined {
  const list = new BlockList();
  list.addSubnet(...range);
  const [address, bits, family] = range;
  const plain = normalizeAddress(address);
  const isIntended = plain === '0.0.0.0' && bits === (family === 'ipv4' ? 0 : 96);
  if (isIntended || !list.check('0.0.0.0') || !list.check('255.255.255.255')) return undefined;
  if (!isIPv4(plain)) return `${plain === '::' ? '2000::/3' : plain} for IPv6, and 0.0.0.0/0 for all IPv4 addresses`;
  // The prefix length of a mapped address was probably meant for IPv4.
  return bits > 0 && bits <= 32 ? `${plain}/${bits}` : `${plain}, or 0.0.0.0/0 for all IPv4 addresses`;
}
