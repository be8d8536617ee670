// Draws the charts, and the load figures with their sparklines, as SVG. The charts share a time axis and a cursor. As
// everywhere on the page, blue stands for the backend, ink (black or white) for the gateway and grey for the clients.

import { byId, make, say, show } from './dom.js';
import { formatBytes, formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Attributes, Description } from './dom.js' */
/** @import { Facts, Flow, FlowName, Load, Now, Party, Point, Summary } from '../state.ts' */

/** @typedef {(figures: Flow, seconds: number, others: Flow | undefined) => number | null} Picker */

/**
 * @typedef {object} ChartKind
 * @property {string} title
 * @property {(stepMs: number) => string} unit
 * @property {(value: number) => string} format
 * @property {boolean} [isOfBars] draws stacked bars instead of lines
 * @property {boolean} [isLogarithmic]
 * @property {[group: string, party: Party, name: string, pick: Picker][]} lines `name` is empty if the group has one line
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
    format: formatRate,
    lines: [
      ['from clients', 'gateway', '', ({ requests }, seconds) => requests / seconds],
      ['to the backend', 'backend', '', ({ backendCalls }, seconds) => backendCalls / seconds],
    ],
  },
  {
    title: 'Failed requests',
    unit: (stepMs) => `per ${stepMs / 1_000} s`,
    format: formatCount,
    isOfBars: true,
    lines: [
      ['backend', 'backend', '', failedBy('backend')],
      ['gateway', 'gateway', '', failedBy('gateway')],
      ['clients', 'client', '', failedBy('client')],
    ],
  },
  {
    title: 'Latency',
    unit: () => 'ms, logarithmic',
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

/** @type {(most: number, isOfCounts: boolean) => Scale} a scale from zero, with about three ticks at round numbers */
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
  // The closest ticks are about a fifth of the range apart, so that their labels do not overlap in a low chart.
  const steps = max / min < 30 ? tickSteps : max / min < 300 ? [1, 3] : [1];
  const ticks = decades.flatMap((decade) => steps.map((each) => each * decade));
  return {
    place: (value) => (Math.log(Math.max(value, shortestMs) / min) / Math.log(max / min)) * 100,
    ticks: ticks.filter((tick) => tick >= min && tick <= max),
  };
};

/** @type {(places: readonly number[]) => string} */
const join = (places) => places.map((place) => place.toFixed(2)).join(' ');

/** @typedef {readonly [left: number, bottom: number] | null} Place in percent */

/**
 * The path of a line that breaks at null. A value without neighbours becomes a dot.
 * @type {(places: readonly Place[]) => string}
 */
