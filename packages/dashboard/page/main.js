// The dashboard's main module: keeps the gateway's state and shows it on the page.

import { Charts } from './charts.js';
import { byId, copy, make, setText } from './dom.js';
import { formatAge, formatCount, formatMoment, formatTime, learnKinds, nameOfKind } from './format.js';
import { showLoads } from './loads.js';
import { poll } from './poll.js';
import {
  createKindTables,
  offerKinds,
  parties,
  partyNames,
  showFailures,
  showOperations,
  showSettings,
  showWorkers,
} from './tables.js';
import { countOf, describeCertificate, describeParties, judge } from './verdict.js';

/** @import { Facts, Failure, FlowName, Message, Now, Party, Point } from '../state.ts' */

/** @type {Facts | undefined} */
let facts;
/** @type {Now | undefined} */
let now;
/** @type {readonly Point[]} */
let points = [];
/** @type {readonly number[]} start times of gateways that restarted while this page was open, in ms since 1970 */
let restarts = [];
/** @type {readonly Failure[]} */
let failures = [];
let changedAt = 0;
/** @type {number | undefined} */
let pausedAt;
/** @type {number | undefined} */
let lostAt;
/** @type {(now: Now) => void} */
let showKinds = () => undefined;

/** @typedef {{ text?: string, title?: string, isUnwell?: boolean }} FactText */

/**
 * A fact without a text is hidden.
 * @typedef {[id: string, name: string, read: (facts: Facts, now: Now) => FactText | string]} Fact
 */

/** @type {(use: 'clients' | 'backend') => Fact} */
const certificateOf = (use) => [
  `certificate-${use}`,
  'Certificate',
  ({ certificates }, { at }) => {
    const found = certificates.find((each) => each.use === use);
    const title = [found?.names, ...(found?.problems ?? [])].join('\n');
    return found === undefined ? {} : { ...describeCertificate(found, at), title };
  },
];

/** @type {Readonly<Record<Party, readonly Fact[]>>} */
const factsOf = {
  client: [
    ['url', 'Address', ({ url }) => reachable(url)],
    ['clients', 'Connections', (_, { clientConnections }) => formatCount(clientConnections)],
    certificateOf('clients'),
  ],
  gateway: [
    ['up', 'Up since', ({ startedAt: at }, now) => `${formatMoment(at, now.at)} (${formatAge(now.at - at)})`],
    ['workers', 'Workers', (_, { workers }) => formatCount(workers.length)],
    ['version', 'Version', ({ version, nodeVersion }) => `${version} on Node ${nodeVersion.replace('v', '')}`],
  ],
  backend: [
    ['backend', 'Address', ({ backendUrl }) => backendUrl.replace(/\/$/, '')],
    ['backend-connections', 'Connections', (_, { backendConnections }) => formatCount(backendConnections)],
    certificateOf('backend'),
    ['failure', 'Last failure', describeLastFailure],
  ],
};

/** @type {(facts: Facts, now: Now) => FactText} */
function describeLastFailure(_, { at }) {
  const last = failures.find(({ party }) => party === 'backend');
  return last === undefined
    ? { text: 'none since the start' }
    : { text: `${nameOfKind(last.outcome)}, ${formatAge(at - last.at)} ago`, title: `at ${formatMoment(last.at, at)}` };
}

const partyItems = parties.map((party) => {
  const said = make('span', { className: 'said' });
  const rows = factsOf[party].map(([id, name, read]) => {
    const text = make('dd', { id: `fact-${id}` });
    return { row: make('div', {}, make('dt', {}, name), text), text, read };
  });
  const title = make('p', { className: `party ${party}` }, make('b', {}, partyNames[party]), ' ', said);
  const item = make('li', {}, title, make('dl', {}, ...rows.map(({ row }) => row)));
  item.dataset['party'] = party;
  byId('parties').append(item);
  return { item, party, said, rows };
});

