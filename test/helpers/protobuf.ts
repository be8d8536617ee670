// Reads protobuf's wire format without its definitions: fields by number, in order. Enough for what a collector is sent.

/** A varint, four or eight bytes as a number of that size, or bytes. */
export type WireValue = bigint | Buffer;

export interface WireField {
  readonly number: number;
  readonly type: 'varint' | 'fixed64' | 'bytes' | 'fixed32';
  readonly value: WireValue;
}

const types = { 0: 'varint', 1: 'fixed64', 2: 'bytes', 5: 'fixed32' } as const;

/** The fields of a message; throws where the bytes are none. */
export function readMessage(bytes: Buffer): WireField[] {
  const fields: WireField[] = [];
  let at = 0;
  const readVarint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at];
      if (byte === undefined || shift > 63n) throw new Error(`no varint ends at ${at}`);
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new Error(`a field ends behind its message`);
    at += length;
    return bytes.subarray(at - length, at);
  };
  while (at < bytes.length) {
    const key = readVarint();
    const type = types[Number(key & 7n) as keyof typeof types];
    const number = Number(key >> 3n);
    switch (type) {
      case 'varint':
        fields.push({ number, type, value: readVarint() });
        break;
      case 'fixed64':
        fields.push({ number, type, value: take(8).readBigUInt64LE() });
        break;
      case 'fixed32':
        fields.push({ number, type, value: BigInt(take(4).readUInt32LE()) });
        break;
      case 'bytes':
        fields.push({ number, type, value: take(Number(readVarint())) });
        break;
      default:
        throw new Error(`no wire type ${key & 7n}`);
    }
  }
  return fields;
}

/** All values of a field that is a message, a string or bytes. */
export function bytesIn(fields: readonly WireField[], number: number): Buffer[] {
  return fields.flatMap((field) =>
    field.number === number && typeof field.value !== 'bigint' ? [field.value] : [],
  );
}

/** The value of a field that is a number; 0 without it, as protobuf has it. */
export function numberIn(fields: readonly WireField[], number: number): bigint {
  const value = fields.findLast((field) => field.number === number)?.value ?? 0n;
  if (typeof value !== 'bigint') throw new Error(`field ${number} is no number`);
  return value;
}
