// The tables. What is on the page stays there and only its text changes, so that nobody loses a selection or
// the focus to an update.

import {
  describeTimeZone,
  formatBytes,
  formatCount,
  formatMoment,
  formatMs,
  formatRate,
  formatSetting,
  formatShare,
  meaningOfKind,
  nameOfKind,
} from './format.js';

/** @import { Facts, Flow, FlowName, Now, ShownFailure, ShownSetting, StatusClass, Summary, Worker } from '../state.ts' */

/** @typedef {'backend' | 'gateway' | 'client'} Party */

/** @type {readonly Party[]} in the order in which a call meets them */
const parties = ['client', 'gateway', 'backend'];
/** @type {Readonly<Record<Party, string>>} */
const partyNames = { backend: 'Backend', gateway: 'Gateway', client: 'Clients' };
/** @type {readonly FlowName[]} */
const flows = ['list', 'create', 'read', 'update', 'delete', 'all', 'none'];
/** @type {readonly StatusClass[]} */
const statusClasses = ['2xx', '4xx', '5xx', 'none'];
const shownMax = 50;

/** @param {string} id */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) {
    throw new Error(`the page has no ${id}`);
  }
  return element;
}

/**
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {string} [className]
 * @param {string} [text]
 */
function make(name, className = '', text = '') {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
}

/**
 * A row with its heading first.
 * @param {Element} parent
 * @param {string} heading
 * @param {readonly string[]} classNames of the other cells
 */
function addRow(parent, heading, classNames) {
  const row = document.createElement('tr');
  const head = make('th', '', heading);
  head.scope = 'row';
  const cells = classNames.map((className) => make('td', className));
  row.append(head, ...cells);
  parent.append(row);
  return { row, head, cells };
}

/**
 * @typedef {object} OperationColumn
 * @property {string} [className]
 * @property {(flow: Flow, seconds: number) => string} read
 * @property {(flow: Flow) => boolean} [isBad] what somebody should look into
 */

/** @type {readonly OperationColumn[]} as in the head of the table */
const operationColumns = [
  { read: ({ requests }, seconds) => formatRate(requests / seconds) },
  ...statusClasses.map((name, index) => ({
    className: index === 0 ? 'first' : '',
    read: (/** @type {Flow} */ { byStatus }) => formatCount(byStatus[name]),
  })),
  ...parties.map((party, index) => ({
    className: index === 0 ? 'first' : '',
    read: (/** @type {Flow} */ { failed }) => formatCount(failed[party]),
    // What clients get wrong is theirs to mend.
    isBad: (/** @type {Flow} */ { failed }) => party !== 'client' && failed[party] > 0,
  })),
  { className: 'first', read: ({ p50 }) => formatMs(p50) },
  { read: ({ p99 }) => formatMs(p99) },
  {
    className: 'first backend',
    read: ({ backendFailed, backendCalls }) => formatShare(backendFailed, backendCalls),
    isBad: ({ backendFailed }) => backendFailed > 0,
  },
  { className: 'backend', read: ({ backendP50 }) => formatMs(backendP50) },
  { className: 'backend', read: ({ backendP99 }) => formatMs(backendP99) },
];

export class OperationTable {
  constructor() {
    const parent = byId('operation-rows');
    // For narrow windows, where the head of the table has no room.
    const textsOf = (/** @type {string} */ selector) =>
      [...document.querySelectorAll(`#operations thead ${selector}`)].map(({ textContent }) => textContent);
    const names = ['a second', ...textsOf('tr:last-child th')];
    const groups = textsOf('[colspan]');
    this.rows = flows.map((flow) => {
      const name = flow === 'all' ? 'All five' : flow === 'none' ? 'no operation' : flow;
      const classes = [...operationColumns.map(({ className }) => className ?? ''), 'share'];
      const { row, cells } = addRow(parent, name, classes);
      row.className = flow;
      for (const [index, { dataset }] of cells.entries()) {
        dataset['name'] = names[index] ?? '';
      }
      for (const [index, { dataset }] of cells
        .filter(({ classList }) => classList.contains('first'))
        .entries()) {
        dataset['group'] = groups[index] ?? '';
      }
      const bar = make('div', 'bar');
      const ofBackend = make('i');
      bar.append(ofBackend, make('i'));
      const text = make('span');
      const track = make('div', 'track');
      track.append(bar);
      const part = make('div', 'part');
      part.append(track, text);
      cells.at(-1)?.append(part);
      return { flow, row, cells, bar, ofBackend, text };
    });
  }

