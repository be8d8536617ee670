// Checks whether bytes are JSON [D13]. Builds no values, because the gateway passes on the original bytes. scanner.as.ts
// checks the grammar in WebAssembly, and Node's `isUtf8` checks UTF-8.

import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';

// The part of the WebAssembly API that is used here. TypeScript declares it only together with browser APIs.
declare const WebAssembly: {
  Module: new (code: Uint8Array) => object;
  Instance: new (module: object) => { readonly exports: Scanner };
};

type Constant = 'WINDOW' | 'WINDOW_BYTES' | 'LEVELS' | 'DEPTH' | 'START' | 'AFTER' | 'ZERO' | 'EXPONENT' | 'INVALID';

interface Scanner extends Readonly<Record<Constant, { readonly value: number }>> {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly scan: (length: number, state: number, depth: number) => number;
}

// One scanner can serve all texts: nothing interrupts a call of `scan`, and each checker stores the state of its text
// between two pieces. The scanner's memory has a fixed size.
const scanner = loadScanner();
const { scan } = scanner;
const windowBytes = scanner.WINDOW_BYTES.value;
const window = new Uint8Array(scanner.memory.buffer, scanner.WINDOW.value, windowBytes);
const levels = new Uint32Array(scanner.memory.buffer, scanner.LEVELS.value);
const depthLeft = new Int32Array(scanner.memory.buffer, scanner.DEPTH.value, 1);
const start = scanner.START.value;
const invalid = scanner.INVALID.value;
const after = scanner.AFTER.value;
const firstNumber = scanner.ZERO.value;
const lastNumber = scanner.EXPONENT.value;

// Up to this size a loop is faster than two native calls, which cost at least 25 and 50 ns. For 8 bytes, the loop takes
// 40 ns and both calls together take 100 ns; for 64 bytes 87 and 98 ns; for 96 bytes 116 and 104 ns.
const shortBytes = 64;
const noWords = new Uint32Array(0);
const noCharacter = Buffer.alloc(0);

/** True if `bytes` is one RFC 8259 text in strict UTF-8. It may begin with one byte-order mark [D13]. */
export function isJson(bytes: Uint8Array): boolean {
  if (bytes.length > windowBytes) {
    const checker = new JsonChecker();
    return checker.write(bytes) && checker.end();
  }
  const isShort = bytes.length <= shortBytes;
  if (!(isShort && copyShort(bytes)) && !isUtf8(bytes)) return false;
  if (!isShort) window.set(bytes);
  return isWhole(scan(bytes.length, start, 0), depthLeft[0] ?? 0);
}

/** Returns how many bytes of `text` can begin a JSON text. Meant for messages, because it reads `text` three times. */
export function countJsonBytes(text: Uint8Array): number {
  let count = 0;
  for (const step of [windowBytes, 256, 1]) {
    const checker = new JsonChecker();
    checker.write(text.subarray(0, count));
    while (count < text.length && checker.write(text.subarray(count, count + step))) count += step;
  }
  return Math.min(count, text.length);
}

/** Checks one text that arrives in pieces. Checkers are independent and need no cleanup. */
export class JsonChecker {
  #state = start;
  #depth = 0;
  // `#low`, `#high`: the innermost levels, 32 bits each. `#outer`: full 64-bit words of the outer levels, outermost first.
  #low = 0;
  #high = 0;
  #outer = noWords;
  readonly #utf8 = new Utf8Checker();

