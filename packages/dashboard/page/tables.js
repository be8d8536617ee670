// The tables. Each table is described by its columns. An update of a row changes only its texts, so that the user keeps
// selection and focus.

import { byId, copy, make, say, setText } from './dom.js';
import * as format from './format.js';

/** @import { Facts, Failure, Flow, FlowName, Kind, Now, Party, ShownSetting, StatusClass, Summary, Worker } from '../state.ts' */

/** @type {readonly Party[]} in the order of a call's path */
export const parties = ['client', 'gateway', 'backend'];
/** @type {Readonly<Record<Party, string>>} */
export const partyNames = { backend: 'Backend', gateway: 'Gateway', client: 'Clients' };
/** @type {readonly FlowName[]} */
const operationNames = ['list', 'create', 'read', 'update', 'delete'];
/** @type {readonly StatusClass[]} */
const statusClasses = ['2xx', '4xx', '5xx', 'none'];
const shownMax = 50;

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} [name] in the table's head
 * @property {Node | string} [head] in place of `name` in the table's head
 * @property {string} [group] heading above this column and its neighbours of the same group
 * @property {string} [className]
 * @property {boolean} [isHeading] its cells are the headings of their rows
 * @property {(row: Row) => string} [text] set on each update
 * @property {(row: Row, cell: HTMLTableCellElement) => (Node | string)[]} [fill] set once, for the life of the row
 * @property {(row: Row) => boolean} [isBad] marks a value that needs attention
 */

/** @template Row */
class Table {
  /** @type {Map<unknown, HTMLTableRowElement>} */
  #rows = new Map();
  body = make('tbody');

  /**
   * @param {HTMLElement} place
   * @param {readonly Column<Row>[]} columns
   * @param {(row: Row) => unknown} keyOf
   * @param {(row: Row, element: HTMLTableRowElement) => void} [mark] updates the look of a row
   */
  constructor(place, columns, keyOf, mark = () => undefined) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.mark = mark;
    place.append(make('table', {}, makeHead(columns), this.body));
  }

  /** @param {readonly Row[]} rows */
  show(rows) {
    const shown = new Map(rows.map((row) => [this.keyOf(row), row]));
    for (const [key, element] of this.#rows) {
      if (!shown.has(key)) {
        element.remove();
        this.#rows.delete(key);
      }
    }
    let next = this.body.firstElementChild;
    for (const [key, row] of shown) {
      const element = this.#rows.get(key) ?? this.#make(row);
      this.#rows.set(key, element);
      // Moves only rows that are out of place, because a moved row loses the focus.
      if (element === next) {
        next = next.nextElementSibling;
      } else {
        this.body.insertBefore(element, next);
      }
      for (const [index, { text, isBad }] of this.columns.entries()) {
        const cell = element.cells[index];
        if (text !== undefined) {
          setText(cell, text(row));
        }
        cell?.classList.toggle('bad', isBad?.(row) === true);
      }
      this.mark(row, element);
    }
  }

  /** @param {Row} row */
  #make(row) {
    const cells = this.columns.map((column, index) => {
      const { name = '', group = '', className = '', isHeading = false, fill } = column;
      const cell = isHeading ? make('th', { scope: 'row' }) : make('td', { className });
      // In narrow windows the style sheet hides the table's head and shows these names in the cells.
      Object.assign(cell.dataset, { name }, isFirst(this.columns, index) && { group });
      cell.classList.toggle('first', isFirst(this.columns, index));
      cell.append(...(fill?.(row, cell) ?? []));
      return cell;
    });
    return make('tr', {}, ...cells);
  }
}

/** @type {(columns: readonly Column<never>[], index: number) => boolean} the column is the first one of a group */
const isFirst = (columns, index) =>
  columns[index]?.group !== undefined && columns[index]?.group !== columns[index - 1]?.group;

/** @type {(columns: readonly Column<never>[]) => HTMLElement} with a second row if there are groups */
const makeHead = (columns) => {
  const rowSpan = columns.some(({ group }) => group !== undefined) ? 2 : 1;
  const [upper, lower] = [make('tr'), make('tr')];
  for (const [index, { name = '', head = name, group, className = '' }] of columns.entries()) {
    const cell = make('th', { scope: 'col', className }, head);
    if (group === undefined) {
      cell.rowSpan = rowSpan;
      upper.append(cell);
      continue;
    }
    lower.append(cell);
    if (isFirst(columns, index)) {
      cell.classList.add('first');
      const colSpan = columns.filter((column) => column.group === group).length;
      upper.append(
        make('th', { scope: 'colgroup', colSpan, className: `first ${className}` }, make('span', {}, group)),
      );
    }
  }
  return make('thead', {}, upper, ...(rowSpan === 2 ? [lower] : []));
};