  /** @param {Summary} summary */
  show(summary) {
    const longest = Math.max(...this.rows.map(({ flow }) => summary.flows[flow].mean ?? 0));
    for (const { flow, row, cells, bar, ofBackend, text } of this.rows) {
      const figures = summary.flows[flow];
      const { mean, backendMean } = figures;
      const isNone = flow === 'none';
      row.hidden = isNone && figures.requests === 0;
      row.classList.toggle('idle', figures.requests === 0);
      for (const [index, { className, read, isBad }] of operationColumns.entries()) {
        const cell = cells[index];
        if (cell !== undefined) {
          const hasNone = isNone && className?.includes('backend') === true;
          const value = hasNone ? '' : read(figures, summary.seconds);
          setText(cell, value);
          cell.classList.toggle('zero', value === '0' || /^0\s%$/.test(value));
          cell.classList.toggle('bad', isBad?.(figures) === true);
        }
      }
      const part = mean === null || mean === 0 ? 0 : Math.min(1, (backendMean ?? 0) / mean);
      bar.style.width = mean === null || longest === 0 ? '0' : `${(mean / longest) * 100}%`;
      ofBackend.style.width = `${part * 100}%`;
      setText(text, mean === null || isNone ? '' : `${Math.round(part * 100)}\u00a0% of ${formatMs(mean)}`);
    }
  }
}

export class KindTables {
  /** @type {Map<string, { row: HTMLElement, cells: HTMLElement[] }>} */
  #rows = new Map();
  /** @type {Map<Party, HTMLElement>} */
  #rests = new Map();

  /**
   * @param {Facts} facts
   * @param {(kind: string) => void} onChoose
   */
  constructor(facts, onChoose) {
    this.kinds = facts.failureKinds;
    const parent = byId('kind-tables');
    parent.replaceChildren();
    for (const party of parties) {
      const place = make('div');
      place.dataset['party'] = party;
      const table = make('table');
      const head = document.createElement('thead');
      const row = document.createElement('tr');
      for (const [text, className] of [
        [partyNames[party], `text party ${party}`],
        ['last minute', ''],
        ['15 minutes', ''],
      ]) {
        const cell = make('th', className, text);
        cell.scope = 'col';
        row.append(cell);
      }
      head.append(row);
      const body = document.createElement('tbody');
      table.append(head, body);
      for (const kind of facts.failureKinds[party]) {
        const { row, head, cells } = addRow(body, '', ['', '']);
        const button = make('button', 'plain', nameOfKind(kind));
        button.type = 'button';
        button.setAttribute('aria-label', `${nameOfKind(kind)}: show these failed calls`);
        button.addEventListener('click', () => {
          onChoose(kind);
        });
        head.append(button, ' ', make('small', '', meaningOfKind(kind)));
        this.#rows.set(kind, { row, cells });
      }
      const rest = make('p', 'hint');
      this.#rests.set(party, rest);
      place.append(table, rest);
      parent.append(place);
    }
  }

  /** @param {Now} now */
  show({ lastMinute, wholeHistory }) {
    for (const [kind, { row, cells }] of this.#rows) {
      const counts = [lastMinute.failures[kind] ?? 0, wholeHistory.failures[kind] ?? 0];
      for (const [index, count] of counts.entries()) {
        const cell = cells[index];
        if (cell !== undefined) {
          setText(cell, formatCount(count));
          cell.classList.toggle('some', count > 0);
        }
      }
      // Those that did not come are named below; one whose button has the focus stays until it is left.
      row.hidden = counts.every((count) => count === 0) && !row.contains(document.activeElement);
    }
    for (const [party, rest] of this.#rests) {
      const kinds = this.kinds[party];
      const absent = kinds.filter((kind) => this.#rows.get(kind)?.row.hidden === true).map(nameOfKind);
      rest.hidden = absent.length === 0;
      setText(rest, `${absent.length === kinds.length ? 'None' : 'None else'}: ${absent.join(', ')}.`);
    }
  }
}

export class FailureTable {
  /** @type {Map<string, HTMLTableRowElement>} */
  #rows = new Map();
  /** @type {readonly ShownFailure[]} */
  #failures = [];
  #hasAny = false;

