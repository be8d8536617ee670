// Parts of the grammar of HTTP/1.1 messages [RFC 9110, RFC 9112, D27]. The vectors have hosts, targets, codings and chunks.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fieldNameOf } from '../../packages/core/hosts/common/fields.ts';
import { fieldNameAt, fieldNames } from '../../packages/core/http1/fields.ts';
import {
  methodBytes,
  parseConnection,
  parseContentLength,
  parseKeepAliveSeconds,
  targetBytes,
  textBytes,
  tokenBytes,
} from '../../packages/core/http1/grammar.ts';
import { fieldValue, fieldValues, onlyFieldValue } from '../../packages/core/http1/head.ts';

const digits = '0123456789';
const capitals = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const letters = capitals + capitals.toLowerCase();

function range(from: number, to: number): string {
  return Array.from({ length: to - from + 1 }, (_, index) => String.fromCharCode(from + index)).join('');
}

for (const [name, table, characters] of [
  ['a token [RFC 9110, 5.6.2]', tokenBytes, `!#$%&'*+-.^_\`|~${digits}${letters}`],
  ['a value [RFC 9110, 5.5]', textBytes, `\t${range(0x20, 0x7e)}${range(0x80, 0xff)}`],
  ['a method [D6, D27]', methodBytes, `${capitals}${digits}_-`],
  ['a target: visible ASCII [RFC 9112, 3.2]', targetBytes, range(0x21, 0x7e)],
] as const) {
  test(`the table has exactly the bytes of ${name}`, () => {
    const expected = Array.from(range(0, 255), (character) => (characters.includes(character) ? 1 : 0));
    assert.deepEqual([...table], expected);
  });
}

// prettier-ignore
for (const [value, length] of [
  ['0', 0], ['7', 7], ['007', 7], ['999999999999999', 999_999_999_999_999],
  ['0000000000000000000000000000000000007', 7], ['0000000000000000', 0],
  ['0999999999999999', 999_999_999_999_999], ['1000000000000000', undefined],
  ['99999999999999999999999', undefined], ['', undefined], ['+7', undefined], ['-7', undefined],
  ['7, 7', undefined], ['7 ', undefined], [' 7', undefined], ['0x7', undefined], ['7.0', undefined],
  ['1e3', undefined], ['\xb2', undefined], ['000000000000000000x', undefined],
] as const) {
  test(`a content-length ${JSON.stringify(value)} is ${String(length)} [RFC 9112, 6.3]`, () => assert.equal(parseContentLength(value), length));
}

// prettier-ignore
for (const [value, closes, keepsAlive] of [
  ['close', true, false], ['Close', true, false], ['CLOSE', true, false], ['keep-alive', false, true],
  ['Keep-Alive', false, true], ['KEEP-ALIVE', false, true], ['close, keep-alive', true, true],
  ['a \t,\t close', true, false], ['keep-alive ,b', false, true], ['\tclose\t', true, false],
  [',close,', true, false], ['', false, false], [',', false, false], ['closed', false, false],
  ['"close"', false, false], ['close x', false, false], ['clo se', false, false],
  ['keep-alive\xa0', false, false], ['upgrade', false, false],
] as const) {
  test(`a connection field ${JSON.stringify(value)} closes: ${closes}, keeps alive: ${keepsAlive} [RFC 9110, 7.6.1]`, () => assert.deepEqual(parseConnection(value), { closes, keepsAlive }));
}

// prettier-ignore
for (const [value, seconds] of [
  ['timeout=5', 5], ['Timeout=5, max=100', 5], ['max=100,timeout=5', 5], ['max=100; timeout = "5"', 5],
  ['a\ttimeout\t=\t5', 5], ['timeout=0', 0], ['timeout=123456789', 123_456_789],
  ['timeout=x, timeout=6', 6], ['', undefined], ['timeout', undefined], ['timeout=', undefined],
  ['timeout=-5', undefined], ['xtimeout=5', undefined], ['timeout 5', undefined], ['max=5', undefined],
] as const) {
  test(`a keep-alive field ${JSON.stringify(value)} promises ${String(seconds)} seconds [RFC 2068, 19.7.1.1]`, () => assert.equal(parseKeepAliveSeconds(value), seconds));
}

test('field names are recognised in any case and at any position in the bytes', () => {
  for (const name of fieldNames) {
    for (const text of [name, name.toUpperCase(), name.replace(/^./, (first) => first.toUpperCase())]) {
      const bytes = Buffer.from(`x${text}y`, 'latin1');
      assert.equal(fieldNameAt(bytes, 1, bytes.length - 1), name);
      assert.equal(fieldNameAt(bytes, 0, bytes.length - 1), undefined);
      assert.equal(fieldNameAt(bytes, 1, bytes.length), undefined);
      assert.equal(fieldNameOf(text), name);
    }
    // Any other byte of a token makes another name, unless it is the same letter in another case.
    for (let index = 0; index < name.length; index += 1) {
      for (let byte = 0; byte < 256; byte += 1) {
        if (tokenBytes[byte] !== 1) continue;
        const bytes = Buffer.from(name, 'latin1');
        bytes[index] = byte;
        const text = bytes.toString('latin1');
        const expected = fieldNames.find((each) => each === text.toLowerCase());
        assert.equal(fieldNameAt(bytes, 0, bytes.length), expected, text);
        assert.equal(fieldNameOf(text), expected, text);
      }
    }
  }
  const none = Buffer.from('x'.repeat(100));
  for (let length = 0; length <= 100; length += 1) assert.equal(fieldNameAt(none, 0, length), undefined);
});

test('fieldValue returns the first value of a field, onlyFieldValue its only value, fieldValues all its values', () => {
  const fields = [
    'host',
    'origin',
    'origin',
    'a',
    'x-request-id',
    'host',
    'origin',
    'b',
    'upgrade',
    '',
    'upgrade',
    'c',
  ];
  for (const [name, first, only, all] of [
    ['host', 'origin', 'origin', ['origin']],
    ['origin', 'a', undefined, ['a', 'b']],
    ['x-request-id', 'host', 'host', ['host']],
    ['upgrade', '', undefined, ['', 'c']],
    ['expect', undefined, undefined, []],
  ] as const) {
    assert.equal(fieldValue(fields, name), first);
    assert.equal(onlyFieldValue(fields, name), only);
    assert.deepEqual(fieldValues(fields, name), all);
  }
});
