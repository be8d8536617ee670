// The JSON scanner, in AssemblyScript: `npm run build:scanner` compiles it to scanner.wasm. It checks a text in slices. The
// caller copies a slice into the scanner's memory, to an area called the window. `scan` returns the state of the text after
// the slice, and continues from that state with the next slice. No values are built, so the only other data about an
// unfinished text are its depth and one bit for each open level. In strings, the scanner accepts all bytes above
// ASCII, and json.ts checks that they are UTF-8. Outside strings, the scanner accepts only ASCII.
//
// Design:
//
// - A byte 0 is put after the slice. It is invalid everywhere in JSON, so every fast path stops there without counting
//   bytes.
// - `scan` is one loop. An iteration handles the states in their usual order in a text: in a string, before a colon, before
//   a value, after a value, before a key.
// - A number, literal or escape is first read as a whole. This fails for rare forms, invalid tokens, and tokens that
//   continue in the next slice. Then `step` reads the token byte by byte, with a state for every byte.
// - In strings, SIMD operations make a mask with one bit for each of 64 bytes: 1 for quotes, backslashes and control
//   characters. The mask is used until `scan` reaches the next 64 bytes, so several short strings share one mask. A shift
//   and a count of zeros find the next byte whose bit is 1. Digits have a mask of the same kind.

/** Address and size of the window. After the window come the byte 0 and room for loads that read beyond the window. */
export const WINDOW: i32 = 0x8000;
export const WINDOW_BYTES: i32 = 0x10000;

/**
 * Address of the open levels, one bit each: 1 for an object, 0 for an array. The first 64-bit word has the innermost
 * levels; its lowest bit is the innermost level. The full words of outer levels follow, outermost first. A slice of n
 * bytes closes at most n levels, so the caller need only store the innermost n / 64 of these words, rounded up.
 */
export const LEVELS: i32 = 0x1000;

/** Address of the depth after the slice. The depth is counted from the outermost level that the caller stored. */
export const DEPTH: i32 = 0xff0;

// At `OTHERS`: a mask of the bytes that are not digits. At `OTHERS_OF`: the address of the 64 bytes that the mask
// describes. Both are in memory, not in variables, because they are seldom needed.
const OTHERS: usize = 0xfe0;
const OTHERS_OF: usize = 0xfe8;

// States between tokens.
const VALUE: i32 = 0; // a value must follow
const FIRST_VALUE: i32 = 1; // after `[`: a value or `]`
export const AFTER: i32 = 2; // after a value: a comma, `]` or `}`; at depth 0, the end of the text
const KEY: i32 = 3; // after a comma in an object: a key must follow
const FIRST_KEY: i32 = 4; // after `{`: a key or `}`
const COLON: i32 = 5; // after a key
export const INVALID: i32 = 6; // no continuation is valid

// States inside a string. Here and for escapes, even numbers are for values and odd numbers for keys.
const STRING: i32 = 8;
const KEY_STRING: i32 = 9;

// States inside a token. In states up to `EXPONENT`, the next byte may already be the first one after the token.
const TOKEN: i32 = 10;
export const START: i32 = 10; // before the first byte: a byte-order mark may follow
export const ZERO: i32 = 11; // after `0` or `-0`
const INTEGER: i32 = 12; // after `12`
const FRACTION: i32 = 13; // after `1.5`
export const EXPONENT: i32 = 14; // after `1e5`
const MINUS: i32 = 15; // after `-`
const POINT: i32 = 16; // after `1.`
const E: i32 = 17; // after `1e`
const E_SIGN: i32 = 18; // after `1e-`
const T: i32 = 19; // after `t`, then `tr`, then `tru`
const TRU: i32 = 21;
const F: i32 = 22; // after `f`, then `fa`, then `fal`, then `fals`
const FALS: i32 = 25;
const N: i32 = 26; // after `n`, then `nu`, then `nul`
const NUL: i32 = 28;
const MARK_1: i32 = 29; // after the first and the second byte of the byte-order mark
const MARK_2: i32 = 30;
const ESCAPE: i32 = 32; // after `\`
const KEY_ESCAPE: i32 = 33;
const HEX_4: i32 = 34; // after `\u`: four hexadecimal digits must follow; then three, two, one
const HEX_1: i32 = 40;