  /** @param {(text: string) => void} say reads something out */
  constructor(say) {
    this.say = say;
    this.operation = /** @type {HTMLSelectElement} */ (byId('filter-operation'));
    this.kind = /** @type {HTMLSelectElement} */ (byId('filter-kind'));
    this.clear = byId('filter-clear');
    this.body = byId('failure-rows');
    this.operation.append(
      new Option('all', ''),
      ...['list', 'create', 'read', 'update', 'delete'].map((name) => new Option(name, name)),
      new Option('no operation', 'none'),
    );
    for (const select of [this.operation, this.kind]) {
      select.addEventListener('change', () => {
        this.#render();
        say(byId('failures-note').textContent);
      });
    }
    this.clear.addEventListener('click', () => {
      this.operation.value = '';
      this.kind.value = '';
      this.#render();
      this.kind.focus();
    });
  }

  /** @param {Facts} facts */
  offer(facts) {
    const chosen = this.kind.value;
    this.kind.replaceChildren(new Option('all', ''));
    for (const party of parties) {
      const group = document.createElement('optgroup');
      group.label = partyNames[party];
      group.append(
        new Option(`all of the ${partyNames[party].toLowerCase()}`, `party:${party}`),
        ...facts.failureKinds[party].map((kind) => new Option(nameOfKind(kind), kind)),
      );
      this.kind.append(group);
    }
    this.kind.value = chosen;
  }

  /** @param {string} kind */
  choose(kind) {
    this.operation.value = '';
    this.kind.value = kind;
    this.#render();
    byId('failures').scrollIntoView({ block: 'nearest' });
    this.kind.focus({ preventScroll: true });
  }

  /** @param {readonly ShownFailure[]} failures */
  show(failures) {
    this.#failures = failures;
    this.#render();
  }

  /** @param {ShownFailure} failure */
  #isWanted({ operation, outcome, party }) {
    const kind = this.kind.value;
    return (
      (this.operation.value === '' || this.operation.value === (operation ?? 'none')) &&
      (kind === '' || kind === outcome || kind === `party:${party}`)
    );
  }

  #render() {
    const wanted = this.#failures.filter((failure) => this.#isWanted(failure));
    const shown = wanted.slice(0, shownMax);
    const rows = new Map(
      shown.map((failure) => {
        const key = `${failure.at} ${failure.requestId}`;
        return [key, this.#rows.get(key) ?? this.#makeRow(failure)];
      }),
    );
    for (const [key, row] of this.#rows) {
      if (rows.get(key) !== row) {
        row.remove();
      }
    }
    this.#rows = rows;
    // Only what is not in its place is moved: a row that has the focus keeps it.
    let next = this.body.firstElementChild;
    for (const row of rows.values()) {
      if (row === next) {
        next = next.nextElementSibling;
      } else {
        this.body.insertBefore(row, next);
      }
    }
    const isFiltered = this.operation.value !== '' || this.kind.value !== '';
    this.clear.hidden = !isFiltered;
    this.#hasAny = this.#failures.length > 0;
    byId('failures').classList.toggle('empty', shown.length === 0);
    setText(byId('failures-note'), this.#describe(shown.length, isFiltered));
  }

  /**
   * @param {number} count
   * @param {boolean} isFiltered
   */
  #describe(count, isFiltered) {
    if (!this.#hasAny) {
      return 'No call has failed since the gateway started.';
    }
    if (count === 0) {
      return 'None of the failed calls that are kept is of this kind.';
    }
    const which = isFiltered ? ' that match' : '';
    return `${count === shownMax ? `The last ${shownMax}` : count}${which}, the latest first. Times are ${describeTimeZone()}. The request id is in the log, in the reply and in the call to the backend.`;
  }

