// The tables. Each table is described by its columns. An update of a row changes only its texts, so that the user keeps
// selection and focus.

import { byId, copy, make, say, setText } from './dom.js';
import * as format from './format.js';

/** @import { Facts, Flow, FlowName, Now, Party, ShownFailure, ShownSetting, StatusClass, Summary, Worker } from '../state.ts' */

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
 * @property {string} [group] heading above this column and those after it
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

  /**
   * @param {HTMLElement} body
   * @param {readonly Column<Row>[]} columns
   * @param {(row: Row) => unknown} keyOf
   * @param {(row: Row, element: HTMLTableRowElement) => void} [mark] updates the look of a row
   */
  constructor(body, columns, keyOf, mark = () => undefined) {
    this.body = body;
    this.columns = columns;
    this.keyOf = keyOf;
    this.mark = mark;
    if (body.previousElementSibling === null) {
      const names = columns.map(({ name = '', className = '' }) => make('th', { scope: 'col', className }, name));
      body.before(make('thead', {}, make('tr', {}, ...names)));
    }
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
    const cells = this.columns.map(({ name = '', group, className = '', isHeading = false, fill }) => {
      const cell = isHeading ? make('th', { scope: 'row' }) : make('td', { className });
      // In narrow windows the style sheet hides the table's head and shows these names in the cells.
      Object.assign(cell.dataset, { name }, group !== undefined && { group });
      cell.classList.toggle('first', group !== undefined);
      cell.append(...(fill?.(row, cell) ?? []));
      return cell;
    });
    return make('tr', {}, ...cells);
  }
}

/**
 * @typedef {object} Operation
 * @property {FlowName} name
 * @property {Flow} figures
 * @property {number} seconds
 * @property {number} longest the longest mean time of all operations, in ms
 */

/**
 * A column of figures. Requests that called no operation have no backend figures.
 * @type {(name: string, read: (figures: Flow, seconds: number) => string, more?: Partial<Column<Operation>>) => Column<Operation>}
 */
const figure = (name, read, more = {}) => ({
  name,
  text: ({ name: flow, figures, seconds }) =>
    flow === 'none' && more.className === 'backend' ? '' : read(figures, seconds),
  ...more,
});

/** @type {readonly Column<Operation>[]} */
const operationColumns = [
  { isHeading: true, text: ({ name }) => (name === 'all' ? 'All five' : name === 'none' ? 'no operation' : name) },
  figure('per second', ({ requests }, seconds) => format.formatRate(requests / seconds)),
  ...statusClasses.map((name, index) =>
    figure(name, ({ byStatus }) => format.formatCount(byStatus[name]), index === 0 ? { group: 'Replies' } : {}),
  ),
  ...parties.map((party, index) =>
    figure(partyNames[party].toLowerCase(), ({ failed }) => format.formatCount(failed[party]), {
      ...(index === 0 && { group: 'Failed due to' }),
      // Client errors are not marked, because the operator cannot fix them.
      isBad: ({ figures }) => party !== 'client' && figures.failed[party] > 0,
    }),
  ),
  figure('p50', ({ p50 }) => format.formatMs(p50), { group: 'Duration' }),
  figure('p99', ({ p99 }) => format.formatMs(p99)),
  figure('failed', ({ backendFailed: failed, backendCalls }) => format.formatShare(failed, backendCalls), {
    group: 'Backend calls',
    className: 'backend',
    isBad: ({ figures }) => figures.backendFailed > 0,
  }),
  figure('p50', ({ backendP50 }) => format.formatMs(backendP50), { className: 'backend' }),
  figure('p99', ({ backendP99 }) => format.formatMs(backendP99), { className: 'backend' }),
  { className: 'share', fill: () => [make('div', { className: 'bar' }), make('small')] },
];

