// Large heads of answers: fields that the gateway does not read are dropped as they arrive, however large they are [D18].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { AnswerReader } from '../../packages/core/http1/answer-reader.ts';
import { fieldNames } from '../../packages/core/http1/fields.ts';
import type { AnswerHead } from '../../packages/core/http1/head.ts';

const headBytesMax = 100_000;
const fieldBytesMax = 2_000;

/** Reads `text` in pieces of `size` bytes. `heldMax` is the largest memory that the reader held between two pieces. */
function read(text: string, size: number) {
  const bytes = Buffer.from(text, 'latin1');
  const heads: AnswerHead[] = [];
  let body = '';
  const reader = new AnswerReader(
    {
      onHead: (head) => heads.push(head),
      onBody: (piece) => (body += piece.toString('latin1')),
      onEnd: () => undefined,
    },
    headBytesMax,
    fieldBytesMax,
  );
  let fed = 0;
  let heldMax = 0;
  for (let from = 0; from < bytes.length; from += size) {
    // A copy, since readers write to their pieces.
    const piece = Buffer.from(bytes.subarray(from, from + size));
    for (let at = 0; at < piece.length && reader.flaw === undefined && !reader.isDone;) at = reader.read(piece, at);
    fed += piece.length;
    // `heldBytes` also counts the length of the head so far, for the strings of its fields.
    if (reader.isInHead) heldMax = Math.max(heldMax, reader.heldBytes - fed);
  }
  return { heads, body, flaw: reader.flaw, isDone: reader.isDone, heldMax };
}

const start = 'HTTP/1.1 200 OK\r\n';
const end = 'Content-Length: 2\r\n\r\n[]';
const cookies = (count: number): string =>
  Array.from({ length: count }, (_, index) => `Set-Cookie: c${index}=${'v'.repeat(80)}; Path=/; HttpOnly\r\n`).join('');
const sizes = [1, 7, 1_000, 65_536, 1_000_000];

for (const [what, text] of [
  ['many small fields', `${start}${cookies(700)}${end}`],
  ['one large field', `${start}Set-Cookie: ${'v'.repeat(90_000)}\r\n${end}`],
  ['a large field whose name begins like one that is read', `${start}Content-Lengths: ${'1'.repeat(90_000)}\r\n${end}`],
  ['a large field after those that are read', `${start}Content-Length: 2\r\nX: ${'v'.repeat(90_000)}\r\n\r\n[]`],
  ['a long field name', `${start}${'n'.repeat(90_000)}: v\r\n${end}`],
  ['much white space before a value', `${start}X:${' \t'.repeat(45_000)}v\r\n${end}`],
  ['a long reason phrase', `HTTP/1.1 200 ${'O'.repeat(90_000)}\r\n${end}`],
  ['interim heads that are large together', `HTTP/1.1 103 x\r\n${cookies(700)}\r\n`.repeat(4) + start + end],
  ...fieldNames
    .filter((name) => !['connection', 'keep-alive', 'content-length', 'transfer-encoding'].includes(name))
    .map((name) => [`a large ${name}`, `${start}${name}: ${'v'.repeat(20_000)}\r\n${end}`] as const),
  ['a field that is read and has just the allowed size', `${start}Connection: ${'x'.repeat(2_000)}\r\n${end}`],
] as const) {
  test(`an answer with ${what} is read in pieces of any size`, () => {
    for (const size of sizes) {
      const { heads, body, flaw, isDone } = read(text, size);
      assert.equal(flaw, undefined);
      assert.deepEqual([heads.length, heads[0]?.status, heads[0]?.bodyLength, body, isDone], [1, 200, 2, '[]', true]);
    }
  });
}

test('a large head takes the memory of a small one [D69]', () => {
  for (const size of [1, 7, 1_000]) {
    const { flaw, heldMax } = read(`${start}${cookies(700)}Set-Cookie: ${'v'.repeat(10_000)}\r\n${end}`, size);
    assert.equal(flaw, undefined);
    assert.ok(heldMax <= 512, `${heldMax} bytes`);
  }
});

describe('a head is refused', () => {
  for (const [what, text, reason] of [
    ['that is too large as a whole', `${start}${cookies(1_000)}${end}`, 'a head of more than 100000 bytes'],
    ['with one field that is too large', `${start}X: ${'v'.repeat(100_000)}\r\n${end}`, 'a head of more than 100000 bytes'],
    ['without an end', `${start}X: ${'v'.repeat(200_000)}`, 'a head of more than 100000 bytes'],
    ['with a large connection field', `${start}Connection: ${'x'.repeat(2_001)}\r\n${end}`, 'a field of more than 2000 bytes'],
    ['with a large length', `${start}Content-Length: ${'0'.repeat(2_001)}2\r\n\r\n[]`, 'a field of more than 2000 bytes'],
  ] as const) {
    test(`${what}, however it is split [D18]`, () => {
      for (const size of sizes) {
        assert.deepEqual(read(text, size).flaw, { kind: 'head-too-large', reason }, `pieces of ${size} bytes`);
      }
    });
  } // prettier-ignore

  test('with an invalid byte after a dropped part', () => {
    for (const size of sizes) {
      for (const [dropped, reason] of [
        [`X: ${'v'.repeat(50_000)}\x01`, 'a control character in a field value'],
        [`${'n'.repeat(50_000)} : v`, 'an invalid field name'],
      ] as const) {
        assert.equal(read(`${start}${dropped}\r\n${end}`, size).flaw?.reason, reason);
      }
    }
  });
});