/**
 * @typedef {object} Operation
 * @property {FlowName} name
 * @property {Flow} figures
 * @property {number} seconds
 * @property {number} longest the longest mean time of all operations, in ms
 */

/**
 * A column of figures. Requests that called no operation have no backend figures.
 * @type {(group: string | undefined, name: string, read: (figures: Flow, seconds: number) => string, more?: Partial<Column<Operation>>) => Column<Operation>}
 */
const figure = (group, name, read, more = {}) => ({
  name,
  ...(group !== undefined && { group }),
  className: group === ofBackend ? 'backend' : '',
  text: ({ name: flow, figures, seconds }) => (flow === 'none' && group === ofBackend ? '' : read(figures, seconds)),
  ...more,
});

const ofBackend = 'Backend calls';

/** @type {readonly Column<Operation>[]} */
const operationColumns = [
  {
    head: make('h2', { id: 'operations-title' }, 'Operations'),
    isHeading: true,
    text: ({ name }) => (name === 'all' ? 'All five' : name === 'none' ? 'no operation' : name),
  },
  figure(undefined, 'per second', ({ requests }, seconds) => format.formatRate(requests / seconds), {
    head: 'Requests\nper second',
  }),
  ...statusClasses.map((name) => figure('Replies', name, ({ byStatus }) => format.formatCount(byStatus[name]))),
  ...parties.map((party) =>
    figure('Failed due to', partyNames[party].toLowerCase(), ({ failed }) => format.formatCount(failed[party]), {
      // Client errors are not marked, because the operator cannot fix them.
      isBad: ({ figures }) => party !== 'client' && figures.failed[party] > 0,
    }),
  ),
  figure('Duration', 'p50', ({ p50 }) => format.formatMs(p50)),
  figure('Duration', 'p99', ({ p99 }) => format.formatMs(p99)),
  figure(ofBackend, 'failed', ({ failed, backendCalls }) => format.formatShare(failed.backend, backendCalls), {
    isBad: ({ figures }) => figures.failed.backend > 0,
  }),
  figure(ofBackend, 'p50', ({ backendP50 }) => format.formatMs(backendP50)),
  figure(ofBackend, 'p99', ({ backendP99 }) => format.formatMs(backendP99)),
  {
    head: "Backend's share of the mean duration",
    className: 'share',
    fill: () => [make('div', { className: 'bar' }), make('small')],
  },
];

/** @type {Table<Operation>} */
const operationTable = new Table(
  byId('operation-table'),
  operationColumns,
  ({ name }) => name,
  ({ name, figures, longest }, row) => {
    const { requests, mean, backendMean } = figures;
    row.className = name;
    row.hidden = name === 'none' && requests === 0;
    row.classList.toggle('idle', requests === 0);
    for (const cell of row.cells) {
      cell.classList.toggle('zero', /^0(?:\s%)?$/.test(cell.textContent));
    }
    const part = mean === null || mean === 0 ? 0 : Math.min(1, (backendMean ?? 0) / mean);
    row.style.setProperty('--mean', `${mean === null || longest === 0 ? 0 : (mean / longest) * 100}%`);
    row.style.setProperty('--part', `${part * 100}%`);
    const text = mean === null || name === 'none' ? '' : `${Math.round(part * 100)}\u00a0% of ${format.formatMs(mean)}`;
    setText(row.querySelector('.share small'), text);
  },
);

/** @param {Summary} summary */
export function showOperations({ flows, seconds }) {
  const longest = Math.max(...Object.values(flows).map(({ mean }) => mean ?? 0));
  operationTable.show(
    /** @type {FlowName[]} */ ([...operationNames, 'all', 'none']).map((name) => ({
      name,
      figures: flows[name],
      seconds,
      longest,
    })),
  );
}

/** @type {Table<Worker>} */
const workerTable = new Table(
  byId('worker-table'),
  [
    { name: 'Process', isHeading: true, text: ({ pid }) => String(pid) },
    { name: 'in flight', text: ({ inFlight }) => format.formatCount(inFlight) },
    { name: 'memory', text: ({ residentBytes }) => format.formatBytes(residentBytes) },
    { name: 'event loop delay', text: ({ eventLoopDelayMs }) => format.formatMs(eventLoopDelayMs) },
  ],
  ({ pid }) => pid,
);

/** @param {readonly Worker[]} workers */
export function showWorkers(workers) {
  byId('workers').hidden = workers.length < 2;
  workerTable.show(workers);
}

/** @typedef {{ kind: Kind, counts: readonly number[] }} KindCount */

/**
 * Makes the tables of failures by kind, one per party. Returns the function that updates their counts.
 * @param {Facts} facts
 */