/** @type {Table<Operation>} */
const operationTable = new Table(
  byId('operation-rows'),
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
  byId('worker-rows'),
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

/** @typedef {{ kind: string, counts: readonly number[] }} KindCount */

/**
 * Makes the tables of failures by kind, one per party. Returns the function that updates their counts.
 * @param {Facts} facts
 */
export function createKindTables({ failureKinds }) {
  byId('kind-tables').replaceChildren();
  const tables = parties.map((party) => {
    const body = make('tbody');
    const rest = make('p', { className: 'hint' });
    const place = make('div', {}, make('table', {}, body), rest);
    place.dataset['party'] = party;
    byId('kind-tables').append(place);
    /** @type {Column<KindCount>[]} */
    const columns = [
      { name: partyNames[party], className: `text party ${party}`, isHeading: true, fill: nameKind },
      { name: 'last minute', text: ({ counts: [count = 0] }) => format.formatCount(count) },
      { name: '15 minutes', text: ({ counts: [, count = 0] }) => format.formatCount(count) },
    ];
    /** @type {Table<KindCount>} */
    const table = new Table(
      body,
      columns,
      ({ kind }) => kind,
      ({ counts }, row) => {
        for (const [index, count] of counts.entries()) {
          row.cells[index + 1]?.classList.toggle('some', count > 0);
        }
        // Kinds without failures are listed below the table instead. A row stays visible while it has the focus.
        row.hidden = counts.every((count) => count === 0) && !row.contains(document.activeElement);
      },
    );
    return { table, body, kinds: failureKinds[party], rest };
  });
  return (/** @type {Now} */ { lastMinute, wholeHistory }) => {
    for (const { table, body, kinds, rest } of tables) {
      table.show(
        kinds.map((kind) => ({ kind, counts: [lastMinute, wholeHistory].map(({ failures }) => failures[kind] ?? 0) })),
      );
      const absent = kinds.filter((_, index) => body.rows[index]?.hidden).map(format.nameOfKind);
      rest.hidden = absent.length === 0;
      setText(rest, `Did not occur: ${absent.join(', ')}.`);
    }
  };
}

/** @param {KindCount} row */
function nameKind({ kind }) {
  const name = format.nameOfKind(kind);
  const ariaLabel = `${name}: show these failed calls`;
  const button = make('button', { type: 'button', className: 'plain', ariaLabel }, name);
  button.addEventListener('click', () => {
    filters.operation.value = '';
    filters.kind.value = kind;
    renderFailures();
    byId('failures').scrollIntoView({ block: 'nearest' });
    filters.kind.focus({ preventScroll: true });
  });
  return [button, ' ', make('small', {}, format.meaningOfKind(kind))];
}

/** @type {(text: string | undefined, cell: HTMLElement) => (Node | string)[]} */
const asCode = (text, cell) => {
  cell.title = text ?? '';
  return [make('code', {}, text ?? '–')];
};

/** @type {Table<ShownFailure>} */
const failureTable = new Table(
  byId('failure-rows'),
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
    { name: 'Operation', className: 'text operation', fill: ({ operation }) => [operation ?? 'none'] },
    { name: 'Status', className: 'status', fill: ({ status }) => [status === 0 ? '–' : String(status)] },
    { name: 'Duration', className: 'duration', fill: ({ durationMs }) => [format.formatMs(durationMs)] },
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
/** @type {readonly ShownFailure[]} */
let failures = [];

/** @param {readonly ShownFailure[]} latest */
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
  filters.operation.value = '';
  filters.kind.value = '';
  renderFailures();
  filters.kind.focus();
});

/**
 * Fills the filter of failure kinds.
 * @param {Facts} facts
 */
export function offerKinds({ failureKinds }) {
  const chosen = filters.kind.value;
  const groups = parties.map((party) =>
    make(
      'optgroup',
      { label: partyNames[party] },
      new Option(`all ${party} failures`, `party:${party}`),
      ...failureKinds[party].map((kind) => new Option(format.nameOfKind(kind), kind)),
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
  byId('setting-rows'),
  [
    { name: 'Variable', className: 'text', isHeading: true, fill: ({ variable }) => [make('code', {}, variable)] },
    { name: 'Value', className: 'text value', fill: describeValue },
    {
      name: 'Source',
      className: 'text source',
      fill: ({ source, flag }) => [source === 'flag' ? `flag ${flag}` : (sourceNames[source] ?? source)],
    },
    { name: 'Description', className: 'text help', fill: ({ help }) => [help.replaceAll('`', '')] },
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