// Bytes.
const SPACE: u32 = 0x20;
const QUOTE: u32 = 0x22;
const PLUS: u32 = 0x2b;
const COMMA: u32 = 0x2c;
const DASH: u32 = 0x2d;
const DOT: u32 = 0x2e;
const DIGIT_0: u32 = 0x30;
const COLON_BYTE: u32 = 0x3a;
const BACKSLASH: u32 = 0x5c;
const CLOSE_ARRAY: u32 = 0x5d;
const LETTER_E: u32 = 0x65;
const LETTER_F: u32 = 0x66;
const LETTER_N: u32 = 0x6e;
const LETTER_T: u32 = 0x74;
const LETTER_U: u32 = 0x75;
const CLOSE_OBJECT: u32 = 0x7d;
const LOWER: u32 = 0x20; // the bit that makes a letter lower case and turns `]` into `}`

// The kind of each byte: which value it begins, or whether it may follow a value; 0 for all other bytes.
const BEGINS_STRING: u32 = 1;
const BEGINS_NUMBER: u32 = 2;
const BEGINS_NEGATIVE: u32 = 3;
const BEGINS_OBJECT: u32 = 4;
const BEGINS_ARRAY: u32 = 5;
const BEGINS_LITERAL: u32 = 6;
const ENDS: u32 = 7; // may follow a value: white space, comma, `}`
const ENDS_ARRAY: u32 = 8; // `]`
const KINDS = memory.data<u8>([
  0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 0, 0, 7, 0, 0, // 0x0
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 0x10
  7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 3, 0, 0, // 0x20
  2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, // 0x30
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 0x40
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 8, 0, 0, // 0x50
  0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 6, 0, // 0x60
  0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 4, 0, 7, 0, 0, // 0x70
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
]);

// The role of a byte in an escape.
const IS_ESCAPE: u32 = 1; // valid after a backslash, except `u`
const IS_HEX: u32 = 2;
const ESCAPES = memory.data<u8>([
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 0x0
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 0x10
  0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // 0x20
  2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, // 0x30
  0, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 0x40
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, // 0x50
  0, 2, 3, 2, 2, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, // 0x60
  0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 0x70
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
]);

// The last four bytes of `false`, `null` and `true`. Bits 3 and 4 of a literal's first letter are its index here.
const LITERALS = memory.data<u32>([0x65736c61, 0x6c6c756e, 0x65757274]);
// The byte that must follow in each of the states from `T` to `NUL`: `rue`, `alse`, `ull`.
const LITERAL_BYTES = memory.data<u8>([0x72, 0x75, 0x65, 0x61, 0x6c, 0x73, 0x65, 0x75, 0x6c, 0x6c]);

// The vectors that `scan` compares bytes with, loaded from memory. V8 keeps a loaded vector in a register, but builds a
// vector constant again at every use, in three operations. Loaded vectors: 3.5 GB/s in strings; constants: 1.8 GB/s.
const VECTORS = memory.data<u64>([
  0x2222222222222222, 0x2222222222222222, // quote
  0x5c5c5c5c5c5c5c5c, 0x5c5c5c5c5c5c5c5c, // backslash
  0x1f1f1f1f1f1f1f1f, 0x1f1f1f1f1f1f1f1f, // the last control character
  0x3030303030303030, 0x3030303030303030, // 0
  0x0909090909090909, 0x0909090909090909, // the largest value of a digit
]);

