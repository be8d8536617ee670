// The load: each figure with its limit, how near it is to that, and how it went.

import { findLonely, hasLibrary, styleOf } from './drawing.js';
import { byId, make, setText } from './dom.js';
import { formatBytes, formatCount, formatMs } from './format.js';

/** @import { Facts, Now, Point } from '../state.ts' */

/**
 * @typedef {object} Load
 * @property {string} name
 * @property {(value: number) => string} format
 * @property {(now: Now) => number} value
 * @property {(facts: Facts, now: Now) => string} limit
 * @property {(facts: Facts) => number} [max]
 * @property {(point: Point) => number} pick
 */

/** @type {readonly Load[]} */
const loads = [
  {
    name: 'Calls in flight',
    format: formatCount,
    value: ({ inFlight }) => inFlight,
    limit: ({ inFlightMax }) => `of ${formatCount(inFlightMax)}`,
    max: ({ inFlightMax }) => inFlightMax,
    pick: ({ inFlight }) => inFlight,
  },
  {
    name: 'Buffered bodies',
    format: formatBytes,
    value: ({ bufferedBytes }) => bufferedBytes,
    limit: ({ bufferedBytesMax }) => `of ${formatBytes(bufferedBytesMax)}`,
    max: ({ bufferedBytesMax }) => bufferedBytesMax,
    pick: ({ bufferedBytes }) => bufferedBytes,
  },
  {
    name: 'Memory',
    format: formatBytes,
    value: ({ workers }) => workers.reduce((sum, { residentBytes }) => sum + residentBytes, 0),
    limit: (_, { workers }) =>
      `${formatBytes(workers.reduce((sum, { heapUsedBytes }) => sum + heapUsedBytes, 0))} of it heap`,
    pick: ({ residentBytes }) => residentBytes,
  },
  {
    name: 'Event loop late by',
    format: formatMs,
    value: ({ workers }) => Math.max(0, ...workers.map(({ eventLoopDelayMs }) => eventLoopDelayMs)),
    limit: () => 'p99 of some seconds',
    pick: ({ eventLoopDelayMs }) => eventLoopDelayMs,
  },
];

class LoadChart {
  /** @type {uPlot | undefined} */
  #plot;
  #value = make('b');
  #limit = make('span');
  #top = make('span');
  #area = make('div');
  #bar = make('i');
  #meter = make(
    'div',
    { className: 'meter', role: 'meter', ariaValueMin: '0', ariaValueMax: '100' },
    this.#bar,
  );

  /** @param {Load} load */
  constructor(load) {
    this.load = load;
    this.#meter.ariaLabel = `${load.name}, part of the limit`;
    const spark = make('div', { className: 'spark' }, this.#area, this.#top, make('span', {}, '0'));
    spark.ariaHidden = 'true';
    const figures = make('dd', {}, this.#value, ' ', this.#limit);
    figures.append(...(load.max === undefined ? [] : [this.#meter]), spark);
    byId('loads').append(make('div', {}, make('dt', {}, load.name), figures));
  }

  /** @type {(facts: Facts, now: Now, points: readonly Point[]) => void} */
  show = (facts, now, points) => {
    const { load } = this;
    const value = load.value(now);
    setText(this.#value, load.format(value));
    setText(this.#limit, load.limit(facts, now));
    const percent = Math.min(100, (value / (load.max?.(facts) ?? Infinity)) * 100);
    this.#meter.ariaValueNow = percent.toFixed(1);
    this.#meter.ariaValueText = `${this.#value.textContent} ${this.#limit.textContent}`;
    this.#meter.classList.toggle('full', percent >= 80);
    this.#bar.style.width = `${percent}%`;
    const values = points.map(load.pick);
    const top = Math.max(0, ...values);
    setText(this.#top, top === 0 ? '' : load.format(top));
    if (hasLibrary) {
      const size = { width: this.#area.clientWidth, height: this.#area.clientHeight };
      const plot = (this.#plot ??= this.#build(size));
      if (plot.width !== size.width || plot.height !== size.height) {
        plot.setSize(size);
      }
      plot.batch(() => {
        plot.setData([points.map(({ at }) => at / 1_000), values], false);
        plot.setScale('x', { min: (now.at - facts.historyMs) / 1_000, max: now.at / 1_000 });
        plot.setScale('y', { min: 0, max: top === 0 ? 1 : top });
      });
    }
  };

  /** @param {{ width: number, height: number }} size */
  #build(size) {
    return new uPlot(
      {
        ...size,
        padding: [2, 0, 2, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: true }, y: { range: (_, min, max) => [min, max] } },
        axes: [{ show: false }, { show: false }],
        series: [
          {},
          {
            stroke: () => styleOf('--gateway-line'),
            width: 1.25,
            points: { show: true, filter: findLonely },
          },
        ],
      },
      [[], []],
      this.#area,
    );
  }
}

/** @type {LoadChart[]} */
let charts = [];

/** @type {(...shown: Parameters<LoadChart['show']>) => void} */
export const showLoads = (...shown) => {
  charts = charts.length === 0 ? loads.map((load) => new LoadChart(load)) : charts;
  for (const chart of charts) {
    chart.show(...shown);
  }
};
