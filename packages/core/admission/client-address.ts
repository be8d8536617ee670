// Finds a client's address. It is the connection's address, or the address that trusted proxies report in `x-forwarded-for`
// [D46, D52].

import { isIPv4, isIPv6, SocketAddress } from 'node:net';

/** The proxies whose `x-forwarded-for` is trusted. Created from options. */
export interface TrustedProxies {
  has(address: string): boolean;
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
