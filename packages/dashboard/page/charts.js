// The three charts, drawn as SVG, with one time axis and one cursor. As everywhere on the page, blue stands for the
// backend, ink (black or white) for the gateway and grey for the clients.

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

/**
 * @typedef {object} Shown times are in milliseconds since 1970
 * @property {readonly Point[]} points
 * @property {FlowName} flow
 * @property {number} from
 * @property {number} to
 * @property {number} stepMs
 * @property {Summary} summary the values in the legend while the cursor is outside the charts
 * @property {string} summaryName
 * @property {readonly { readonly at: number, readonly label: string }[]} marks
 */

/**
 * One axis. Places are percentages of the chart's height or width.
 * @typedef {{ readonly place: (value: number) => number, readonly ticks: readonly number[] }} Scale
 */

/** @typedef {{ readonly at: number, readonly values: readonly (number | null)[] }} Step one value per line */

const minuteMs = 60_000;
// Shorter durations are drawn as if they took this long, in ms, because a logarithmic scale has no zero.
const shortestMs = 0.01;
const tickSteps = [1, 2, 5];

/** @type {(first: number, last: number, step: number) => number[]} the multiples of `step` in a range */
const multiples = (first, last, step) => {
  const start = Math.ceil(first / step);
  return Array.from({ length: Math.floor(last / step) - start + 1 }, (_, index) => (start + index) * step);
};

/** @type {(most: number, isOfCounts: boolean) => Scale} a scale from zero, with about three round ticks */
export const linearScale = (most, isOfCounts) => {
  const max = Math.max(1, most) * 1.08;
  const power = 10 ** Math.floor(Math.log10(max / 4));
  const step = (tickSteps.find((each) => each * power >= max / 4) ?? 10) * power;
  return { place: (value) => (value / max) * 100, ticks: multiples(0, max, isOfCounts ? Math.max(1, step) : step) };
};

/** @type {(least: number, most: number) => Scale} begins at a round number and ends at ten times that number or more */
export const logarithmicScale = (least, most) => {
  const power = 10 ** Math.floor(Math.log10(least / 1.5));
  const min = Number((Math.floor(least / 1.5 / power) * power).toPrecision(1));
  const max = Math.max(min * 10, most * 1.2);
  const decades = multiples(Math.log10(power), Math.log10(max), 1).map((exponent) => 10 ** exponent);
  const steps = max / min < 30 ? tickSteps : max / min < 300 ? [1, 5] : [1];
  const ticks = decades.flatMap((decade) => steps.map((each) => each * decade));
  return {
    place: (value) => (Math.log(Math.max(value, shortestMs) / min) / Math.log(max / min)) * 100,
    ticks: ticks.filter((tick) => tick >= min && tick <= max),
  };
};

/** @type {(places: readonly number[]) => string} */
const join = (places) => places.map((place) => place.toFixed(2)).join(' ');

/**
 * The path of a line that breaks at null. A value without neighbours becomes a dot.
 * @type {(places: readonly (readonly [left: number, bottom: number] | null)[]) => string}
 */
export const drawLine = (places) =>
  places
    .map((place, index) => {
      if (place === null) {
        return '';
      }
      const [left, bottom] = place;
      return `${places[index - 1] ? 'L' : 'M'}${join([left, 100 - bottom])}${places[index - 1] ? '' : 'h0'}`;
    })
    .join('');

// The height of the smallest bar, in percent: about two pixels.
const barMin = 2.5;

/**
 * The paths of stacked bars, one path per line of the chart. The first line is at the bottom.
 * @type {(steps: readonly Step[], x: (at: number) => number, y: Scale, stepMs: number) => string[]}
 */
export const drawBars = (steps, x, { place }, stepMs) => {
  /** @type {string[]} */
  const paths = steps[0]?.values.map(() => '') ?? [];
  for (const { at, values } of steps) {
    const left = Math.max(0, x(at - stepMs));
    let top = 100;
    for (const [line, value] of values.entries()) {
      if (value !== null && value > 0) {
        const height = Math.max(place(value), barMin);
        top -= height;
        paths[line] += `M${join([left, top])}h${join([x(at) - left])}v${join([height])}H${join([left])}z`;
      }
    }
  }
  return paths;
};

/** @type {(value: number) => string} */
const nameTick = (value) =>
  value.toLocaleString('en', { maximumSignificantDigits: 3, notation: value >= 10_000 ? 'compact' : 'standard' });

/** @type {Readonly<Record<string, (index: number, last: number) => number>>} the index is -1 without a cursor */
const moves = {
  ArrowLeft: (index, last) => Math.max(0, (index < 0 ? last + 1 : index) - 1),
  ArrowRight: (index, last) => (index < 0 ? last : Math.min(last, index + 1)),
  Home: () => 0,
  End: (_, last) => last,
  Escape: () => -1,
};

