// The load figures, each with a sparkline. A figure with a limit also has a meter.

import { drawLine } from './charts.js';
import { byId, make, setText } from './dom.js';
import { formatBytes, formatCount, formatMs } from './format.js';

/** @import { Facts, Load, Now, Point } from '../state.ts' */

/**
 * @typedef {object} ShownLoad
 * @property {string} name
 * @property {keyof Load} key
 * @property {(value: number) => string} format
 * @property {(facts: Facts) => number} [max]
 * @property {(now: Now) => string} [note] shown in place of a limit
 */

/** @type {readonly ShownLoad[]} */
const loads = [
  { name: 'Calls in flight', key: 'inFlight', format: formatCount, max: ({ inFlightMax }) => inFlightMax },
  { name: 'Buffered bodies', key: 'bufferedBytes', format: formatBytes, max: ({ bufferedBytesMax: max }) => max },
  {
    name: 'Memory',
    key: 'residentBytes',
    format: formatBytes,
    note: ({ workers }) => `heap ${formatBytes(workers.reduce((sum, { heapUsedBytes }) => sum + heapUsedBytes, 0))}`,
  },
  { name: 'Event loop delay', key: 'eventLoopDelayMs', format: formatMs, note: () => 'p99 over ~5\u00a0s' },
];

/**
 * Adds a load figure to the page. Returns the function that updates it.
 * @param {ShownLoad} load
 */
function createLoad({ name, key, format, max, note }) {
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
    setText(figure, format(now[key]));
    setText(limit, note?.(now) ?? `of ${format(most)}`);
    const percent = Math.min(100, (now[key] / most) * 100);
    Object.assign(meter, {
      ariaValueNow: percent.toFixed(1),
      ariaValueText: `${figure.textContent} ${limit.textContent}`,
    });
    meter.classList.toggle('full', percent >= 80);
    meter.style.setProperty('--part', `${percent}%`);
    const highest = Math.max(0, ...points.map((point) => point[key]));
    setText(top, highest === 0 ? '' : format(highest));
    const leftOf = (/** @type {number} */ at) => 100 - ((now.at - at) / facts.historyMs) * 100;
    path?.setAttribute('d', drawLine(points.map((point) => [leftOf(point.at), (point[key] / (highest || 1)) * 100])));
  };
}

const shows = loads.map(createLoad);

/** @type {(...shown: Parameters<ReturnType<typeof createLoad>>) => void} */
export const showLoads = (...shown) => {
  for (const show of shows) {
    show(...shown);
  }
};
