// The reference for the JSON checker [D13]: the platform's strict UTF-8 decoder and JSON.parse.

import { JsonChecker } from '../../packages/core/json/json.ts';

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/** True if the platform accepts `bytes` as JSON. */
export function isJsonByOracle(bytes: Uint8Array): boolean {
  try {
    JSON.parse(strictUtf8.decode(bytes));
    return true;
  } catch {
    return false;
  }
}

/** True if the checker accepts `bytes`, cut at the ascending `cuts`. */
export function isJsonInPieces(bytes: Uint8Array, cuts: readonly number[]): boolean {
  const checker = new JsonChecker();
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    if (!checker.write(bytes.subarray(from, to))) return false;
    from = to;
  }
  return checker.end();
}

/** True if the checker accepts `bytes`, written one by one. */
export function isJsonByteByByte(bytes: Uint8Array): boolean {
  return isJsonInPieces(bytes, Array.from(bytes.keys()));
}

/** The bytes of a text, one byte per character: `\xff` is the byte 0xff. */
export function bytesOf(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

/** `bytes` as a string literal that could be an argument of `bytesOf`. */
export function shown(bytes: Uint8Array): string {
  return JSON.stringify(Buffer.from(bytes).toString('latin1'));
}
