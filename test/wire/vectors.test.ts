// Each vector in test/vectors/http has the bytes of one connection and the expected result. Vectors are findings of
// `npm run fuzz -- http` and known attacks on other parsers. Each vector is read whole, byte by byte, and in two pieces
// [D18, D27].

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { byteByByte, cutAt, readAnswers, readRequests } from './http-readings.ts';
import { summarize, type Vector } from './http-vectors.ts';

const folder = new URL('../vectors/http/', import.meta.url);
// The maximum number of splits of a vector. Longer vectors are not split at every byte.
const cutsMax = 600;

for (const name of readdirSync(folder)) {
  if (!name.endsWith('.json')) continue;
  const vector = JSON.parse(readFileSync(new URL(name, folder), 'utf8')) as Vector;
  test(`${name}: ${vector.what}`, { timeout: 10_000 }, () => {
    const bytes = Buffer.from(vector.bytes, 'latin1');
    const { messages, isRefused, isEnded } = vector;
    const read = vector.role === 'requests' ? readRequests : readAnswers;
    const check = (pieces: readonly Buffer[], how: string): void =>
      assert.deepEqual(summarize(read(pieces, { isEnded })), { messages, isRefused }, how);
    check([Buffer.from(bytes)], 'whole');
    check(byteByByte(bytes), 'byte by byte');
    const step = Math.max(1, Math.ceil(bytes.length / cutsMax));
    for (let cut = 0; cut <= bytes.length; cut += step) check(cutAt(bytes, [cut]), `cut at ${cut}`);
  });
}