export function createKindTables({ kinds }) {
  byId('kind-tables').replaceChildren();
  const tables = parties.map((party) => {
    const place = make('div');
    const rest = make('p', { className: 'hint' });
    place.dataset['party'] = party;
    /** @type {Table<KindCount>} */
    const table = new Table(
      place,
      [
        { name: partyNames[party], className: `text party ${party}`, isHeading: true, fill: nameKind },
        { name: 'last minute', text: ({ counts: [count = 0] }) => format.formatCount(count) },
        { name: '15 minutes', text: ({ counts: [, count = 0] }) => format.formatCount(count) },
      ],
      ({ kind }) => kind.kind,
      ({ counts }, row) => {
        for (const [index, count] of counts.entries()) {
          row.cells[index + 1]?.classList.toggle('some', count > 0);
        }
        // Kinds without failures are listed below the table instead. A row stays visible while it has the focus.
        row.hidden = counts.every((count) => count === 0) && !row.contains(document.activeElement);
      },
    );
    place.append(rest);
    byId('kind-tables').append(place);
    return { table, kinds: kinds.filter((each) => each.party === party), rest };
  });
  return (/** @type {Now} */ { lastMinute, wholeHistory }) => {
    for (const { table, kinds: ofParty, rest } of tables) {
      table.show(
        ofParty.map((kind) => ({
          kind,
          counts: [lastMinute, wholeHistory].map(({ failures }) => failures[kind.kind] ?? 0),
        })),
      );
      const absent = ofParty.filter((_, index) => table.body.rows[index]?.hidden).map(({ title }) => title);
      rest.hidden = absent.length === 0;
      setText(rest, `Did not occur: ${absent.join(', ')}.`);
    }
  };
}

/** @param {KindCount} row */
function nameKind({ kind: { kind, title, meaning } }) {
  const ariaLabel = `${title}: show these failed calls`;
  const button = make('button', { type: 'button', className: 'plain', ariaLabel }, title);
  button.addEventListener('click', () => {
    filterBy('', kind);
    byId('failures').scrollIntoView({ block: 'nearest' });
    filters.kind.focus({ preventScroll: true });
  });
  return [button, ' ', make('small', {}, meaning)];
}

/** @type {(text: string | undefined, cell: HTMLElement) => (Node | string)[]} */
const asCode = (text, cell) => {
  cell.title = text ?? '';
  return [make('code', {}, text ?? '–')];
};

/** @type {Table<Failure>} */
const failureTable = new Table(
  byId('failure-table'),
  [
    {
      name: 'Time',
      className: 'text when',
      fill: ({ at }) => {
        const dateTime = new Date(at).toISOString();
        return [make('time', { dateTime, title: dateTime }, format.formatMoment(at, Date.now()))];
      },
    },
    {
      name: 'At fault',
      className: 'text whose',
      fill: ({ party }) => [make('span', { className: `party ${party}` }, partyNames[party])],
    },
    { name: 'Operation', className: 'text', text: ({ operation }) => operation ?? 'none' },
    { name: 'Status', text: ({ status }) => (status === 0 ? '–' : String(status)) },
    { name: 'Duration', text: ({ durationMs }) => format.formatMs(durationMs) },
    { name: 'Path', className: 'text path', fill: ({ path }, cell) => asCode(path, cell) },
    { name: 'Client', className: 'text client', fill: ({ client }, cell) => asCode(client, cell) },
    {
      name: 'Kind',
      className: 'text kind',
      fill: ({ outcome, cause }) => [
        format.nameOfKind(outcome),
        ...(cause === undefined ? [] : [' ', make('small', {}, cause)]),
      ],
    },
    { name: 'Request id', className: 'text id', fill: ({ requestId }) => copyable(requestId) },
  ],
  ({ at, requestId }) => `${at} ${requestId}`,
);

/** @param {string} requestId */
function copyable(requestId) {
  const code = make('code', { title: requestId }, requestId);
  const ariaLabel = `Copy request id ${requestId}`;
  const button = make('button', { type: 'button', className: 'copy', ariaLabel }, 'Copy');
  button.addEventListener('click', () => {
    if (copy(code, 'request id', `Copied ${requestId}`)) {
      button.textContent = 'Copied';
      setTimeout(() => {
        button.textContent = 'Copy';
      }, 2_000);
    }
  });
  return [code, ' ', button];
}

const filters = {
  operation: /** @type {HTMLSelectElement} */ (byId('filter-operation')),
  kind: /** @type {HTMLSelectElement} */ (byId('filter-kind')),
  clear: byId('filter-clear'),
};
filters.operation.append(
  new Option('all', ''),
  ...operationNames.map((name) => new Option(name, name)),
  new Option('no operation', 'none'),
);
/** @type {readonly Failure[]} */
let failures = [];

/** @param {readonly Failure[]} latest */
export function showFailures(latest) {
  failures = latest;
  renderFailures();
}

