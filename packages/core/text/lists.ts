// Lists as settings and headers have them.

/** The parts of a comma list, without the spaces around each; empty parts are left out. */
export function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}
