// Helpers for URLs and host names.

export function withoutEndSlashes(path: string): string {
  return path.replace(/\/+$/, '');
}

const thisMachine = /^(?:localhost|127\.[\d.]+|\[?::1\]?)$/;

/** True for `localhost` and loopback addresses; false for names under `.localhost`, which DNS may resolve elsewhere. */
export function isThisMachine(host: string): boolean {
  return thisMachine.test(host);
}
