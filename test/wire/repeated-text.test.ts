// Cached text must exactly match the bytes being read, no matter what was read before.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KnownText, RepeatedText } from '../../packages/core/http1/repeated-text.ts';

// prettier-ignore
const texts = [
  '', 'a', 'b', 'ab', 'ba', 'GET', 'PUT', 'PUTS', 'POST', 'DELETE', 'get', 'x'.repeat(63), 'x'.repeat(64),
  `${'x'.repeat(63)}y`, `y${'x'.repeat(63)}`, 'x'.repeat(65), `${'x'.repeat(64)}y`, '\u0000\u00ff\u00e9',
];

for (const [name, reader] of [
  ['RepeatedText', new RepeatedText()],
  ['KnownText', new KnownText(['GET', 'PUT', 'POST', 'DELETE'])],
] as const) {
  test(`${name}: each text is read correctly from the middle of the bytes, after every other text`, () => {
    for (const first of texts) {
      for (const second of texts) {
        for (const text of [first, second, second, first]) {
          const bytes = Buffer.from(`<<${text}>>`, 'latin1');
          assert.equal(reader.read(bytes, 2, 2 + text.length), text);
          // The caller may write to the memory after the read.
          bytes.fill(0x2a);
        }
      }
    }
  });
}

/** Reads the texts in sequence, and returns how many of them were decoded from their bytes. */
function countMade(reader: KnownText | RepeatedText, read: readonly string[]): number {
  let made = 0;
  for (const text of read) {
    const bytes = Buffer.from(`<<${text}>>`, 'latin1');
    bytes.toString = (encoding, start, end) => {
      made += 1;
      return Buffer.from(bytes).toString(encoding, start, end);
    };
    assert.equal(reader.read(bytes, 2, 2 + text.length), text);
  }
  return made;
}

test('KnownText decodes only unknown text, RepeatedText a repeated text of up to 64 bytes only once', () => {
  const known = new KnownText(['GET', 'PUT', 'POST']);
  const [short, long, tooLong] = ['localhost', 'x'.repeat(64), 'x'.repeat(65)];
  for (const [reader, texts, made] of [
    [known, ['GET', 'POST', 'PUT', 'GET'], 0],
    [known, ['GETS', 'PU', 'TUP', '', 'POSt'], 5],
    [new RepeatedText(), [''], 0],
    [new RepeatedText(), [short, short, short], 1],
    [new RepeatedText(), [long, long], 1],
    [new RepeatedText(), [tooLong, tooLong], 2],
    // Text that is too long is not cached, and does not replace the cached text.
    [new RepeatedText(), [short, tooLong, short], 2],
    [new RepeatedText(), [short, long, short], 3],
  ] as const) {
    assert.equal(countMade(reader, texts), made, texts.join());
  }
});