/** @type {Readonly<Record<string, string>>} each level's mark in the circle, as an SVG path */
const marks = {
  well: 'm7 12.5 3.5 3.5L17 8.5',
  over: 'm7 12.5 3.5 3.5L17 8.5',
  notice: 'M12 6.5v7M12 17v.3',
  unwell: 'm8 8 8 8m0-8-8 8',
  gone: 'm8 8 8 8m0-8-8 8',
};

/** @param {Message} message */
function take(message) {
  if (message.facts !== undefined) {
    if (facts !== undefined && facts.startedAt !== message.facts.startedAt) {
      restarts = [...restarts, message.facts.startedAt];
    }
    // New elements would lose the focus, so they are made only if the facts differ.
    if (JSON.stringify(message.facts) !== JSON.stringify(facts)) {
      learnKinds(message.facts.kinds);
      showIdentity(message.facts);
      showSettings(message.facts.settings);
      showKinds = createKindTables(message.facts);
      offerKinds(message.facts);
    }
    facts = message.facts;
  }
  now = message.now;
  changedAt = message.changedAt;
  failures = message.failures ?? failures;
  const from = now.at - (facts?.historyMs ?? 0);
  points = [...points, ...message.points].filter(({ at }) => at >= from);
  if (pausedAt === undefined) {
    render(message.failures !== undefined);
  }
}

/** @param {boolean} hasNewFailures */
function render(hasNewFailures) {
  if (facts === undefined || now === undefined) {
    return;
  }
  showVerdict(facts, now);
  showTraffic(facts, now);
  showLoads(facts, now, points);
  showWorkers(now.workers);
  showKinds(now);
  if (hasNewFailures) {
    showFailures(failures);
  }
}

/**
 * Sets the tab's title. The instance's name comes first, to tell gateways apart.
 * @param {string} state
 */
function nameTab(state) {
  document.title = `${facts === undefined ? '' : `${facts.instanceName}: `}${state} – Work Item Gateway`;
}

/** @param {Facts} facts */
function showIdentity({ instanceName, hostName, pid, settings, url }) {
  setText(byId('instance'), instanceName);
  const host = hostName === instanceName ? '' : `on ${hostName}, `;
  setText(byId('place'), `${host}process ${pid}`);
  const reference = /** @type {HTMLAnchorElement} */ (byId('reference'));
  reference.hidden = !settings.some(({ variable, value }) => variable === 'DOCS' && value === 'true');
  reference.href = `${reachable(url)}/docs`;
}

/**
 * The gateway's address for clients. This page's host name replaces a wildcard address, which a browser cannot open.
 * @param {string} url
 */
function reachable(url) {
  const { hostname } = new URL(url);
  return hostname === '0.0.0.0' || hostname === '[::]' ? url.replace(hostname, location.hostname) : url;
}

/** @type {(level: string, party: string, title: string, detail: string, next: string) => void} */
const setVerdict = (level, party, title, detail, next) => {
  Object.assign(byId('verdict').dataset, { level, party });
  byId('mark').setAttribute('d', marks[level] ?? '');
  setText(byId('verdict-title'), title);
  setText(byId('verdict-detail'), detail);
  setText(byId('verdict-next'), next);
};

/** @type {(facts: Facts, now: Now) => void} */
const showVerdict = (facts, now) => {
  const { level, party: blamed, next, title, detail, isOver = false } = judge(now, facts);
  setVerdict(isOver ? 'over' : level, blamed ?? '', title, detail, next);
  nameTab(title);
  const icon = level === 'unwell' ? 'dashboard/unwell.svg' : 'dashboard/well.svg';
  // Set only if it differs, because the browser fetches the icon on each assignment.
  if (byId('icon').getAttribute('href') !== icon) {
    byId('icon').setAttribute('href', icon);
  }
  const states = describeParties(now, facts);
  for (const { item, party, said, rows } of partyItems) {
    item.classList.toggle('unwell', states[party].isUnwell);
    item.classList.toggle('blamed', party === blamed && !isOver);
    setText(said, states[party].text);
    for (const { row, text: cell, read } of rows) {
      const fact = read(facts, now);
      const { text = '', title = '', isUnwell = false } = typeof fact === 'string' ? { text: fact } : fact;
      row.hidden = text === '';
      setText(cell, isUnwell ? `! ${text}` : text);
      cell.classList.toggle('bad', isUnwell);
      cell.title = title;
    }
  }
};

