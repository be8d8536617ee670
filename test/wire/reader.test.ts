// The readers of HTTP/1.1: limits, ends of the connection, and what they pass on [D11, D18, D27]. Whole and split messages are
// in vectors.test.ts, costs in work.test.ts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerReader } from '../../packages/core/http1/answer-reader.ts';
import { RequestReader } from '../../packages/core/http1/request-reader.ts';
import { byteByByte, cutAt, headBytesMax, readAnswers, readRequests } from './http-readings.ts';

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');
const requests = (text: string) => readRequests([bytesOf(text)]);
/** `text` whole, byte by byte, and cut at these places. */
const ways = (text: string, ...cuts: number[]): Buffer[][] => [
  [bytesOf(text)],
  byteByByte(bytesOf(text)),
  ...cuts.map((cut) => cutAt(bytesOf(text), [cut])),
];

const requestStart = 'GET / HTTP/1.1\r\nHost: x\r\n';
const put = 'PUT / HTTP/1.1\r\nHost: x\r\n';
const chunked = `${put}Transfer-Encoding: chunked\r\n\r\n`;

/** A head of `length` bytes. */
function headOf(length: number, start = requestStart): string {
  const head = `${start}A: `;
  return `${head}${'b'.repeat(length - head.length - 4)}\r\n\r\n`;
}

for (const [role, start, read] of [
  ['request', requestStart, readRequests],
  ['answer', 'HTTP/1.1 200 OK\r\n', readAnswers],
] as const) {
  test(`the head of each ${role} may have as many bytes as its limit, and not one more [D27]`, () => {
    const max = 1_000;
    const options = { headBytesMax: max };
    for (const pieces of ways(`${headOf(max, start)}${role === 'answer' ? 'body' : start}`, max - 1, max, 600)) {
      const { messages, flaw } = read(pieces, options);
      assert.deepEqual([messages.length, flaw], [1, undefined]);
    }
    const tooLong = headOf(max + 1, start);
    for (const pieces of ways(tooLong, max - 1, max, 600)) {
      const { messages, flaw, taken } = read(pieces, options);
      assert.deepEqual(flaw, { kind: 'head-too-large', reason: 'a head of more than 1000 bytes' });
      assert.deepEqual(messages, []);
      assert.ok(taken <= max);
    }
    // The flaw is reported as soon as the limit is reached, without further bytes.
    assert.equal(read([bytesOf(tooLong.slice(0, max - 1))], options).flaw, undefined);
    assert.equal(read([bytesOf(tooLong.slice(0, max))], options).flaw?.kind, 'head-too-large');
  });
}

test('the limit applies to each head and each interim answer separately, and not to empty lines before a head', () => {
  const max = 200;
  for (const pieces of ways(`${headOf(max)}${'\r\n'.repeat(max)}${headOf(max)}${headOf(max)}`, max + 1, 3 * max)) {
    const { messages, flaw, isBetween } = readRequests(pieces, { headBytesMax: max });
    assert.deepEqual([messages.length, flaw, isBetween], [3, undefined, true]);
  }
  const text = `${headOf(max, 'HTTP/1.1 100 x\r\n').repeat(5)}${headOf(max, 'HTTP/1.1 200 OK\r\n')}`;
  for (const pieces of ways(text)) {
    assert.equal(readAnswers(pieces, { headBytesMax: max }).flaw, undefined);
    assert.equal(readAnswers(pieces, { headBytesMax: max - 1 }).flaw?.kind, 'head-too-large');
  }
});

test('trailers may have as many bytes as a head, and not one more', () => {
  const max = 200;
  const start = `${chunked}1\r\na\r\n0\r\n`;
  for (const length of [max, max + 1]) {
    for (const pieces of ways(start + headOf(length, ''), start.length, 240)) {
      const { messages, flaw } = readRequests(pieces, { headBytesMax: max });
      assert.equal(messages[0]?.isWhole, length === max);
      assert.equal(flaw?.kind, length === max ? undefined : 'head-too-large');
    }
  }
});

test('a method may have at most 64 bytes, a chunk 2^48 bytes, and the size of a chunk 64 digits', () => {
  const digits = (count: number): string => '1'.padStart(count, '0');
  for (const [text, body, reason] of [
    [`${'M'.repeat(64)} / HTTP/1.1\r\nHost: x\r\n\r\n`, '', undefined],
    [`${'M'.repeat(65)} / HTTP/1.1\r\nHost: x\r\n\r\n`, undefined, 'an invalid method'],
    [`${chunked}1000000000000\r\nabc`, 'abc', undefined],
    [`${chunked}1000000000001\r\nabc`, '', 'a chunk size over the limit'],
    [`${chunked}${digits(64)}\r\na\r\n${digits(64)}\r\na\r\n0\r\n\r\n`, 'aa', undefined],
    [`${chunked}${digits(65)}\r\na`, '', 'a chunk size over the limit'],
  ] as const) {
    const { messages, flaw } = requests(text);
    assert.deepEqual([messages[0]?.body.toString(), flaw?.reason], [body, reason]);
  }
});

