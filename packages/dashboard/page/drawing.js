// What the charts are drawn with: colours and sizes of the page, scales, lines and texts.

/** @typedef {'gateway' | 'backend' | 'client'} Party */

// Without the library there are no lines, and everything else is there all the same.
export const hasLibrary = typeof uPlot === 'function';

/** @param {string} name */
export function styleOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function rem() {
  return Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
}

/**
 * 1, 2 or 5 times a power of ten: the nearest that is not below `value`, or not above it.
 * @type {(value: number, direction: 'up' | 'down') => number}
 */
export const roundNumber = (value, direction) => {
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 2, 5, 10].map((step) => Number((step * power).toPrecision(1)));
  const found =
    direction === 'up'
      ? steps.find((step) => step >= value * 0.999)
      : steps.findLast((step) => step <= value * 1.001);
  return found ?? value;
};

// No duration is so short that it could not be drawn on a logarithmic scale.
const shortestMs = 0.01;

/** @type {uPlot.Axis.Splits} */
export const logarithmicTicks = (_plot, _axis, min, max) => {
  const ticks = [];
  for (let tick = min; tick <= max * 1.001; tick = roundNumber(tick * 1.5, 'up')) {
    ticks.push(tick);
  }
  // For more there is no room: the powers of ten have to do.
  return ticks.length > 6 ? ticks.filter((tick) => tick.toExponential().startsWith('1e')) : ticks;
};

export const countSteps = Array.from({ length: 10 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

/** @param {number} value */
export function tickOf(value) {
  return value.toLocaleString('en', {
    maximumSignificantDigits: 3,
    notation: value >= 10_000 ? 'compact' : 'standard',
  });
}

/**
 * A value with nothing on either side would have no line: it gets a dot.
 * @type {(plot: uPlot, seriesIndex: number) => number[]}
 */
export const findLonely = (plot, seriesIndex) => {
  const values = plot.data[seriesIndex] ?? [];
  const isThere = (/** @type {number} */ index) => typeof values[index] === 'number';
  return [...values.keys()].filter((at) => isThere(at) && !isThere(at - 1) && !isThere(at + 1));
};

/**
 * The gateway's line is a broad one and the backend's a narrow one upon it: where both are the same, both are seen.
 * @param {Party} party
 * @returns {uPlot.Series}
 */
export function lineOf(party) {
  // In whole pixels of the screen, and as much on either side: the library moves lines of uneven widths by half of one.
  const pixels = (/** @type {number} */ part) => Math.max(1, Math.round(part * rem() * devicePixelRatio));
  const narrow = pixels(0.11);
  const color = () => styleOf(`--${party}-line`);
  return {
    stroke: color,
    width: (party === 'gateway' ? narrow + 2 * pixels(0.09) : narrow) / devicePixelRatio,
    points: { show: true, size: 0.4 * rem(), fill: color, filter: findLonely },
  };
}

/**
 * As a value is drawn on a logarithmic scale.
 * @param {number} value
 */
export function drawn(value) {
  return Math.max(value, shortestMs);
}

/**
 * Until `restore` texts are written as on the axes.
 * @type {(plot: uPlot, baseline: CanvasTextBaseline) => { ctx: CanvasRenderingContext2D, size: number }}
 */
export const beginText = ({ ctx }, baseline) => {
  const size = 0.75 * rem() * devicePixelRatio;
  ctx.save();
  ctx.font = `${size}px ${styleOf('--font')}`;
  ctx.fillStyle = styleOf('--quiet');
  ctx.textAlign = 'left';
  ctx.textBaseline = baseline;
  return { ctx, size };
};