/** Scans `length` bytes in the window. Takes the state and depth before them, and returns the state after them. */
export function scan(length: i32, state: i32, depth: i32): i32 {
  const end: usize = WINDOW + length;
  store<u8>(end, 0);
  let at: usize = WINDOW;
  let levels = load<u64>(LEVELS);
  let byte: u32 = 0;
  let block: usize = 0; // address of the 64 bytes that `specials` describes
  let specials: u64 = 0;
  store<u32>(OTHERS_OF, 0);
  const quote = v128.load(VECTORS);
  const backslash = v128.load(VECTORS, 16);
  const control = v128.load(VECTORS, 32);
  const zero = v128.load(VECTORS, 48);
  const nine = v128.load(VECTORS, 64);

  while (true) {
    if (state >= STRING) {
      if (state >= TOKEN) {
        if (state >= INTEGER && state <= EXPONENT) at = skipDigits(at);
        if (at == end) return suspend(state, depth, levels);
        const next = step(state, load<u8>(at));
        if (next == INVALID) return INVALID;
        if (next > AFTER || state > EXPONENT) at += 1;
        state = next;
        continue;
      }

      if ((at ^ block) > 63) {
        block = at & ~63;
        specials = mask(
          special(v128.load(block), quote, backslash, control),
          special(v128.load(block, 16), quote, backslash, control),
          special(v128.load(block, 32), quote, backslash, control),
          special(v128.load(block, 48), quote, backslash, control),
        );
      }
      const found = specials & ((<u64>-1) << at); // a shift uses `at` modulo 64
      if (found == 0) {
        at = block + 64;
        continue;
      }
      at = block + <usize>ctz(found);
      byte = load<u8>(at);
      if (byte == QUOTE) {
        const next = <u32>load<u16>(at, 1);
        if (state == KEY_STRING) {
          // `":"` between a key and a string
          if (next == (COLON_BYTE | (QUOTE << 8))) {
            at += 3;
            state = STRING;
            continue;
          }
          at += 1;
          state = COLON;
        } else {
          // `","` between a string and the next string or, in an object, the next key
          if (next == (COMMA | (QUOTE << 8)) && depth != 0) {
            at += 3;
            state = STRING | (<i32>levels & 1);
            continue;
          }
          at += 1;
          state = AFTER;
        }
      } else {
        if (byte != BACKSLASH) return at == end ? suspend(state, depth, levels) : INVALID;
        do {
          byte = load<u8>(at, 1);
          if (isEscape(byte)) at += 2;
          else if (byte == LETTER_U && areHex(load<u32>(at, 2))) at += 6;
          else {
            at += 1;
            state = ESCAPE | (state & 1);
            break;
          }
        } while (load<u8>(at) == BACKSLASH);
        continue;
      }
    }

    if (state == COLON) {
      byte = load<u8>(at);
      if (byte <= SPACE) byte = load<u8>((at = skipSpace(at)));
      if (byte != COLON_BYTE) return at == end ? suspend(state, depth, levels) : INVALID;
      at += 1;
      state = VALUE;
    }

    if (state <= FIRST_VALUE) {
      byte = load<u8>(at);
      if (byte <= SPACE) byte = load<u8>((at = skipSpace(at)));
      switch (kindOf(byte)) {
        case BEGINS_STRING:
          at += 1;
          state = STRING;
          continue;
        case BEGINS_NEGATIVE:
          byte = load<u8>((at += 1));
          if (!isDigit(byte)) return at == end ? suspend(MINUS, depth, levels) : INVALID;
        // falls through
        case BEGINS_NUMBER: {
          // A single digit is common, so it is handled first.
          if (kindOf(load<u8>(at, 1)) >= ENDS) {
            at += 1;
            break;
          }
          // A mask is reused if it covers at least 24 more bytes, enough for most numbers. `step` reads longer numbers.
          let ends: u64;
          const past = at - <usize>load<u32>(OTHERS_OF);
          if (past > 40) {
            ends = ~mask(
              digits(v128.load(at), zero, nine),
              digits(v128.load(at, 16), zero, nine),
              digits(v128.load(at, 32), zero, nine),
              digits(v128.load(at, 48), zero, nine),
            );
            store<u32>(OTHERS_OF, at);
            store<u64>(OTHERS, ends);
          } else ends = load<u64>(OTHERS) >> past;
          const integer = <usize>ctz(ends);
          if (integer > 19) {
            state = MINUS; // `step` reads the number from its first digit on
            continue;
          }
          if (byte == DIGIT_0 && integer != 1) return INVALID;
          state = byte == DIGIT_0 ? ZERO : INTEGER;
          byte = load<u8>((at += integer));
          if (byte == DOT) {
            ends &= ends - 1;
            const fraction = <usize>ctz(ends) - integer - 1;
            if (fraction - 1 > 18) {
              at += 1;
              state = POINT;
              continue;
            }
            state = FRACTION;
            byte = load<u8>((at += fraction + 1));
          }
          if ((byte | LOWER) == LETTER_E) byte = load<u8>((at = skipExponent(at)));
          // The 0 after the slice does not end a number, because the next slice may continue the number.
          if (kindOf(byte) < ENDS) continue;
          break;
        }
        case BEGINS_LITERAL: {
          // No branch depends on the literal: literals come in random order, so such a branch would be mispredicted.
          const long = <usize>(byte == LETTER_F);
          if (load<u32>(at + long) != load<u32>(LITERALS + ((byte >> 1) & 12))) {
            at += 1;
            state = byte == LETTER_T ? T : byte == LETTER_N ? N : F;
            continue;
          }
          at += long + 4;
          break;
        }
        case BEGINS_OBJECT:
          // An empty object adds no level.
          if (load<u8>(at, 1) == CLOSE_OBJECT) {
            at += 2;
            break;
          }
          if ((depth & 63) == 0) store<u64>(LEVELS + ((depth >> 6) << 3), levels);
          depth += 1;
          levels = (levels << 1) | 1;
          at += 1;
          state = FIRST_KEY;
          if (load<u8>(at) == QUOTE) {
            at += 1;
            state = KEY_STRING;
          }
          continue;
        case BEGINS_ARRAY:
          if (load<u8>(at, 1) == CLOSE_ARRAY) {
            at += 2;
            break;
          }
          if ((depth & 63) == 0) store<u64>(LEVELS + ((depth >> 6) << 3), levels);
          depth += 1;
          levels <<= 1;
          at += 1;
          state = FIRST_VALUE;
          continue;
        case ENDS_ARRAY:
          if (state != FIRST_VALUE) return INVALID;
          break;
        default:
          return at == end ? suspend(state, depth, levels) : INVALID;
      }
      state = AFTER;
    }

    if (state == AFTER) {
      byte = load<u8>(at);
      while (byte != COMMA) {
        if (byte <= SPACE) {
          const next = skipSpace(at);
          if (next != at) {
            at = next;
            byte = load<u8>(at);
            continue;
          }
        }
        if (byte != CLOSE_ARRAY + (<u32>levels & 1) * LOWER || depth == 0) {
          return at == end ? suspend(state, depth, levels) : INVALID;
        }
        depth -= 1;
        levels >>= 1;
        if ((depth & 63) == 0) levels = load<u64>(LEVELS + ((depth >> 6) << 3));
        byte = load<u8>((at += 1));
      }
      if (depth == 0) return INVALID;
      at += 1;
      if ((levels & 1) == 0) {
        state = VALUE;
        continue;
      }
      state = KEY;
    }

    // The state is KEY or FIRST_KEY.
    byte = load<u8>(at);
    if (byte <= SPACE) byte = load<u8>((at = skipSpace(at)));
    if (byte == QUOTE) {
      at += 1;
      state = KEY_STRING;
      continue;
    }
    if (at == end) return suspend(state, depth, levels);
    if (byte != CLOSE_OBJECT || state != FIRST_KEY) return INVALID;
    state = AFTER;
  }
}

