// The charts: three of them with the same times and one cursor, and the small ones beside the load. Blue is the
// backend, ink (black or white) the gateway, grey the clients; nowhere on the page is it any other way.

import { formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { FlowName, Point, Summary } from '../state.ts' */

/** @typedef {'gateway' | 'backend' | 'client'} Party */

/** @typedef {Pick<Point, 'flows' | 'seconds'>} Stretch a step of the history, or what several add up to */

/**
 * @typedef {object} Line
 * @property {string} name in the legend after the party's, and at the end of the line; empty for the only one
 * @property {(stretch: Stretch, flow: FlowName) => number | null} pick
 */

/**
 * @typedef {object} Group the lines of a party
 * @property {string} name
 * @property {Party} party
 * @property {Line[]} lines
 */

/**
 * @typedef {object} ChartKind
 * @property {string} title
 * @property {(stepMs: number) => string} unit
 * @property {Group[]} groups
 * @property {(value: number | null) => string} format
 * @property {'lines' | 'bars'} shape bars stand upon each other
 * @property {boolean} [isLogarithmic]
 */

/**
 * How many requests of a flow a party has failed. What called no operation is among all.
 * @param {Party} party
 * @returns {Line['pick']}
 */
function failedBy(party) {
  return ({ flows }, flow) => flows[flow].failed[party] + (flow === 'all' ? flows.none.failed[party] : 0);
}

/** @type {readonly ChartKind[]} */
const kinds = [
  {
    title: 'Requests',
    unit: () => 'a second',
    shape: 'lines',
    groups: [
      {
        name: 'from clients',
        party: 'gateway',
        lines: [{ name: '', pick: ({ flows, seconds }, flow) => flows[flow].requests / seconds }],
      },
      {
        name: 'to the backend',
        party: 'backend',
        lines: [{ name: '', pick: ({ flows, seconds }, flow) => flows[flow].backendCalls / seconds }],
      },
    ],
    format: (value) => (value === null ? '–' : formatRate(value)),
  },
  {
    title: 'Failed requests',
    unit: (stepMs) => `in ${stepMs / 1_000} s, by fault`,
    shape: 'bars',
    groups: [
      { name: 'backend', party: 'backend', lines: [{ name: '', pick: failedBy('backend') }] },
      { name: 'gateway', party: 'gateway', lines: [{ name: '', pick: failedBy('gateway') }] },
      { name: 'clients', party: 'client', lines: [{ name: '', pick: failedBy('client') }] },
    ],
    format: (value) => (value === null ? '–' : formatCount(value)),
  },
  {
    title: 'Latency',
    unit: () => 'ms, logarithmic scale',
    shape: 'lines',
    isLogarithmic: true,
    groups: [
      {
        name: 'requests',
        party: 'gateway',
        lines: [
          { name: 'p50', pick: ({ flows }, flow) => flows[flow].p50 },
          { name: 'p99', pick: ({ flows }, flow) => flows[flow].p99 },
        ],
      },
      {
        name: 'backend',
        party: 'backend',
        lines: [
          { name: 'p50', pick: ({ flows }, flow) => flows[flow].backendP50 },
          { name: 'p99', pick: ({ flows }, flow) => flows[flow].backendP99 },
        ],
      },
    ],
    format: formatMs,
  },
];

// Without the library there are no lines, and everything else is there all the same.
const hasLibrary = typeof uPlot === 'function';

/** @param {string} name */
function styleOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function rem() {
  return Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
}

/**
 * 1, 2 or 5 times a power of ten: the nearest that is not below `value`, or not above it.
 * @param {number} value
 * @param {'up' | 'down'} direction
 */
function roundNumber(value, direction) {
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 2, 5, 10].map((step) => Number((step * power).toPrecision(1)));
  return (
    (direction === 'up'
      ? steps.find((step) => step >= value * 0.999)
      : steps.findLast((step) => step <= value * 1.001)) ?? value
  );
}

// No duration is so short that it could not be drawn on a logarithmic scale.
const shortestMs = 0.01;

/** @param {readonly number[]} values */
function logarithmicRange(values) {
  const low = roundNumber(values.length === 0 ? 1 : Math.min(...values), 'down');
  return { min: low, max: roundNumber(Math.max(...values, low * 10), 'up') };
}

