// The scales and paths of the dashboard's charts.

import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Scale {
  readonly place: (value: number) => number;
  readonly ticks: readonly number[];
}
interface Step {
  readonly at: number;
  readonly values: readonly (number | null)[];
}
const chartsModule = new URL('../../packages/dashboard/page/charts.js', import.meta.url).href;
const { linearScale, logarithmicScale, drawLine, drawBars } = (await import(chartsModule)) as {
  linearScale: (most: number, isOfCounts: boolean) => Scale;
  logarithmicScale: (least: number, most: number) => Scale;
  drawLine: (places: readonly (readonly [left: number, bottom: number] | null)[]) => string;
  drawBars: (steps: readonly Step[], x: (at: number) => number, y: Scale, stepMs: number) => string[];
};

test('latency: one spike of 150 ms leaves the other values readable', () => {
  const { place, ticks } = logarithmicScale(8, 150);
  const [p50, p99, spike] = [place(8), place(20), place(150)];
  assert.ok(p50 > 5 && p99 - p50 > 15 && spike - p99 > 30 && spike <= 100, `${p50}, ${p99}, ${spike}`);
  assert.deepEqual(ticks, [10, 30, 100]);
  assert.deepEqual(logarithmicScale(8, 20).ticks, [5, 10, 20, 50]);
  assert.deepEqual(logarithmicScale(0.4, 900).ticks, [1, 10, 100, 1_000]);
  assert.equal(logarithmicScale(0.01, 1).place(0), logarithmicScale(0.01, 1).place(0.01), 'zero is drawn as 0.01 ms');
});

test('other scales begin at zero and have a few ticks at round numbers; scales of counts have ticks only at whole numbers', () => {
  for (const [most, isOfCounts, expected] of [
    [0, false, [0, 0.5, 1]],
    [0, true, [0, 1]],
    [3, true, [0, 1, 2, 3]],
    [9.2, false, [0, 5]],
    [210, false, [0, 100, 200]],
    [48_000, true, [0, 20_000, 40_000]],
  ] as const) {
    const { place, ticks } = linearScale(most, isOfCounts);
    assert.deepEqual([place(0), ...ticks], [0, ...expected], String(most));
    assert.ok(place(most) < 95, 'there is room above the largest value');
  }
});

test('lines break at missing values, bars are stacked, and one failure is visible next to hundreds', () => {
  assert.equal(drawLine([[0, 0], [10, 50], null, [30, 100], null]), 'M0.00 100.00h0L10.00 50.00M30.00 0.00h0');
  const steps = [
    [300, 200, 100],
    [0, 0, 0],
    [1, 0, 0],
  ].map((values, step) => ({ at: 10 + step * 10, values }));
  assert.deepEqual(
    drawBars(steps, (at) => at, { place: (value) => value / 10, ticks: [] }, 5),
    [
      'M5.00 70.00h5.00v30.00H5.00zM25.00 97.50h5.00v2.50H25.00z',
      'M5.00 50.00h5.00v20.00H5.00z',
      'M5.00 40.00h5.00v10.00H5.00z',
    ],
  );
});
