// The three charts, with one time axis and one cursor. As everywhere on the page, blue stands for the backend, ink
// (black or white) for the gateway and grey for the clients.

import { make, say, setText } from './dom.js';
import { formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Flow, FlowName, Party, Point, Summary } from '../state.ts' */

/** @typedef {(figures: Flow, seconds: number, others: Flow | undefined) => number | null} Picker */

/**
 * @typedef {object} ChartKind
 * @property {string} title
 * @property {(stepMs: number) => string} unit
 * @property {(value: number | null) => string} format
 * @property {boolean} [isOfBars] draws stacked bars instead of lines
 * @property {boolean} [isLogarithmic]
 * @property {[group: string, party: Party, name: string, pick: Picker][]} lines the only line of a group has no name
 */

/**
 * Number of requests that failed through a party's fault. `others`: requests that called no operation; the chart of all
 * operations includes them.
 * @type {(party: Party) => Picker}
 */
const failedBy = (party) => (figures, _seconds, others) => figures.failed[party] + (others?.failed[party] ?? 0);

/** @type {readonly ChartKind[]} */
const kinds = [
  {
    title: 'Requests',
    unit: () => 'per second',
    format: (value) => (value === null ? '–' : formatRate(value)),
    lines: [
      ['from clients', 'gateway', '', ({ requests }, seconds) => requests / seconds],
      ['to the backend', 'backend', '', ({ backendCalls }, seconds) => backendCalls / seconds],
    ],
  },
  {
    title: 'Failed requests',
    unit: (stepMs) => `per ${stepMs / 1_000} s, by party`,
    format: (value) => (value === null ? '–' : formatCount(value)),
    isOfBars: true,
    lines: [
      ['backend', 'backend', '', failedBy('backend')],
      ['gateway', 'gateway', '', failedBy('gateway')],
      ['clients', 'client', '', failedBy('client')],
    ],
  },
  {
    title: 'Latency',
    unit: () => 'ms, logarithmic scale',
    format: formatMs,
    isLogarithmic: true,
    lines: [
      ['requests', 'gateway', 'p50', ({ p50 }) => p50],
      ['requests', 'gateway', 'p99', ({ p99 }) => p99],
      ['backend', 'backend', 'p50', ({ backendP50 }) => backendP50],
      ['backend', 'backend', 'p99', ({ backendP99 }) => backendP99],
    ],
  },
];

// Shorter durations are drawn as if they took this long, in ms, because a logarithmic scale has no zero.
const shortestMs = 0.01;

/** @typedef {{ readonly at: number, readonly label: string }} Mark a moment, in milliseconds since 1970 */

/**
 * @typedef {object} Shown
 * @property {readonly Point[]} points
 * @property {FlowName} flow
 * @property {number} from seconds since 1970
 * @property {number} to seconds since 1970
 * @property {number} stepMs
 * @property {Summary} summary the values in the legend while the cursor is outside the charts
 * @property {string} summaryName
 * @property {readonly Mark[]} marks
 */

/**
 * @typedef {object} Step
 * @property {number} at its end, in seconds since 1970
 * @property {number} seconds
 * @property {(number | null)[]} values one per line
 */

/** @type {(name: string) => string} */
const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const rem = () => Number.parseFloat(getComputedStyle(document.documentElement).fontSize);

/** @type {(value: number) => string} */
const nameTick = (value) =>
  value.toLocaleString('en', { maximumSignificantDigits: 3, notation: value >= 10_000 ? 'compact' : 'standard' });

/**
 * Returns the indexes of values without neighbours. No line connects such values, so each gets a dot.
 * @type {(plot: uPlot, seriesIndex: number) => number[]}
 */
const findIsolated = (plot, seriesIndex) => {
  const values = plot.data[seriesIndex] ?? [];
  const isThere = (/** @type {number} */ index) => typeof values[index] === 'number';
  return [...values.keys()].filter((at) => isThere(at) && !isThere(at - 1) && !isThere(at + 1));
};

/**
 * Returns a range that begins at a round number and ends at ten times that number or more.
 * @type {(least: number, most: number) => [number, number]}
 */
