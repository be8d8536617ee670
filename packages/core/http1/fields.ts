// The header fields that the gateway reads, and their lookup by the bytes of a name. All other fields are checked
// against the grammar and dropped without creating a string.

export const fieldNames = [
  'host',
  'origin',
  'expect',
  'upgrade',
  'if-match',
  'connection',
  'keep-alive',
  'tracestate',
  'user-agent',
  'content-range',
  'if-none-match',
  'traceparent',
  'x-request-id',
  'authorization',
  'content-length',
  'idempotency-key',
  'sec-fetch-site',
  'x-forwarded-for',
  'x-forwarded-host',
  'transfer-encoding',
  'if-unmodified-since',
  'access-control-request-method',
  'access-control-request-headers',
] as const;

export type FieldName = (typeof fieldNames)[number];

export const nameBytesMax = Math.max(...fieldNames.map((name) => name.length));
// Grouped by length of the name. Most of the other fields have a length with no group, so one lookup rejects them.
const byLength = Array.from({ length: nameBytesMax + 1 }, (_, length) =>
  fieldNames.filter((name) => name.length === length).map((name) => ({ name, bytes: Buffer.from(name, 'latin1') })),
);
const none: (typeof byLength)[number] = [];

/** Returns the field whose name is in `bytes` from `start` to `end`, ignoring case; undefined for all other fields. */
export function fieldNameAt(bytes: Uint8Array, start: number, end: number): FieldName | undefined {
  for (const candidate of byLength[end - start] ?? none) {
    if (isNameAt(bytes, start, candidate.bytes)) return candidate.name;
  }
  return undefined;
}

// A lower-case letter and its capital differ only in this bit. With the bit set, a byte of a token equals `a` only if
// the byte was `a` or `A` (and so for each letter), and equals `-` only if the byte was `-`.
const caseBit = 0x20;

function isNameAt(bytes: Uint8Array, start: number, name: Uint8Array): boolean {
  for (let index = 0; index < name.length; index += 1) {
    if (((bytes[start + index] ?? 0) | caseBit) !== name[index]) return false;
  }
  return true;
}
