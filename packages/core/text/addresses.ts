// Helpers for URLs and host names.

/** Removes the slashes at the end of a path or URL. */
export function withoutEndSlashes(path: string): string {
  return path.replace(/\/+$/, '');
}

const thisMachine = /^(?:localhost|127\.[\d.]+|\[?::1\]?)$/;

/** True for `localhost` and loopback addresses. False under `.localhost`: DNS may resolve such names elsewhere. */
export function isThisMachine(host: string): boolean {
  return thisMachine.test(host);
}
