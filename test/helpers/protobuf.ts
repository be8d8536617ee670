// Reads the protobuf wire format: fields by number, in order.

/** A number (varint, fixed32, fixed64) or bytes. */
type WireValue = bigint | Buffer;

export interface WireField {
  readonly number: number;
  readonly value: WireValue;
}

/** The fields of a message; throws if the bytes are not a message. */
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
  // Varint, fixed64, bytes, fixed32.
  const readers: Readonly<Record<number, () => WireValue>> = {
    0: readVarint,
    1: () => take(8).readBigUInt64LE(),
    2: () => take(Number(readVarint())),
    5: () => BigInt(take(4).readUInt32LE()),
  };
  while (at < bytes.length) {
    const key = readVarint();
    const read = readers[Number(key & 7n)];
    if (read === undefined) throw new Error(`no wire type ${key & 7n}`);
    fields.push({ number: Number(key >> 3n), value: read() });
  }
  return fields;
}

/** All values of a field that is a message, a string or bytes. */
export function bytesIn(fields: readonly WireField[], number: number): Buffer[] {
  return fields.flatMap((field) => (field.number === number && typeof field.value !== 'bigint' ? [field.value] : []));
}

/** The value of a number field; 0, protobuf's default, if it is missing. */
export function numberIn(fields: readonly WireField[], number: number): bigint {
  const value = fields.findLast((field) => field.number === number)?.value ?? 0n;
  if (typeof value !== 'bigint') throw new Error(`field ${number} is not a number`);
  return value;
}
