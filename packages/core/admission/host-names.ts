// Under which names a listener is called [D57]. Addresses and this machine's own names are always right: a page
// elsewhere that makes a name of its own point here (DNS rebinding) cannot put them into `Host`. So is no name at all:
// every browser sends one, and a load balancer's plain health check does not. Knows neither settings nor HTTP's framing.

import { isIPv4, isIPv6 } from 'node:net';
import { splitList } from '../text/lists.ts';

// A name, or an IPv6 address in brackets; then a port, which may be empty (RFC 3986, 3.2.3).
const hostPattern = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::\d*)?$/;
const namePattern = /^[\w-]+(?:\.[\w-]+)*$/;

/** A name as `isAllowedHost` compares it: in small letters, without the dot that may end it. */
export function normalizeHostName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

/** The names of a comma list, as `isAllowedHost` takes them; undefined when one is no name, or has a port. */
export function parseHostNames(text: string): readonly string[] | undefined {
  const names = splitList(text).map(normalizeHostName);
  return names.every((name) => namePattern.test(name)) ? names : undefined;
}

/**
 * Whether `host`, the value of a `Host` header, is missing or empty, an IP address, `localhost`, a name under `.localhost`, or one of
 * `allowed` (each from `normalizeHostName`). Its port does not matter.
 */
export function isAllowedHost(host: string | undefined, allowed: readonly string[]): boolean {
  if (host === undefined || host === '') {
    return true;
  }
  const [, address, text] = hostPattern.exec(host) ?? [];
  if (address !== undefined) {
    return isIPv6(address);
  }
  const name = normalizeHostName(text ?? '');
  return (
    isIPv4(name) ||
    (namePattern.test(name) &&
      (name === 'localhost' || name.endsWith('.localhost') || allowed.includes(name)))
  );
}
