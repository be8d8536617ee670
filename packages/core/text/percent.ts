// Percent-encoding [RFC 3986, 2.1].

/** What `text` encodes; undefined where an escape is malformed, or is no UTF-8. */
export function decodePercent(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
