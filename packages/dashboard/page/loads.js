// The load figures, each with a sparkline. A figure with a limit also has a meter.

import { byId, make, setText } from './dom.js';
import { formatBytes, formatCount, formatMs } from './format.js';

/** @import { Facts, Now, Point } from '../state.ts' */

/**
 * @typedef {object} Load
 * @property {string} name
 * @property {(value: number) => string} format
 * @property {(now: Now) => number} value
 * @property {(facts: Facts) => number} [max]
 * @property {(now: Now) => string} [note] shown in place of a limit
 * @property {(point: Point) => number} pick
 */

/** @type {readonly Load[]} */
const loads = [
  {
    name: 'Calls in flight',
    format: formatCount,
    value: ({ inFlight }) => inFlight,
    max: ({ inFlightMax }) => inFlightMax,
    pick: ({ inFlight }) => inFlight,
  },
  {
    name: 'Buffered bodies',
    format: formatBytes,
    value: ({ bufferedBytes }) => bufferedBytes,
    max: ({ bufferedBytesMax }) => bufferedBytesMax,
    pick: ({ bufferedBytes }) => bufferedBytes,
  },
  {
    name: 'Memory',
    format: formatBytes,
    value: ({ workers }) => workers.reduce((sum, { residentBytes }) => sum + residentBytes, 0),
    note: ({ workers }) => `heap ${formatBytes(workers.reduce((sum, { heapUsedBytes }) => sum + heapUsedBytes, 0))}`,
    pick: ({ residentBytes }) => residentBytes,
  },
  {
    name: 'Event loop delay',
    format: formatMs,
    value: ({ workers }) => Math.max(0, ...workers.map(({ eventLoopDelayMs }) => eventLoopDelayMs)),
    note: () => 'p99 over ~5\u00a0s',
    pick: ({ eventLoopDelayMs }) => eventLoopDelayMs,
  },
];

/**
 * Adds a load figure to the page. Returns the function that updates it.
 * @param {Load} load
 */
function createLoad({ name, format, value, max, note, pick }) {
  const figure = make('b');
  const limit = make('small');
  const meter = make('div', { className: 'meter', role: 'meter', ariaLabel: `${name}, share of the limit` });
  const spark = make('div', { className: 'spark', ariaHidden: 'true' });
  spark.innerHTML =
    '<svg viewBox="0 -3 100 105" preserveAspectRatio="none"><path vector-effect="non-scaling-stroke" /></svg>' +
    '<small></small><small>0</small>';
  const [path, top] = [spark.querySelector('path'), spark.querySelector('small')];
  const figures = make('dd', {}, figure, ' ', limit, ...(max === undefined ? [] : [meter]), spark);
  byId('loads').append(make('div', {}, make('dt', {}, name), figures));

  /** @type {(facts: Facts, now: Now, points: readonly Point[]) => void} */
  return (facts, now, points) => {
    const most = max?.(facts) ?? Infinity;
    setText(figure, format(value(now)));
    setText(limit, note?.(now) ?? `of ${format(most)}`);
    const percent = Math.min(100, (value(now) / most) * 100);
    Object.assign(meter, {
      ariaValueNow: percent.toFixed(1),
      ariaValueText: `${figure.textContent} ${limit.textContent}`,
    });
    meter.classList.toggle('full', percent >= 80);
    meter.style.setProperty('--part', `${percent}%`);
    const highest = Math.max(0, ...points.map(pick));
    top?.replaceChildren(highest === 0 ? '' : format(highest));
    const drawn = points.map((point) => {
      const left = 100 - ((now.at - point.at) / facts.historyMs) * 100;
      return `${left} ${100 - (pick(point) / (highest || 1)) * 100}`;
    });
    // The first point is drawn twice, so that a single point is visible as a dot.
    path?.setAttribute('d', drawn.length === 0 ? '' : `M${drawn[0]}L${drawn.join('L')}`);
  };
}

const shows = loads.map(createLoad);

/** @type {(...shown: Parameters<ReturnType<typeof createLoad>>) => void} */
export const showLoads = (...shown) => {
  for (const show of shows) {
    show(...shown);
  }
};
