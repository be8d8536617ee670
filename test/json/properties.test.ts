// Compares the checker with the oracle (JSON.parse) on generated texts [D13]: JSON, JSON with faults, and random bytes.
// fast-check prints seed and path of a failure.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isJson } from '../../packages/core/json/json.ts';
import { isJsonByOracle, isJsonInPieces, shown } from './oracle.ts';
import { createRandom, everyToken, fragments, mutate } from './texts.ts';

const space = fc.stringMatching(/^[ \n\r\t]{0,3}$/);
const character = fc.oneof(
  fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }).map((one) => JSON.stringify(one).slice(1, -1)),
  fc.constantFrom('\\/', '\\u00e9', '\\uD834\\uDD1E', '\\ud800', '\\"', '\\\\', '😀', '東', 'é', '\u007f'),
);
const text = fc.array(character, { maxLength: 40 }).map((all) => `"${all.join('')}"`);
const number = fc.stringMatching(/^-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,5})?$/);

// Generates JSON as text, because JSON.stringify does not write every valid form of a value.
const { value } = fc.letrec<{ value: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 6, withCrossShrink: true },
    fc.constantFrom('true', 'false', 'null', '0', '-0', '""', '[]', '{}'),
    number,
    text,
    fc
      .array(fc.tuple(space, tie('value'), space), { maxLength: 5 })
      .map((all) => `[${all.map((one) => one.join('')).join(',')}]`),
    fc
      .array(fc.tuple(space, text, space, fc.constant(':'), space, tie('value'), space), { maxLength: 5 })
      .map((all) => `{${all.map((one) => one.join('')).join(',')}}`),
  ),
}));
const json = fc.tuple(fc.constantFrom('', '', '\ufeff'), space, value, space).map((all) => Buffer.from(all.join('')));

const cuts = fc.array(fc.nat({ max: 400 }), { maxLength: 6 });

function assertAgrees(bytes: Uint8Array, places: readonly number[]): void {
  const expected = isJsonByOracle(bytes);
  assert.equal(isJson(bytes), expected, shown(bytes));
  const within = places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b);
  assert.equal(isJsonInPieces(bytes, within), expected, `${shown(bytes)} cut at ${within.join()}`);
}

test("generated JSON is accepted, and with faults it gets the oracle's result, whole and in pieces", () => {
  fc.assert(
    fc.property(json, json, fc.integer(), cuts, (bytes, other, seed, places) => {
      assert.ok(isJson(bytes), shown(bytes));
      assertAgrees(bytes, places);
      const random = createRandom(seed);
      for (let time = 0; time < 8; time += 1) assertAgrees(mutate(bytes, other, random), places);
    }),
    { numRuns: 1500 },
  );
});

test("fragments of JSON in any order get the oracle's result", () => {
  const some = fc.array(fc.constantFrom(...fragments), { maxLength: 12 }).map((all) => Buffer.concat(all));
  fc.assert(fc.property(some, cuts, assertAgrees), { numRuns: 4000 });
});

test("sequences of one or two bytes, and sequences of three or four bytes at the limits of UTF-8's ranges, get the oracle's result", () => {
  const limits = [0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1];
  limits.push(0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff);
  const check = (...middle: number[]): void => {
    const bytes = Buffer.from([0x22, ...middle, 0x22]);
    const expected = isJsonByOracle(bytes);
    if (isJson(bytes) !== expected) assert.fail(shown(bytes));
    for (let cut = 2; cut <= middle.length; cut += 1) {
      if (isJsonInPieces(bytes, [cut]) !== expected) assert.fail(`${shown(bytes)} cut at ${cut}`);
    }
  };
  for (let first = 0; first < 256; first += 1) {
    check(first);
    if (first < 0x7e) continue;
    for (let second = 0; second < 256; second += 1) check(first, second);
  }
  for (const first of limits) {
    for (const second of limits) {
      for (const third of limits) {
        check(first, second, third);
        for (const fourth of [0x22, 0x7f, 0x80, 0xbf, 0xc0]) check(first, second, third, fourth);
      }
    }
  }
});

test("mutations of the text with every kind of token get the oracle's result", () => {
  fc.assert(
    fc.property(fc.integer(), cuts, (seed, places) => {
      const random = createRandom(seed);
      for (let time = 0; time < 20; time += 1) assertAgrees(mutate(everyToken, everyToken, random), places);
    }),
    { numRuns: 1000 },
  );
});
