// Decides from the latest message whether the gateway is healthy and, if not, which party is at fault. Errors of clients
// never change the verdict [D51].

import { formatAge, formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Facts, Flow, Now, Party, CertificateStatus } from '../state.ts' */

/** @typedef {'well' | 'notice' | 'unwell'} Level */

/**
 * @typedef {object} Headline
 * @property {Party | undefined} party at fault; undefined when all is well
 * @property {string} next advice in one short sentence; empty when all is well
 * @property {string} title without figures, since screen readers announce each change
 * @property {boolean} [isOver] the problem ended within the last minute
 */

/** @typedef {Headline & { level: Level, detail: string }} Verdict */

// The smallest shares of failed backend calls, in the last minute, that give the verdicts `unwell` and `notice`.
const failedShareUnwell = 0.05;
const failedShareNotice = 0.01;
const slowMs = 1_000;
const delayMs = 250;
const fullShare = 0.8;
// Successes in a row show a recovery if, at the earlier failure rate, their probability would be below this.
const chanceMax = 0.01;
const quietMs = 2_000;
const dayMs = 86_400_000;
// The same limit as in the Prometheus alert.
const certificateDaysMin = 14;

/**
 * @typedef {object} Judgement
 * @property {(now: Now, facts: Facts) => boolean} holds
 * @property {Level | ((now: Now) => Level)} level
 * @property {(now: Now, facts: Facts) => string} detail
 */

/** @typedef {Headline & Judgement} Rule */

/** @type {readonly Rule[]} the first rule that holds gives the verdict */
const rules = [
  {
    holds: ({ isDraining }) => isDraining,
    level: 'notice',
    party: 'gateway',
    next: 'Wait: the gateway stops when these calls end, at the latest after SHUTDOWN_DELAY_MS plus SHUTDOWN_TIMEOUT_MS.',
    title: 'The gateway is draining',
    detail: ({ inFlight }) => `The gateway is shutting down, with ${countOf(inFlight, 'call')} still in flight.`,
  },
  {
    holds: ({ backend }) => !backend.isReachable,
    level: 'unwell',
    party: 'backend',
    next: 'Check that the backend is running and that BACKEND_URL is its address.',
    title: 'The backend does not answer',
    detail: ({ at, backend: { since, cause } }) =>
      `Unreachable since ${formatTime(since)} (${formatAge(at - since)})${cause === undefined ? '' : `: ${cause}`}`,
  },
  {
    holds: (now) => countKind(now, 'bug') > 0,
    level: 'unwell',
    party: 'gateway',
    next: 'Report the bug with the stack trace from the log.',
    title: 'The gateway has a bug',
    detail: (now) => `${countOf(countKind(now, 'bug'), 'call')} failed ${inLastMinute(now)} because of a bug.`,
  },
  {
    holds: (now) => countKind(now, 'no-keys') > 0 && recoveredAt(now, 'gateway') === undefined,
    level: 'unwell',
    party: 'gateway',
    next: "See the log for why the issuer's keys cannot be fetched.",
    title: 'The gateway has no keys to verify tokens',
    detail: (now) =>
      `The gateway turned away ${countOf(countKind(now, 'no-keys'), 'call')} with a token ${inLastMinute(now)}.`,
  },
  {
    holds: (now) => countKind(now, 'overload') > 0 && recoveredAt(now, 'gateway') === undefined,
    level: 'unwell',
    party: 'gateway',
    next: '"Load" and "Failed calls" below show which limit was reached. Raise that limit, or add a gateway.',
    title: 'The gateway turns calls away',
    detail: (now, facts) =>
      `${formatCount(countKind(now, 'overload'))} turned away ${inLastMinute(now)}. ${describeFill(now, facts)}`,
  },
  {
    holds: (now) => failedShareOf(now) >= failedShareNotice && recoveredAt(now, 'backend') === undefined,
    level: (now) => (failedShareOf(now) >= failedShareUnwell ? 'unwell' : 'notice'),
    party: 'backend',
    next: "Search the backend's log for the request id of a failed call below.",
    title: 'The backend fails calls',
    detail: (now, facts) =>
      `${describeFailed(now, facts)}.${now.hasNoSuccess ? ` No call in the last 5 minutes succeeded. ${questionAddress(facts)}` : ''}`,
  },
  {
    holds: ({ hasNoSuccess }) => hasNoSuccess,
    level: 'notice',
    party: 'gateway',
    next: "Compare BACKEND_URL with the backend's address. To test BACKEND_URL, run `work-item-gateway check`.",
    title: 'No call succeeds',
    detail: (_, facts) => `The backend answers, but no call in the last 5 minutes succeeded. ${questionAddress(facts)}`,
  },
  {
    holds: ({ inFlight, bufferedBytes }, { inFlightMax, bufferedBytesMax }) =>
      inFlight >= inFlightMax * fullShare || bufferedBytes >= bufferedBytesMax * fullShare,
    level: 'notice',
    party: 'gateway',
    next: 'See under Load which limit is nearly reached. Raise that limit, or add a gateway.',
    title: 'The gateway is nearly full',
    detail: describeFill,
  },
  // The next two rules: problems that ended within the last minute.
  {
    holds: (now) => countTurnedAway(now) > 0 && recoveredAt(now, 'gateway') !== undefined,
    level: 'notice',
    isOver: true,
    party: 'gateway',
    next: '"Load" and "Failed calls" below show which limit was reached.',
    title: 'The gateway accepts all calls again',
    detail: (now) =>
      `Recovered ${agoOf(now, 'gateway')}. ${countOf(countTurnedAway(now), 'call')} turned away ${inLastMinute(now)}.`,
  },
  {
    holds: (now) => failedShareOf(now) >= failedShareNotice && recoveredAt(now, 'backend') !== undefined,
    level: 'notice',
    isOver: true,
    party: 'backend',
    next: "Search the backend's log for the request id of a failed call below.",
    title: 'The backend has recovered',
    detail: (now, facts) => `Recovered ${agoOf(now, 'backend')}. ${describeFailed(now, facts)}.`,
  },
  {
    holds: ({ lastMinute }) => (lastMinute.flows.all.backendP99 ?? 0) >= slowMs,
    level: 'notice',
    party: 'backend',
    next: "Find the slow operation below, then check the backend's load.",
    title: 'The backend is slow',
    detail: (now) => `The backend's p99 is ${formatMs(now.lastMinute.flows.all.backendP99)} ${inLastMinute(now)}.`,
  },
  {
    holds: (now) => slowOutsideBackend(now) !== undefined,
    level: 'notice',
    party: 'gateway',
    next: "Check the CPU load of the gateway's machine, and the clients' network.",
    title: 'Calls are slow outside the backend',
    detail: (now) =>
      `The p99 of reads is ${formatMs(slowOutsideBackend(now)?.p99)} ${inLastMinute(now)}; in the backend it is ${formatMs(slowOutsideBackend(now)?.backendP99)}.`,
  },
  {
    holds: ({ workers }) => workers.some(({ eventLoopDelayMs }) => eventLoopDelayMs >= delayMs),
    level: 'notice',
    party: 'gateway',
    next: 'Raise WORKERS, give the machine more CPU cores, or add a gateway.',
    title: 'The gateway is short of CPU time',
    detail: () => "The delay of the gateway's event loop is at least 0.25 s.",
  },
];