/**
 * @param {number} min
 * @param {number} max
 */
function logarithmicTicks(min, max) {
  const ticks = [];
  for (let tick = min; tick <= max * 1.001; tick = roundNumber(tick * 1.5, 'up')) {
    ticks.push(tick);
  }
  // For more there is no room: the powers of ten have to do.
  return ticks.length > 6 ? ticks.filter((tick) => tick.toExponential().startsWith('1e')) : ticks;
}

const countSteps = Array.from({ length: 10 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

/** @param {number} value */
function tickOf(value) {
  return value.toLocaleString('en', {
    maximumSignificantDigits: 3,
    notation: value >= 10_000 ? 'compact' : 'standard',
  });
}

// A value with nothing on either side would have no line: it gets a dot.
/**
 * @param {uPlot} plot
 * @param {number} seriesIndex
 */
function findLonely(plot, seriesIndex) {
  const values = plot.data[seriesIndex] ?? [];
  /** @type {number[]} */
  const lonely = [];
  for (let index = 0; index < values.length; index += 1) {
    if (
      typeof values[index] === 'number' &&
      typeof values[index - 1] !== 'number' &&
      typeof values[index + 1] !== 'number'
    ) {
      lonely.push(index);
    }
  }
  return lonely;
}

/**
 * The gateway's line is a broad one and the backend's a narrow one upon it: where both are the same, both are seen.
 * @param {Party} party
 * @returns {uPlot.Series}
 */
function lineOf(party) {
  // In whole pixels of the screen, and as much on either side: the library moves lines of uneven widths by half of one.
  const pixels = (/** @type {number} */ part) => Math.max(1, Math.round(part * rem() * devicePixelRatio));
  const narrow = pixels(0.11);
  return {
    stroke: () => styleOf(`--${party}-line`),
    width: (party === 'gateway' ? narrow + 2 * pixels(0.09) : narrow) / devicePixelRatio,
    points: { show: true, size: 0.4 * rem(), fill: () => styleOf(`--${party}-line`), filter: findLonely },
  };
}

/** @typedef {{ readonly at: number, readonly label: string }} Mark a moment, in milliseconds since 1970 */

class Chart {
  /** @type {uPlot | undefined} */
  plot;
  /** @type {number[]} the end of each step, in seconds since 1970 */
  #times = [];
  /** @type {number[]} and its length */
  #seconds = [];
  /** @type {(number | null)[][]} of each line */
  #values = [];
  /** @type {(number | null)[]} */
  #now = [];
  #range = { min: 0, max: 1 };
  #scale = { min: 1, max: 10 };
  /** @type {readonly Mark[]} */
  #marks = [];
  #nowName = '';
  #label = '';

  /**
   * @param {ChartKind} kind
   * @param {HTMLElement} parent
   * @param {(index: number | null) => void} onCursor
   */
  constructor(kind, parent, onCursor) {
    this.kind = kind;
    this.lines = kind.groups.flatMap(({ name, party, lines }) =>
      lines.map((line) => ({ ...line, party, fullName: `${name} ${line.name}`.trim() })),
    );
    this.onCursor = onCursor;
    const figure = document.createElement('figure');
    figure.className = kind.title.toLowerCase().replaceAll(' ', '-');
    const caption = document.createElement('figcaption');
    this.unit = document.createElement('span');
    this.when = document.createElement('span');
    this.when.className = 'when';
    const title = document.createElement('b');
    title.textContent = kind.title;
    caption.append(title, ' ', this.unit, ' ', this.when);
    const legend = document.createElement('ul');
    legend.className = kind.shape;
    this.cells = kind.groups.flatMap(({ name, party, lines }) => {
      const item = document.createElement('li');
      item.dataset['party'] = party;
      item.append(name);
      legend.append(item);
      return lines.map((line) => {
        const value = document.createElement('b');
        item.append(` ${line.name}${line.name === '' ? '' : ' '}`, value);
        return value;
      });
    });
    this.area = document.createElement('div');
    this.area.className = 'area';
    this.area.tabIndex = 0;
    this.area.setAttribute('role', 'img');
    this.pointed = document.createElement('div');
    this.pointed.className = 'pointed';
    this.pointed.hidden = true;
    figure.append(caption, legend, this.area);
    parent.append(figure);
    new ResizeObserver(() => {
      this.plot?.setSize(this.#size());
    }).observe(this.area);
  }

  #size() {
    return { width: Math.max(100, this.area.clientWidth), height: Math.max(80, this.area.clientHeight) };
  }

  /** Draws it anew, with the colours and sizes that hold now. */
  build() {
    if (!hasLibrary) {
      return;
    }
    this.plot?.destroy();
    const font = `${0.75 * rem()}px ${styleOf('--font')}`;
    const { kind } = this;
    const isLogarithmic = kind.isLogarithmic === true;
    /** @type {uPlot.Axis} */
    const axis = {
      stroke: () => styleOf('--quiet'),
      font,
      ticks: { show: false },
      grid: { stroke: () => styleOf('--line'), width: 1 },
    };
    this.plot = new uPlot(
      {
        ...this.#size(),
        padding: [0.5 * rem(), (isLogarithmic ? 1.9 : 1.1) * rem(), 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          sync: { key: 'charts' },
          drag: { x: false, y: false },
          points: { show: kind.shape === 'lines', size: 0.5 * rem() },
        },
        scales: {
          x: { time: true },
          y: { distr: isLogarithmic ? 3 : 1, range: () => [this.#scale.min, this.#scale.max] },
        },
        axes: [
          {
            ...axis,
            space: 4 * rem(),
            size: 1.5 * rem(),
            gap: 0.25 * rem(),
            grid: { show: false },
            incrs: [60, 180, 300, 900],
            values: (_, times) => times.map((time) => formatTime(time * 1_000).slice(0, 5)),
          },
          {
            ...axis,
            space: 1.6 * rem(),
            size: 2.5 * rem(),
            gap: 0.35 * rem(),
            values: (_, values) => values.map(tickOf),
            ...(isLogarithmic
              ? {
                  splits: (_, __, min, max) => logarithmicTicks(min, max),
                  filter: (/** @type {uPlot} */ _, /** @type {number[]} */ splits) => splits,
                }
              : {}),
            // There are no half requests.
            ...(kind.shape === 'bars' ? { incrs: countSteps } : {}),
          },
        ],
        series: [
          {},
          ...this.lines.map(({ party }) =>
            kind.shape === 'bars' ? { paths: () => null, points: { show: false } } : lineOf(party),
          ),
        ],
        hooks: {
          drawAxes: [
            (plot) => {
              this.#drawMarks(plot);
            },
          ],
          draw: [
            (plot) => {
              if (kind.shape === 'bars') {
                this.#drawBars(plot);
              } else {
                this.#nameLines(plot);
              }
            },
          ],
          setCursor: [
            (plot) => {
              this.#point(plot);
              this.onCursor(plot.cursor.idx ?? null);
            },
          ],
        },
      },
      [[], ...this.lines.map(() => [])],
      this.area,
    );
    this.plot.over.append(this.pointed);
    this.#apply();
  }

  /**
   * @param {object} shown
   * @param {readonly Point[]} shown.points
   * @param {FlowName} shown.flow
   * @param {number} shown.from seconds since 1970
   * @param {number} shown.to seconds since 1970
   * @param {number} shown.stepMs
   * @param {Summary} shown.summary what the legend says while nothing is pointed at
   * @param {string} shown.summaryName
   * @param {readonly Mark[]} shown.marks
   */
  show({ points, flow, from, to, stepMs, summary, summaryName, marks }) {
    setText(this.unit, this.kind.unit(stepMs));
    this.#marks = marks
      .filter(({ at }) => at / 1_000 >= from && at / 1_000 <= to)
      .sort((one, other) => one.at - other.at);
    this.#now = this.lines.map(({ pick }) => pick(summary, flow));
    this.#nowName = summaryName;
    this.#times = [];
    this.#values = this.lines.map(() => []);
    this.#seconds = [];
    let before = points[0]?.at ?? 0;
    for (const point of points) {
      // A gateway that was away, or asleep: no line across that.
      if (point.at - before > 3 * stepMs) {
        this.#times.push((point.at - stepMs) / 1_000);
        this.#seconds.push(0);
        for (const values of this.#values) {
          values.push(null);
        }
      }
      before = point.at;
      this.#times.push(point.at / 1_000);
      this.#seconds.push(point.seconds);
      for (const [index, { pick }] of this.lines.entries()) {
        this.#values[index]?.push(pick(point, flow));
      }
    }
    this.#range = { min: from, max: to };
    this.#scale = this.#findScale();
    this.#apply();
  }

  #findScale() {
    if (this.kind.isLogarithmic === true) {
      const known = this.#values.flat().filter((value) => value !== null);
      return logarithmicRange(known.map((value) => Math.max(value, shortestMs)));
    }
    const tops = this.#times.map((_, index) => {
      const values = this.#values.map((line) => line[index] ?? 0);
      return this.kind.shape === 'bars' ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values);
    });
    return { min: 0, max: rangeTop(Math.max(0, ...tops), 1) };
  }

  #apply() {
    const { plot } = this;
    if (plot !== undefined) {
      const isLogarithmic = this.kind.isLogarithmic === true;
      const lines = isLogarithmic
        ? this.#values.map((line) =>
            line.map((value) => (value === null ? null : Math.max(value, shortestMs))),
          )
        : this.#values;
      plot.batch(() => {
        plot.setData([this.#times, ...lines], false);
        plot.setScale('x', this.#range);
        plot.setScale('y', this.#scale);
      });
    }
  }

  /**
   * The bars of a step stand upon each other, in the order of the legend; the lowest are high enough to be seen.
   * @param {uPlot} plot
   */
  #drawBars(plot) {
    const { ctx, bbox } = plot;
    const bottom = Math.floor(bbox.top + bbox.height);
    // Asked for once: the browser computes it anew each time.
    const colors = this.lines.map(({ party }) => styleOf(`--${party}-line`));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const [index, time] of this.#times.entries()) {
      const left = Math.round(plot.valToPos(time - (this.#seconds[index] ?? 0), 'x', true));
      const right = Math.round(plot.valToPos(time, 'x', true));
      let below = bottom;
      for (const [line, color] of colors.entries()) {
        const value = this.#values[line]?.[index] ?? 0;
        if (value > 0) {
          const height = Math.max(Math.round(bottom - plot.valToPos(value, 'y', true)), 2 * devicePixelRatio);
          ctx.fillStyle = color;
          ctx.fillRect(left, below - height, Math.max(right - left, devicePixelRatio), height);
          below -= height;
        }
      }
    }
    ctx.restore();
  }

  /**
   * Which line is which, at its end.
   * @param {uPlot} plot
   */
  #nameLines(plot) {
    const { ctx, bbox } = plot;
    const last = this.#times.length - 1;
    const named = this.lines
      .map(({ name, party }, line) => ({ name, party, value: this.#values[line]?.[last] ?? null }))
      .filter(({ name, party, value }) => name !== '' && party === 'gateway' && value !== null)
      .map(({ name, value }) => ({ name, top: plot.valToPos(Math.max(value ?? 0, shortestMs), 'y', true) }))
      .sort((one, other) => one.top - other.top);
    const size = 0.75 * rem() * devicePixelRatio;
    let above = -Infinity;
    ctx.save();
    ctx.font = `${size}px ${styleOf('--font')}`;
    ctx.fillStyle = styleOf('--quiet');
    ctx.textAlign = 'left';
    ctx.textBaseline = 'middle';
    for (const { name, top } of named) {
      const at = Math.max(top, above + size);
      ctx.fillText(name, bbox.left + bbox.width + 0.3 * size, at);
      above = at;
    }
    ctx.restore();
  }

  /** @param {uPlot} plot */
  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    const size = 0.75 * rem() * devicePixelRatio;
    ctx.save();
    ctx.font = `${size}px ${styleOf('--font')}`;
    ctx.strokeStyle = styleOf('--edge');
    ctx.fillStyle = styleOf('--quiet');
    ctx.textBaseline = 'top';
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    const lefts = this.#marks.map(({ at }) => plot.valToPos(at / 1_000, 'x', true));
    // Of marks that leave no room between them the last one has its label, to the left of all of them.
    let crowd = '';
    for (const [index, left] of [...lefts.entries()].reverse()) {
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
      crowd ||= this.#marks[index]?.label ?? '';
      const hasRoom = left - (lefts[index - 1] ?? bbox.left) > ctx.measureText(crowd).width + size;
      if (hasRoom || index === 0) {
        // The side that has room is the empty one where it is the first start.
        ctx.textAlign = hasRoom ? 'right' : 'left';
        ctx.fillText(crowd, left + (hasRoom ? -0.4 : 0.4) * size, bbox.top);
        crowd = '';
      }
    }
    ctx.restore();
  }

  /**
   * The time under the pointer, beside it.
   * @param {uPlot} plot
   */
  #point(plot) {
    const { idx } = plot.cursor;
    const time = idx === null || idx === undefined ? undefined : this.#times[idx];
    this.pointed.hidden = time === undefined;
    if (time !== undefined) {
      setText(this.pointed, formatTime(time * 1_000));
      const half = this.pointed.offsetWidth / 2;
      const left = Math.min(Math.max(plot.valToPos(time, 'x') - half, 0), plot.over.clientWidth - 2 * half);
      this.pointed.style.transform = `translateX(${left}px)`;
    }
  }

  /**
   * Puts the values at `index`, or those of the summary, into the legend; gives them as a sentence.
   * @param {number | null} index
   */
  describe(index) {
    const time = index === null ? undefined : this.#times[index];
    const texts = this.lines.map(({ fullName }, line) => {
      const value = time === undefined ? this.#now[line] : this.#values[line]?.[index ?? 0];
      const text = this.kind.format(value ?? null);
      const cell = this.cells[line];
      if (cell !== undefined) {
        setText(cell, text);
      }
      return `${fullName} ${text}`;
    });
    const when = time === undefined ? this.#nowName : `at ${formatTime(time * 1_000)}`;
    setText(this.when, when);
    const sentence = `${this.kind.title}, ${this.unit.textContent}: ${texts.join(', ')}`;
    const marks = this.#marks.map(({ label }) => `, ${label}`).join('');
    const label = `${sentence}, ${when}. Chart of the last 15 minutes${marks}; the arrow keys go through its values.`;
    if (time === undefined && label !== this.#label) {
      this.#label = label;
      this.area.setAttribute('aria-label', label);
    }
    return `${time === undefined ? when : formatTime(time * 1_000)}: ${sentence}`;
  }

  /** How many values each line has. */
  get length() {
    return this.#times.length;
  }

  /** @param {number | null} index */
  moveCursor(index) {
    const { plot } = this;
    const time = index === null ? undefined : this.#times[index];
    plot?.setCursor(
      time === undefined ? { left: -10, top: -10 } : { left: plot.valToPos(time, 'x'), top: 0 },
    );
  }
}

/**
 * @param {number | null | undefined} max
 * @param {number} atLeast
 */
function rangeTop(max, atLeast) {
  return Math.max(max ?? 0, atLeast) * 1.08;
}

export class Charts {
  /** @type {number | null} */
  #index = null;

  /**
   * @param {HTMLElement} parent
   * @param {(text: string) => void} say reads something out
   */
  constructor(parent, say) {
    this.charts = kinds.map(
      (kind) =>
        new Chart(kind, parent, (index) => {
          this.#index = index;
          this.#describe();
        }),
    );
    for (const chart of this.charts) {
      chart.area.addEventListener('keydown', (event) => {
        const index = this.#moved(event.key, chart.length - 1);
        if (index !== undefined && chart.length > 0) {
          event.preventDefault();
          chart.moveCursor(index);
          say(index === null ? '' : chart.describe(index));
        }
      });
      chart.area.addEventListener('blur', () => {
        chart.moveCursor(null);
      });
    }
    for (const query of ['(prefers-color-scheme: dark)', '(min-width: 120rem)']) {
      matchMedia(query).addEventListener('change', () => {
        this.build();
      });
    }
    let size = rem();
    window.addEventListener('resize', () => {
      if (rem() !== size) {
        size = rem();
        this.build();
      }
    });
    this.build();
  }

  build() {
    for (const chart of this.charts) {
      chart.build();
    }
  }

  /** @param {Parameters<Chart['show']>[0]} shown */
  show(shown) {
    for (const chart of this.charts) {
      chart.show(shown);
    }
    this.#describe();
  }

  #describe() {
    for (const chart of this.charts) {
      chart.describe(this.#index);
    }
  }

  /**
   * @param {string} key
   * @param {number} last
   */
  #moved(key, last) {
    switch (key) {
      case 'ArrowLeft':
        return Math.max(0, (this.#index ?? last + 1) - 1);
      case 'ArrowRight':
        return Math.min(last, (this.#index ?? last) + 1);
      case 'Home':
        return 0;
      case 'End':
        return last;
      case 'Escape':
        return null;
      default:
        return undefined;
    }
  }
}

/**
 * @typedef {object} Load
 * @property {string} name
 * @property {string} limit
 * @property {number} value
 * @property {number} [max]
 * @property {(value: number) => string} format
 * @property {(point: Point) => number} pick
 */

/** One figure of the load: its value, how full it is, and how it went. */
export class LoadChart {
  /** @type {uPlot | undefined} */
  #plot;

  /**
   * @param {HTMLElement} parent
   * @param {Load} load
   */
  constructor(parent, load) {
    const row = document.createElement('div');
    const term = document.createElement('dt');
    term.textContent = load.name;
    const description = document.createElement('dd');
    this.value = document.createElement('b');
    this.limit = document.createElement('span');
    description.append(this.value, ' ', this.limit);
    if (load.max !== undefined) {
      this.meter = document.createElement('div');
      this.meter.className = 'meter';
      this.meter.setAttribute('role', 'meter');
      this.meter.setAttribute('aria-label', `${load.name}, part of the limit`);
      this.meter.append(document.createElement('i'));
      description.append(this.meter);
    }
    const spark = document.createElement('div');
    spark.className = 'spark';
    spark.setAttribute('aria-hidden', 'true');
    this.area = document.createElement('div');
    this.top = document.createElement('span');
    const bottom = document.createElement('span');
    bottom.textContent = '0';
    spark.append(this.area, this.top, bottom);
    description.append(spark);
    row.append(term, description);
    parent.append(row);
  }

  /**
   * @param {Load} load
   * @param {readonly Point[]} points
   * @param {number} now
   * @param {number} historyMs
   */
  show(load, points, now, historyMs) {
    setText(this.value, load.format(load.value));
    setText(this.limit, load.limit);
    if (this.meter !== undefined && load.max !== undefined) {
      const percent = Math.min(100, (load.value / load.max) * 100);
      const { meter } = this;
      meter.setAttribute('aria-valuemin', '0');
      meter.setAttribute('aria-valuemax', '100');
      meter.setAttribute('aria-valuenow', percent.toFixed(1));
      meter.setAttribute('aria-valuetext', `${load.format(load.value)} ${load.limit}`);
      meter.classList.toggle('full', percent >= 80);
      const bar = /** @type {HTMLElement} */ (meter.firstElementChild);
      bar.style.width = `${percent}%`;
    }
    const values = points.map(load.pick);
    const top = Math.max(0, ...values);
    setText(this.top, top === 0 ? '' : load.format(top));
    this.#draw(
      points.map(({ at }) => at / 1_000),
      values,
      { min: (now - historyMs) / 1_000, max: now / 1_000 },
      top,
    );
  }

  /**
   * @param {number[]} times
   * @param {number[]} values
   * @param {{ min: number, max: number }} range
   * @param {number} top
   */
  #draw(times, values, range, top) {
    if (!hasLibrary) {
      return;
    }
    const width = this.area.clientWidth;
    const height = this.area.clientHeight;
    this.#plot ??= new uPlot(
      {
        width,
        height,
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
      this.area,
    );
    const plot = this.#plot;
    if (plot.width !== width || plot.height !== height) {
      plot.setSize({ width, height });
    }
    plot.batch(() => {
      plot.setData([times, values], false);
      plot.setScale('x', range);
      plot.setScale('y', { min: 0, max: top === 0 ? 1 : top });
    });
  }
}

/**
 * @param {Element} element
 * @param {string} text
 */
function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}
