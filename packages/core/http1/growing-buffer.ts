// Joins bytes that arrive in pieces. As separate buffers, thousands of small pieces would need many times their size.

/**
 * Returns `held` followed by a copy of `bytes`. `held` must be empty, or the end of a buffer that this function returned.
 * Pass a returned buffer only once. When the memory of `held` is full, everything is copied to a new block of at least
 * `bytesMin` bytes and at least twice the length of `held`. So each byte is copied only a few times. Bytes that were
 * returned earlier never change.
 */
export function appendBytes(held: Buffer, bytes: Uint8Array, bytesMin: number): Buffer {
  const length = held.length + bytes.length;
  let joined: Buffer;
  if (held.byteOffset + length <= held.buffer.byteLength) {
    joined = Buffer.from(held.buffer, held.byteOffset, length);
  } else {
    joined = Buffer.allocUnsafeSlow(memoryAfter(held, bytes.length, bytesMin)).subarray(0, length);
    joined.set(held);
  }
  joined.set(bytes, held.length);
  return joined;
}

/** The memory of the buffer that `appendBytes` returns if it appends `more` bytes to `held`. */
export function memoryAfter(held: Buffer, more: number, bytesMin: number): number {
  const length = held.length + more;
  return held.byteOffset + length <= held.buffer.byteLength
    ? held.buffer.byteLength
    : Math.max(bytesMin, length, 2 * held.length);
}