/** Stores the depth and the innermost levels for the next slice. Returns the state. */
@inline
function suspend(state: i32, depth: i32, levels: u64): i32 {
  store<u64>(LEVELS, levels);
  store<i32>(DEPTH, depth);
  return state;
}

/**
 * Returns the state after `byte`, inside a token. In two cases `byte` is not part of the token: the result is `AFTER`
 * and the token is a number, or the result is `VALUE` and `state` is `START`.
 */
function step(state: i32, byte: u32): i32 {
  if (state >= T && state <= NUL) {
    if (byte != load<u8>(LITERAL_BYTES + (state - T))) return INVALID;
    return state == TRU || state == FALS || state == NUL ? AFTER : state + 1;
  }
  switch (state) {
    case START:
      return byte == 0xef ? MARK_1 : VALUE;
    case MARK_1:
      return byte == 0xbb ? MARK_2 : INVALID;
    case MARK_2:
      return byte == 0xbf ? VALUE : INVALID;
    case MINUS:
      return byte == DIGIT_0 ? ZERO : isDigit(byte) ? INTEGER : INVALID;
    case ZERO:
      return byte == DOT ? POINT : (byte | LOWER) == LETTER_E ? E : AFTER;
    case INTEGER:
      return isDigit(byte) ? INTEGER : byte == DOT ? POINT : (byte | LOWER) == LETTER_E ? E : AFTER;
    case POINT:
      return isDigit(byte) ? FRACTION : INVALID;
    case FRACTION:
      return isDigit(byte) ? FRACTION : (byte | LOWER) == LETTER_E ? E : AFTER;
    case E:
      return byte == PLUS || byte == DASH ? E_SIGN : isDigit(byte) ? EXPONENT : INVALID;
    case E_SIGN:
      return isDigit(byte) ? EXPONENT : INVALID;
    case EXPONENT:
      return isDigit(byte) ? EXPONENT : AFTER;
    case ESCAPE:
    case KEY_ESCAPE:
      return isEscape(byte) ? STRING | (state & 1) : byte == LETTER_U ? HEX_4 | (state & 1) : INVALID;
    default:
      return !isHex(byte) ? INVALID : state < HEX_1 ? state + 2 : STRING | (state & 1);
  }
}

