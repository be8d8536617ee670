// Percent-encoding [RFC 3986, 2.1].

/** Decodes `text`; undefined if an escape is malformed or not UTF-8. */
export function decodePercent(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
