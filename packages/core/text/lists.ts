// Lists in settings and headers.

/** Splits a comma-separated list. Trims the parts and drops empty ones. */
export function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}
