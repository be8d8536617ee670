// The tables. What is on the page stays there and only its text changes, so that nobody loses a selection or
// the focus to an update.

import {
  describeTimeZone,
  formatBytes,
  formatCount,
  formatMoment,
  formatMs,
  formatRate,
  formatShare,
  meaningOfKind,
  nameOfKind,
} from './format.js';

/** @import { Facts, FlowName, Now, ShownFailure, ShownSetting, Summary, Worker } from '../dashboard-state.ts' */

/** @typedef {'backend' | 'gateway' | 'client'} Party */

/** @type {readonly Party[]} */
export const parties = ['backend', 'gateway', 'client'];
/** @type {Readonly<Record<Party, string>>} */
export const partyNames = { backend: 'Backend', gateway: 'Gateway', client: 'Clients' };
/** @type {readonly FlowName[]} */
const flows = ['list', 'create', 'read', 'update', 'delete', 'none', 'all'];
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

export class OperationTable {
  constructor() {
    const parent = byId('operation-rows');
    this.rows = flows.map((flow) => {
      const name = flow === 'all' ? 'All five' : flow === 'none' ? 'no operation' : flow;
      const classes = ['', '', '', '', 'backend', 'backend', 'backend', 'backend', 'share'];
      const { row, cells } = addRow(parent, name, classes);
      row.className = flow;
      const bar = make('div', 'bar');
      const ofBackend = make('i');
      bar.append(ofBackend, make('i'));
      const text = make('span');
      cells.at(-1)?.append(bar, text);
      return { flow, row, cells, bar, ofBackend, text };
    });
  }

  /** @param {Summary} summary */
  show(summary) {
    const longest = Math.max(...this.rows.map(({ flow }) => summary.flows[flow].mean ?? 0));
    for (const { flow, row, cells, bar, ofBackend, text } of this.rows) {
      const figures = summary.flows[flow];
      const failed = figures.failed.backend + figures.failed.gateway;
      const { mean, backendMean } = figures;
      row.hidden = flow === 'none' && figures.requests === 0;
      row.classList.toggle('idle', figures.requests === 0);
      const isNone = flow === 'none';
      const texts = [
        formatRate(figures.requests / summary.seconds),
        formatShare(failed, figures.requests),
        formatMs(figures.p50),
        formatMs(figures.p99),
        isNone ? '' : formatRate(figures.backendCalls / summary.seconds),
        isNone ? '' : formatShare(figures.backendFailed, figures.backendCalls),
        isNone ? '' : formatMs(figures.backendP50),
        isNone ? '' : formatMs(figures.backendP99),
      ];
      for (const [index, each] of texts.entries()) {
        const cell = cells[index];
        if (cell !== undefined) {
          setText(cell, each);
        }
      }
      cells[1]?.classList.toggle('bad', failed > 0);
      cells[5]?.classList.toggle('bad', figures.backendFailed > 0);
      const part = mean === null || mean === 0 ? 0 : Math.min(1, (backendMean ?? 0) / mean);
      bar.style.width = mean === null || longest === 0 ? '0' : `${(mean / longest) * 100}%`;
      ofBackend.style.width = `${part * 100}%`;
      setText(
        text,
        mean === null || isNone
          ? ''
          : `${Math.round(part * 100)}\u00a0% backend, of ${formatMs(mean)} on average`,
      );
    }
  }
}

export class KindTables {
  /** @type {Map<string, { row: HTMLElement, cells: HTMLElement[] }>} */
  #rows = new Map();

  /**
   * @param {Facts} facts
   * @param {(kind: string) => void} onChoose
   */
  constructor(facts, onChoose) {
    const parent = byId('kind-tables');
    parent.replaceChildren();
    for (const party of parties) {
      const table = make('table');
      table.dataset['party'] = party;
      const head = document.createElement('thead');
      const row = document.createElement('tr');
      for (const [text, className] of [
        [partyNames[party], 'text'],
        ['last minute', ''],
        ['15 min', ''],
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
      parent.append(table);
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
      row.classList.toggle(
        'idle',
        counts.every((count) => count === 0),
      );
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
  #makeRow({ at, party, operation, outcome, cause, status, durationMs, requestId }) {
    const row = document.createElement('tr');
    row.dataset['party'] = party;
    const time = make('time', '', formatMoment(at, Date.now()));
    time.dateTime = new Date(at).toISOString();
    time.title = time.dateTime;
    const kind = make('td', 'text kind', nameOfKind(outcome));
    if (cause !== undefined) {
      kind.append(' ', make('small', '', cause));
    }
    const id = make('td', 'text id');
    const code = make('code', '', requestId);
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
    id.append(code, ' ', copy);
    const when = make('td', 'text');
    when.append(time);
    const whose = make('td', 'text');
    whose.append(make('span', `party ${party}`, partyNames[party]));
    row.append(
      when,
      whose,
      make('td', 'text', operation ?? 'none'),
      kind,
      make('td', '', status === 0 ? '–' : String(status)),
      make('td', '', formatMs(durationMs)),
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
const sourceNames = { default: 'default', environment: 'environment', file: 'settings file' };

/** @param {readonly ShownSetting[]} settings */
export function showSettings(settings) {
  const parent = byId('setting-rows');
  parent.replaceChildren();
  // What somebody has chosen comes first.
  const isDefault = (/** @type {ShownSetting} */ { source }) => source === 'default';
  for (const setting of [...settings.filter((each) => !isDefault(each)), ...settings.filter(isDefault)]) {
    const { row, head, cells } = addRow(parent, '', ['text value', 'text source', 'text']);
    row.classList.toggle('chosen', !isDefault(setting));
    head.append(make('code', '', setting.variable));
    const [value, source, help] = cells;
    value?.append(make('code', '', setting.value), ` ${setting.unit ?? ''}`);
    const readable = readableValue(setting);
    if (readable !== '') {
      value?.append(' ', make('small', '', readable));
    }
    source?.append(sourceNames[setting.source] ?? `flag ${setting.flag}`);
    help?.append(setting.help.replaceAll('`', ''));
  }
}

/** @param {ShownSetting} setting */
function readableValue({ value, unit }) {
  const number = Number(value);
  if (unit === 'bytes' && number >= 1_024) {
    return formatBytes(number);
  }
  return unit === 'ms' && number >= 1_000 ? formatMs(number) : '';
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
