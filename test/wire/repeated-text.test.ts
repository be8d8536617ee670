// Text that is found again by its bytes must be the text of just these bytes, whatever came before.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KnownText, RepeatedText } from '../../packages/core/http1/repeated-text.ts';

const texts = [
  '',
  'a',
  'b',
  'ab',
  'ba',
  'GET',
  'PUT',
  'PUTS',
  'POST',
  'DELETE',
  'get',
  'x'.repeat(63),
  'x'.repeat(64),
  `${'x'.repeat(63)}y`,
  `y${'x'.repeat(63)}`,
  'x'.repeat(65),
  `${'x'.repeat(64)}y`,
  '\u0000\u00ff\u00e9',
];

for (const [name, reader] of [
  ['text that repeats', new RepeatedText()],
  ['text that is known', new KnownText(['GET', 'PUT', 'POST', 'DELETE'])],
] as const) {
  test(`${name}: each after each other, wherever it lies, is its own bytes`, () => {
    for (const first of texts) {
      for (const second of texts) {
        for (const text of [first, second, second, first]) {
          const bytes = Buffer.from(`<<${text}>>`, 'latin1');
          assert.equal(reader.read(bytes, 2, 2 + text.length), text);
          // Whoever has read it may write to its memory.
          bytes.fill(0x2a);
        }
      }
    }
  });
}

/** How many of these texts, read one after the other with others around them, were made of their bytes. */
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

test('text that is known is not made of its bytes, any other is', () => {
  const reader = new KnownText(['GET', 'PUT', 'POST']);
  assert.equal(countMade(reader, ['GET', 'POST', 'PUT', 'GET']), 0);
  assert.equal(countMade(reader, ['GETS', 'PU', 'TUP', '', 'POSt']), 5);
});

test('text that repeats is made once, up to 64 bytes of it', () => {
  const [short, long, tooLong] = ['localhost', 'x'.repeat(64), 'x'.repeat(65)];
  assert.equal(countMade(new RepeatedText(), ['']), 0);
  assert.equal(countMade(new RepeatedText(), [short, short, short]), 1);
  assert.equal(countMade(new RepeatedText(), [long, long]), 1);
  assert.equal(countMade(new RepeatedText(), [tooLong, tooLong]), 2);
  // What is too long is not remembered, and what was remembered before it still is.
  assert.equal(countMade(new RepeatedText(), [short, tooLong, short]), 2);
  assert.equal(countMade(new RepeatedText(), [short, long, short]), 3);
});