function renderFailures() {
  const [wantedOperation, wantedKind] = [filters.operation.value, filters.kind.value];
  const wanted = failures.filter(
    ({ operation, outcome, party }) =>
      ['', operation ?? 'none'].includes(wantedOperation) && ['', outcome, `party:${party}`].includes(wantedKind),
  );
  const shown = wanted.slice(0, shownMax);
  failureTable.show(shown);
  const isFiltered = wantedOperation !== '' || wantedKind !== '';
  filters.clear.hidden = !isFiltered;
  byId('failures').classList.toggle('empty', shown.length === 0);
  setText(byId('failures-note'), describeFailures(shown.length, isFiltered));
}

/** @type {(count: number, isFiltered: boolean) => string} */
const describeFailures = (count, isFiltered) => {
  if (failures.length === 0) {
    return 'No call has failed since the gateway started.';
  }
  if (count === 0) {
    return 'None of the failed calls in the list matches.';
  }
  const calls = `${count === shownMax ? `The last ${shownMax}` : count}${isFiltered ? ' matching' : ''} failed call${count === 1 ? '' : 's'}`;
  return `${calls}, latest first. Times are ${format.describeTimeZone()}. The request id is also in the log, in the reply and in the call to the backend.`;
};

for (const select of [filters.operation, filters.kind]) {
  select.addEventListener('change', () => {
    renderFailures();
    say(byId('failures-note').textContent);
  });
}
filters.clear.addEventListener('click', () => {
  filterBy('', '');
  filters.kind.focus();
});

/** @type {(operation: string, kind: string) => void} */
function filterBy(operation, kind) {
  filters.operation.value = operation;
  filters.kind.value = kind;
  renderFailures();
}

/**
 * Fills the filter of failure kinds.
 * @param {Facts} facts
 */
export function offerKinds({ kinds }) {
  const chosen = filters.kind.value;
  const groups = parties.map((party) =>
    make(
      'optgroup',
      { label: partyNames[party] },
      new Option(`all ${party} failures`, `party:${party}`),
      ...kinds.filter((each) => each.party === party).map(({ kind, title }) => new Option(title, kind)),
    ),
  );
  filters.kind.replaceChildren(new Option('all', ''), ...groups);
  filters.kind.value = chosen;
}

/** @type {Record<string, string>} names of sources that differ from their identifiers */
const sourceNames = { file: 'settings file', socket: 'passed socket' };

const isChosen = (/** @type {ShownSetting} */ { source }) => source !== 'default';

let showsDefaults = false;

/** @type {Table<ShownSetting>} */
const settingTable = new Table(
  byId('setting-table'),
  [
    { name: 'Variable', className: 'text', isHeading: true, fill: ({ variable }) => [make('code', {}, variable)] },
    { name: 'Value', className: 'text value', fill: describeValue },
    {
      name: 'Source',
      className: 'text source',
      text: ({ source, flag }) => (source === 'flag' ? `flag ${flag}` : (sourceNames[source] ?? source)),
    },
    { name: 'Description', className: 'text help', text: ({ help }) => help.replaceAll('`', '') },
  ],
  // The key has all properties of a setting, because a setting that a reload has changed needs a new row.
  (setting) => JSON.stringify(setting),
  (setting, row) => {
    row.classList.toggle('chosen', isChosen(setting));
    row.hidden = !isChosen(setting) && !showsDefaults;
  },
);

/** @param {ShownSetting} setting */
function describeValue({ value, unit }) {
  // Digits are grouped by CSS, so that a copied number has no spaces. A number without a unit, such as a port, is not
  // grouped.
  const groups = unit !== undefined && /^\d{5,}$/.test(value) ? value.split(/(?=(?:\d{3})+$)/) : [];
  const spans = groups.map((group) => make('span', { className: 'group' }, group));
  const code = make('code', {}, ...(groups.length === 0 ? [value] : spans));
  const readable = format.formatSetting(Number(value), unit);
  return [code, ` ${unit ?? ''}`, ...(readable === '' ? [] : [' ', make('small', {}, readable)])];
}

/** @param {readonly ShownSetting[]} settings */
export function showSettings(settings) {
  const chosen = settings.filter(isChosen);
  settingTable.show([...chosen, ...settings.filter((setting) => !isChosen(setting))]);
  const count = chosen.length === 0 ? 'none' : format.formatCount(chosen.length);
  setText(byId('settings-count'), `${count} of ${format.formatCount(settings.length)} changed`);
  byId('settings').classList.toggle('empty', chosen.length === 0 && !showsDefaults);
  const toggle = byId('settings-toggle');
  setText(toggle, showsDefaults ? 'Hide defaults' : 'Show defaults too');
  toggle.ariaExpanded = String(showsDefaults);
  toggle.onclick = () => {
    showsDefaults = !showsDefaults;
    showSettings(settings);
  };
}
