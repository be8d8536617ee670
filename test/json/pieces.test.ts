// The texts of vectors.ts get their expected results, and a text in pieces gets the same result as the whole text
// [D13]. The oracle is JSON.parse (oracle.ts).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countJsonBytes, isJson, JsonChecker } from '../../packages/core/json/json.ts';
import { bytesOf, isJsonByOracle, isJsonByteByByte, isJsonInPieces, shown } from './oracle.ts';
import { createRandom, everyToken, mutate } from './texts.ts';
import { jsonVectors } from './vectors.ts';

const windowBytes = 65_536; // the scanner reads longer texts in slices of this size

test("if a byte of the text with every kind of token is replaced, the text gets the oracle's result, whole and split at that byte", () => {
  const bytes = Buffer.from(everyToken);
  for (let at = 0; at < bytes.length; at += 1) {
    const original = bytes[at] ?? 0;
    for (let byte = 0; byte < 256; byte += 1) {
      bytes[at] = byte;
      const expected = isJsonByOracle(bytes);
      if (isJson(bytes) !== expected) assert.fail(`${shown(bytes)} is ${expected ? '' : 'not '}JSON`);
      if (isJsonInPieces(bytes, [at]) !== expected) assert.fail(`${shown(bytes)} cut at ${at}`);
      if (isJsonInPieces(bytes, [at + 1]) !== expected) assert.fail(`${shown(bytes)} cut at ${at + 1}`);
    }
    bytes[at] = original;
  }
});

test("every token may cross the edge of the scanner's window, and a mutated text at this edge gets the oracle's result", () => {
  const random = createRandom(20_260_101);
  for (let before = 0; before <= everyToken.length; before += 1) {
    const space = Buffer.alloc(windowBytes - before, ' ');
    const mark = everyToken.subarray(0, 3);
    const text = Buffer.concat([mark, space, everyToken.subarray(3)]);
    assert.ok(isJson(text), `${before} bytes before the edge`);
    const broken = Buffer.concat([mark, space, mutate(everyToken.subarray(3), everyToken, random)]);
    assert.equal(isJson(broken), isJsonByOracle(broken), `${before}: ${shown(broken.subarray(space.length))}`);
  }
});

test("numbers of up to 140 digits get the oracle's result, with different texts before and after them", () => {
  // The scanner searches 64 bytes together for digits, and reuses the result for a second number in these bytes.
  const befores = [
    '', '[', '[1,', '[12,3,', '[1.5,', `[1,"${'x'.repeat(30)}",`, `[1,${' '.repeat(25)}`,
  ]; // prettier-ignore
  for (const before of befores) {
    for (const behind of ['', ']', ',1]', 'x]', 'xx]', 'xxx]', '-1]', '"]', '","]', '.5]', '.]', 'e1]', '1.1.1]']) {
      // prettier-ignore
      for (let count = 0; count <= 140; count += 1) {
        for (const digits of ['7'.repeat(count), `0.${'7'.repeat(count)}`, `1e${'7'.repeat(count)}`]) {
          const text = Buffer.from(before + digits + behind);
          if (isJson(text) !== isJsonByOracle(text)) assert.fail(shown(text));
        }
      }
    }
  }
});

test('a thousand interleaved checkers do not affect each other', () => {
  const random = createRandom(7);
  const texts = Array.from({ length: 1000 }, (_, index) => {
    const deep = index % 3 === 0 ? 10 * (index % 40) : 0;
    const text = Buffer.concat([
      Buffer.from('['.repeat(deep)),
      everyToken.subarray(deep > 0 ? 3 : 0),
      Buffer.from(']'.repeat(deep)),
    ]);
    return index % 2 === 0 ? text : mutate(text, everyToken, random);
  });
  const open = texts.map((text) => ({ text, at: 0, valid: true, checker: new JsonChecker() }));
  while (open.some(({ text, at }) => at < text.length)) {
    for (const one of open) {
      const to = one.at + Math.floor(random() * 20);
      one.valid = one.checker.write(one.text.subarray(one.at, to)) && one.valid;
      one.at = to;
    }
  }
  for (const { text, valid, checker } of open) {
    assert.equal(valid && checker.end(), isJsonByOracle(text), shown(text));
  }
});

