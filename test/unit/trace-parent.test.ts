// The parts of a trace parent, and the sampling of traces [D49].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSampler, spanIdOf, traceIdOf, traceParents } from '../../packages/command/traces/trace-parent.ts';

test('in a new trace parent, the flag `random` is set and the flag `sampled` is not', () => {
  for (let count = 0; count < 1_000; count += 1) {
    const traceParent = traceParents.draw();
    assert.match(traceParent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-02$/);
    assert.equal(`00-${traceIdOf(traceParent)}-${spanIdOf(traceParent)}-02`, traceParent);
  }
});

const withLastBits = (bits: number): string =>
  `00-${'5'.repeat(24)}${bits.toString(16).padStart(8, '0')}-${'1'.repeat(16)}-02`;

test('a trace is sampled if the last 32 bits of its id are less than the ratio times 2 ** 32', () => {
  const highest = 2 ** 32 - 1;
  for (const ratio of [0, 1e-9, 2 ** -32, 0.01, 0.25, 1 / 3, 0.999, 1 - 2 ** -32, 1]) {
    const isSampled = createSampler('traceidratio', ratio);
    const limit = Math.min(highest, Math.ceil(ratio * 2 ** 32));
    const near = [limit - 1, limit, limit + 1].filter((bits) => bits >= 0 && bits <= highest);
    for (const bits of [0, 1, 9, 10, 15, 16, 0xff, 2 ** 30, 2 ** 31, highest - 1, highest, ...near]) {
      assert.equal(isSampled(withLastBits(bits), undefined), bits < ratio * 2 ** 32, `${bits} of ${ratio}`);
    }
  }
});

test('a sampler selects its ratio of traces', () => {
  const isSampled = createSampler('traceidratio', 0.25);
  const draws = 20_000;
  let count = 0;
  for (let index = 0; index < draws; index += 1) count += isSampled(traceParents.draw(), undefined) ? 1 : 0;
  // Tolerates six standard deviations.
  assert.ok(Math.abs(count - draws / 4) < 6 * Math.sqrt(draws * 0.25 * 0.75), String(count));
});

test("parent-based samplers follow the parent's decision, other samplers ignore it", () => {
  const cases = [
    ['parentbased_traceidratio', true, true], ['parentbased_traceidratio', false, false],
    ['parentbased_traceidratio', undefined, false], ['parentbased_always_on', false, false],
    ['parentbased_always_on', undefined, true], ['parentbased_always_off', true, true],
    ['parentbased_always_off', undefined, false], ['always_on', false, true], ['always_off', true, false],
    ['traceidratio', true, false],
  ] as const; // prettier-ignore
  for (const [name, parent, expected] of cases) {
    assert.equal(createSampler(name, 0.5)(withLastBits(2 ** 32 - 1), parent), expected, `${name}, ${String(parent)}`);
  }
});
