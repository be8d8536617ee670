// Addresses as text.

/** `path`, or a whole address, without the slashes at its end. */
export function withoutEndSlashes(path: string): string {
  return path.replace(/\/+$/, '');
}

const thisMachine = /^(?:localhost|.*\.localhost|127(?:\.\d+){3}|\[?::1\]?)$/;

/** Whether a host name, or an IP address, leads to the machine itself. */
export function isThisMachine(host: string): boolean {
  return thisMachine.test(host);
}