/** @type {(now: Now, facts: Facts) => Verdict} */
export const judge = (now, facts) => {
  const rule = rules.find(({ holds }) => holds(now, facts));
  if (rule === undefined) {
    return { level: 'well', party: undefined, next: '', title: 'All is well', detail: describeTraffic(now) };
  }
  const level = typeof rule.level === 'function' ? rule.level(now) : rule.level;
  return { ...rule, level, detail: rule.detail(now, facts) };
};

/**
 * The time at which a party recovered, in ms since 1970; undefined if the party had no failures, or if it may still fail.
 * @type {(now: Now, party: 'backend' | 'gateway') => number | undefined}
 */
const recoveredAt = ({ at, backend, lastFailures, lastMinute }, party) => {
  const last = lastFailures[party];
  if (last === null || at - last.at < quietMs) return undefined;
  const { all } = lastMinute.flows;
  const failed = all.failed[party];
  // The calls that the gateway rejected are not among the backend calls, so they are added.
  const calls = all.backendCalls + (party === 'gateway' ? failed : 0);
  const before = Math.max(failed, calls - last.callsSince);
  if (last.callsSince > 0) return (1 - failed / before) ** last.callsSince < chanceMax ? last.at : undefined;
  // No call was made since the last failure. The backend has recovered if it became reachable after that failure.
  return party === 'backend' && backend.since > last.at ? backend.since : undefined;
};

/** @type {(now: Now) => number} share of the last minute's backend calls that failed through the backend's fault */
const failedShareOf = ({ lastMinute: { flows } }) => flows.all.failed.backend / Math.max(1, flows.all.backendCalls);

/** @type {(now: Now) => string} */
const describeTraffic = (now) => {
  const { seconds, flows } = now.lastMinute;
  const { all } = flows;
  if (all.requests === 0) return `No calls ${inLastMinute(now)}.`;
  const { backend, gateway, client } = all.failed;
  const failed = [
    ...(backend + gateway > 0 ? [`${formatCount(backend + gateway)} failed`] : []),
    ...(client > 0 ? [countOf(client, 'client error')] : []),
  ];
  return `${formatRate(all.requests / seconds)} requests per second, ${failed.join(', ') || 'none failed'}, p99 ${formatMs(all.p99)} ${inLastMinute(now)}.`;
};

/** @type {(facts: Facts) => string} */
const questionAddress = ({ backendUrl }) => `Is BACKEND_URL right? It is ${backendUrl}.`;

