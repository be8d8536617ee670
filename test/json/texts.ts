// Texts for the tests and the fuzzer of the JSON checker.

/** A text with every kind of token, a byte-order mark, white space, escapes and 2- to 4-byte characters. */
export const everyToken = Buffer.from(
  '\ufeff {"a\\u00e9\\n\\"\\\\\\/\\b\\f\\r\\t":[1,-0,0.5e+10,1E5,-12.75,9e-1,true,false,null,"é東😀",{},[],' +
    '{"b":{"c":[[ ]]}} , 12345678901234567890123],\r\n\t"\\uD834\\udd1e" : "v","":"" } ',
);

/** Valid and invalid parts of JSON. */
export const fragments: readonly Buffer[] = [
  ...['{', '}', '[', ']', ',', ':', '"', '\\', ' ', '\n', '\t', '\r', '-', '+', '.', '0', '1', '12', 'e', 'E'],
  ...['true', 'false', 'null', 'tru', 'nul', '""', '"a"', '"a":', '{}', '[]', '[1]', '{"a":1}', ',"b":2', '-1.5e3'],
  ...['\\u', '\\u00', '\\uD800', '\\n', '\\"', '\\/', '\\x', '123456789012345678901', '0.000000000000000000001'],
  ...['é', '東', '😀', '\ufeff', '\u00a0', '\u2028', '\u007f', '\u0000', '\u001f', 'x'.repeat(70), ' '.repeat(40)],
  ...['"'.padEnd(65, 'y'), '['.repeat(70), ']'.repeat(70), '{"":'.repeat(33), '}'.repeat(33)],
]
  .map((text) => Buffer.from(text))
  .concat(
    // Not UTF-8: incomplete characters, overlong encodings, a surrogate, a number beyond the last code point.
    ['\xc3', '\xe6\x9d', '\xf0\x9f\x98', '\x80', '\xc0\x80', '\xe0\x80\x80', '\xed\xa0\x80', '\xf4\x90\x80\x80'].map(
      (bytes) => Buffer.from(bytes, 'latin1'),
    ),
  ); // prettier-ignore

/** Creates a generator of pseudo-random numbers from 0 to 1 (xorshift32). The seed determines the numbers. */
export function createRandom(seed: number): () => number {
  let state = seed | 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 0x1_0000_0000;
  };
}

/** `text` with one to four changes: bytes removed, repeated, replaced, or inserted from `parts` or `other`. */
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
    const inserted = (): Uint8Array => parts[below(parts.length)] ?? middle;
    const edits: (() => Uint8Array[])[] = [
      () => [],
      () => [inserted(), middle],
      () => [Buffer.of(below(256))],
      () => [middle, middle],
      () => {
        const from = below(other.length + 1);
        return [other.subarray(from, from + 1 + below(40)), middle];
      },
      () => [inserted()],
    ];
    result = Buffer.concat([before, ...(edits[below(6)]?.() ?? []), after]);
  }
  return result;
}

/** The shortest part of `bytes` for which `isFound` is still true. */
export async function minimise(
  bytes: Uint8Array,
  isFound: (bytes: Buffer) => boolean | Promise<boolean>,
): Promise<Buffer> {
  let result = Buffer.from(bytes);
  for (let size = Math.ceil(bytes.length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < result.length;) {
      const shorter = Buffer.concat([result.subarray(0, at), result.subarray(at + size)]);
      if (await isFound(shorter)) result = shorter;
      else at += size;
    }
  }
  return result;
}
