// Each vector of test/vectors/http is read whole, byte by byte, and split at any byte: the result does not depend on how
// bytes are split [RFC 9112; D18, D27].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { byteByByte, comparable, cutAt, readAnswers, readRequests, type ReadOptions } from './http-readings.ts';
import { findings, malformed, summarize, valid, type Vector } from './http-vectors.ts';

// The maximum number of splits of a vector. Longer vectors are not split at every byte.
const cutsMax = 600;
// Valid messages are also split at every pair of their first bytes, and read with every limit of a head up to this.
const pairsBytesMax = 70;

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');
const readerOf = ({ role }: Pick<Vector, 'role'>) => (role === 'requests' ? readRequests : readAnswers);

/** Reads `bytes` in every way. Returns the reading of the whole. */
function readSplit(vector: Pick<Vector, 'role' | 'bytes'>, options: ReadOptions = {}) {
  const bytes = bytesOf(vector.bytes);
  const whole = readerOf(vector)([Buffer.from(bytes)], options);
  const check = (pieces: readonly Buffer[], how: string): void =>
    assert.deepEqual(comparable<object>(readerOf(vector)(pieces, options)), comparable<object>(whole), how);
  check(byteByByte(bytes), 'byte by byte');
  const step = Math.max(1, Math.ceil(bytes.length / cutsMax));
  for (let cut = 0; cut <= bytes.length; cut += step) check(cutAt(bytes, [cut]), `cut at ${cut}`);
  return whole;
}

for (const vector of [...valid, ...findings]) {
  test(`${vector.role}: ${vector.what}`, { timeout: 10_000 }, () => {
    const { messages, flaw } = readSplit(vector, { isEnded: vector.isEnded });
    assert.deepEqual(summarize({ messages, flaw } as never), {
      messages: vector.messages.map(({ start, body, isWhole, persists }) => ({ start, body, isWhole, persists })),
      isRefused: vector.isRefused,
    });
    for (const [index, { head }] of vector.messages.entries()) {
      if (head !== undefined) assert.deepEqual(JSON.parse(JSON.stringify(messages[index]?.head)), head);
    }
  });
}

for (const vector of valid) {
  test(`${vector.role}: ${vector.what}, before the end of the connection, in three pieces, and with any head limit`, () => {
    const read = (pieces: readonly Buffer[], options?: ReadOptions) =>
      comparable<object>(readerOf(vector)(pieces, options));
    const bytes = bytesOf(vector.bytes);
    readSplit(vector, { isEnded: true });
    const length = Math.min(bytes.length, pairsBytesMax);
    for (let at = 1; at <= length; at += 1) {
      const limited = read([Buffer.from(bytes)], { headBytesMax: at });
      for (const pieces of [byteByByte(bytes), cutAt(bytes, [at])]) {
        assert.deepEqual(read(pieces, { headBytesMax: at }), limited, `${at}`);
      }
    }
    const whole = read([Buffer.from(bytes)]);
    for (let first = 0; first <= length; first += 1) {
      for (let second = first; second <= length; second += 1) {
        assert.deepEqual(read(cutAt(bytes, [first, second])), whole, `cut at ${first} and ${second}`);
      }
    }
  });
}

for (const vector of malformed) {
  const { what, role, bytes, flawAt, reason } = vector;
  test(`${role} are refused${flawAt === undefined ? '' : ' at the first byte that shows the flaw'}: ${what} [D18, D27]`, () => {
    const { messages, flaw } = readSplit(vector);
    assert.match(flaw?.kind ?? '', /^invalid-(?:head|chunks)$/);
    assert.ok((flaw?.reason.length ?? 0) > 6);
    if (reason !== undefined) assert.equal(flaw?.reason, reason);
    assert.ok(messages.every(({ isWhole }) => !isWhole));
    if (flawAt === undefined) return;
    const before = readerOf(vector)([bytesOf(bytes.slice(0, flawAt - 1))]);
    assert.equal(before.flaw, undefined, 'the bytes before it are valid');
    const { taken, flaw: found } = readerOf(vector)([bytesOf(bytes.slice(0, flawAt))]);
    assert.deepEqual(found, flaw);
    // The flawed byte is consumed only if it ends the head. All letters of a long method are consumed.
    assert.ok(taken === flawAt - 1 || (taken === flawAt && /[\nM]/.test(bytes[flawAt - 1] ?? '')), String(taken));
  });
}
