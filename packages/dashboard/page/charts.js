// The charts: three of them with the same times and one cursor, and the small ones beside the load. Blue is the
// backend, ink (black or white) the gateway, grey the clients; nowhere on the page is it any other way.

import { make, setText } from './dom.js';
import {
  beginText,
  countSteps,
  drawn,
  hasLibrary,
  lineOf,
  logarithmicTicks,
  rem,
  roundNumber,
  styleOf,
  tickOf,
} from './drawing.js';
import { formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Flow, FlowName, Point, Summary } from '../state.ts' */

/** @import { Party } from './drawing.js' */

/** @typedef {(figures: Flow, seconds: number, others: Flow | undefined) => number | null} Picker */

/**
 * @typedef {object} ChartKind
 * @property {string} title
 * @property {(stepMs: number) => string} unit
 * @property {(value: number | null) => string} format
 * @property {boolean} [isOfBars] which stand upon each other
 * @property {boolean} [isLogarithmic]
 * @property {[group: string, party: Party, name: string, pick: Picker][]} lines the only one of a group has no name
 */

/**
 * How many requests a party has failed. What called no operation is among all.
 * @type {(party: Party) => Picker}
 */
const failedBy = (party) => (figures, _seconds, others) =>
  figures.failed[party] + (others?.failed[party] ?? 0);