/** Returns the position of the first byte from `at` on that is not white space. Fast for one space or indentation. */
function skipSpace(at: usize): usize {
  if (load<u8>(at) == SPACE && load<u8>(at, 1) > SPACE) return at + 1;
  while (true) {
    const bytes = v128.load(at);
    const space = v128.or(
      v128.or(equal(bytes, 0x20), equal(bytes, 0x0a)),
      v128.or(equal(bytes, 0x0d), equal(bytes, 0x09)),
    );
    const rest = i8x16.bitmask(space) ^ 0xffff;
    if (rest != 0) return at + <usize>ctz(rest);
    at += 16;
  }
}

/** Returns the position of the first byte from `at` on that is not a digit. */
function skipDigits(at: usize): usize {
  while (true) {
    const rest = i8x16.bitmask(digits(v128.load(at), i8x16.splat(0x30), i8x16.splat(9))) ^ 0xffff;
    if (rest != 0) return at + <usize>ctz(rest);
    at += 16;
  }
}

/** Returns the position after the exponent at `at`; `at` itself if the exponent is invalid or may continue. */
function skipExponent(at: usize): usize {
  let next = at + 1;
  if (load<u8>(next) == DASH || load<u8>(next) == PLUS) next += 1;
  if (!isDigit(load<u8>(next))) return at;
  do next += 1;
  while (isDigit(load<u8>(next)));
  return kindOf(load<u8>(next)) < ENDS ? at : next;
}

/** Marks quotes, backslashes and control characters. */
@inline
function special(bytes: v128, quote: v128, backslash: v128, control: v128): v128 {
  return v128.or(
    v128.or(i8x16.eq(bytes, quote), i8x16.eq(bytes, backslash)),
    i8x16.eq(bytes, i8x16.min_u(bytes, control)),
  );
}

@inline
function digits(bytes: v128, zero: v128, nine: v128): v128 {
  const values = i8x16.sub(bytes, zero);
  return i8x16.eq(values, i8x16.min_u(values, nine));
}

@inline
function equal(bytes: v128, byte: u8): v128 {
  return i8x16.eq(bytes, i8x16.splat(byte));
}

/** Returns one bit per byte of four vectors. */
@inline
function mask(a: v128, b: v128, c: v128, d: v128): u64 {
  return (
    (<u64>(<u32>i8x16.bitmask(a))) |
    ((<u64>(<u32>i8x16.bitmask(b))) << 16) |
    ((<u64>(<u32>i8x16.bitmask(c))) << 32) |
    ((<u64>(<u32>i8x16.bitmask(d))) << 48)
  );
}

@inline
function kindOf(byte: u32): u32 {
  return load<u8>(KINDS + <usize>byte);
}

@inline
function isDigit(byte: u32): bool {
  return byte - DIGIT_0 <= 9;
}

@inline
function isHex(byte: u32): bool {
  return (load<u8>(ESCAPES + <usize>byte) & IS_HEX) != 0;
}

@inline
function areHex(bytes: u32): bool {
  const all =
    load<u8>(ESCAPES + <usize>(bytes & 0xff)) &
    load<u8>(ESCAPES + <usize>((bytes >> 8) & 0xff)) &
    load<u8>(ESCAPES + <usize>((bytes >> 16) & 0xff)) &
    load<u8>(ESCAPES + <usize>(bytes >> 24));
  return (all & IS_HEX) != 0;
}

@inline
function isEscape(byte: u32): bool {
  return (load<u8>(ESCAPES + <usize>byte) & IS_ESCAPE) != 0;
}
