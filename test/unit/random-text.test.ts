// Texts with random digits, many of which are made at a time [D25, D49].

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RandomText } from '../../packages/core/text/random-text.ts';

const draws = 20_000;
const form = 'a-xxxxxxxx-yx-xxxxxxxx-02';

test('no text comes twice, and each has its form', () => {
  const sources = [new RandomText(form), new RandomText(form)];
  const seen = new Set<string>();
  for (let count = 0; count < draws; count += 1) {
    const text = sources[count % 2]?.draw() ?? '';
    assert.match(text, /^a-[0-9a-f]{8}-[89ab][0-9a-f]-[0-9a-f]{8}-02$/);
    seen.add(text);
  }
  assert.equal(seen.size, draws);
});

test('every value comes in each place about as often as any other', () => {
  const source = new RandomText(form);
  const counts = Array.from(form, () => new Map<string, number>());
  for (let count = 0; count < draws; count += 1) {
    for (const [place, digit] of Array.from(source.draw()).entries()) {
      counts[place]?.set(digit, (counts[place].get(digit) ?? 0) + 1);
    }
  }
  for (const [place, of] of Array.from(form).entries()) {
    const values = of === 'x' ? 16 : of === 'y' ? 4 : 1;
    assert.equal(counts[place]?.size, values, `place ${place}`);
    for (const [digit, count] of counts[place] ?? []) {
      // Six times the standard deviation of a fair one.
      const tolerance = 6 * Math.sqrt((draws * (1 - 1 / values)) / values);
      assert.ok(
        Math.abs(count - draws / values) <= tolerance,
        `place ${place}: ${digit} came ${count} times`,
      );
    }
  }
});

test('no digits are used twice: neighbours in one text and in two share them as often as by chance', () => {
  const source = new RandomText(form);
  let last = '';
  let shared = 0;
  for (let count = 0; count < draws; count += 1) {
    const text = source.draw();
    if (text.slice(2, 4) === last.slice(20, 22)) shared += 1;
    if (text.slice(2, 4) === text.slice(14, 16)) shared += 1;
    last = text;
  }
  // One in 256 of each.
  assert.ok(shared < draws / 50, String(shared));
});

test('a text stays what it is, however many are drawn behind it', () => {
  const source = new RandomText(form);
  const first = source.draw();
  const copy = Buffer.from(first).toString();
  for (let count = 0; count < draws; count += 1) source.draw();
  assert.equal(first, copy);
});
