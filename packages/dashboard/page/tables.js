// The tables. Each table is described by its columns.

import { byId, copy, make, say, show } from './dom.js';
import * as format from './format.js';

/** @import { Attributes, Child, Description } from './dom.js' */
/** @import { Facts, Failure, Flow, FlowName, Kind, Now, Party, ShownSetting, StatusClass, Summary, Worker } from '../state.ts' */

/** @type {readonly Party[]} in the order of a call's path */
export const parties = ['client', 'gateway', 'backend'];
/** @type {Readonly<Record<Party, string>>} */
export const partyNames = { backend: 'Backend', gateway: 'Gateway', client: 'Clients' };
/** @type {readonly FlowName[]} */
const operationNames = ['list', 'create', 'read', 'update', 'delete'];
/** @type {readonly StatusClass[]} */
const statusClasses = ['2xx', '4xx', '5xx', 'none'];
// More rows than this are shown only on request.
const fewRows = 50;

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} [name] in the table's head
 * @property {Child} [head] in place of `name` in the table's head
 * @property {string} [group] heading above this column and its neighbours of the same group
 * @property {string} [className]
 * @property {boolean} [isHeading] its cells are the headings of their rows
 * @property {(row: Row) => Child | readonly Child[]} cell
 * @property {(row: Row) => string} [mark] a further class of a cell
 * @property {(row: Row) => string | undefined} [title] of a cell
 */

/**
 * Describes a table. `describeRow` returns the attributes of a row.
 * @template Row
 * @param {readonly Column<Row>[]} columns
 * @param {readonly Row[]} rows
 * @param {(row: Row) => Attributes} describeRow
 */
const makeTable = (columns, rows, describeRow) => {
  const isFirst = (/** @type {number} */ index) =>
    columns[index]?.group !== undefined && columns[index]?.group !== columns[index - 1]?.group;
  const cellsOf = (/** @type {Row} */ row) =>
    columns.map(({ name = '', group, className = '', isHeading = false, cell, mark, title }, index) => {
      const look = [isHeading ? '' : className, isFirst(index) ? 'first' : '', mark?.(row) ?? ''].join(' ').trim();
      const attributes = { class: look, title: title?.(row), scope: isHeading && 'row' };
      // In narrow windows the style sheet hides the table's head and shows these names in the cells.
      const names = { 'data-name': name, 'data-group': isFirst(index) ? group : undefined };
      return make(isHeading ? 'th' : 'td', { ...attributes, ...names }, cell(row));
    });
  const body = rows.map((row) => make('tr', describeRow(row), cellsOf(row)));
  return make('table', {}, makeHead(columns, isFirst), make('tbody', {}, body));
};

