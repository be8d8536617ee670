// The dashboard's main module: fetches the gateway's state every second while the page is visible, and shows it.

import { showCharts, showLoads } from './charts.js';
import { byId, copy, make, say, show } from './dom.js';
import { formatAge, formatCount, formatMoment, formatTime } from './format.js';
import * as tables from './tables.js';
import { countOf, describeCertificate, describeParties, judge } from './verdict.js';

/** @import { Description } from './dom.js' */
/** @import { Details, Facts, FlowName, Message, Party } from '../state.ts' */

/**
 * `restarts`: start times of gateways that restarted while this page was open, in ms since 1970.
 * @typedef {Message & Details & { readonly restarts: readonly number[] }} State
 */

const restMs = 1_000;
const timeoutMs = 5_000;

/** @type {State | undefined} */
let latest;
/** @type {State | undefined} the latest state; during a pause, the state when the pause began */
let shown;
/** @type {number | undefined} */
let pausedAt;
/** @type {number | undefined} */
let lostAt;

/** @typedef {{ text?: string, title?: string, isUnwell?: boolean }} FactText */

/**
 * A fact without a text is hidden.
 * @typedef {[id: string, name: string, read: (state: State) => FactText | string]} Fact
 */

/** @type {(use: 'clients' | 'backend') => Fact} */
const certificateOf = (use) => [
  `certificate-${use}`,
  'Certificate',
  ({ facts, now }) => {
    const found = facts.certificates.find((each) => each.use === use);
    const title = [found?.own?.names.join(', '), ...(found?.problems ?? [])].join('\n');
    return found === undefined ? {} : { ...describeCertificate(found, now.at), title };
  },
];

/** @type {Readonly<Record<Party, readonly Fact[]>>} */
const factsOf = {
  client: [
    ['url', 'Address', ({ facts }) => reachable(facts.url)],
    ['clients', 'Connections', ({ now }) => formatCount(now.clientConnections)],
    certificateOf('clients'),
  ],
  gateway: [
    [
      'up',
      'Up since',
      ({ facts: { startedAt }, now: { at } }) => `${formatMoment(startedAt, at)} (${formatAge(at - startedAt)})`,
    ],
    ['workers', 'Workers', ({ now }) => formatCount(now.workers.length)],
    ['version', 'Version', ({ facts }) => `${facts.version} on Node ${facts.nodeVersion.replace('v', '')}`],
  ],
  backend: [
    ['backend', 'Address', ({ facts }) => facts.backendUrl.replace(/\/$/, '')],
    ['backend-connections', 'Connections', ({ now }) => formatCount(now.backendConnections)],
    certificateOf('backend'),
    ['failure', 'Last failure', describeLastFailure],
  ],
};

/** @type {(state: State) => FactText} */
function describeLastFailure({ failures, now: { at } }) {
  const last = failures.find(({ party }) => party === 'backend');
  return last === undefined
    ? { text: 'none since the start' }
    : { text: `${last.outcome}, ${formatAge(at - last.at)} ago`, title: `at ${formatMoment(last.at, at)}` };
}

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
  const { now, facts = latest?.facts, failures = latest?.failures ?? [] } = message;
  if (facts === undefined) return;
  const { restarts = [], points = [], facts: before = facts } = latest ?? {};
  latest = {
    ...message,
    facts,
    failures,
    points: [...points, ...message.points].filter(({ at }) => at >= now.at - facts.historyMs),
    restarts: before.startedAt === facts.startedAt ? restarts : [...restarts, facts.startedAt],
  };
}

/** Shows the whole state. Changes only the elements that differ from it. */
function render() {
  shown = pausedAt === undefined ? latest : shown;
  if (shown !== undefined) {
    const { facts, now, points, failures } = shown;
    showIdentity(facts);
    showVerdict(shown);
    showTraffic(shown);
    showLoads(facts, now, points);
    tables.showWorkers(now.workers);
    tables.showKinds(facts, now);
    tables.showFailures(facts, failures);
    tables.showSettings(facts.settings);
    tables.fitTables();
  }
  showConnection();
}

/** @param {Facts} facts */
function showIdentity({ instanceName, hostName, pid, settings, url }) {
  show('instance', {}, instanceName);
  show('place', {}, `${hostName === instanceName ? '' : `on ${hostName}, `}process ${pid}`);
  const hasReference = settings.some(({ variable, value }) => variable === 'DOCS' && value === 'true');
  show('reference', { hidden: !hasReference, href: `${reachable(url)}/docs` });
}

/**
 * The gateway's address for clients. This page's host name replaces a wildcard address, which a browser cannot open.
 * @param {string} url
 */
function reachable(url) {
  const { hostname } = new URL(url);
  return hostname === '0.0.0.0' || hostname === '[::]' ? url.replace(hostname, location.hostname) : url;
}

/** @param {State} state */
function showVerdict(state) {
  const { facts, now } = state;
  const { level, party: blamed, next, title, detail, isOver = false } = judge(now, facts);
  const shownLevel = isOver ? 'over' : level;
  // The last verdict may be wrong by now, so it must not stay the headline.
  const [sign, ...texts] =
    lostAt === undefined
      ? [shownLevel, title, detail, next]
      : ['gone', 'No connection to the gateway', `Last verdict, at ${formatTime(now.at)}: ${title}.`, checkProcess];
  show('verdict', { 'data-level': sign });
  show('mark', { d: marks[sign] });
  for (const [index, id] of ['verdict-title', 'verdict-detail', 'verdict-next'].entries()) {
    show(id, {}, texts[index] ?? '');
  }
  show('icon', { href: level === 'unwell' ? 'dashboard/unwell.svg' : 'dashboard/well.svg' });
  const states = describeParties(now, facts);
  const items = tables.parties.map((party) => {
    const { text, isUnwell } = states[party];
    const said = make('span', { class: 'said' }, text);
    const heading = make('p', { class: `party ${party}` }, make('b', {}, tables.partyNames[party]), ' ', said);
    const look = `${isUnwell ? 'unwell' : ''} ${party === blamed && !isOver ? 'blamed' : ''}`;
    const facts = factsOf[party].map((fact) => makeFact(fact, state));
    return make('li', { 'data-party': party, class: look }, heading, make('dl', {}, facts));
  });
  show('parties', {}, items);
}

