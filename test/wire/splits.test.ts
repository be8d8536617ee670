// The result does not depend on how bytes are split [RFC 9112]. Valid and malformed messages are split in two at every
// byte, in three, and byte by byte.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerTexts, flawedAnswerTexts, flawedRequestTexts, requestTexts } from './http-messages.ts';
import {
  byteByByte,
  comparable,
  cutAt,
  readAnswers,
  readRequests,
  type ReadOptions,
  type Reading,
} from './http-readings.ts';

// Messages up to this length are also split at every pair of bytes.
const pairsBytesMax = 130;

type Read = (pieces: readonly Buffer[], options?: ReadOptions) => Reading<object>;

function checkAllCuts(text: string, read: Read, options: ReadOptions): void {
  const bytes = Buffer.from(text, 'latin1');
  const whole = comparable(read([Buffer.from(bytes)], options));
  const check = (pieces: Buffer[], how: string): void =>
    assert.deepEqual(comparable(read(pieces, options)), whole, `${how}: ${JSON.stringify(text)}`);
  check(byteByByte(bytes), 'byte by byte');
  for (let first = 0; first <= bytes.length; first += 1) {
    check(cutAt(bytes, [first]), `cut at ${first}`);
    for (let second = first; second <= bytes.length && bytes.length <= pairsBytesMax; second += 1) {
      check(cutAt(bytes, [first, second]), `cut at ${first} and ${second}`);
    }
  }
}

function joined(texts: Readonly<Record<string, readonly [string, string]>>): Record<string, string> {
  return Object.fromEntries(Object.entries(texts).map(([name, parts]) => [name, parts.join('')]));
}

const roles: readonly [string, Read, Readonly<Record<string, string>>][] = [
  ['requests', readRequests, requestTexts],
  ['refused requests', readRequests, joined(flawedRequestTexts)],
  ['answers', readAnswers, answerTexts],
  ['refused answers', readAnswers, joined(flawedAnswerTexts)],
];

for (const [role, read, texts] of roles) {
  for (const [name, text] of Object.entries(texts)) {
    test(`${role}: ${name}, split at any byte, gives the same result`, () => {
      checkAllCuts(text, read, {});
      // The same bytes, followed by the end of the connection.
      checkAllCuts(text, read, { isEnded: true });
    });

    test(`${role}: with any head limit, ${name} gives the same result, whole and split`, () => {
      const bytes = Buffer.from(text, 'latin1');
      for (let headBytesMax = 1; headBytesMax <= Math.min(bytes.length, pairsBytesMax); headBytesMax += 1) {
        const whole = comparable(read([Buffer.from(bytes)], { headBytesMax }));
        for (const pieces of [byteByByte(bytes), cutAt(bytes, [headBytesMax])]) {
          assert.deepEqual(comparable(read(pieces, { headBytesMax })), whole, `${headBytesMax}`);
        }
      }
    });
  }
}
