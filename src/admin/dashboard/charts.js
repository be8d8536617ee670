// The charts: three of them with the same times and one cursor, and the small ones beside the load. Blue is the
// backend, black or white the gateway, dotted the clients; nowhere on the page is it any other way.

import { formatMs, formatRate, formatShare, formatTime } from './format.js';

/** @import { Flow, FlowName, Point } from '../dashboard-state.ts' */

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {'gateway' | 'backend' | 'client'} party
 * @property {boolean} [isFaint] drawn thin and dashed
 * @property {(flow: Flow, point: Point) => number | null} pick
 */

/**
 * @typedef {object} ChartKind
 * @property {string} title
 * @property {string} unit
 * @property {Line[]} lines
 * @property {(value: number | null) => string} format
 * @property {(value: number) => string} tick
 * @property {number} atLeast the top of the scale is never below this
 */

/**
 * @param {number} part
 * @param {number} whole
 */
function percent(part, whole) {
  return whole === 0 ? null : (part / whole) * 100;
}

/** @param {number} value */
function tickOf(value) {
  return value.toLocaleString('en', {
    maximumSignificantDigits: 3,
    notation: value >= 10_000 ? 'compact' : 'standard',
  });
}

/** @type {readonly ChartKind[]} */
const kinds = [
  {
    title: 'Requests',
    unit: 'a second',
    atLeast: 1,
    lines: [
      { name: 'from clients', party: 'gateway', pick: (flow, point) => flow.requests / point.seconds },
      { name: 'to the backend', party: 'backend', pick: (flow, point) => flow.backendCalls / point.seconds },
    ],
    format: (value) => (value === null ? '–' : formatRate(value)),
    tick: tickOf,
  },
  {
    title: 'Failed requests',
    unit: '% of all, by whose doing',
    atLeast: 1,
    lines: [
      { name: 'backend', party: 'backend', pick: (flow) => percent(flow.failed.backend, flow.requests) },
      { name: 'gateway', party: 'gateway', pick: (flow) => percent(flow.failed.gateway, flow.requests) },
      { name: 'clients', party: 'client', pick: (flow) => percent(flow.failed.client, flow.requests) },
    ],
    format: (value) => (value === null ? '–' : formatShare(value, 100)),
    tick: tickOf,
  },
  {
    title: 'Latency',
    unit: 'ms',
    atLeast: 1,
    lines: [
      { name: 'request p99', party: 'gateway', pick: (flow) => flow.p99 },
      { name: 'p50', party: 'gateway', isFaint: true, pick: (flow) => flow.p50 },
      { name: 'backend p99', party: 'backend', pick: (flow) => flow.backendP99 },
      { name: 'p50', party: 'backend', isFaint: true, pick: (flow) => flow.backendP50 },
    ],
    format: formatMs,
    tick: tickOf,
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
 * @param {Line} line
 * @returns {uPlot.Series}
 */
function seriesOf({ party, isFaint = false }) {
  // The gateway's line lies under the backend's and is wider: where both are the same, both are seen.
  const width = (isFaint ? 0.08 : party === 'gateway' ? 0.22 : 0.11) * rem();
  return {
    stroke: () => styleOf(`--${party}`),
    width,
    dash: party === 'client' ? [0.1 * rem(), 0.25 * rem()] : isFaint ? [0.3 * rem(), 0.2 * rem()] : [],
    points: { show: true, size: 0.4 * rem(), fill: () => styleOf(`--${party}`), filter: findLonely },
  };
}

class Chart {
  /** @type {uPlot | undefined} */
  plot;
  /** @type {(number | null)[][]} */
  #values = [];
  #label = '';

  /**
   * @param {ChartKind} kind
   * @param {HTMLElement} parent
   * @param {(index: number | null) => void} onCursor
   */
  constructor(kind, parent, onCursor) {
    this.kind = kind;
    this.onCursor = onCursor;
    const figure = document.createElement('figure');
    const caption = document.createElement('figcaption');
    caption.append(kind.title, ' ');
    const unit = document.createElement('span');
    unit.textContent = kind.unit;
    caption.append(unit);
    const legend = document.createElement('ul');
    this.cells = kind.lines.map((line) => {
      const item = document.createElement('li');
      item.dataset['party'] = line.party;
      item.classList.toggle('faint', line.isFaint ?? false);
      const value = document.createElement('b');
      item.append(line.name, ' ', value);
      legend.append(item);
      return value;
    });
    this.area = document.createElement('div');
    this.area.className = 'area';
    this.area.tabIndex = 0;
    this.area.setAttribute('role', 'img');
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
        padding: [0.5 * rem(), 1.25 * rem(), 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          sync: { key: 'charts' },
          drag: { x: false, y: false },
          points: { size: 0.5 * rem() },
        },
        scales: { x: { time: true }, y: { range: (_, __, max) => [0, rangeTop(max, kind.atLeast)] } },
        axes: [
          {
            ...axis,
            space: 4 * rem(),
            size: 1.75 * rem(),
            gap: 0.35 * rem(),
            grid: { show: false },
            incrs: [60, 180, 300, 900],
            values: (_, times) => times.map((time) => formatTime(time * 1_000).slice(0, 5)),
          },
          {
            ...axis,
            space: 2.5 * rem(),
            size: 2.75 * rem(),
            gap: 0.35 * rem(),
            values: (_, values) => values.map((value) => kind.tick(value)),
          },
        ],
        series: [{}, ...kind.lines.map(seriesOf)],
        hooks: {
          setCursor: [
            (plot) => {
              this.onCursor(plot.cursor.idx ?? null);
            },
          ],
        },
      },
      [[], ...kind.lines.map(() => [])],
      this.area,
    );
    this.#apply();
  }

  /** @type {number[]} */
  #times = [];
  #range = { min: 0, max: 1 };

  /**
   * @param {readonly Point[]} points
   * @param {FlowName} flow
   * @param {number} from seconds since 1970
   * @param {number} to seconds since 1970
   */
  show(points, flow, from, to) {
    this.#times = points.map(({ at }) => at / 1_000);
    this.#values = this.kind.lines.map(({ pick }) => points.map((point) => pick(point.flows[flow], point)));
    this.#range = { min: from, max: to };
    this.#apply();
  }

  #apply() {
    const { plot } = this;
    if (plot !== undefined) {
      plot.batch(() => {
        plot.setData([this.#times, ...this.#values], false);
        plot.setScale('x', this.#range);
      });
    }
  }

  /**
   * Puts the values at `index`, or the latest ones, into the legend; gives them as a sentence.
   * @param {number | null} index
   */
  describe(index) {
    const texts = this.kind.lines.map(({ name }, line) => {
      const values = this.#values[line] ?? [];
      const text = this.kind.format(values[index ?? values.length - 1] ?? null);
      const cell = this.cells[line];
      if (cell !== undefined && cell.textContent !== text) {
        cell.textContent = text;
      }
      return `${name} ${text}`;
    });
    const sentence = `${this.kind.title}, ${this.kind.unit}: ${texts.join(', ')}`;
    const label = `${sentence}. Chart of the last 15 minutes; the arrow keys go through its values.`;
    if (index === null && label !== this.#label) {
      this.#label = label;
      this.area.setAttribute('aria-label', label);
    }
    return sentence;
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
  /** @type {readonly Point[]} */
  #points = [];
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
        const index = this.#moved(event.key);
        if (index !== undefined) {
          event.preventDefault();
          this.#moveCursor(chart, index);
          const point = index === null ? undefined : this.#points[index];
          say(point === undefined ? '' : `${formatTime(point.at)}: ${chart.describe(index)}`);
        }
      });
      chart.area.addEventListener('blur', () => {
        this.#moveCursor(chart, null);
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

  /**
   * @param {readonly Point[]} points
   * @param {FlowName} flow
   * @param {number} now milliseconds since 1970
   * @param {number} historyMs
   */
  show(points, flow, now, historyMs) {
    this.#points = points;
    for (const chart of this.charts) {
      chart.show(points, flow, (now - historyMs) / 1_000, now / 1_000);
    }
    this.#describe();
  }

  #describe() {
    for (const chart of this.charts) {
      chart.describe(this.#index);
    }
  }

  /** @param {string} key */
  #moved(key) {
    const last = this.#points.length - 1;
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

  /**
   * @param {Chart} chart
   * @param {number | null} index
   */
  #moveCursor({ plot }, index) {
    const point = index === null ? undefined : this.#points[index];
    plot?.setCursor(
      point === undefined ? { left: -10, top: -10 } : { left: plot.valToPos(point.at / 1_000, 'x'), top: 0 },
    );
  }
}

/**
 * @typedef {object} Load
 * @property {string} name
 * @property {string} [limit]
 * @property {number} value
 * @property {number} [max]
 * @property {(value: number) => string} format
 * @property {(point: Point) => number} [pick]
 * @property {string} [hint]
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
    if (load.pick !== undefined) {
      this.area = document.createElement('div');
      this.area.className = 'spark';
      this.area.setAttribute('aria-hidden', 'true');
      description.append(this.area);
    }
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
    setText(this.limit, load.limit ?? '');
    if (this.meter !== undefined && load.max !== undefined) {
      const percent = Math.min(100, (load.value / load.max) * 100);
      const { meter } = this;
      meter.setAttribute('aria-valuemin', '0');
      meter.setAttribute('aria-valuemax', '100');
      meter.setAttribute('aria-valuenow', percent.toFixed(1));
      meter.setAttribute('aria-valuetext', `${load.format(load.value)} ${load.limit ?? ''}`);
      meter.classList.toggle('full', percent >= 80);
      const bar = /** @type {HTMLElement} */ (meter.firstElementChild);
      bar.style.width = `${percent}%`;
    }
    const { area } = this;
    const { pick } = load;
    if (hasLibrary && area !== undefined && pick !== undefined) {
      const width = area.clientWidth;
      const height = area.clientHeight;
      this.#plot ??= new uPlot(
        {
          width,
          height,
          padding: [2, 0, 2, 0],
          legend: { show: false },
          cursor: { show: false },
          scales: { x: { time: true }, y: { range: (_, __, max) => [0, rangeTop(max, 0.001)] } },
          axes: [{ show: false }, { show: false }],
          series: [{}, { stroke: () => styleOf('--gateway'), width: 1.25, points: { show: false } }],
        },
        [[], []],
        area,
      );
      const plot = this.#plot;
      if (plot.width !== width || plot.height !== height) {
        plot.setSize({ width, height });
      }
      plot.batch(() => {
        plot.setData([points.map(({ at }) => at / 1_000), points.map(pick)], false);
        plot.setScale('x', { min: (now - historyMs) / 1_000, max: now / 1_000 });
      });
    }
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