const checkProcess = 'Check that the process of the gateway is running and that this machine can reach it.';

/** @type {(fact: Fact, state: State) => Description} */
const makeFact = ([id, name, read], state) => {
  const fact = read(state);
  const { text = '', title = '', isUnwell = false } = typeof fact === 'string' ? { text: fact } : fact;
  const attributes = { id: `fact-${id}`, class: isUnwell ? 'bad' : '', title };
  const value = make('dd', attributes, isUnwell ? `! ${text}` : text);
  return make('div', { hidden: text === '' }, make('dt', {}, name), value);
};

/** @param {State} state */
function showTraffic({ facts, now, points, restarts }) {
  const isFirstVisit = now.requestsEver === 0 && points.every(({ flows }) => flows.all.requests === 0);
  show('welcome', { hidden: !isFirstVisit });
  show('traffic', { hidden: isFirstVisit });
  show('operations', { hidden: isFirstVisit });
  show('welcome-command', {}, `curl ${reachable(facts.url)}/api/work-items`);
  if (isFirstVisit) return;
  const isWhole = chosen('window') === 'wholeHistory';
  const summary = isWhole ? now.wholeHistory : now.lastMinute;
  const starts = [...new Set([facts.startedAt, ...restarts])];
  const events = [
    ...starts.map((at) => ({ at, what: restarts.includes(at) ? 'restarted' : 'started' })),
    ...points.flatMap(({ at, workerDeaths: count }) =>
      count > 0 ? [{ at, what: `${countOf(count, 'worker')} died` }] : [],
    ),
  ];
  showCharts({
    points,
    flow: /** @type {FlowName} */ (chosen('flow')),
    from: now.at - facts.historyMs,
    to: now.at,
    stepMs: facts.stepMs,
    summary,
    summaryName: isWhole ? 'in the last 15 minutes' : 'in the last minute',
    marks: events
      .toSorted((one, other) => one.at - other.at)
      .map(({ at, what }) => ({ at, label: `${what} ${formatTime(at).slice(0, 5)}` })),
  });
  tables.showOperations(summary);
}

/** @param {string} name */
function chosen(name) {
  /** @type {HTMLInputElement | null} */
  const input = document.querySelector(`input[name=${name}]:checked`);
  return input?.value ?? '';
}

/** @type {() => [state: string, text: string, title: string]} */
const describeConnection = () => {
  if (lostAt !== undefined) return ['lost', 'Connection lost', 'No connection'];
  if (pausedAt !== undefined) return ['paused', `Paused at ${formatTime(pausedAt)}`, 'Paused'];
  return shown === undefined
    ? ['connecting', 'Connecting', 'Connecting']
    : ['live', 'Live', judge(shown.now, shown.facts).title];
};

function showConnection() {
  const [state, text, title] = describeConnection();
  show('connection', { 'data-state': state }, text);
  // The instance's name comes first, to tell gateways apart.
  const name = shown === undefined ? '' : `${shown.facts.instanceName}: `;
  document.title = `${name}${title} – Work Item Gateway`;
  document.body.classList.toggle('stale', lostAt !== undefined || pausedAt !== undefined);
  const lost = `No connection to the gateway since ${formatTime(lostAt ?? 0)}: the gateway has stopped, or the network is down. The figures below are older than that. This page retries every second.`;
  show('lost', { hidden: lostAt === undefined }, lost);
  // The button has no aria-pressed: its label shows the state too, and a screen reader would announce it twice.
  const isPaused = pausedAt !== undefined;
  show('pause', { class: isPaused ? 'resume' : '', onclick: pause }, isPaused ? 'Resume' : 'Pause');
}

function pause() {
  pausedAt = pausedAt === undefined ? Date.now() : undefined;
  render();
}

document.addEventListener('input', render);
document.addEventListener('change', ({ target }) => {
  render();
  if (target instanceof Element && target.id.startsWith('filter-')) say(byId('failures-note').textContent);
});

byId('welcome-copy').addEventListener('click', () => copy(byId('welcome-command'), 'command', 'Copied'));

/** @returns {Promise<Message | undefined>} undefined if the gateway does not answer */
async function readState() {
  try {
    const address = `dashboard/state?after=${latest?.points.at(-1)?.at ?? 0}&changed=${latest?.changedAt ?? 0}`;
    const reply = await fetch(address, { signal: AbortSignal.timeout(timeoutMs) });
    return reply.ok ? await reply.json() : undefined;
  } catch {
    return undefined;
  }
}

/** @type {number | undefined} */
let timer;
let isFetching = false;

async function poll() {
  clearTimeout(timer);
  if (document.hidden || isFetching) return;
  isFetching = true;
  const message = await readState();
  isFetching = false;
  timer = window.setTimeout(poll, restMs);
  lostAt = message === undefined ? (lostAt ?? Date.now()) : undefined;
  if (message !== undefined) take(message);
  render();
}

addEventListener('resize', tables.fitTables);
document.addEventListener('visibilitychange', poll);
void poll();