  /** @param {ShownFailure} failure */
  #makeRow({ at, party, operation, path, client, outcome, cause, status, durationMs, requestId }) {
    const row = document.createElement('tr');
    row.dataset['party'] = party;
    const time = make('time', '', formatMoment(at, Date.now()));
    time.dateTime = new Date(at).toISOString();
    time.title = time.dateTime;
    const when = make('td', 'text when');
    when.append(time);
    const whose = make('td', 'text whose');
    whose.append(make('span', `party ${party}`, partyNames[party]));
    const kind = make('td', 'text kind', nameOfKind(outcome));
    if (cause !== undefined) {
      kind.append(' ', make('small', '', cause));
    }
    const target = make('td', 'text path');
    target.append(make('code', '', path ?? '–'));
    target.title = path ?? '';
    const from = make('td', 'text client');
    from.append(make('code', '', client ?? '–'));
    from.title = client ?? '';
    const id = make('td', 'text id');
    const code = make('code', '', requestId);
    code.title = requestId;
    const copy = make('button', 'copy', 'Copy');
    copy.type = 'button';
    copy.setAttribute('aria-label', `Copy request id ${requestId}`);
    copy.addEventListener('click', () => {
      copyText(requestId, code).then(
        () => {
          this.say(`Copied ${requestId}`);
          copy.textContent = 'Copied';
          setTimeout(() => {
            copy.textContent = 'Copy';
          }, 2_000);
        },
        () => {
          this.say('Could not copy: the request id is selected instead');
        },
      );
    });
    id.append(code, copy);
    row.append(
      when,
      whose,
      make('td', 'text operation', operation ?? 'none'),
      target,
      from,
      kind,
      make('td', 'status', status === 0 ? '–' : String(status)),
      make('td', 'duration', formatMs(durationMs)),
      id,
    );
    return row;
  }
}

/**
 * Copies `text`; where the browser has no clipboard for this page (it is not served from here or by HTTPS), what
 * `element` holds is selected and copied the old way.
 * @param {string} text
 * @param {Element} element
 */
export async function copyText(text, element) {
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  getSelection()?.selectAllChildren(element);
  if (!document.execCommand('copy')) {
    throw new Error('the browser did not copy');
  }
}

/** @type {Record<string, string>} */
const sourceNames = {
  default: 'default',
  environment: 'environment',
  file: 'settings file',
  socket: 'passed socket',
};

let showsDefaults = false;

/** @param {readonly ShownSetting[]} settings */
export function showSettings(settings) {
  const parent = byId('setting-rows');
  parent.replaceChildren();
  const isDefault = (/** @type {ShownSetting} */ { source }) => source === 'default';
  const chosen = settings.filter((each) => !isDefault(each));
  for (const setting of [...chosen, ...settings.filter(isDefault)]) {
    const { row, head, cells } = addRow(parent, '', ['text value', 'text source', 'text']);
    row.classList.toggle('chosen', !isDefault(setting));
    row.hidden = isDefault(setting) && !showsDefaults;
    head.append(make('code', '', setting.variable));
    const [value, source, help] = cells;
    const code = make('code');
    // A number without a unit, such as a port, is no quantity.
    code.append(...(setting.unit === undefined ? [setting.value] : inGroups(setting.value)));
    value?.append(code, ` ${setting.unit ?? ''}`);
    const readable = formatSetting(Number(setting.value), setting.unit);
    if (readable !== '') {
      value?.append(' ', make('small', '', readable));
    }
    source?.append(sourceNames[setting.source] ?? `flag ${setting.flag}`);
    help?.append(setting.help.replaceAll('`', ''));
  }
  const count = chosen.length === 0 ? 'none' : formatCount(chosen.length);
  setText(byId('settings-count'), `${count} of ${formatCount(settings.length)} changed`);
  byId('settings').classList.toggle('empty', chosen.length === 0 && !showsDefaults);
  const toggle = byId('settings-toggle');
  setText(toggle, showsDefaults ? 'Hide defaults' : 'Show defaults too');
  toggle.setAttribute('aria-expanded', String(showsDefaults));
  toggle.onclick = () => {
    showsDefaults = !showsDefaults;
    showSettings(settings);
  };
}

/**
 * A number's digits in groups that are set apart and nothing more: what is copied is the number.
 * @param {string} value
 */
function inGroups(value) {
  return /^\d{5,}$/.test(value)
    ? value.split(/(?=(?:\d{3})+$)/).map((group) => make('span', 'group', group))
    : [value];
}

/** @param {readonly Worker[]} workers */
export function showWorkers(workers) {
  byId('workers').hidden = workers.length < 2;
  const parent = byId('worker-rows');
  while (parent.children.length > workers.length) {
    parent.lastElementChild?.remove();
  }
  while (parent.children.length < workers.length) {
    addRow(parent, '', ['', '', '']);
  }
  for (const [index, { pid, inFlight, residentBytes, eventLoopDelayMs }] of workers.entries()) {
    const texts = [
      String(pid),
      formatCount(inFlight),
      formatBytes(residentBytes),
      formatMs(eventLoopDelayMs),
    ];
    for (const [place, text] of texts.entries()) {
      const cell = parent.children[index]?.children[place];
      if (cell !== undefined) {
        setText(cell, text);
      }
    }
  }
}
