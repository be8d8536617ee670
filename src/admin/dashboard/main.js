// The dashboard: keeps what the stream has said and puts it on the page.

import { Charts, LoadChart } from './charts.js';
import {
  formatAge,
  formatBytes,
  formatCount,
  formatMoment,
  formatMs,
  formatTime,
  learnKinds,
  nameOfKind,
} from './format.js';
import { follow } from './stream.js';
import {
  byId,
  copyText,
  FailureTable,
  KindTables,
  OperationTable,
  setText,
  showSettings,
  showWorkers,
} from './tables.js';
import { describeParties, judge } from './verdict.js';

/** @import { Facts, FlowName, Message, Now, Point, ShownFailure } from '../dashboard-state.ts' */
/** @import { StreamState } from './stream.js' */
/** @import { Load } from './charts.js' */

/** @param {string} text */
function say(text) {
  setText(byId('said'), text);
}

/** @type {Facts | undefined} */
let facts;
/** @type {Now | undefined} */
let now;
/** @type {Point[]} */
let points = [];
/** @type {readonly ShownFailure[]} */
let failures = [];
let isPaused = false;
/** @type {StreamState} */
let streamState = 'connecting';
/** @type {number | undefined} */
let lostAt;

const charts = new Charts(byId('charts'), say);
const operationTable = new OperationTable();
const failureTable = new FailureTable(say);
/** @type {KindTables | undefined} */
let kindTables;
/** @type {LoadChart[]} */
let loadCharts = [];

follow(take, changeState);

/** @param {Message} message */
function take(message) {
  const earlier = failures;
  if (message.facts !== undefined) {
    facts = message.facts;
    learnKinds(facts.kindWords);
    points = [];
    showReference(facts);
    showSettings(facts.settings);
    kindTables = new KindTables(facts, (kind) => {
      failureTable.choose(kind);
    });
    failureTable.offer(facts);
  }
  now = message.now;
  failures = message.failures ?? failures;
  const from = now.at - (facts?.historyMs ?? 0);
  points = [...points, ...(message.points ?? [])].filter(({ at }) => at >= from);
  if (!isPaused) {
    render(failures !== earlier);
  }
}

/** @param {boolean} hasNewFailures */
function render(hasNewFailures) {
  if (facts === undefined || now === undefined) {
    return;
  }
  showVerdict(facts, now);
  showFacts(facts, now);
  showTraffic(facts, now);
  showLoads(facts, now);
  showWorkers(now.workers);
  kindTables?.show(now);
  if (hasNewFailures) {
    failureTable.show(failures);
  }
}

/** @param {Facts} facts */
function showReference({ settings, url }) {
  const reference = /** @type {HTMLAnchorElement} */ (byId('reference'));
  reference.hidden = !settings.some(({ variable, value }) => variable === 'DOCS' && value === 'true');
  reference.href = `${reachable(url)}/docs`;
}

/**
 * The clients' address as it can be called from here: one that stands for all of the machine's is named as this page's.
 * @param {string} url
 */
function reachable(url) {
  const { hostname } = new URL(url);
  return hostname === '0.0.0.0' || hostname === '[::]' ? url.replace(hostname, location.hostname) : url;
}

/**
 * @param {Facts} facts
 * @param {Now} now
 */
function showVerdict(facts, now) {
  const { level, party, title, detail } = judge(now, facts);
  const verdict = byId('verdict');
  verdict.dataset['level'] = level;
  verdict.dataset['party'] = party ?? '';
  setText(byId('verdict-title'), title);
  setText(byId('verdict-detail'), detail);
  document.title = level === 'well' ? 'Well – Work Item Gateway' : `${title} – Work Item Gateway`;
  const icon = /** @type {HTMLLinkElement} */ (byId('icon'));
  const address = level === 'unwell' ? 'dashboard/unwell.svg' : 'dashboard/well.svg';
  if (icon.getAttribute('href') !== address) {
    icon.setAttribute('href', address);
  }
  const states = describeParties(now, facts);
  for (const item of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('#parties li'))) {
    const name = /** @type {'client' | 'gateway' | 'backend'} */ (item.dataset['party']);
    item.classList.toggle('unwell', states[name].isUnwell);
    item.classList.toggle('blamed', name === party);
    setText(/** @type {Element} */ (item.lastElementChild), states[name].text);
  }
}

// What was well when it was last heard of may not be any more: the largest words on the page must not say so.
function showNoVerdict() {
  const verdict = byId('verdict');
  const title = byId('verdict-title');
  if (now !== undefined && facts !== undefined && verdict.dataset['level'] !== 'gone') {
    verdict.dataset['level'] = 'gone';
    setText(title, 'No connection to the gateway');
    setText(byId('verdict-detail'), `Last heard of at ${formatTime(now.at)}: ${judge(now, facts).title}.`);
  }
}

/**
 * @param {Facts} facts
 * @param {Now} now
 */