/** @type {(facts: Facts, now: Now) => void} */
const showTraffic = (facts, now) => {
  const isFirstVisit = now.requestsEver === 0 && points.every(({ flows }) => flows.all.requests === 0);
  byId('welcome').hidden = !isFirstVisit;
  byId('traffic').hidden = isFirstVisit;
  byId('operations').hidden = isFirstVisit;
  setText(byId('welcome-command'), `curl ${reachable(facts.url)}/api/work-items`);
  if (isFirstVisit) {
    return;
  }
  const isWhole = chosen('window') === 'wholeHistory';
  const summary = isWhole ? now.wholeHistory : now.lastMinute;
  const starts = [...new Set([facts.startedAt, ...restarts])];
  const marks = [
    ...starts.map((at) => ({ at, what: restarts.includes(at) ? 'restarted' : 'started' })),
    ...points.flatMap(({ at, workerDeaths: count }) =>
      count > 0 ? [{ at, what: `${countOf(count, 'worker')} died` }] : [],
    ),
  ];
  charts.show({
    points,
    flow: /** @type {FlowName} */ (chosen('flow')),
    from: now.at - facts.historyMs,
    to: now.at,
    stepMs: facts.stepMs,
    summary,
    summaryName: isWhole ? 'in 15 minutes' : 'in the last minute',
    marks: marks
      .toSorted((one, other) => one.at - other.at)
      .map(({ at, what }) => ({ at, label: `${what} ${formatTime(at).slice(0, 5)}` })),
  });
  showOperations(summary);
};

/** @param {string} name */
function chosen(name) {
  /** @type {HTMLInputElement | null} */
  const input = document.querySelector(`input[name=${name}]:checked`);
  return input?.value ?? '';
}

function showConnection() {
  const lost = byId('lost');
  document.body.classList.toggle('stale', lostAt !== undefined || pausedAt !== undefined);
  lost.hidden = lostAt === undefined;
  let [state, text] = now === undefined ? ['connecting', 'Connecting'] : ['live', 'Live'];
  if (pausedAt !== undefined) {
    [state, text] = ['paused', `Paused at ${formatTime(pausedAt)}`];
  }
  if (lostAt !== undefined) {
    [state, text] = ['lost', 'Connection lost'];
    setText(
      lost,
      `No connection to the gateway since ${formatTime(lostAt)}: the gateway has stopped, or the network is down. The figures below are older than that. This page retries every second.`,
    );
    nameTab('No connection');
    // The last verdict may be wrong by now, so it must not stay the headline.
    if (now !== undefined && facts !== undefined) {
      const last = `Last verdict, at ${formatTime(now.at)}: ${judge(now, facts).title}.`;
      const next = 'Check that the process of the gateway is running and that this machine can reach it.';
      setVerdict('gone', byId('verdict').dataset['party'] ?? '', 'No connection to the gateway', last, next);
    }
  }
  byId('connection').dataset['state'] = state;
  setText(byId('connection'), text);
}

const pause = byId('pause');
pause.addEventListener('click', () => {
  pausedAt = pausedAt === undefined ? Date.now() : undefined;
  // Has no aria-pressed, because the label changes too and a screen reader would announce the state twice.
  setText(pause, pausedAt === undefined ? 'Pause' : 'Resume');
  pause.classList.toggle('resume', pausedAt !== undefined);
  if (pausedAt === undefined) {
    render(true);
  } else {
    nameTab('Paused');
  }
  showConnection();
});

byId('traffic').addEventListener('change', () => render(false));

byId('welcome-copy').addEventListener('click', () => copy(byId('welcome-command'), 'command', 'Copied'));

const charts = new Charts(byId('charts'));

poll(
  () => `dashboard/state?after=${points.at(-1)?.at ?? 0}&changed=${changedAt}`,
  (message) => {
    lostAt = message === undefined ? (lostAt ?? Date.now()) : undefined;
    if (message !== undefined) {
      take(message);
    }
    showConnection();
  },
);