/** @type {(now: Now, facts: Facts) => string} */
const describeFailed = (now, facts) => {
  const { all } = now.lastMinute.flows;
  const kinds = facts.kinds
    .filter(({ kind, party }) => party === 'backend' && countKind(now, kind) > 0)
    .map(({ kind }) => `${formatCount(countKind(now, kind))} ${kind}`);
  // The same numbers as in the table of operations.
  return `${formatCount(all.failed.backend)} of ${formatCount(all.backendCalls)} backend calls failed ${inLastMinute(now)}: ${kinds.join(', ')}`;
};

/** @type {(now: Now, facts: Facts) => string} */
function describeFill({ inFlight, lastMinute }, { inFlightMax }) {
  return `${formatCount(inFlight)} of ${formatCount(inFlightMax)} calls in flight now. The backend's p99 is ${formatMs(lastMinute.flows.all.backendP99)}.`;
}

/** @type {(now: Now) => string} names the period: a minute, plus at most one step of the history */
const inLastMinute = ({ at, lastMinute }) => `in the last minute (${formatTime(lastMinute.from)} to ${formatTime(at)})`;

/** @type {(now: Now, kind: string) => number} */
const countKind = ({ lastMinute }, kind) => lastMinute.failures[kind] ?? 0;

/** @type {(now: Now) => number} */
const countTurnedAway = (now) => countKind(now, 'overload') + countKind(now, 'no-keys');

/**
 * The figures of a slow operation that spends most of its time outside the backend. Only list and read
 * are considered, because the client of a write may send its body slowly.
 * @type {(now: Now) => Flow | undefined}
 */
const slowOutsideBackend = ({ lastMinute: { flows } }) =>
  [flows.list, flows.read].find(
    ({ p99, mean, backendMean }) => (p99 ?? 0) >= slowMs && (backendMean ?? 0) * 2 < (mean ?? 0),
  );

/**
 * One short line for each party on the path of a call.
 * @type {(now: Now, facts: Facts) => Record<Party, { text: string, isUnwell: boolean }>}
 */
export const describeParties = (now, facts) => {
  const { backend, isDraining } = now;
  const count = (/** @type {Party} */ party) =>
    facts.kinds.reduce((sum, each) => sum + (each.party === party ? countKind(now, each.kind) : 0), 0);
  const [own, errors, ofBackend] = [count('gateway'), count('client'), count('backend')];
  const since = `since ${formatTime(backend.since)}`;
  const isOver = countKind(now, 'bug') === 0 && recoveredAt(now, 'gateway') !== undefined;
  const isBackendOver = recoveredAt(now, 'backend') !== undefined;
  const failures = (/** @type {number} */ of) => `${countOf(of, 'failure')} in the last minute`;
  const ownText = own === 0 ? 'no failures' : `${isOver ? `recovered ${agoOf(now, 'gateway')}, ` : ''}${failures(own)}`;
  const backendText =
    ofBackend === 0
      ? `reachable ${since}`
      : `${isBackendOver ? `recovered ${agoOf(now, 'backend')}` : 'answers'}, ${failures(ofBackend)}`;
  return {
    client: { text: errors === 0 ? 'no errors' : `${countOf(errors, 'error')} in the last minute`, isUnwell: false },
    gateway: { text: isDraining ? 'draining' : ownText, isUnwell: (own > 0 && !isOver) || isDraining },
    backend: {
      text: backend.isReachable ? backendText : `unreachable ${since}`,
      // As in the verdict, a few failures among thousands of calls are not marked.
      isUnwell: !backend.isReachable || (!isBackendOver && failedShareOf(now) >= failedShareNotice),
    },
  };
};

/**
 * Describes a certificate in force. `isUnwell`: the certificate needs attention.
 * @type {(certificate: CertificateStatus, now: number) => { text: string, isUnwell: boolean }}
 */
export const describeCertificate = ({ own, problems }, now) => {
  const refused = problems.length === 0 ? '' : '; the new files were refused';
  if (own === undefined) return { text: `CA certificates only${refused}`, isUnwell: refused !== '' };
  const { expiresAt } = own;
  const days = Math.floor((expiresAt - now) / dayMs);
  const date = new Date(expiresAt).toISOString().slice(0, 10);
  const text = expiresAt < now ? `expired on ${date}` : `until ${date}, ${countOf(days, 'day')} left`;
  return { text: text + refused, isUnwell: days < certificateDaysMin || refused !== '' };
};

/** @type {(now: Now, party: 'backend' | 'gateway') => string} */
const agoOf = (now, party) => `${formatAge(now.at - (recoveredAt(now, party) ?? now.at))} ago`;

/** @type {(count: number, word: string) => string} `1 call`, `2 calls` */
export const countOf = (count, word) => `${formatCount(count)} ${word}${count === 1 ? '' : 's'}`;
