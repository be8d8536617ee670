// Checks the host name of a request, as a protection from DNS rebinding [D57]. In such an attack, another site's host
// name resolves to the gateway's machine. But the requests of that site's pages have that name in `Host`, so they are
// detected. IP addresses, `localhost` and names under `.localhost` are always allowed. A missing name is allowed too,
// because a load balancer's health check may send none. Attackers cannot use this: browsers always send a name.

import { isIPv4, isIPv6 } from 'node:net';
import { splitList } from '../text/lists.ts';

// A name, or an IPv6 address in brackets; then optionally a colon and a port, which may be empty (RFC 3986, 3.2.3).
const hostPattern = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::\d*)?$/;
const namePattern = /^[\w-]+(?:\.[\w-]+)*$/;

/** Returns a name in the form that `isAllowedHost` compares: in lower case, without a trailing dot. */
export function normalizeHostName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

/** Parses a comma-separated list of names for `isAllowedHost`; undefined if a name is invalid or has a port. */
export function parseHostNames(text: string): readonly string[] | undefined {
  const names = splitList(text).map(normalizeHostName);
  return names.every((name) => namePattern.test(name)) ? names : undefined;
}

/**
 * True if `host`, the value of a `Host` field, is missing, empty, an IP address, `localhost`, a name under
 * `.localhost`, or one of `allowed`. The names in `allowed` must come from `normalizeHostName`. The port is ignored.
 */
export function isAllowedHost(host: string | undefined, allowed: readonly string[]): boolean {
  if (host === undefined || host === '') return true;
  const [, address, text] = hostPattern.exec(host) ?? [];
  if (address !== undefined) return isIPv6(address);
  const name = normalizeHostName(text ?? '');
  return (
    isIPv4(name) ||
    (namePattern.test(name) && (name === 'localhost' || name.endsWith('.localhost') || allowed.includes(name)))
  );
}
