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
import { describeCertificate, describeParties, judge } from './verdict.js';

/** @import { Facts, FlowName, Message, Now, Point, ShownCertificate, ShownFailure } from '../state.ts' */
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
/** @type {readonly Point[]} */
let points = [];
/** @type {readonly number[]} when a gateway started at this address while this page was open, in ms since 1970 */
let restarts = [];
/** @type {readonly ShownFailure[]} */
let failures = [];
/** @type {number | undefined} */
let pausedAt;
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
    const isAnother = facts !== undefined && facts.startedAt !== message.facts.startedAt;
    const { startedAt } = message.facts;
    facts = message.facts;
    learnKinds(facts.kindWords);
    // With facts come all the points that there are; only this page knows those of a gateway that is gone.
    points = isAnother || restarts.includes(startedAt) ? points.filter(({ at }) => at < startedAt) : [];
    if (isAnother) {
      restarts = [...restarts, startedAt];
    }
    showIdentity(facts);
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
  if (pausedAt === undefined) {
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

// Two tabs of two gateways differ in the first word of their titles.
/** @param {string} state */
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
  const { level, party, next, title, detail, isOver = false } = judge(now, facts);
  const verdict = byId('verdict');
  verdict.dataset['level'] = isOver ? 'over' : level;
  verdict.dataset['party'] = party ?? '';
  setText(byId('verdict-title'), title);
  setText(byId('verdict-detail'), detail);
  setText(byId('verdict-next'), next);
  nameTab(title);
  const icon = /** @type {HTMLLinkElement} */ (byId('icon'));
  const address = level === 'unwell' ? 'dashboard/unwell.svg' : 'dashboard/well.svg';
  if (icon.getAttribute('href') !== address) {
    icon.setAttribute('href', address);
  }
  const states = describeParties(now, facts);
  for (const item of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('#parties li'))) {
    const name = /** @type {'client' | 'gateway' | 'backend'} */ (item.dataset['party']);
    item.classList.toggle('unwell', states[name].isUnwell);
    item.classList.toggle('blamed', name === party && !isOver);
    setText(/** @type {Element} */ (item.querySelector('.said')), states[name].text);
  }
}

// What was well when it was last heard of may not be any more: the largest words on the page must not say so.
function showNoVerdict() {
  const verdict = byId('verdict');
  const title = byId('verdict-title');
  if (now !== undefined && facts !== undefined && verdict.dataset['level'] !== 'gone') {
    verdict.dataset['level'] = 'gone';
    setText(title, 'No connection to the gateway');
    setText(byId('verdict-next'), 'Look whether its process runs, and whether this machine reaches it.');
    setText(byId('verdict-detail'), `Last heard of at ${formatTime(now.at)}: ${judge(now, facts).title}.`);
  }
}

/**
 * @param {Facts} facts
 * @param {Now} now
 */
function showFacts(facts, now) {
  setText(byId('fact-url'), reachable(facts.url));
  setText(byId('fact-clients'), formatCount(now.clientConnections));
  setText(
    byId('fact-up'),
    `${formatMoment(facts.startedAt, now.at)} (${formatAge(now.at - facts.startedAt)})`,
  );
  setText(byId('fact-workers'), formatCount(now.workers.length));
  setText(byId('fact-version'), `${facts.version} on Node ${facts.nodeVersion.replace('v', '')}`);
  setText(byId('fact-backend'), facts.backendUrl.replace(/\/$/, ''));
  setText(byId('fact-backend-connections'), formatCount(now.backendConnections));
  for (const use of /** @type {const} */ (['clients', 'backend'])) {
    showCertificate(
      byId(`fact-certificate-${use}`),
      facts.certificates.find((each) => each.use === use),
      now.at,
    );
  }
  const last = failures.find(({ party }) => party === 'backend');
  const failure = byId('fact-failure');
  setText(
    failure,
    last === undefined
      ? 'none since the start'
      : `${nameOfKind(last.outcome)}, ${formatAge(now.at - last.at)} ago`,
  );
  failure.title = last === undefined ? '' : `at ${formatMoment(last.at, now.at)}`;
}

/**
 * @param {HTMLElement} place
 * @param {ShownCertificate | undefined} certificate
 * @param {number} now
 */
function showCertificate(place, certificate, now) {
  if (place.parentElement !== null) {
    place.parentElement.hidden = certificate === undefined;
  }
  if (certificate !== undefined) {
    const { text, isUnwell } = describeCertificate(certificate, now);
    setText(place, isUnwell ? `! ${text}` : text);
    place.classList.toggle('bad', isUnwell);
    place.title = [certificate.names, ...certificate.problems].join('\n');
  }
}

/**
 * @param {Facts} facts
 * @param {Now} now
 */
function showTraffic(facts, now) {
  const isFirstVisit = now.requestsEver === 0 && points.every(({ flows }) => flows.all.requests === 0);
  byId('welcome').hidden = !isFirstVisit;
  byId('traffic').hidden = isFirstVisit;
  byId('operations').hidden = isFirstVisit;
  setText(byId('welcome-command'), `curl ${reachable(facts.url)}/api/work-items`);
  if (!isFirstVisit) {
    const isWhole = chosen('window') === 'wholeHistory';
    const summary = isWhole ? now.wholeHistory : now.lastMinute;
    charts.show({
      points,
      flow: /** @type {FlowName} */ (chosen('flow')),
      from: (now.at - facts.historyMs) / 1_000,
      to: now.at / 1_000,
      stepMs: facts.stepMs,
      summary,
      summaryName: isWhole ? 'in 15 minutes' : 'in the last minute',
      marks: [
        ...[...new Set([facts.startedAt, ...restarts])].map((at) =>
          markOf(at, restarts.includes(at) ? 'restarted' : 'started'),
        ),
        ...points
          .filter(({ workerDeaths }) => workerDeaths > 0)
          .map(({ at, workerDeaths: count }) =>
            markOf(at, `${formatCount(count)} worker${count === 1 ? '' : 's'} died`),
          ),
      ],
    });
    operationTable.show(summary);
  }
}

/**
 * @param {number} at
 * @param {string} what
 */
function markOf(at, what) {
  return { at, label: `${what} ${formatTime(at).slice(0, 5)}` };
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
  const isPaused = pausedAt !== undefined;
  document.body.classList.toggle('stale', isGone || isPaused);
  lost.hidden = !isGone;
  if (isGone) {
    setText(
      lost,
      streamState === 'full'
        ? 'As many dashboards are open as the gateway serves. Close another one; this page tries again every 5 s.'
        : `No connection to the gateway since ${formatTime(lostAt ?? 0)}: it has stopped, or the network is gone. What is below is from then; this page tries again every second.`,
    );
    nameTab('No connection');
    showNoVerdict();
  }
  const connection = byId('connection');
  connection.dataset['state'] = isGone ? 'lost' : isPaused ? 'paused' : streamState;
  setText(
    connection,
    isGone
      ? 'Connection lost'
      : isPaused
        ? `Paused at ${formatTime(pausedAt ?? 0)}`
        : streamState === 'live'
          ? 'Live'
          : 'Connecting',
  );
}

const pause = byId('pause');
pause.addEventListener('click', () => {
  pausedAt = pausedAt === undefined ? Date.now() : undefined;
  // What it does now, in word and sign: that it is pressed would say the same twice.
  setText(pause, pausedAt === undefined ? 'Pause' : 'Resume');
  pause.classList.toggle('resume', pausedAt !== undefined);
  if (pausedAt === undefined) {
    render(true);
  } else {
    nameTab('Paused');
  }
  showConnection();
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
