// Helpers for URLs and host names.

export function withoutEndSlashes(path: string): string {
  return path.replace(/\/+$/, '');
}
