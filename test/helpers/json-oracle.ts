// What decides in every test of the JSON checker [D13]: the platform's strict decoder and JSON.parse.

import { createJsonChecker } from '../../packages/core/json/json.ts';

const strictUtf8 = new TextDecoder('utf-8', { fatal: true });

/** True when `bytes` is JSON, as the platform has it. */
export function isJsonByOracle(bytes: Uint8Array): boolean {
  try {
    JSON.parse(strictUtf8.decode(bytes));
    return true;
  } catch {
    return false;
  }
}

/** The checker's verdict on `bytes` cut at `cuts`, which rise. */
export function isJsonInPieces(bytes: Uint8Array, cuts: readonly number[]): boolean {
  const checker = createJsonChecker();
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    if (!checker.write(bytes.subarray(from, to))) return false;
    from = to;
  }
  return checker.end();
}

/** The checker's verdict on `bytes` given one by one. */
export function isJsonByteByByte(bytes: Uint8Array): boolean {
  const checker = createJsonChecker();
  for (let at = 0; at < bytes.length; at += 1) {
    if (!checker.write(bytes.subarray(at, at + 1))) return false;
  }
  return checker.end();
}

/** The bytes of a text in which every character is one byte: `\xff` is the byte 0xff. */
export function bytesOf(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

/** Bytes in a form that can be pasted into `bytesOf`. */
export function shown(bytes: Uint8Array): string {
  return JSON.stringify(Buffer.from(bytes).toString('latin1'));
}