test('an empty piece changes nothing, and an empty text is not JSON', () => {
  const checker = new JsonChecker();
  assert.equal(checker.end(), false);
  for (const piece of ['', '[', '', '1', '', ']', '']) assert.equal(checker.write(Buffer.from(piece)), true);
  assert.equal(checker.end(), true);
});

test('write returns false for the first byte that makes the text invalid, and for all bytes after it', () => {
  // prettier-ignore
  for (const [before, byte] of [
    ['[1,', ']'], ['{"a":1', ']'], ['[tr', 'a'], ['"\\u00', 'g'], ['"a', '\n'], ['0', '1'], ['1 ', '2'],
    ['"\xe0', '\x80'], ['"\xed', '\xa0'], ['"\xf0', '\x8f'], ['"\xf4', '\x90'], ['"\xe6\x9d', 'a'], ['"', '\xc0'],
    ['"', '\xf5'], ['', '\xbb'], ['\xef\xbb', 'a'],
  ] as const) {
    const checker = new JsonChecker();
    assert.equal(checker.write(bytesOf(before)), true, before);
    assert.equal(checker.write(bytesOf(byte)), false, shown(bytesOf(before + byte)));
    assert.equal(checker.write(bytesOf(' ')), false);
    assert.equal(checker.end(), false);
  }
});

test('any view of bytes is accepted, and its bytes are not changed', () => {
  const buffer = new ArrayBuffer(everyToken.length + 7);
  const view = new Uint8Array(buffer, 5, everyToken.length);
  view.set(everyToken);
  assert.equal(isJson(view), true);
  assert.equal(isJsonInPieces(view, [1, 50]), true);
  assert.deepEqual(Buffer.from(view), everyToken);
});

test('every text gets its expected result: whole, byte by byte, and split at any byte [D13]', () => {
  for (const { name, bytes, isValid } of jsonVectors) {
    if (name.endsWith('.json')) assert.match(name, /^[yn]_/);
    assert.equal(isJsonByOracle(bytes), isValid, `${name}: the oracle`);
    assert.equal(isJson(bytes), isValid, `${name}: whole`);
    assert.equal(isJsonByteByByte(bytes), isValid, `${name}: byte by byte`);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      assert.equal(isJsonInPieces(bytes, [cut]), isValid, `${name}: cut at ${cut}`);
    }
  }
});

test('the number of bytes that can begin a JSON text', () => {
  // prettier-ignore
  for (const [text, bytes] of [
    ['', 0], ['{"a":}', 5], ['{"a":1', 6], ['{"a":1}}', 7], ["{'a':1}", 1], ['[1,]', 3], ['01', 1], ['[1.]', 3], ['nul', 3],
    ['tru3', 3], ['"\\u12g4"', 5], ['"\t"', 1], ['\xef\xbb\xbf{}x', 5], ['"\xe2\x82"', 3],
  ] as const) {
    assert.equal(countJsonBytes(bytesOf(text)), bytes, text);
  }
});

test('any text can begin a JSON text up to the byte that a checker refuses, if it reads byte by byte', () => {
  const random = createRandom(7);
  for (let round = 0; round < 500; round += 1) {
    const bytes = mutate(everyToken, everyToken, random);
    const checker = new JsonChecker();
    const wrong = bytes.findIndex((_, at) => !checker.write(bytes.subarray(at, at + 1)));
    assert.equal(countJsonBytes(bytes), wrong === -1 ? bytes.length : wrong, shown(bytes));
  }
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

test("mutations of the text with every kind of token get the oracle's result, whole and in pieces", () => {
  const random = createRandom(20_260_102);
  for (let round = 0; round < 20_000; round += 1) {
    const bytes = mutate(everyToken, everyToken, random);
    const expected = isJsonByOracle(bytes);
    const cuts = Array.from({ length: round % 5 }, () => Math.floor(random() * bytes.length)).sort((a, b) => a - b);
    if (isJson(bytes) !== expected) assert.fail(shown(bytes));
    if (isJsonInPieces(bytes, cuts) !== expected) assert.fail(`${shown(bytes)} cut at ${cuts.join()}`);
  }
});