const logarithmicRange = (least, most) => {
  const power = 10 ** Math.floor(Math.log10(least / 1.5));
  const min = Number((Math.floor(least / 1.5 / power) * power).toPrecision(1));
  return [min, Math.max(min * 10, most * 1.2)];
};

/** @type {Readonly<Record<string, (index: number | null, last: number) => number | null>>} */
const moves = {
  ArrowLeft: (index, last) => Math.max(0, (index ?? last + 1) - 1),
  ArrowRight: (index, last) => Math.min(last, (index ?? last) + 1),
  Home: () => 0,
  End: (_, last) => last,
  Escape: () => null,
};

class Chart {
  /** @type {uPlot | undefined} */
  plot;
  /** @type {Step[]} */
  #steps = [];
  /** @type {Shown | undefined} */
  #shown;
  /** @type {readonly Mark[]} */
  #marks = [];
  #unit = make('small');
  #when = make('small', { className: 'when' });
  #pointed = make('div', { className: 'pointed', hidden: true });

  /**
   * @param {ChartKind} kind
   * @param {HTMLElement} parent
   */
  constructor(kind, parent) {
    this.kind = kind;
    const legend = make('ul');
    this.lines = kind.lines.map(([group, party, name, pick]) => {
      const cell = make('b');
      if (legend.lastElementChild?.firstChild?.textContent !== group) {
        legend.append(make('li', {}, group));
      }
      const item = /** @type {HTMLElement} */ (legend.lastElementChild);
      item.dataset['party'] = party;
      item.append(` ${name}${name && ' '}`, cell);
      return { name, fullName: `${group} ${name}`.trim(), party, pick, cell };
    });
    const caption = make('figcaption', {}, make('b', {}, kind.title), ' ', this.#unit, ' ', this.#when);
    this.area = make('div', { className: 'area', tabIndex: 0, role: 'img' });
    const className = kind.title.toLowerCase().replaceAll(' ', '-');
    parent.append(make('figure', { className }, caption, legend, this.area));
    // Also called when a hidden chart becomes visible. A hidden chart has no size, so nothing can be drawn in it.
    new ResizeObserver(() => {
      if (this.area.clientWidth > 0) {
        this.build();
      }
    }).observe(this.area);
    this.area.addEventListener('keydown', (event) => {
      const index = moves[event.key]?.(this.plot?.cursor.idx ?? null, this.#steps.length - 1);
      if (index !== undefined && this.#steps.length > 0) {
        event.preventDefault();
        this.#moveCursor(index);
        say(index === null ? '' : this.describe());
      }
    });
    this.area.addEventListener('blur', () => this.#moveCursor(null));
  }

  /** Rebuilds the plot with the current colours and sizes. */
  build() {
    this.plot?.destroy();
    const { isLogarithmic = false, isOfBars = false } = this.kind;
    /** @type {uPlot.Axis} */
    const axis = {
      stroke: () => styleOf('--quiet'),
      font: `${0.75 * rem()}px ${getComputedStyle(document.body).fontFamily}`,
      ticks: { show: false },
      grid: { stroke: () => styleOf('--line'), width: 1 },
    };
    this.plot = new uPlot(
      {
        width: this.area.clientWidth,
        height: this.area.clientHeight,
        padding: [0.5 * rem(), (isLogarithmic ? 2 : 1) * rem(), 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          sync: { key: 'charts' },
          drag: { x: false },
          points: { show: !isOfBars, size: 0.5 * rem() },
        },
        scales: {
          y: {
            distr: isLogarithmic ? 3 : 1,
            range: (_, least, most) =>
              isLogarithmic ? logarithmicRange(least || 1, most || 1) : [0, Math.max(1, most || 0) * 1.08],
          },
        },
        axes: [
          {
            ...axis,
            size: 1.5 * rem(),
            grid: { show: false },
            incrs: [60, 180, 300, 900],
            values: (_, times) => times.map((time) => formatTime(time * 1_000).slice(0, 5)),
          },
          {
            ...axis,
            space: (isLogarithmic ? 1 : 1.6) * rem(),
            size: 2.5 * rem(),
            values: (_, values) => values.map((value) => (value === null ? '' : nameTick(value))),
            // Ticks only at whole numbers of requests.
            ...(isOfBars && {
              incrs: [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)),
            }),
          },
        ],
        series: [
          {},
          ...this.lines.map(({ party }) => ({
            stroke: () => styleOf(`--${party}-line`),
            // The backend's line is narrower and on top of the gateway's, so that both are visible where they coincide.
            width: party === 'gateway' ? 4 : 2,
            points: { show: !isOfBars, filter: findIsolated },
            ...(isOfBars && { paths: () => null }),
          })),
        ],
        hooks: {
          drawAxes: [this.#drawMarks.bind(this)],
          draw: [isOfBars ? this.#drawBars.bind(this) : this.#nameLines.bind(this)],
          setCursor: [this.describe.bind(this)],
        },
      },
      [[], ...this.lines.map(() => [])],
      this.area,
    );
    this.plot.over.append(this.#pointed);
    this.#apply();
  }

  /** @param {Shown} shown */
  show(shown) {
    const { points, flow, from, to, stepMs, marks } = shown;
    this.#shown = shown;
    setText(this.#unit, this.kind.unit(stepMs));
    this.#marks = marks
      .filter(({ at }) => at / 1_000 >= from && at / 1_000 <= to)
      .sort((one, other) => one.at - other.at);
    this.#steps = points.flatMap((point, index) => {
      const step = { at: point.at / 1_000, seconds: point.seconds, values: this.#pick(point, flow) };
      const gap = { at: (point.at - stepMs) / 1_000, seconds: 0, values: this.lines.map(() => null) };
      // A gap ends the line, so that no line crosses the time in which the gateway was down or suspended.
      return point.at - (points[index - 1]?.at ?? point.at) > 3 * stepMs ? [gap, step] : [step];
    });
    this.#apply();
    this.describe();
  }

  /** @type {(from: Pick<Point, 'flows' | 'seconds'>, flow: FlowName) => (number | null)[]} */
  #pick({ flows, seconds }, flow) {
    return this.lines.map(({ pick }) => pick(flows[flow], seconds, flow === 'all' ? flows.none : undefined));
  }

  #apply() {
    const { plot } = this;
    const { isLogarithmic = false, isOfBars = false } = this.kind;
    if (plot === undefined || this.#shown === undefined) {
      return;
    }
    const { from, to } = this.#shown;
    const lines = this.lines.map((_, line) =>
      this.#steps.map(({ values }) => {
        const value = values[line] ?? null;
        if (value === null) {
          return null;
        }
        // Each line of a stack gets the sum of all lines, so that the scale fits the whole stack.
        const sum = isOfBars ? values.reduce((total, each) => (total ?? 0) + (each ?? 0), 0) : value;
        return isLogarithmic ? Math.max(value, shortestMs) : sum;
      }),
    );
    plot.batch(() => {
      plot.setData([this.#steps.map(({ at }) => at), ...lines], false);
      plot.setScale('x', { min: from, max: to });
    });
  }

  /**
   * Stacks the bars of each step in the order of the legend. A bar is at least two pixels high.
   * @param {uPlot} plot
   */
  #drawBars(plot) {
    const { ctx, bbox } = plot;
    // Read once, because the browser computes the style on each call.
    const colors = this.lines.map(({ party }) => styleOf(`--${party}-line`));
    const bottom = Math.floor(bbox.top + bbox.height);
    for (const { at, seconds, values } of this.#steps) {
      const left = Math.max(bbox.left, Math.round(plot.valToPos(at - seconds, 'x', true)));
      const right = Math.round(plot.valToPos(at, 'x', true));
      let below = bottom;
      for (const [line, value] of values.entries()) {
        if (value !== null && value > 0) {
          const height = Math.max(Math.round(bottom - plot.valToPos(value, 'y', true)), 2 * devicePixelRatio);
          ctx.fillStyle = colors[line] ?? '';
          ctx.fillRect(left, below - height, Math.max(right - left, devicePixelRatio), height);
          below -= height;
        }
      }
    }
  }

  /**
   * Sets the text style of the axes until `ctx.restore()`. Returns the text size in device pixels.
   * @param {uPlot} plot
   */
  #beginText({ ctx }) {
    const size = 0.75 * rem() * devicePixelRatio;
    ctx.save();
    ctx.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.fillStyle = styleOf('--quiet');
    ctx.textAlign = 'left';
    ctx.textBaseline = 'top';
    return size;
  }

  /**
   * Writes the names of the gateway's lines at their ends: p50 below its line and p99 above it, so that the names do
   * not overlap.
   * @param {uPlot} plot
   */
  #nameLines(plot) {
    const { ctx, bbox } = plot;
    const size = this.#beginText(plot);
    for (const [line, { name, party }] of this.lines.entries()) {
      const value = this.#steps.at(-1)?.values[line] ?? null;
      if (name !== '' && party === 'gateway' && value !== null) {
        const top = plot.valToPos(Math.max(value, shortestMs), 'y', true);
        ctx.textBaseline = name === 'p50' ? 'top' : 'bottom';
        ctx.fillText(name, bbox.left + bbox.width + 0.3 * size, top + (name === 'p50' ? -0.3 : 0.3) * size);
      }
    }
    ctx.restore();
  }

