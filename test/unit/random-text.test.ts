// Texts with random digits, created many at a time [D25, D49].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RandomText } from '../../packages/core/text/random-text.ts';

const draws = 20_000;
const form = 'a-xxxxxxxx-yx-xxxxxxxx-02';

test('texts are distinct and have the given form', () => {
  const sources = [new RandomText(form), new RandomText(form)];
  const seen = new Set<string>();
  for (let count = 0; count < draws; count += 1) {
    const text = sources[count % 2]?.draw() ?? '';
    assert.match(text, /^a-[0-9a-f]{8}-[89ab][0-9a-f]-[0-9a-f]{8}-02$/);
    seen.add(text);
  }
  assert.equal(seen.size, draws);
});

test('digits are distributed evenly at each place', () => {
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
      // Tolerates six standard deviations of an even distribution.
      const tolerance = 6 * Math.sqrt((draws * (1 - 1 / values)) / values);
      assert.ok(Math.abs(count - draws / values) <= tolerance, `place ${place}: ${digit} came ${count} times`);
    }
  }
});

test('random digits are not reused within a text or in the next text', () => {
  const source = new RandomText(form);
  let last = '';
  let shared = 0;
  for (let count = 0; count < draws; count += 1) {
    const text = source.draw();
    if (text.slice(2, 4) === last.slice(20, 22)) shared += 1;
    if (text.slice(2, 4) === text.slice(14, 16)) shared += 1;
    last = text;
  }
  // Two pairs of random digits are equal once in 256 times, so `shared` is about draws / 128.
  assert.ok(shared < draws / 50, String(shared));
});

test('a text does not change when other texts are drawn', () => {
  const source = new RandomText(form);
  const first = source.draw();
  const copy = Buffer.from(first).toString();
  for (let count = 0; count < draws; count += 1) source.draw();
  assert.equal(first, copy);
});
