// Which fields of a head are looked at, and how each is known by the bytes of its name. All others are checked by the
// grammar and dropped unread: they cost no string.

/** The fields that anything here reads; names in small letters. */
export const fieldNames = [
  'host',
  'origin',
  'expect',
  'upgrade',
  'connection',
  'keep-alive',
  'tracestate',
  'user-agent',
  'traceparent',
  'x-request-id',
  'authorization',
  'content-length',
  'sec-fetch-site',
  'x-forwarded-for',
  'transfer-encoding',
  'access-control-request-method',
] as const;

export type FieldName = (typeof fieldNames)[number];

interface NamedBytes {
  readonly name: FieldName;
  readonly bytes: Uint8Array;
}

const none: readonly NamedBytes[] = [];
const lengthMax = Math.max(...fieldNames.map((name) => name.length));
// By length: most fields of a request are none of these and cost one look.
const byLength: readonly (readonly NamedBytes[])[] = Array.from({ length: lengthMax + 1 }, (_, length) =>
  fieldNames
    .filter((name) => name.length === length)
    .map((name) => ({ name, bytes: Buffer.from(name, 'latin1') })),
);

/** The field whose name stands in `bytes` from `start` to `end`, in any case; undefined for one that nobody reads. */
export function fieldNameAt(bytes: Uint8Array, start: number, end: number): FieldName | undefined {
  for (const candidate of byLength[end - start] ?? none) {
    if (isNameAt(bytes, start, candidate.bytes)) {
      return candidate.name;
    }
  }
  return undefined;
}

// A small letter and its capital differ in one bit, and no other byte of a token becomes `a` to `z` or `-` with it.
const caseBit = 0x20;

function isNameAt(bytes: Uint8Array, start: number, name: Uint8Array): boolean {
  for (let index = 0; index < name.length; index += 1) {
    if (((bytes[start + index] ?? 0) | caseBit) !== name[index]) {
      return false;
    }
  }
  return true;
}