  /** Takes the next piece. Returns false once the text can no longer become valid. */
  write(piece: Uint8Array): boolean {
    if (this.#state === invalid) return false;
    if (!this.#utf8.write(piece)) this.#state = invalid;
    for (let at = 0; at < piece.length && this.#state !== invalid; at += windowBytes) {
      this.#scan(piece.length <= windowBytes ? piece : piece.subarray(at, at + windowBytes));
    }
    return this.#state !== invalid;
  }

  /** Returns whether all pieces together are one JSON text. */
  end(): boolean {
    // `isWhole` also refuses an incomplete character, because it is always in an incomplete string or byte-order mark.
    return isWhole(this.#state, this.#depth);
  }

  #scan(slice: Uint8Array): void {
    window.set(slice);
    levels[0] = this.#low;
    levels[1] = this.#high;
    let outside = outerWords(this.#depth);
    if (outside > 0) {
      // A slice closes at most one level per byte, so the scanner gets only the words for that many levels. The cost of
      // a piece then depends on its size, not on the depth of the text.
      const inside = Math.min(outside, Math.ceil(slice.length / 64));
      outside -= inside;
      levels.set(this.#outer.subarray(outside * 2, (outside + inside) * 2), 2);
    }

    this.#state = scan(slice.length, this.#state, this.#depth - outside * 64);
    if (this.#state === invalid) {
      this.#outer = noWords;
      return;
    }
    const depth = depthLeft[0] ?? 0;
    this.#depth = outside * 64 + depth;
    this.#low = levels[0];
    this.#high = levels[1];
    const inside = outerWords(depth);
    if (inside > 0) {
      const words = (outside + inside) * 2;
      if (this.#outer.length < words) this.#outer = grown(this.#outer, words);
      this.#outer.set(levels.subarray(2, 2 + inside * 2), outside * 2);
    }
  }
}

/** Checks strict UTF-8 in pieces. `isUtf8` checks whole characters; `#take` checks characters split between pieces. */
class Utf8Checker {
  // The incomplete character, and how many of its bytes have been taken.
  #character = noCharacter;
  #length = 0;

  write(piece: Uint8Array): boolean {
    let from = 0;
    for (; this.#length > 0 && from < piece.length; from += 1) {
      if (!this.#take(piece[from] ?? 0)) return false;
    }
    const to = lastCharacter(piece, from);
    if (!isUtf8(from === 0 && to === piece.length ? piece : piece.subarray(from, to))) return false;
    for (let at = to; at < piece.length; at += 1) {
      if (!this.#take(piece[at] ?? 0)) return false;
    }
    return true;
  }

  // A character can still become valid if the lowest or the highest bytes complete it.
  #take(byte: number): boolean {
    if (this.#length === 0) this.#character = Buffer.alloc(byteCount(byte));
    const character = this.#character;
    character[this.#length] = byte;
    this.#length += 1;
    const isValid = [0x80, 0xbf].some((rest) => isUtf8(character.fill(rest, this.#length)));
    this.#length %= character.length;
    return isValid;
  }
}

/** Returns the start of the incomplete character at the end of `piece`; the length of `piece` if there is none. */
function lastCharacter(piece: Uint8Array, from: number): number {
  for (let at = piece.length - 1; at >= from && at >= piece.length - 3; at -= 1) {
    const byte = piece[at] ?? 0;
    if (byte < 0x80) break;
    if (byte >= 0xc0) return byteCount(byte) > piece.length - at ? at : piece.length;
  }
  return piece.length;
}

/** Length in bytes of a character that begins with `byte` (0xc0 or higher). */
function byteCount(byte: number): number {
  return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

function isWhole(state: number, depth: number): boolean {
  return depth === 0 && (state === after || (state >= firstNumber && state <= lastNumber));
}

/** Returns the number of full words for the levels outside the innermost word. */
function outerWords(depth: number): number {
  return depth === 0 ? 0 : Math.floor((depth - 1) / 64);
}

/** Returns `words` with space for `length` words and an eighth more, so that growing takes linear time [D13]. */
function grown(words: Uint32Array<ArrayBuffer>, length: number): Uint32Array<ArrayBuffer> {
  const more = length + Math.ceil(length / 8);
  // `transfer` frees the old memory at once, not at a later garbage collection.
  return words === noWords ? new Uint32Array(more) : new Uint32Array(words.buffer.transfer(more * 4));
}

/** Copies a short text into the scanner's window. Returns true if the text is ASCII, which is always UTF-8. */
function copyShort(bytes: Uint8Array): boolean {
  let all = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    window[at] = byte;
    all |= byte;
  }
  return all < 0x80;
}

function loadScanner(): Scanner {
  const url = new URL('./scanner.wasm', import.meta.url);
  let code: Uint8Array;
  try {
    code = readFileSync(url);
  } catch (cause) {
    throw new Error(`The JSON scanner is not built (${url.pathname}): run \`npm run build:scanner\`.`, { cause });
  }
  return new WebAssembly.Instance(new WebAssembly.Module(code)).exports;
}
