// How the bytes of messages are cut says nothing about what is read [RFC 9112]: messages with every feature, and every flaw,
// in two pieces cut everywhere, in three, and byte by byte.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  answerTexts,
  flawedAnswerTexts,
  flawedRequestTexts,
  requestTexts,
} from '../helpers/http-messages.ts';
import {
  byteByByte,
  comparable,
  cutAt,
  readAnswers,
  readRequests,
  type ReadOptions,
  type Reading,
} from '../helpers/http-readings.ts';

// Every pair of cuts of a message up to this length is tried.
const pairsBytesMax = 130;

type Read = (pieces: readonly Buffer[], options?: ReadOptions) => Reading<object>;

function checkAllCuts(text: string, read: Read, options: ReadOptions): void {
  const bytes = Buffer.from(text, 'latin1');
  const whole = comparable(read([Buffer.from(bytes)], options));
  const check = (pieces: Buffer[], how: string): void => {
    assert.deepEqual(comparable(read(pieces, options)), whole, `${how}: ${JSON.stringify(text)}`);
  };
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
    test(`${role}: ${name}, cut everywhere`, () => {
      checkAllCuts(text, read, {});
      // At the end of its connection.
      checkAllCuts(text, read, { isEnded: true });
    });

    test(`${role}: ${name}, with a head that is too large at each of its bytes`, () => {
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