function showFacts(facts, now) {
  setText(
    byId('fact-up'),
    `${formatMoment(facts.startedAt, now.at)} (${formatAge(now.at - facts.startedAt)})`,
  );
  setText(byId('fact-state'), now.isDraining ? 'draining' : 'ready');
  setText(byId('fact-workers'), formatCount(now.workers.length));
  setText(byId('fact-version'), `${facts.version} on Node ${facts.nodeVersion.replace('v', '')}`);
  setText(byId('fact-backend'), facts.backendUrl.replace(/\/$/, ''));
  const last = failures.find(({ party }) => party === 'backend');
  setText(
    byId('fact-failure'),
    last === undefined
      ? 'none since the start'
      : `${nameOfKind(last.outcome)}, ${formatMoment(last.at, now.at)} (${formatAge(now.at - last.at)} ago)`,
  );
}

/**
 * @param {Facts} facts
 * @param {Now} now
 */
function showTraffic(facts, now) {
  const isFirstVisit = now.requestsEver === 0;
  byId('welcome').hidden = !isFirstVisit;
  byId('traffic').hidden = isFirstVisit;
  byId('operations').hidden = isFirstVisit;
  setText(byId('welcome-command'), `curl ${reachable(facts.url)}/api/work-items`);
  if (!isFirstVisit) {
    charts.show(points, /** @type {FlowName} */ (chosen('flow')), now.at, facts.historyMs);
    operationTable.show(chosen('window') === 'wholeHistory' ? now.wholeHistory : now.lastMinute);
  }
}

/**
 * @param {Facts} facts
 * @param {Now} now
 */
function showLoads(facts, now) {
  const residentBytes = now.workers.reduce((sum, worker) => sum + worker.residentBytes, 0);
  const heapBytes = now.workers.reduce((sum, worker) => sum + worker.heapUsedBytes, 0);
  /** @type {Load[]} */
  const loads = [
    {
      name: 'Calls in flight',
      value: now.inFlight,
      max: facts.inFlightMax,
      limit: `of ${formatCount(facts.inFlightMax)}`,
      format: formatCount,
      pick: ({ inFlight }) => inFlight,
    },
    {
      name: 'Buffered bodies',
      value: now.bufferedBytes,
      max: facts.bufferedBytesMax,
      limit: `of ${formatBytes(facts.bufferedBytesMax)}`,
      format: formatBytes,
      pick: ({ bufferedBytes }) => bufferedBytes,
    },
    {
      name: 'Memory',
      value: residentBytes,
      limit: `${formatBytes(heapBytes)} of it heap`,
      format: formatBytes,
      pick: (point) => point.residentBytes,
    },
    {
      name: 'Event loop late by',
      value: Math.max(0, ...now.workers.map(({ eventLoopDelayMs }) => eventLoopDelayMs)),
      limit: 'p99 of some seconds',
      format: formatMs,
      pick: ({ eventLoopDelayMs }) => eventLoopDelayMs,
    },
    {
      name: 'Connections',
      value: now.clientConnections,
      limit: `of clients, ${formatCount(now.backendConnections)} to the backend`,
      format: formatCount,
    },
  ];
  if (loadCharts.length === 0) {
    loadCharts = loads.map((load) => new LoadChart(byId('loads'), load));
  }
  for (const [index, load] of loads.entries()) {
    loadCharts[index]?.show(load, points, now.at, facts.historyMs);
  }
}

/** @param {StreamState} state */
function changeState(state) {
  const isGone = state === 'lost' || state === 'full';
  if (isGone) {
    lostAt ??= Date.now();
  } else if (state === 'live') {
    lostAt = undefined;
  }
  streamState = state;
  showConnection();
}

function showConnection() {
  const lost = byId('lost');
  const isGone = lostAt !== undefined;
  document.body.classList.toggle('stale', isGone || isPaused);
  lost.hidden = !isGone;
  if (isGone) {
    setText(
      lost,
      streamState === 'full'
        ? 'As many dashboards are open as the gateway serves. Close another one; this page tries again every 5 s.'
        : `No connection to the gateway since ${formatTime(lostAt ?? 0)}: it has stopped, or the network is gone. What is below is from then; this page tries again every second.`,
    );
    document.title = 'No connection – Work Item Gateway';
    showNoVerdict();
  }
  const connection = byId('connection');
  connection.dataset['state'] = isGone ? 'lost' : isPaused ? 'paused' : streamState;
  setText(
    connection,
    isGone ? 'Connection lost' : isPaused ? 'Paused' : streamState === 'live' ? 'Live' : 'Connecting',
  );
}

const pause = byId('pause');
pause.addEventListener('click', () => {
  isPaused = !isPaused;
  pause.setAttribute('aria-pressed', String(isPaused));
  showConnection();
  if (!isPaused) {
    render(true);
  }
});

for (const input of document.querySelectorAll('#flows input, #windows input')) {
  input.addEventListener('change', () => {
    render(false);
  });
}

byId('welcome-copy').addEventListener('click', () => {
  const command = byId('welcome-command');
  copyText(command.textContent, command).then(
    () => {
      say('Copied');
    },
    () => {
      say('Could not copy: the command is selected instead');
    },
  );
});

/** @param {string} name */
function chosen(name) {
  return (
    /** @type {HTMLInputElement | null} */ (document.querySelector(`input[name=${name}]:checked`))?.value ??
    ''
  );
}
