// Gathers bytes that come in pieces: thousands of small pieces, each kept by itself, would take many times their size.

/**
 * Returns `held` with a copy of `bytes` after it. `held` is empty or was returned by this function: there may be room
 * after it. Full memory is replaced by memory twice as large as what it holds, and at least `bytesMin`, so that no byte
 * is copied more than a few times. Bytes that were returned before never change.
 */
export function appendBytes(held: Buffer, bytes: Uint8Array, bytesMin: number): Buffer {
  const length = held.length + bytes.length;
  let joined: Buffer;
  if (held.byteOffset + length <= held.buffer.byteLength) {
    joined = Buffer.from(held.buffer, held.byteOffset, length);
  } else {
    joined = Buffer.allocUnsafeSlow(Math.max(bytesMin, length, 2 * held.length)).subarray(0, length);
    joined.set(held);
  }
  joined.set(bytes, held.length);
  return joined;
}
