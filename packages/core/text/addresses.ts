// Addresses as text.

/** `path`, or a whole address, without the slashes at its end. */
export function withoutEndSlashes(path: string): string {
  return path.replace(/\/+$/, '');
}

const thisMachine = /^(?:localhost|127\.[\d.]+|\[?::1\]?)$/;

/**
 * Whether a host name, or an IP address, is that of the machine itself. Names under `.localhost` are not: a name server may
 * lead them elsewhere.
 */
export function isThisMachine(host: string): boolean {
  return thisMachine.test(host);
}
