// Is this JSON? The scanner reads one slice of a text in the window of its memory and gives the state of the
// text behind it, from which the next slice goes on. It answers yes or no and builds nothing, so a text under way
// is a state, a depth and one bit a level. It does not check UTF-8: outside strings JSON is ASCII, and inside
// them json.ts has the platform check the bytes. AssemblyScript: `npm run build:scanner` makes scanner.wasm.
//
// How it is laid out:
//
// - A byte 0 is put behind the slice. It may stand nowhere in JSON, so every fast path stops there by itself and
//   none of them counts the bytes that are left.
// - `scan` is one loop. Each turn takes what the state calls for, in the order in which a text usually goes on:
//   the rest of a string, a colon, a value, what follows a value, a key.
// - A number, literal or escape is first tried in one go. What that does not take, because it is rare, wrong or
//   cut off by the end of the slice, is read byte by byte by `step`, which knows a state for every byte of a
//   token and is the only place that decides what is wrong in one.
// - In strings, 64 bytes at a time become a mask of those that end a run: quote, backslash, control character.
//   It is kept until the text has moved on to the next 64, so several short strings cost one such step, and the
//   way from one string to the next is a shift and a count of zeros instead of a load and four SIMD operations.
//   Digits have a mask of the same kind.

/** Where a slice goes: `WINDOW_BYTES` bytes, then the 0, then room for loads that reach beyond it. */
export const WINDOW: i32 = 0x8000;
export const WINDOW_BYTES: i32 = 0x10000;

/**
 * The nesting, one bit a level, 1 for an object. Word 0 is the innermost 64-bit word; its lowest bit is the
 * innermost level. Behind it lie the full words further out, in slots counted from 1. A slice of n bytes closes
 * at most n levels, so the caller need put only the innermost n / 64 of them there, rounded up.
 */
export const LEVELS: i32 = 0x1000;

/** Where `scan` leaves the depth, counted from the outermost level that the caller has put in. */
export const DEPTH: i32 = 0xff0;

/** Where `scan` keeps the mask of what is not a digit, and of which 64 bytes it is: few texts need them often. */
const OTHERS: usize = 0xfe0;
const OTHERS_OF: usize = 0xfe8;

// States between tokens.
const VALUE: i32 = 0; // a value must follow
const FIRST_VALUE: i32 = 1; // behind `[`: a value or `]`
export const AFTER: i32 = 2; // behind a value: a comma or what closes the level; at depth 0, the end
const KEY: i32 = 3; // behind a comma in an object: a key must follow
const FIRST_KEY: i32 = 4; // behind `{`: a key or `}`
const COLON: i32 = 5; // behind a key
export const INVALID: i32 = 6; // nothing that follows can make it JSON

// States inside a string; the odd one of two is that of a key, here and in escapes.
const STRING: i32 = 8;
const KEY_STRING: i32 = 9;

// States inside a token, of which `step` knows the next one. First those that the next byte may end without
// being part of the token.
const TOKEN: i32 = 10;
export const START: i32 = 10; // before the first byte: a byte-order mark may follow
export const ZERO: i32 = 11; // behind `0` or `-0`
const INTEGER: i32 = 12; // behind `12`
const FRACTION: i32 = 13; // behind `1.5`
export const EXPONENT: i32 = 14; // behind `1e5`
const MINUS: i32 = 15; // behind `-`
const POINT: i32 = 16; // behind `1.`
const E: i32 = 17; // behind `1e`
const E_SIGN: i32 = 18; // behind `1e-`
const T: i32 = 19; // behind `t`, then `tr`, then `tru`
const TR: i32 = 20;
const TRU: i32 = 21;
const F: i32 = 22; // behind `f`, then `fa`, then `fal`, then `fals`
const FA: i32 = 23;
const FAL: i32 = 24;
const FALS: i32 = 25;
const N: i32 = 26; // behind `n`, then `nu`, then `nul`
const NU: i32 = 27;
const NUL: i32 = 28;
const MARK_1: i32 = 29; // behind the first and the second byte of the byte-order mark
const MARK_2: i32 = 30;
const ESCAPE: i32 = 32; // behind `\`
const KEY_ESCAPE: i32 = 33;
const HEX_4: i32 = 34; // behind `\u`: four hexadecimal digits must follow; then three, two, one
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
const LETTER_A: u32 = 0x61;
const LETTER_E: u32 = 0x65;
const LETTER_F: u32 = 0x66;
const LETTER_N: u32 = 0x6e;
const LETTER_T: u32 = 0x74;
const LETTER_U: u32 = 0x75;
const CLOSE_OBJECT: u32 = 0x7d;
const LOWER: u32 = 0x20; // the bit that makes a letter lower case, and `]` `}`

// What a byte can begin or end; 0 is neither.
const BEGINS_STRING: u32 = 1;
const BEGINS_NUMBER: u32 = 2;
const BEGINS_NEGATIVE: u32 = 3;
const BEGINS_OBJECT: u32 = 4;
const BEGINS_ARRAY: u32 = 5;
const BEGINS_LITERAL: u32 = 6;
const ENDS: u32 = 7; // white space, comma, `}`
const ENDS_ARRAY: u32 = 8;
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

