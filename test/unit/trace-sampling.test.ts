// Which calls are traced, and the ids of calls, as they are drawn from random bytes that are made many at a time [D49].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSampler, IdSource } from '../../src/telemetry/trace-sampling.ts';

const draws = 20_000;

test('no id comes twice, whatever order they are drawn in, and each is whole', () => {
  const ids = new IdSource();
  const others = new IdSource();
  const traceIds = new Set<string>();
  const spanIds = new Set<string>();
  for (let count = 0; count < draws; count += 1) {
    const pair = (count % 2 === 0 ? ids : others).drawPair();
    assert.match(pair, /^[0-9a-f]{48}$/);
    traceIds.add(pair.slice(0, 32));
    spanIds.add(pair.slice(32));
    // Some calls draw another one, so that pairs begin anywhere in a block.
    for (let more = count % 4; more > 0; more -= 1) {
      const spanId = ids.drawSpanId();
      assert.match(spanId, /^[0-9a-f]{16}$/);
      spanIds.add(spanId);
    }
  }
  assert.equal(traceIds.size, draws);
  assert.equal(spanIds.size, draws + (draws / 4) * (1 + 2 + 3));
});

test('every digit of an id is random: each value stands in each place', () => {
  const ids = new IdSource();
  const seen = Array.from({ length: 48 }, () => new Set<string>());
  for (let count = 0; count < draws; count += 1) {
    const pair = ids.drawPair();
    for (const [place, values] of seen.entries()) values.add(pair.charAt(place));
  }
  assert.ok(seen.every(({ size }) => size === 16));
});

test('ids that follow one another share no bytes', () => {
  const ids = new IdSource();
  let last = '';
  let shared = 0;
  for (let count = 0; count < draws; count += 1) {
    const pair = ids.drawPair();
    if (pair.slice(0, 2) === last.slice(-2)) shared += 1;
    last = pair;
  }
  // By chance one in 256.
  assert.ok(shared < draws / 20, String(shared));
});

test('the last bits are those of the trace id that was drawn last', () => {
  const ids = new IdSource();
  for (let count = 0; count < draws; count += 1) {
    const pair = ids.drawPair();
    if (count % 3 === 0) ids.drawSpanId();
    assert.equal(ids.lastBits, Number.parseInt(pair.slice(24, 32), 16));
  }
});

test('a share is that of the last bits, from none to all', () => {
  const isSampled = createSampler('traceidratio', 0.25);
  assert.deepEqual(
    [0, 2 ** 30 - 1, 2 ** 30, 2 ** 32 - 1].map((lastBits) => isSampled(lastBits, undefined)),
    [true, true, false, false],
  );
  assert.equal(createSampler('traceidratio', 0)(0, true), false);
  assert.equal(createSampler('traceidratio', 1)(2 ** 32 - 1, false), true);
});

test('with a parent, and only there, samplers that look at it do as it has decided', () => {
  const cases = [
    ['parentbased_traceidratio', true, true],
    ['parentbased_traceidratio', false, false],
    ['parentbased_traceidratio', undefined, false],
    ['parentbased_always_on', false, false],
    ['parentbased_always_on', undefined, true],
    ['parentbased_always_off', true, true],
    ['parentbased_always_off', undefined, false],
    ['always_on', false, true],
    ['always_off', true, false],
    ['traceidratio', true, false],
  ] as const;
  for (const [name, parent, expected] of cases) {
    assert.equal(createSampler(name, 0.5)(2 ** 32 - 1, parent), expected, `${name}, ${String(parent)}`);
  }
});