  /** @param {uPlot} plot */
  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    const size = this.#beginText(plot);
    ctx.strokeStyle = styleOf('--edge');
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    // If labels overlap, only the last label is drawn.
    let end = Infinity;
    for (const { at, label } of this.#marks.toReversed()) {
      const left = plot.valToPos(at / 1_000, 'x', true);
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
      const width = ctx.measureText(label).width + 0.5 * size;
      // The label is to the left of its line, unless the chart ends there.
      const start = left - width < bbox.left ? left + 0.5 * size : left - width;
      if (start + width <= end) {
        ctx.fillText(label, start, bbox.top);
        end = start;
      }
    }
    ctx.restore();
  }

  /** Shows the values at the cursor, or the summary's values, in the legend. Returns them as a sentence. */
  describe() {
    if (this.#shown === undefined) {
      return '';
    }
    const { flow, from, to, summary, summaryName } = this.#shown;
    const step = this.#steps[this.plot?.cursor.idx ?? -1];
    const values = step?.values ?? this.#pick(summary, flow);
    const texts = this.lines.map(({ fullName, cell }, line) => {
      const text = this.kind.format(values[line] ?? null);
      setText(cell, text);
      return `${fullName} ${text}`;
    });
    const sentence = `${this.kind.title}, ${this.#unit.textContent}: ${texts.join(', ')}`;
    this.#pointed.hidden = step === undefined;
    if (step === undefined) {
      setText(this.#when, summaryName);
      const marks = this.#marks.map(({ label }) => `, ${label}`).join('');
      this.area.ariaLabel = `${sentence}, ${summaryName}. Chart of the last 15 minutes${marks}. Read its values with the arrow keys.`;
      return `${summaryName}: ${sentence}`;
    }
    const time = formatTime(step.at * 1_000);
    setText(this.#when, `at ${time}`);
    setText(this.#pointed, time);
    // Keeps the label inside the chart at both ends.
    const left = `${((step.at - from) / (to - from)) * 100}%`;
    Object.assign(this.#pointed.style, { left, translate: `-${left}` });
    return `${time}: ${sentence}`;
  }

  /** @param {number | null} index */
  #moveCursor(index) {
    const step = this.#steps[index ?? -1];
    this.plot?.setCursor(
      step === undefined ? { left: -10, top: -10 } : { left: this.plot.valToPos(step.at, 'x'), top: 0 },
    );
  }
}

export class Charts {
  /** @param {HTMLElement} parent */
  constructor(parent) {
    this.charts = kinds.map((kind) => new Chart(kind, parent));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      for (const chart of this.charts) {
        chart.build();
      }
    });
  }

  /** @param {Shown} shown */
  show(shown) {
    for (const chart of this.charts) {
      chart.show(shown);
    }
  }
}