// What a byte can be in an escape.
const IS_ESCAPE: u32 = 1; // what may stand behind a backslash, `u` not included
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

// The last four bytes of `false`, `null` and `true`, in the order of bits 3 and 4 of their first letters.
const LITERALS = memory.data<u32>([0x65736c61, 0x6c6c756e, 0x65757274]);

// The vectors that `scan` compares with. Loaded, not written as constants: V8 builds a vector constant anew at
// every use, in three operations, but keeps a loaded one in its register (measured: strings 1.8 -> 3.5 GB/s).
const VECTORS = memory.data<u64>([
  0x2222222222222222, 0x2222222222222222, // quote
  0x5c5c5c5c5c5c5c5c, 0x5c5c5c5c5c5c5c5c, // backslash
  0x1f1f1f1f1f1f1f1f, 0x1f1f1f1f1f1f1f1f, // the last control character
  0x3030303030303030, 0x3030303030303030, // 0
  0x0909090909090909, 0x0909090909090909, // 9 - 0
]);

/** Takes the `length` bytes in the window from `state` on, `depth` levels in; gives the state behind them. */
export function scan(length: i32, state: i32, depth: i32): i32 {
  const end: usize = WINDOW + length;
  store<u8>(end, 0);
  let at: usize = WINDOW;
  let levels = load<u64>(LEVELS);
  let byte: u32 = 0;
  let block: usize = 0; // the 64 bytes that `specials` is of
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
      const found = specials & ((<u64>-1) << at); // a shift counts modulo 64
      if (found == 0) {
        at = block + 64;
        continue;
      }
      at = block + <usize>ctz(found);
      byte = load<u8>(at);
      if (byte == QUOTE) {
        const next = <u32>load<u16>(at, 1);
        if (state == KEY_STRING) {
          // `":"`, a key and a string
          if (next == (COLON_BYTE | (QUOTE << 8))) {
            at += 3;
            state = STRING;
            continue;
          }
          at += 1;
          state = COLON;
        } else {
          // `","`, a string and, in an object, a key
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
          // A digit alone is so common that it has a way of its own.
          if (kindOf(load<u8>(at, 1)) >= ENDS) {
            at += 1;
            break;
          }
          // Of the 64 bytes at least 24 are left: enough for two runs of digits, or `step` reads them.
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
            state = MINUS; // as if behind a minus, from the first digit on
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
          // The end of the slice, too, is not a byte that ends a number.
          if (kindOf(byte) < ENDS) continue;
          break;
        }
        case BEGINS_LITERAL: {
          // Without branches: in a list of literals one follows another at random.
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
          // An empty one is no level to go into and come back from.
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

    // KEY, FIRST_KEY
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

/** Leaves for the next slice what is not in the state itself. */
@inline
function suspend(state: i32, depth: i32, levels: u64): i32 {
  store<u64>(LEVELS, levels);
  store<i32>(DEPTH, depth);
  return state;
}

/**
 * The state behind `byte` inside a token. A number has no last byte of its own: `AFTER` behind a number, like
 * `VALUE` behind `START`, means that `byte` is not part of it.
 */
function step(state: i32, byte: u32): i32 {
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
    case T:
      return byte == 0x72 ? TR : INVALID;
    case TR:
      return byte == LETTER_U ? TRU : INVALID;
    case TRU:
      return byte == LETTER_E ? AFTER : INVALID;
    case F:
      return byte == LETTER_A ? FA : INVALID;
    case FA:
      return byte == 0x6c ? FAL : INVALID;
    case FAL:
      return byte == 0x73 ? FALS : INVALID;
    case FALS:
      return byte == LETTER_E ? AFTER : INVALID;
    case N:
      return byte == LETTER_U ? NU : INVALID;
    case NU:
      return byte == 0x6c ? NUL : INVALID;
    case NUL:
      return byte == 0x6c ? AFTER : INVALID;
    case ESCAPE:
    case KEY_ESCAPE:
      return isEscape(byte) ? STRING | (state & 1) : byte == LETTER_U ? HEX_4 | (state & 1) : INVALID;
    default:
      return !isHex(byte) ? INVALID : state < HEX_1 ? state + 2 : STRING | (state & 1);
  }
}

/** The first byte from `at` on that is not white space; most often there is one space or a line's indentation. */
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

/** The first byte from `at` on that is not a digit. */
function skipDigits(at: usize): usize {
  while (true) {
    const rest = i8x16.bitmask(digits(v128.load(at), i8x16.splat(0x30), i8x16.splat(9))) ^ 0xffff;
    if (rest != 0) return at + <usize>ctz(rest);
    at += 16;
  }
}

/** The byte behind the exponent whose `e` is at `at`; `at` itself when it is wrong or may go on. */
function skipExponent(at: usize): usize {
  let next = at + 1;
  if (load<u8>(next) == DASH || load<u8>(next) == PLUS) next += 1;
  if (!isDigit(load<u8>(next))) return at;
  do next += 1;
  while (isDigit(load<u8>(next)));
  return kindOf(load<u8>(next)) < ENDS ? at : next;
}

/** The bytes that end a run inside a string: quote, backslash, control character. */
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

/** One bit a byte of four vectors. */
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
