// Is this JSON? A pure question about bytes [D13]. Nothing is built, kept or changed: what is passed on is
// always the original bytes.

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Checks one text that arrives in pieces. `write` takes the next piece and gives false as soon as no
 * continuation could make the text valid; `end` says whether all pieces together are one JSON text.
 */
export interface JsonChecker {
  write(piece: Uint8Array): boolean;
  end(): boolean;
}

/** True when `bytes` is one RFC 8259 text in strict UTF-8, one leading byte-order mark allowed [D13]. */
export function isJson(bytes: Uint8Array): boolean {
  try {
    JSON.parse(strictUtf8.decode(bytes));
    return true;
  } catch {
    return false;
  }
}

/** A checker for one text in pieces; independent of every other. */
export function createJsonChecker(): JsonChecker {
  const pieces: Uint8Array[] = [];
  return {
    write(piece) {
      pieces.push(piece);
      return true;
    },
    end: () => isJson(Buffer.concat(pieces)),
  };
}