/** @type {(columns: readonly Column<never>[], isFirst: (index: number) => boolean) => Description} has a second row if there are groups */
const makeHead = (columns, isFirst) => {
  const hasGroups = columns.some(({ group }) => group !== undefined);
  /** @type {[Description[], Description[]]} */
  const [upper, lower] = [[], []];
  for (const [index, { name = '', head = name, group, className = '' }] of columns.entries()) {
    const first = isFirst(index) ? `first ${className}` : className;
    if (isFirst(index)) {
      const colspan = columns.filter((column) => column.group === group).length;
      upper.push(make('th', { scope: 'colgroup', colspan, class: first }, make('span', {}, group ?? '')));
    }
    const rowspan = hasGroups && group === undefined ? 2 : 1;
    (group === undefined ? upper : lower).push(make('th', { scope: 'col', class: first, rowspan }, head));
  }
  return make('thead', {}, make('tr', {}, upper), hasGroups ? make('tr', {}, lower) : []);
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
 * @type {(group: string | undefined, name: string, read: (figures: Flow, seconds: number) => string, isBad?: (figures: Flow) => boolean) => Column<Operation>}
 */
const figure = (group, name, read, isBad = () => false) => {
  const cell = (/** @type {Operation} */ { name: flow, figures, seconds }) =>
    flow === 'none' && group === ofBackend ? '' : read(figures, seconds);
  return {
    name,
    ...(group === undefined ? { head: 'Requests\nper second' } : { group }),
    className: group === ofBackend ? 'backend' : '',
    cell,
    mark: (row) => (/^0(?:\s%)?$/.test(cell(row)) ? 'zero' : isBad(row.figures) ? 'bad' : ''),
  };
};

const ofBackend = 'Backend calls';

/** @type {readonly Column<Operation>[]} */
const operationColumns = [
  {
    head: make('h2', { id: 'operations-title' }, 'Operations'),
    isHeading: true,
    cell: ({ name }) => (name === 'all' ? 'All five' : name === 'none' ? 'no operation' : name),
  },
  figure(undefined, 'per second', ({ requests }, seconds) => format.formatRate(requests / seconds)),
  ...statusClasses.map((name) => figure('Replies', name, ({ byStatus }) => format.formatCount(byStatus[name]))),
  ...parties.map((party) =>
    figure(
      'Failed due to',
      partyNames[party].toLowerCase(),
      ({ failed }) => format.formatCount(failed[party]),
      // Client errors are not marked, because the operator cannot fix them.
      ({ failed }) => party !== 'client' && failed[party] > 0,
    ),
  ),
  figure('Duration', 'p50', ({ p50 }) => format.formatMs(p50)),
  figure('Duration', 'p99', ({ p99 }) => format.formatMs(p99)),
  figure(
    ofBackend,
    'failed',
    ({ failed, backendCalls }) => format.formatShare(failed.backend, backendCalls),
    ({ failed }) => failed.backend > 0,
  ),
  figure(ofBackend, 'p50', ({ backendP50 }) => format.formatMs(backendP50)),
  figure(ofBackend, 'p99', ({ backendP99 }) => format.formatMs(backendP99)),
  { head: "Backend's share of the mean duration", className: 'share', cell: makeShare },
];

/** @param {Operation} row */
function makeShare({ name, figures: { mean, backendMean }, longest }) {
  const part = mean === null || mean === 0 ? 0 : Math.min(1, (backendMean ?? 0) / mean);
  const style = `--mean: ${((mean ?? 0) / (longest || 1)) * 100}%; --part: ${part * 100}%`;
  const text = `${Math.round(part * 100)}\u00a0% of ${format.formatMs(mean)}`;
  return [make('div', { class: 'bar', style }), make('small', {}, mean === null || name === 'none' ? '' : text)];
}

/** @param {Summary} summary */
export function showOperations({ flows, seconds }) {
  const longest = Math.max(...Object.values(flows).map(({ mean }) => mean ?? 0));
  /** @type {FlowName[]} */
  const names = [...operationNames, 'all', 'none'];
  const rows = names.map((name) => ({ name, figures: flows[name], seconds, longest }));
  const table = makeTable(operationColumns, rows, ({ name, figures: { requests } }) => ({
    class: requests === 0 ? `${name} idle` : name,
    hidden: name === 'none' && requests === 0,
  }));
  show('operation-table', {}, table);
}

/** @type {readonly Column<Worker>[]} */
const workerColumns = [
  { name: 'Process', isHeading: true, cell: ({ pid }) => String(pid) },
  { name: 'in flight', cell: ({ inFlight }) => format.formatCount(inFlight) },
  { name: 'memory', cell: ({ residentBytes }) => format.formatBytes(residentBytes) },
  { name: 'event loop delay', cell: ({ eventLoopDelayMs }) => format.formatMs(eventLoopDelayMs) },
];

/** @param {readonly Worker[]} workers */
export function showWorkers(workers) {
  const table = makeTable(workerColumns, workers, ({ pid }) => ({ key: pid }));
  show('workers', { hidden: workers.length < 2 });
  show('worker-table', {}, table);
}

/**
 * Shows a table for each party, with the numbers of its failures by kind.
 * @type {(facts: Facts, now: Now) => void}
 */
export const showKinds = ({ kinds }, { lastMinute, wholeHistory }) => {
  /** @type {(name: string, summary: Summary) => Column<Kind>} */
  const countIn = (name, { failures }) => ({
    name,
    cell: ({ kind }) => format.formatCount(failures[kind] ?? 0),
    mark: ({ kind }) => (failures[kind] === undefined ? '' : 'some'),
  });
  const focused = document.activeElement?.getAttribute('data-kind');
  const tables = parties.map((party) => {
    const ofParty = kinds.filter((each) => each.party === party);
    // Kinds without failures are listed below the table instead. A row stays visible while it has the focus.
    const shown = ofParty.filter(({ kind }) => kind in wholeHistory.failures || kind === focused);
    const absent = ofParty.filter((kind) => !shown.includes(kind)).map(({ kind }) => kind);
    /** @type {readonly Column<Kind>[]} */
    const columns = [
      { name: partyNames[party], className: `text party ${party}`, isHeading: true, cell: nameKind },
      countIn('last minute', lastMinute),
      countIn('15 minutes', wholeHistory),
    ];
    const table = makeTable(columns, shown, ({ kind }) => ({ key: kind }));
    const hint = make('p', { class: 'hint', hidden: absent.length === 0 }, `Did not occur: ${absent.join(', ')}.`);
    return make('div', { 'data-party': party }, table, hint);
  });
  show('kind-tables', {}, tables);
};

/** @param {Kind} kind */
function nameKind({ kind, meaning }) {
  const onclick = () => {
    filterBy(kind);
    byId('failures').scrollIntoView({ block: 'nearest' });
  };
  const name = { 'aria-label': `${kind}: show these failed calls`, 'data-kind': kind };
  return [make('button', { type: 'button', class: 'plain', ...name, onclick }, kind), ' ', make('small', {}, meaning)];
}

/** @type {(name: string, read: (failure: Failure) => string | undefined) => Column<Failure>} */
const codeColumn = (name, read) => ({
  name,
  className: `text ${name.toLowerCase()}`,
  title: (failure) => read(failure) ?? '',
  cell: (failure) => make('code', {}, read(failure) ?? '–'),
});

/** @type {readonly Column<Failure>[]} */
const failureColumns = [
  {
    name: 'Time',
    className: 'text when',
    cell: ({ at }) => {
      const datetime = new Date(at).toISOString();
      return make('time', { datetime, title: datetime }, format.formatMoment(at, Date.now()));
    },
  },
  {
    name: 'At fault',
    className: 'text whose',
    cell: ({ party }) => make('span', { class: `party ${party}` }, partyNames[party]),
  },
  { name: 'Operation', className: 'text', cell: ({ operation }) => operation ?? '–' },
  { name: 'Status', cell: ({ status }) => (status === 0 ? '–' : String(status)) },
  { name: 'Duration', cell: ({ durationMs }) => format.formatMs(durationMs) },
  codeColumn('Path', ({ path }) => path),
  codeColumn('Client', ({ client }) => client),
  {
    name: 'Outcome',
    className: 'text kind',
    cell: ({ outcome, cause }) => [outcome, ...(cause === undefined ? [] : [' ', make('small', {}, cause)])],
  },
  {
    name: 'Request id',
    className: 'text id',
    cell: ({ requestId }) => [make('code', { title: requestId }, requestId), ' ', makeCopyButton(requestId)],
  },
];

/** The request id that was copied last, and until when its button says so. */
let copied = { requestId: '', until: 0 };

/** @param {string} requestId */
function makeCopyButton(requestId) {
  const onclick = (/** @type {MouseEvent & { currentTarget: Element }} */ { currentTarget }) => {
    const code = currentTarget.parentElement?.querySelector('code');
    if (code && copy(code, 'request id', `Copied ${requestId}`)) {
      copied = { requestId, until: Date.now() + 2_000 };
      update();
    }
  };
  const attributes = { type: 'button', class: 'copy', 'aria-label': `Copy request id ${requestId}`, onclick };
  return make('button', attributes, copied.requestId === requestId && Date.now() < copied.until ? 'Copied' : 'Copy');
}

/** Lets the main module show the state again. */
const update = () => document.dispatchEvent(new Event('change'));

const field = (/** @type {string} */ id) => /** @type {HTMLSelectElement | HTMLInputElement} */ (byId(id));

/** Shows only the failed calls of a kind; without a kind, all failed calls. */
const filterBy = (kind = '') => {
  field('filter-operation').value = field('filter-id').value = '';
  field('filter-kind').value = kind;
  update();
  field('filter-kind').focus({ preventScroll: true });
};

let showsAll = false;

/** @type {(facts: Facts, failures: readonly Failure[]) => void} */
export const showFailures = ({ kinds }, failures) => {
  const option = (/** @type {string} */ value, text = value) => make('option', { value }, text);
  const groups = parties.map((party) => {
    const ofParty = kinds.filter((each) => each.party === party).map(({ kind }) => option(kind));
    return make('optgroup', { label: partyNames[party] }, option(`party:${party}`, `all ${party} failures`), ofParty);
  });
  const ofOperations = operationNames.map((name) => option(name));
  show('filter-operation', {}, option('', 'all'), ofOperations, option('none', 'no operation'));
  show('filter-kind', {}, option('', 'all'), groups);
  const [operationWanted, kindWanted] = [field('filter-operation').value, field('filter-kind').value];
  // Without characters that no id has: spaces and quotation marks are often copied with an id.
  const idWanted = field('filter-id')
    .value.replace(/[^\w.~-]/g, '')
    .toLowerCase();
  const found = failures.filter(
    ({ operation, outcome, party, requestId }) =>
      ['', operation ?? 'none'].includes(operationWanted) &&
      ['', outcome, `party:${party}`].includes(kindWanted) &&
      requestId.toLowerCase().includes(idWanted),
  );
  const shown = found.slice(0, showsAll ? Infinity : fewRows);
  // A client may send the same id with several requests.
  const table = makeTable(failureColumns, shown, ({ at, requestId, durationMs }) => ({
    key: `${at} ${requestId} ${durationMs}`,
  }));
  show('failure-table', { hidden: shown.length === 0 }, table);
  show('filter-clear', { hidden: operationWanted + kindWanted + idWanted === '', onclick: () => filterBy() });
  const onclick = () => {
    showsAll = !showsAll;
    update();
    say(byId('failures-note').textContent);
    // The rows appear or disappear above the button. The focus stays where the button was.
    const copies = byId('failure-table').querySelectorAll('button');
    (showsAll ? (copies[fewRows] ?? byId('failures-more')) : byId('failures-more')).focus();
  };
  const more = { hidden: found.length <= fewRows, 'aria-expanded': String(showsAll), onclick };
  show('failures-more', more, showsAll ? 'Show fewer' : 'Show more');
  show('failures-note', {}, describeFailures(failures.length, found.length, shown.length));
};

/** @type {(kept: number, found: number, shown: number) => string} */
const describeFailures = (kept, found, shown) => {
  if (kept === 0) return 'No call has failed since the gateway started.';
  const older = 'Older failed calls, and calls that succeeded, are only in the log.';
  if (found === 0) return `None of the ${format.formatCount(kept)} failed calls kept matches. ${older}`;
  const calls = `${shown < found ? `The last ${shown} of ` : ''}${format.formatCount(found)}${found < kept ? ' matching' : ''} failed call${found === 1 ? '' : 's'}`;
  return `${calls} kept, latest first. Times are ${format.describeTimeZone()}. ${older}`;
};

/** @type {Record<string, string>} the sources whose shown name differs from the identifier */
const sourceNames = { file: 'settings file', socket: 'passed socket' };

/** @type {readonly Column<ShownSetting>[]} */
const settingColumns = [
  { name: 'Variable', isHeading: true, className: 'text', cell: ({ variable }) => make('code', {}, variable) },
  { name: 'Value', className: 'text value', cell: describeValue },
  {
    name: 'Source',
    className: 'text source',
    cell: ({ source, flag }) => (source === 'flag' ? `flag ${flag}` : (sourceNames[source] ?? source)),
  },
  { name: 'Description', className: 'text help', cell: ({ help }) => help.replaceAll('`', '') },
];

/** @param {ShownSetting} setting */
function describeValue({ value, unit }) {
  // Digits are grouped by CSS, so that a copied number has no spaces. A number without a unit, such as a port, is not
  // grouped.
  const groups = unit !== undefined && /^\d{5,}$/.test(value) ? value.split(/(?=(?:\d{3})+$)/) : [];
  const spans = groups.map((group) => make('span', { class: 'group' }, group));
  const readable = format.formatSetting(Number(value), unit);
  const small = readable === '' ? [] : [' ', make('small', {}, readable)];
  return [make('code', {}, groups.length === 0 ? value : spans), ` ${unit ?? ''}`, ...small];
}

let showsDefaults = false;

/** @param {readonly ShownSetting[]} settings */
export const showSettings = (settings) => {
  const isChosen = (/** @type {ShownSetting} */ { source }) => source !== 'default';
  const chosen = settings.filter(isChosen);
  const rows = [...chosen, ...settings.filter((setting) => !isChosen(setting))];
  const table = makeTable(settingColumns, rows, (setting) => ({
    key: setting.variable,
    class: isChosen(setting) ? 'chosen' : '',
    hidden: !isChosen(setting) && !showsDefaults,
  }));
  show('setting-table', { hidden: chosen.length === 0 && !showsDefaults }, table);
  const count = chosen.length === 0 ? 'none' : format.formatCount(chosen.length);
  show('settings-count', {}, `${count} of ${format.formatCount(settings.length)} changed`);
  const onclick = () => {
    showsDefaults = !showsDefaults;
    update();
  };
  const text = showsDefaults ? 'Hide defaults' : 'Show defaults too';
  show('settings-toggle', { 'aria-expanded': String(showsDefaults), onclick }, text);
};

// Narrow windows never get the layouts before.
const layouts = /** @type {const} */ ([
  ['columns', '(min-width: 64rem)'],
  ['narrow', '(min-width: 40rem)'],
  ['lines', 'all'],
]);

/** Gives each table the first layout that cuts off no column. Fonts and figures decide how much room a table needs. */
export const fitTables = () => {
  const fitting = layouts.filter(([, window]) => matchMedia(window).matches);
  for (const table of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('.wide'))) {
    for (const [layout] of fitting) {
      table.dataset['layout'] = layout;
      if (table.scrollWidth <= table.clientWidth) break;
    }
  }
};
