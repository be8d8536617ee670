// Texts for the tests and the fuzzing of the JSON checker: pieces of JSON that are put together and broken.

/** A text with every kind of token, in one-byte characters: a byte-order mark, white space, escapes, 2- to 4-byte characters. */
export const everyToken = Buffer.from(
  '\ufeff {"a\\u00e9\\n\\"\\\\\\/\\b\\f\\r\\t":[1,-0,0.5e+10,1E5,-12.75,9e-1,true,false,null,"é東😀",{},[],' +
    '{"b":{"c":[[ ]]}} , 12345678901234567890123],\r\n\t"\\uD834\\udd1e" : "v","":"" } ',
);

/** What JSON is made of, and what it must not be made of. */
export const fragments: readonly Buffer[] = [
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '\\',
    ' ',
    '\n',
    '\t',
    '\r',
    '-',
    '+',
    '.',
    '0',
    '1',
    '12',
    'e',
    'E',
  ],
  ...[
    'true',
    'false',
    'null',
    'tru',
    'nul',
    '""',
    '"a"',
    '"a":',
    '{}',
    '[]',
    '[1]',
    '{"a":1}',
    ',"b":2',
    '-1.5e3',
  ],
  ...[
    '\\u',
    '\\u00',
    '\\uD800',
    '\\n',
    '\\"',
    '\\/',
    '\\x',
    '123456789012345678901',
    '0.000000000000000000001',
  ],
  ...[
    'é',
    '東',
    '😀',
    '\ufeff',
    '\u00a0',
    '\u2028',
    '\u007f',
    '\u0000',
    '\u001f',
    'x'.repeat(70),
    ' '.repeat(40),
  ],
  ...['"'.padEnd(65, 'y'), '['.repeat(70), ']'.repeat(70), '{"":'.repeat(33), '}'.repeat(33)],
]
  .map((text) => Buffer.from(text))
  .concat(
    // half characters, overlong forms, a surrogate, beyond the last code point
    [
      '\xc3',
      '\xe6\x9d',
      '\xf0\x9f\x98',
      '\x80',
      '\xc0\x80',
      '\xe0\x80\x80',
      '\xed\xa0\x80',
      '\xf4\x90\x80\x80',
    ].map((bytes) => Buffer.from(bytes, 'latin1')),
  );

/** A source of numbers from 0 to 1 (xorshift32), the same ones for the same seed. */
export function createRandom(seed: number): () => number {
  let state = seed | 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 0x1_0000_0000;
  };
}

/** `text` changed in one to four places: bytes taken out, put in, changed, repeated or taken from `other`; what is put in is one of `parts`. */
export function mutate(
  text: Uint8Array,
  other: Uint8Array,
  random: () => number,
  parts: readonly Buffer[] = fragments,
): Buffer {
  const below = (limit: number): number => Math.floor(random() * limit);
  let result = Buffer.from(text);
  for (let changes = 1 + below(4); changes > 0; changes -= 1) {
    const at = below(result.length + 1);
    const to = Math.min(result.length, at + 1 + below(random() < 0.8 ? 4 : 80));
    const [before, middle, after] = [result.subarray(0, at), result.subarray(at, to), result.subarray(to)];
    switch (below(6)) {
      case 0:
        result = Buffer.concat([before, after]);
        break;
      case 1:
        result = Buffer.concat([before, parts[below(parts.length)] ?? middle, middle, after]);
        break;
      case 2:
        result = Buffer.concat([before, Buffer.from([below(256)]), after]);
        break;
      case 3:
        result = Buffer.concat([before, middle, middle, after]);
        break;
      case 4: {
        const from = below(other.length + 1);
        result = Buffer.concat([before, other.subarray(from, from + 1 + below(40)), middle, after]);
        break;
      }
      default:
        result = Buffer.concat([before, parts[below(parts.length)] ?? middle, after]);
    }
  }
  return result;
}