test('the extensions of one message may have at most 16,384 bytes in all', () => {
  // The count begins after each semicolon and includes the CR.
  const chunk = (length: number): string => `1;${'x'.repeat(length - 1)}\r\na\r\n`;
  const fits = `${chunked}${chunk(10_000)}${chunk(6_384)}0\r\n\r\n`;
  for (const pieces of ways(`${chunked}${chunk(10_000)}${chunk(6_385)}0\r\n\r\n`)) {
    assert.equal(readRequests(pieces).flaw?.reason, 'an invalid chunk extension');
  }
  for (const pieces of ways(fits + fits)) {
    const whole = readRequests(pieces).messages.map(({ isWhole }) => isWhole);
    assert.deepEqual(whole, [true, true]);
  }
});

const ignore = { onHead: () => undefined, onBody: () => undefined, onEnd: () => undefined };

test('an end of the connection ends only a body without a length; anywhere else it is a failure [D18]', () => {
  const ok = 'HTTP/1.1 200 OK\r\n';
  const chunks = `${ok}Transfer-Encoding: chunked\r\n\r\n`;
  const failures = ['', 'HTTP/1.1 2', `${ok}A`, 'HTTP/1.1 100 Continue\r\n\r\n', `${ok}Content-Length: 2\r\n\r\n1`];
  failures.push(`${chunks}2\r\n1`, `${chunks}1\r\n1\r\n`, `${chunks}0\r\nA: b\r\n`, `${ok}\0`);
  const ends = [`${ok}\r\n1`, `${ok}\r\n`];
  for (const text of [...failures, ...ends]) {
    const isGood = ends.includes(text);
    let endCount = 0;
    const reader = new AnswerReader({ ...ignore, onEnd: () => (endCount += 1) }, headBytesMax);
    reader.read(bytesOf(text), 0);
    assert.equal(reader.isDone, false);
    // A second call of `end` returns the same result, and does not call `onEnd` again.
    for (const isEnd of [reader.end(), reader.isDone, reader.end()]) assert.equal(isEnd, isGood, JSON.stringify(text));
    assert.equal(endCount, isGood ? 1 : 0);
  }
});

test('a reader reports its state: before a message, in its head, in its body, or done', () => {
  const reader = new RequestReader(ignore, headBytesMax);
  const states: string[] = [];
  for (const byte of `\r\n${chunked}1\r\na\r\n0\r\nA: b\r\n\r\n`) {
    reader.read(bytesOf(byte), 0);
    const { isDone, isBeforeMessage, isInHead } = reader;
    const state = isDone ? 'done' : isBeforeMessage ? 'before' : isInHead ? 'head' : 'body';
    assert.ok([isDone, isBeforeMessage, isInHead].filter(Boolean).length <= 1);
    if (states.at(-1) !== state) states.push(state);
  }
  assert.deepEqual(states, ['before', 'head', 'body', 'done']);
  assert.equal(reader.read(bytesOf('GET'), 0), 0, 'nothing is read before next()');
  reader.next();
  assert.equal(reader.isBeforeMessage, true);
});

test('bytes after a message are not read; small chunks are passed on together, and a large chunk begins a new piece', () => {
  const pieces: string[] = [];
  const onBody = (piece: Buffer) => pieces.push(piece.toString('latin1'));
  const reader = new RequestReader({ ...ignore, onBody }, headBytesMax);
  const chunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`;
  const small = 'abcdefghij'.repeat(20);
  const large = 'L'.repeat(1_025);
  const first = `${put}Content-Length: 2\r\n\r\nab`;
  const second = `${chunked}${Array.from(small, chunk).join('')}${chunk(large)}${chunk('x'.repeat(1_024))}${chunk('y')}0\r\n\r\n`;
  const bytes = bytesOf(`${first}${second}more`);
  assert.equal(reader.read(bytes, 0), first.length);
  reader.next();
  assert.equal(reader.read(bytes, first.length), first.length + second.length);
  assert.deepEqual(pieces, ['ab', small, `${large}${'x'.repeat(1_024)}y`]);
});