export const drawLine = (places) =>
  places
    .map((place, index) => {
      if (place === null) return '';
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

/** @type {(places: readonly Place[]) => string} the dots of values without neighbours, which have no line */
const drawDots = (places) =>
  places.map((place, index) => (places[index - 1] || places[index + 1] ? '' : drawLine([place]))).join('');

/** @type {(value: number) => string} */
const nameTick = (value) =>
  value.toLocaleString('en', { maximumSignificantDigits: 3, notation: value >= 10_000 ? 'compact' : 'standard' });

/** @type {(d: string, className?: string) => Description} */
const makePath = (d, className = '') => make('path', { class: className, d, 'vector-effect': 'non-scaling-stroke' });

/** @type {(className: string, text: string, left: number, bottom: number) => Description} */
const makeLabel = (className, text, left, bottom) =>
  make('span', { class: className, style: `left: ${left}%; bottom: ${bottom}%` }, text);

/** @typedef {(from: Pick<Point, 'flows' | 'seconds'>) => (number | null)[]} ReadValues one value per line */

/**
 * Describes the lines or bars, the axes and the marks of a chart, and the cursor at `point` if `point` is defined.
 * @type {(kind: ChartKind, shown: Shown, read: ReadValues, point: Point | undefined) => Description[]}
 */
const makeDrawing = ({ lines, isLogarithmic, isOfBars = false }, { points, from, to, stepMs, marks }, read, point) => {
  const steps = points.map((each) => ({ at: each.at, values: read(each) }));
  const values = steps.flatMap((step) => step.values).filter((value) => value !== null);
  const sums = steps.map((step) => step.values.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0));
  const y = isLogarithmic
    ? logarithmicScale(Math.max(shortestMs, Math.min(...values, Infinity)), Math.max(...values, 0) || 1)
    : linearScale(Math.max(...(isOfBars ? sums : values), 0), isOfBars);
  const x = (/** @type {number} */ at) => ((at - from) / (to - from)) * 100;

  const bars = isOfBars ? drawBars(steps, x, y, stepMs) : undefined;
  const drawn = lines.map(([, party, name], line) => {
    /** @type {Place[]} */
    const places = steps.map(({ at, values: { [line]: value = null } }) =>
      value === null ? null : [x(at), y.place(value)],
    );
    // A gap, so that no line crosses the time in which the gateway was down or suspended.
    const withGaps = places.flatMap((place, at) =>
      at > 0 && (points[at]?.at ?? 0) - (points[at - 1]?.at ?? 0) > 3 * stepMs ? [null, place] : [place],
    );
    const atCursor = places[points.findIndex((each) => each === point)] ?? null;
    const end = places.at(-1);
    return {
      path: makePath(bars?.[line] ?? drawLine(withGaps), `${isOfBars ? 'bars' : 'line'} ${party}`),
      dots: makePath(isOfBars ? '' : drawDots(withGaps) + drawLine([atCursor]), `dot ${party}`),
      // The name p50 is below the end of its line, and p99 is above the end, so that the names do not overlap.
      names: name !== '' && party === 'gateway' && end ? [makeLabel(`name ${name}`, name, 100, end[1])] : [],
    };
  });
  const visible = marks.filter(({ at }) => at >= from && at <= to);
  const upright = (/** @type {{ at: number }} */ { at }) => `M${join([x(at)])} 0V100`;
  return [
    make(
      'svg',
      { viewBox: '0 0 100 100', preserveAspectRatio: 'none' },
      makePath(y.ticks.map((tick) => `M0 ${join([100 - y.place(tick)])}H100`).join(''), 'grid'),
      makePath(visible.map(upright).join(''), 'marks'),
      makePath(point === undefined ? '' : upright(point), 'cursor'),
      drawn.map(({ path }) => path),
      drawn.map(({ dots }) => dots),
    ),
    ...y.ticks.map((tick) => makeLabel('tick', nameTick(tick), 0, y.place(tick))),
    ...multiples(from, to, 3 * minuteMs).map((at) => makeLabel('time', formatTime(at).slice(0, 5), x(at), 0)),
    ...drawn.flatMap(({ names }) => names),
    ...visible.map(({ at, label }) => makeLabel('event', label, x(at), 100)),
    ...(point === undefined ? [] : [makeLabel('pointed', formatTime(point.at), x(point.at), 0)]),
  ];
};

/**
 * Describes a chart. `sentence` has the values at the cursor or, if there is no cursor, the values of the summary.
 * @type {(kind: ChartKind, shown: Shown, point: Point | undefined, handlers: Attributes) => { figure: Description, sentence: string }}
 */
const makeChart = (kind, shown, point, handlers) => {
  const { flow, stepMs, summary, summaryName, marks } = shown;
  const { title, format, lines } = kind;
  /** @type {ReadValues} */
  const read = ({ flows, seconds }) =>
    lines.map(([, , , pick]) => pick(flows[flow], seconds, flow === 'all' ? flows.none : undefined));
  const unit = kind.unit(stepMs);
  const formatOr = (/** @type {number | null | undefined} */ value) => (value == null ? '–' : format(value));
  const describe = (/** @type {readonly (number | null)[]} */ values) =>
    `${title}, ${unit}: ${lines.map(([group, , name], line) => `${group} ${name}`.trim() + ` ${formatOr(values[line])}`).join(', ')}`;
  const values = read(point ?? summary);
  const legend = [...Map.groupBy(lines.entries(), ([, [group]]) => group)].map(([group, ofGroup]) =>
    make(
      'li',
      { 'data-party': ofGroup[0]?.[1][1] },
      group,
      ofGroup.flatMap(([line, [, , name]]) => [` ${name}${name && ' '}`, make('b', {}, formatOr(values[line]))]),
    ),
  );
  const when = point === undefined ? summaryName : `at ${formatTime(point.at)}`;
  const events = marks.map(({ label }) => `, ${label}`).join('');
  const name = `${describe(read(summary))}, ${summaryName}. Chart of the last 15 minutes${events}. Read its values with the arrow keys.`;
  const area = { class: 'area', tabindex: 0, role: 'img', 'aria-label': name, ...handlers };
  const period = make('small', { class: 'when' }, when);
  const figure = make(
    'figure',
    { class: title.toLowerCase().replaceAll(' ', '-') },
    make('figcaption', {}, make('b', {}, title), ' ', make('small', {}, unit), ' ', period),
    make('ul', {}, legend),
    make('div', area, makeDrawing(kind, shown, read, point)),
  );
  return { figure, sentence: `${point === undefined ? summaryName : formatTime(point.at)}: ${describe(values)}` };
};

/** @type {Readonly<Record<string, (index: number, last: number) => number>>} the cursor's next index; -1: no cursor */
const moves = {
  ArrowLeft: (index, last) => Math.max(0, (index < 0 ? last + 1 : index) - 1),
  ArrowRight: (index, last) => (index < 0 ? last : Math.min(last, index + 1)),
  Home: () => 0,
  End: (_, last) => last,
  Escape: () => -1,
};

/** @type {number | undefined} the time of the point at the cursor */
let pointedAt;

/** @type {(shown: Shown) => string[]} shows the charts, and returns their values at the cursor */
export const showCharts = (shown) => {
  const { points, from, to } = shown;
  const index = points.findIndex(({ at }) => at === pointedAt);
  const pointAt = (/** @type {Point | undefined} */ point) => {
    pointedAt = point?.at;
    return showCharts(shown);
  };
  const charts = kinds.map((kind, chart) =>
    makeChart(kind, shown, points[index], {
      onpointermove: (/** @type {PointerEvent & { currentTarget: Element }} */ { clientX, currentTarget }) => {
        const { left, width } = currentTarget.getBoundingClientRect();
        const at = from + ((clientX - left) / width) * (to - from);
        pointAt(points.toSorted((one, other) => Math.abs(one.at - at) - Math.abs(other.at - at))[0]);
      },
      onpointerleave: () => pointAt(undefined),
      onblur: () => pointAt(undefined),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const next = moves[event.key]?.(index, points.length - 1);
        if (next !== undefined && points.length > 0) {
          event.preventDefault();
          const sentences = pointAt(points[next]);
          say(next < 0 ? '' : (sentences[chart] ?? ''));
        }
      },
    }),
  );
  const figures = charts.map(({ figure }) => figure);
  show('charts', {}, figures);
  for (const figure of byId('charts').children) placeEvents(figure);
  return charts.map(({ sentence }) => sentence);
};