/** @type {(className: string) => SVGPathElement} */
const makePath = (className) => {
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('class', className);
  path.setAttribute('vector-effect', 'non-scaling-stroke');
  return path;
};

class Chart {
  #unit = make('small');
  #when = make('small', { className: 'when' });
  #pointed = make('span', { className: 'pointed' });
  #labels = make('div');
  #grid = makePath('grid');
  #marks = makePath('marks');
  #cursor = makePath('cursor');

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
      const path = makePath(`${kind.isOfBars ? 'bars' : 'line'} ${party}`);
      return { name, party, pick, cell, path, dot: makePath(`dot ${party}`), fullName: `${group} ${name}`.trim() };
    });
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', '0 0 100 100');
    svg.setAttribute('preserveAspectRatio', 'none');
    const paths = this.lines.map(({ path }) => path);
    svg.append(this.#grid, this.#marks, this.#cursor, ...paths, ...this.lines.map(({ dot }) => dot));
    this.area = make('div', { className: 'area', tabIndex: 0, role: 'img' }, svg, this.#labels, this.#pointed);
    const caption = make('figcaption', {}, make('b', {}, kind.title), ' ', this.#unit, ' ', this.#when);
    const className = kind.title.toLowerCase().replaceAll(' ', '-');
    parent.append(make('figure', { className }, caption, legend, this.area));
  }

  /**
   * Draws `shown`, with the cursor at the point with this index, or without a cursor. Returns the values at the cursor,
   * or those of the summary, as a sentence.
   * @type {(shown: Shown, index: number) => string}
   */
  show(shown, index) {
    const { points, flow, from, to, stepMs } = shown;
    const { isLogarithmic, isOfBars = false } = this.kind;
    const steps = points.map((point) => ({ at: point.at, values: this.#pick(point, flow) }));
    const values = steps.flatMap((step) => step.values).filter((value) => value !== null);
    const sums = steps.map((step) => step.values.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0));
    const y = isLogarithmic
      ? logarithmicScale(Math.max(shortestMs, Math.min(...values, Infinity)), Math.max(...values, 0) || 1)
      : linearScale(Math.max(...(isOfBars ? sums : values), 0), isOfBars);
    const x = (/** @type {number} */ at) => ((at - from) / (to - from)) * 100;
    const bars = isOfBars ? drawBars(steps, x, y, stepMs) : undefined;
    for (const [line, { path, dot }] of this.lines.entries()) {
      const places = steps.map(({ at, values: all }) => {
        const value = all[line] ?? null;
        return value === null ? null : /** @type {const} */ ([x(at), y.place(value)]);
      });
      // A gap, so that no line crosses the time in which the gateway was down or suspended.
      const withGaps = places.flatMap((place, at) =>
        at > 0 && (points[at]?.at ?? 0) - (points[at - 1]?.at ?? 0) > 3 * stepMs ? [null, place] : [place],
      );
      // A value without neighbours has no line, so it is a dot, as is the value at the cursor.
      const dots = withGaps.filter((place, at) => place !== null && !withGaps[at - 1] && !withGaps[at + 1]);
      path.setAttribute('d', bars?.[line] ?? (isOfBars ? '' : drawLine(withGaps)));
      dot.setAttribute('d', isOfBars ? '' : [...dots, places[index] ?? null].map((each) => drawLine([each])).join(''));
    }
    this.#grid.setAttribute('d', y.ticks.map((tick) => `M0 ${join([100 - y.place(tick)])}H100`).join(''));
    const step = steps[index];
    this.#cursor.setAttribute('d', step === undefined ? '' : `M${join([x(step.at)])} 0V100`);
    this.#label(shown, steps.at(-1), x, y);
    return this.#describe(shown, step, x);
  }

  /** @type {(from: Pick<Point, 'flows' | 'seconds'>, flow: FlowName) => (number | null)[]} */
  #pick({ flows, seconds }, flow) {
    return this.lines.map(({ pick }) => pick(flows[flow], seconds, flow === 'all' ? flows.none : undefined));
  }

  /**
   * Writes the labels of the axes, of the marks and of the ends of the gateway's lines.
   * @type {(shown: Shown, last: Step | undefined, x: (at: number) => number, y: Scale) => void}
   */
  #label({ from, to, marks }, last, x, y) {
    /** @type {(className: string, text: string, left: number, bottom: number) => HTMLElement} */
    const label = (className, text, left, bottom) => {
      const element = make('span', { className }, text);
      Object.assign(element.style, { left: `${left}%`, bottom: `${bottom}%` });
      return element;
    };
    // p50 is below the end of its line and p99 above, so that the names do not overlap.
    const names = this.lines.flatMap(({ name, party }, line) => {
      const value = last?.values[line] ?? null;
      return name === '' || party === 'client' || party === 'backend' || value === null
        ? []
        : [label(`name ${name}`, name, 100, y.place(value))];
    });
    const drawn = marks.filter(({ at }) => at >= from && at <= to);
    this.#marks.setAttribute('d', drawn.map(({ at }) => `M${join([x(at)])} 0V100`).join(''));
    const markLabels = drawn.map(({ at, label: text }) => label('event', text, x(at), 100));
    this.#labels.replaceChildren(
      ...y.ticks.map((tick) => label('tick', nameTick(tick), 0, y.place(tick))),
      ...multiples(from, to, 3 * minuteMs).map((at) => label('time', formatTime(at).slice(0, 5), x(at), 0)),
      ...names,
      ...markLabels,
    );
    // If labels overlap, only the last one stays.
    let end = Infinity;
    for (const element of markLabels.toReversed()) {
      // A label is to the left of its line, unless the chart ends there.
      element.classList.toggle('after', element.offsetLeft < element.offsetWidth);
      const { left, right } = element.getBoundingClientRect();
      element.hidden = right > end;
      end = element.hidden ? end : left;
    }
  }

  /** @type {(shown: Shown, step: Step | undefined, x: (at: number) => number) => string} */
  #describe({ flow, stepMs, summary, summaryName, marks }, step, x) {
    const values = step?.values ?? this.#pick(summary, flow);
    const texts = this.lines.map(({ fullName, cell }, line) => {
      const text = this.kind.format(values[line] ?? null);
      setText(cell, text);
      return `${fullName} ${text}`;
    });
    setText(this.#unit, this.kind.unit(stepMs));
    const sentence = `${this.kind.title}, ${this.#unit.textContent}: ${texts.join(', ')}`;
    this.#pointed.hidden = step === undefined;
    if (step === undefined) {
      setText(this.#when, summaryName);
      const events = marks.map(({ label }) => `, ${label}`).join('');
      this.area.ariaLabel = `${sentence}, ${summaryName}. Chart of the last 15 minutes${events}. Read its values with the arrow keys.`;
      return `${summaryName}: ${sentence}`;
    }
    const time = formatTime(step.at);
    setText(this.#when, `at ${time}`);
    setText(this.#pointed, time);
    // Keeps the label inside the chart at both ends.
    Object.assign(this.#pointed.style, { left: `${x(step.at)}%`, translate: `-${x(step.at)}%` });
    return `${time}: ${sentence}`;
  }
}

export class Charts {
  /** @type {Shown | undefined} */
  #shown;
  /** @type {number | undefined} the time of the point at the cursor */
  #pointedAt;
  #charts;

  /** @param {HTMLElement} parent */
  constructor(parent) {
    this.#charts = kinds.map((kind) => new Chart(kind, parent));
    for (const [chart, { area }] of this.#charts.entries()) {
      area.addEventListener('pointermove', ({ clientX }) => {
        const { left, width } = area.getBoundingClientRect();
        const { points, from, to } = this.#shown ?? { points: [], from: 0, to: 0 };
        const at = from + ((clientX - left) / width) * (to - from);
        const [nearest] = points.toSorted((one, other) => Math.abs(one.at - at) - Math.abs(other.at - at));
        this.#pointAt(nearest);
      });
      area.addEventListener('pointerleave', () => this.#pointAt(undefined));
      area.addEventListener('blur', () => this.#pointAt(undefined));
      area.addEventListener('keydown', (event) => {
        const points = this.#shown?.points ?? [];
        const index = moves[event.key]?.(this.#indexIn(points), points.length - 1);
        if (index !== undefined && points.length > 0) {
          event.preventDefault();
          const sentences = this.#pointAt(points[index]);
          say(index < 0 ? '' : (sentences[chart] ?? ''));
        }
      });
    }
  }

  /** @param {Shown} shown its marks are in order of time */
  show(shown) {
    this.#shown = shown;
    this.#draw();
  }

  /** @param {readonly Point[]} points */
  #indexIn(points) {
    return points.findIndex(({ at }) => at === this.#pointedAt);
  }

  /** @param {Point | undefined} point */
  #pointAt(point) {
    this.#pointedAt = point?.at;
    return this.#draw();
  }

  #draw() {
    const shown = this.#shown;
    return shown === undefined ? [] : this.#charts.map((chart) => chart.show(shown, this.#indexIn(shown.points)));
  }
}