/** @type {readonly ChartKind[]} */
const kinds = [
  {
    title: 'Requests',
    unit: () => 'a second',
    format: (value) => (value === null ? '–' : formatRate(value)),
    lines: [
      ['from clients', 'gateway', '', ({ requests }, seconds) => requests / seconds],
      ['to the backend', 'backend', '', ({ backendCalls }, seconds) => backendCalls / seconds],
    ],
  },
  {
    title: 'Failed requests',
    unit: (stepMs) => `in ${stepMs / 1_000} s, by fault`,
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

/** @typedef {{ readonly at: number, readonly label: string }} Mark a moment, in milliseconds since 1970 */

/**
 * @typedef {object} Step
 * @property {number} at its end, in seconds since 1970
 * @property {number} seconds
 * @property {(number | null)[]} values of each line
 */

class Chart {
  /** @type {uPlot | undefined} */
  plot;
  /** @type {Step[]} */
  #steps = [];
  /** @type {(number | null)[]} */
  #now = [];
  #nowName = '';
  #range = { min: 0, max: 1 };
  #scale = { min: 1, max: 10 };
  /** @type {readonly Mark[]} */
  #marks = [];
  #label = '';
  #unit = make('span');
  #when = make('span', { className: 'when' });
  #pointed = make('div', { className: 'pointed', hidden: true });

  /**
   * @param {ChartKind} kind
   * @param {HTMLElement} parent
   * @param {(index: number | null) => void} onCursor
   */
  constructor(kind, parent, onCursor) {
    this.kind = kind;
    this.onCursor = onCursor;
    const legend = make('ul', { className: kind.isOfBars === true ? 'bars' : 'lines' });
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
    const { isLogarithmic = false, isOfBars = false } = this.kind;
    /** @type {uPlot.Axis} */
    const axis = {
      stroke: () => styleOf('--quiet'),
      font: `${0.75 * rem()}px ${styleOf('--font')}`,
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
          points: { show: !isOfBars, size: 0.5 * rem() },
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
            ...(isLogarithmic && { splits: logarithmicTicks, filter: (_, splits) => splits }),
            // There are no half requests.
            ...(isOfBars && { incrs: countSteps }),
          },
        ],
        series: [
          {},
          ...this.lines.map(({ party }) =>
            isOfBars ? { paths: () => null, points: { show: false } } : lineOf(party),
          ),
        ],
        hooks: {
          drawAxes: [this.#drawMarks.bind(this)],
          draw: [isOfBars ? this.#drawBars.bind(this) : this.#nameLines.bind(this)],
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
    this.plot.over.append(this.#pointed);
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
    setText(this.#unit, this.kind.unit(stepMs));
    this.#marks = marks
      .filter(({ at }) => at / 1_000 >= from && at / 1_000 <= to)
      .sort((one, other) => one.at - other.at);
    const pickAll = (/** @type {Pick<Point, 'flows' | 'seconds'>} */ { flows, seconds }) =>
      this.lines.map(({ pick }) => pick(flows[flow], seconds, flow === 'all' ? flows.none : undefined));
    this.#now = pickAll(summary);
    this.#nowName = summaryName;
    let before = points[0]?.at ?? 0;
    this.#steps = points.flatMap((point) => {
      // A gateway that was away, or asleep: no line across that.
      const hasGap = point.at - before > 3 * stepMs;
      before = point.at;
      const gap = { at: (point.at - stepMs) / 1_000, seconds: 0, values: this.lines.map(() => null) };
      const step = { at: point.at / 1_000, seconds: point.seconds, values: pickAll(point) };
      return hasGap ? [gap, step] : [step];
    });
    this.#range = { min: from, max: to };
    this.#scale = this.#findScale();
    this.#apply();
  }

  #findScale() {
    if (this.kind.isLogarithmic === true) {
      const known = this.#steps.flatMap(({ values }) => values.filter((value) => value !== null));
      const least = Math.min(...(known.length === 0 ? [1] : known.map(drawn)));
      const min = roundNumber(least, 'down');
      return { min, max: roundNumber(Math.max(...known.map(drawn), min * 10), 'up') };
    }
    const tops = this.#steps.map(({ values }) =>
      this.kind.isOfBars === true
        ? values.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0)
        : Math.max(...values.map((value) => value ?? 0)),
    );
    return { min: 0, max: Math.max(1, ...tops) * 1.08 };
  }

  #apply() {
    const { plot } = this;
    plot?.batch(() => {
      const lines = this.lines.map((_, line) =>
        this.#steps.map(({ values }) => {
          const value = values[line] ?? null;
          return this.kind.isLogarithmic === true && value !== null ? drawn(value) : value;
        }),
      );
      plot.setData([this.#steps.map(({ at }) => at), ...lines], false);
      plot.setScale('x', this.#range);
      plot.setScale('y', this.#scale);
    });
  }

  /**
   * The bars of a step stand upon each other, in the order of the legend; the lowest are high enough to be seen.
   * @param {uPlot} plot
   */
  #drawBars(plot) {
    const { ctx, bbox } = plot;
    // Asked for once: the browser computes it anew each time.
    const colors = this.lines.map(({ party }) => styleOf(`--${party}-line`));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const { at, seconds, values } of this.#steps) {
      const left = Math.round(plot.valToPos(at - seconds, 'x', true));
      const right = Math.round(plot.valToPos(at, 'x', true));
      const bottom = Math.floor(bbox.top + bbox.height);
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
    ctx.restore();
  }

  /**
   * Which line is which, at its end.
   * @param {uPlot} plot
   */
  #nameLines(plot) {
    const { bbox } = plot;
    const last = this.#steps.at(-1)?.values ?? [];
    const named = this.lines
      .map(({ name, party }, line) => ({ name, party, value: last[line] ?? null }))
      .filter(({ name, party, value }) => name !== '' && party === 'gateway' && value !== null)
      .map(({ name, value }) => ({ name, top: plot.valToPos(drawn(value ?? 0), 'y', true) }))
      .sort((one, other) => one.top - other.top);
    const { ctx, size } = beginText(plot, 'middle');
    let above = -Infinity;
    for (const { name, top } of named) {
      above = Math.max(top, above + size);
      ctx.fillText(name, bbox.left + bbox.width + 0.3 * size, above);
    }
    ctx.restore();
  }

  /** @param {uPlot} plot */
  #drawMarks(plot) {
    const { bbox } = plot;
    const { ctx, size } = beginText(plot, 'top');
    ctx.strokeStyle = styleOf('--edge');
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
    const step = this.#steps[plot.cursor.idx ?? -1];
    this.#pointed.hidden = step === undefined;
    if (step !== undefined) {
      setText(this.#pointed, formatTime(step.at * 1_000));
      const width = this.#pointed.offsetWidth;
      const left = Math.min(
        plot.over.clientWidth - width,
        Math.max(0, plot.valToPos(step.at, 'x') - width / 2),
      );
      this.#pointed.style.transform = `translateX(${left}px)`;
    }
  }

  /**
   * Puts the values at `index`, or those of the summary, into the legend; gives them as a sentence.
   * @param {number | null} index
   */
  describe(index) {
    const step = this.#steps[index ?? -1];
    const texts = this.lines.map(({ fullName, cell }, line) => {
      const text = this.kind.format((step?.values ?? this.#now)[line] ?? null);
      setText(cell, text);
      return `${fullName} ${text}`;
    });
    const time = step === undefined ? '' : formatTime(step.at * 1_000);
    const when = step === undefined ? this.#nowName : `at ${time}`;
    setText(this.#when, when);
    const sentence = `${this.kind.title}, ${this.#unit.textContent}: ${texts.join(', ')}`;
    const marks = this.#marks.map(({ label }) => `, ${label}`).join('');
    const label = `${sentence}, ${when}. Chart of the last 15 minutes${marks}; the arrow keys go through its values.`;
    if (step === undefined && label !== this.#label) {
      this.#label = label;
      this.area.ariaLabel = label;
    }
    return `${time || when}: ${sentence}`;
  }

  /** How many values each line has. */
  get length() {
    return this.#steps.length;
  }

  /** @param {number | null} index */
  moveCursor(index) {
    const step = this.#steps[index ?? -1];
    this.plot?.setCursor(
      step === undefined ? { left: -10, top: -10 } : { left: this.plot.valToPos(step.at, 'x'), top: 0 },
    );
  }
}

/** @type {Readonly<Record<string, (index: number | null, last: number) => number | null>>} */
const moves = {
  ArrowLeft: (index, last) => Math.max(0, (index ?? last + 1) - 1),
  ArrowRight: (index, last) => Math.min(last, (index ?? last) + 1),
  Home: () => 0,
  End: (_, last) => last,
  Escape: () => null,
};

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
        const index = moves[event.key]?.(this.#index, chart.length - 1);
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
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.build();
    });
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
}