/** @type {(figure: Element) => void} if labels of events overlap, only the last label stays */
const placeEvents = (figure) => {
  let end = Infinity;
  for (const element of [.../** @type {NodeListOf<HTMLElement>} */ (figure.querySelectorAll('.event'))].toReversed()) {
    element.hidden = false;
    // A label is to the left of its line if the chart has room there.
    element.classList.toggle('after', element.offsetLeft < element.offsetWidth);
    const { left, right } = element.getBoundingClientRect();
    element.hidden = right > end;
    end = element.hidden ? end : left;
  }
};

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

/** @type {(facts: Facts, now: Now, points: readonly Point[]) => void} a load with a limit also gets a meter */
export const showLoads = (facts, now, points) => {
  const items = loads.map(({ name, key, format, max, note }) => {
    const most = max?.(facts) ?? Infinity;
    const [figure, limit] = [format(now[key]), note?.(now) ?? `of ${format(most)}`];
    const percent = Math.min(100, (now[key] / most) * 100);
    const meter = make('div', {
      class: percent >= 80 ? 'meter full' : 'meter',
      style: `--part: ${percent}%`,
      role: 'meter',
      'aria-label': `${name}, share of the limit`,
      'aria-valuenow': percent.toFixed(1),
      'aria-valuetext': `${figure} ${limit}`,
    });
    const highest = Math.max(0, ...points.map((point) => point[key]));
    const leftOf = (/** @type {number} */ at) => 100 - ((now.at - at) / facts.historyMs) * 100;
    const line = drawLine(points.map((point) => [leftOf(point.at), (point[key] / (highest || 1)) * 100]));
    const spark = make(
      'div',
      { class: 'spark', 'aria-hidden': 'true' },
      make('svg', { viewBox: '0 -3 100 105', preserveAspectRatio: 'none' }, makePath(line)),
      make('small', {}, highest === 0 ? '' : format(highest)),
      make('small', {}, '0'),
    );
    const figures = [make('b', {}, figure), ' ', make('small', {}, limit), ...(max ? [meter] : []), spark];
    return make('div', {}, make('dt', {}, name), make('dd', {}, figures));
  });
  show('loads', {}, items);
};
