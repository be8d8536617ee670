// Text that is found again by its bytes must be the text of just these bytes, whatever came before.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KnownText, RepeatedText } from '../../src/wire/repeated-text.ts';

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
