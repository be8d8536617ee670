// Decides from the latest message whether the gateway is healthy and, if not, which party is at fault. Errors of clients
// never change the verdict [D51].

import { formatAge, formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Facts, Flow, Now, Party, CertificateStatus, TroubleCode } from '../state.ts' */

/** @typedef {'well' | 'notice' | 'unwell'} Level */

/**
 * @typedef {object} Verdict
 * @property {Level} level
 * @property {Party | undefined} party at fault; undefined when all is well
 * @property {string} next advice in a few short sentences; empty when all is well
 * @property {string} title without figures, since screen readers announce each change
 * @property {string} detail
 * @property {boolean} [isOver] the problem ended within the last minute
 */

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
 * @typedef {object} Rule
 * @property {(now: Now, facts: Facts) => TroubleCode | false | undefined} find the trouble, if the rule holds
 * @property {Level | ((now: Now) => Level)} [level] default: notice
 * @property {Party} [party] default: the gateway
 * @property {(now: Now, facts: Facts) => string} detail
 * @property {string} [over] the title, if the problem ended within the last minute
 * @property {(now: Now) => boolean} [showsSettings] whether the detail has the settings that the advice names; default: yes
 * @property {boolean} [isApart] if an earlier rule gives the verdict, that verdict names this trouble too
 */

/** @type {readonly Rule[]} the first rule that holds gives the verdict */
const rules = [
  {
    find: ({ isDraining }) => isDraining && 'draining',
    detail: ({ inFlight }) => `The gateway is shutting down, with ${countOf(inFlight, 'call')} still in flight.`,
  },
  {
    find: ({ troubles }) => troubles.unreachable,
    // The page shows the address below.
    showsSettings: () => false,
    level: 'unwell',
    party: 'backend',
    detail: ({ at, backend: { since, cause } }) =>
      `Unreachable since ${formatTime(since)} (${formatAge(at - since)})${cause === undefined ? '' : `: ${cause}`}`,
  },
  {
    find: (now) => countKind(now, 'bug') > 0 && 'bug',
    level: 'unwell',
    detail: (now) => `${countOf(countKind(now, 'bug'), 'call')} failed ${inLastMinute(now)} because of a bug.`,
  },
  {
    find: (now) => countKind(now, 'no-keys') > 0 && recoveredAt(now, 'gateway') === undefined && 'no-keys',
    level: 'unwell',
    detail: (now) =>
      `The gateway turned away ${countOf(countKind(now, 'no-keys'), 'call')} with a token ${inLastMinute(now)}.`,
  },
  {
    find: (now) => countKind(now, 'overload') > 0 && recoveredAt(now, 'gateway') === undefined && 'overload',
    level: 'unwell',
    detail: (now, facts) =>
      `${formatCount(countKind(now, 'overload'))} turned away ${inLastMinute(now)}. ${describeFill(now, facts)}`,
  },
  {
    find: (now) => recoveredAt(now, 'backend') === undefined && findFailing(now),
    // While some calls succeed, the settings are probably right.
    showsSettings: ({ troubles }) => troubles.hasNoSuccess,
    level: (now) => (failedShareOf(now) >= failedShareUnwell ? 'unwell' : 'notice'),
    party: 'backend',
    detail: (now, facts) =>
      `${describeFailed(now, facts)}${now.troubles.hasNoSuccess ? ' No call in the last 5 minutes succeeded.' : ''}`,
  },
  {
    find: ({ troubles }) => troubles.hasNoSuccess && 'no-call-succeeds',
    detail: () => 'The backend answers, but no call in the last 5 minutes succeeded.',
  },
  {
    find: ({ troubles }) => troubles.clients?.code,
    isApart: true,
    detail: ({ troubles: { clients } }) =>
      clients === undefined
        ? ''
        : `${formatCount(clients.count)} of ${countOf(clients.calls, 'call')} were refused in the minute until ${formatTime(clients.at)}, most often as ${clients.outcome}.`,
  },
  {
    find: ({ inFlight, bufferedBytes }, { inFlightMax, bufferedBytesMax }) =>
      (inFlight >= inFlightMax * fullShare || bufferedBytes >= bufferedBytesMax * fullShare) && 'nearly-full',
    detail: describeFill,
  },
  {
    find: ({ troubles }) => troubles.log?.code,
    isApart: true,
    detail: ({ troubles: { log } }) =>
      log === undefined ? '' : `${countOf(log.count, 'line')} lost ${inFiveMinutes(log.at)}`,
  },
  // The next two rules: problems that ended within the last minute.
  {
    find: (now) =>
      countTurnedAway(now) > 0 &&
      recoveredAt(now, 'gateway') !== undefined &&
      (countKind(now, 'overload') > 0 ? 'overload' : 'no-keys'),
    over: 'The gateway accepts all calls again',
    detail: (now) =>
      `Recovered ${agoOf(now, 'gateway')}. ${countOf(countTurnedAway(now), 'call')} turned away ${inLastMinute(now)}.`,
  },
  {
    find: (now) => recoveredAt(now, 'backend') !== undefined && findFailing(now),
    showsSettings: () => false,
    over: 'The backend has recovered',
    party: 'backend',
    detail: (now, facts) => `Recovered ${agoOf(now, 'backend')}. ${describeFailed(now, facts)}`,
  },
  {
    find: ({ troubles }) => troubles.workers?.code,
    isApart: true,
    detail: ({ troubles: { workers } }) =>
      workers === undefined
        ? ''
        : `${countOf(workers.count, 'worker')} died ${inFiveMinutes(workers.at)} The gateway replaces dead workers, but their calls were cut.`,
  },
  {
    find: ({ lastMinute }) => (lastMinute.flows.all.backendP99 ?? 0) >= slowMs && 'slow-backend',
    party: 'backend',
    isApart: true,
    detail: (now) => `The backend's p99 is ${formatMs(now.lastMinute.flows.all.backendP99)} ${inLastMinute(now)}.`,
  },
  {
    find: (now) => slowOutsideBackend(now) && 'slow-gateway',
    isApart: true,
    detail: (now) =>
      `The p99 of reads is ${formatMs(slowOutsideBackend(now)?.p99)} ${inLastMinute(now)}; in the backend it is ${formatMs(slowOutsideBackend(now)?.backendP99)}.`,
  },
  {
    find: ({ workers }) => workers.some(({ eventLoopDelayMs }) => eventLoopDelayMs >= delayMs) && 'short-of-cpu',
    isApart: true,
    detail: () => "The delay of the gateway's event loop is at least 0.25 s.",
  },
];

/** @type {(now: Now, facts: Facts) => Verdict} */
export const judge = (now, facts) => {
  const held = rules.flatMap((rule) => {
    const code = rule.find(now, facts);
    return code ? [{ ...rule, ...facts.troubles[code] }] : [];
  });
  const [first, ...others] = held;
  if (first === undefined) {
    return { level: 'well', party: undefined, next: '', title: 'All is well', detail: describeTraffic(now) };
  }
  const { level = 'notice', over, title, step: next, detail, party = 'gateway', showsSettings } = first;
  const also = others.filter(({ isApart }) => isApart).map((other) => other.title);
  return {
    level: typeof level === 'function' ? level(now) : level,
    party,
    title: over ?? capitalize(title),
    next,
    detail: [
      detail(now, facts),
      showsSettings?.(now) === false ? '' : describeSettings(next, facts),
      also.length === 0 ? '' : `Also: ${also.join('; ')}.`,
    ]
      .filter((text) => text !== '')
      .join('. ')
      .replaceAll('.. ', '. '),
    isOver: over !== undefined,
  };
};

/** @param {string} text */
const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * The values of the settings that the advice names.
 * @type {(next: string, facts: Facts) => string}
 */
const describeSettings = (next, { settings }) => {
  const words = next.split(/[^A-Z0-9_]+/);
  const named = settings.filter(({ variable, value }) => words.includes(variable) && value !== '');
  return named.length === 0
    ? ''
    : `In force: ${named.map(({ variable, value }) => `${variable}=${value}`).join(', ')}.`;
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
  const [failures, errors] = [countFailed(now, 'backend') + countFailed(now, 'gateway'), countFailed(now, 'client')];
  const failed = [
    ...(failures > 0 ? [`${formatCount(failures)} failed`] : []),
    ...(errors > 0 ? [countOf(errors, 'client error')] : []),
  ];
  return `${formatRate(all.requests / seconds)} requests per second, ${failed.join(', ') || 'none failed'}, p99 ${formatMs(all.p99)} ${inLastMinute(now)}.`;
};

/** @type {(now: Now) => TroubleCode | false} */
const findFailing = (now) => failedShareOf(now) >= failedShareNotice && (now.troubles.failing?.code ?? 'server-error');

/** @type {(now: Now, facts: Facts) => string} */
const describeFailed = (now, facts) => {
  const { all } = now.lastMinute.flows;
  const kinds = facts.kinds
    .filter(({ kind, party }) => party === 'backend' && countKind(now, kind) > 0)
    .map(({ kind }) => `${formatCount(countKind(now, kind))} ${kind}`);
  const { operation, cause } = now.troubles.failing ?? {};
  const most = operation === undefined ? '' : ` Most often: ${operation}${cause === undefined ? '' : `, ${cause}`}.`;
  // The same numbers as in the table of operations.
  return `${formatCount(all.failed.backend)} of ${formatCount(all.backendCalls)} backend calls failed ${inLastMinute(now)}: ${kinds.join(', ')}.${most}`;
};

/** @type {(now: Now, facts: Facts) => string} */
function describeFill({ inFlight, lastMinute }, { inFlightMax }) {
  return `${formatCount(inFlight)} of ${formatCount(inFlightMax)} calls in flight now. The backend's p99 is ${formatMs(lastMinute.flows.all.backendP99)}.`;
}

/** @type {(now: Now) => string} names the period: a minute, plus at most one step of the history */
const inLastMinute = ({ at, lastMinute }) => `in the last minute (${formatTime(lastMinute.from)} to ${formatTime(at)})`;

/** @type {(at: number) => string} */
const inFiveMinutes = (at) => `in the last five minutes, the last at ${formatTime(at)}.`;

/** @type {(now: Now, kind: string) => number} */
const countKind = ({ lastMinute }, kind) => lastMinute.failures[kind] ?? 0;

/** @type {(now: Now, party: Party) => number} requests that failed through a party's fault, with or without an operation */
const countFailed = ({ lastMinute: { flows } }, party) => flows.all.failed[party] + flows.none.failed[party];

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
  const [own, errors] = [countFailed(now, 'gateway'), countFailed(now, 'client')];
  const ofBackend = countFailed(now, 'backend');
  const since = `since ${formatTime(backend.since)}`;
  const isOver = countKind(now, 'bug') === 0 && recoveredAt(now, 'gateway') !== undefined;
  const isBackendOver = recoveredAt(now, 'backend') !== undefined;
  const failures = (/** @type {number} */ of) => `${countOf(of, 'failure')} in the last minute`;
  const ownText = own === 0 ? 'no failures' : `${isOver ? `recovered ${agoOf(now, 'gateway')}, ` : ''}${failures(own)}`;
  const backendText =
    ofBackend === 0
      ? `reachable ${since}`
      : `${isBackendOver ? `recovered ${agoOf(now, 'backend')}` : 'answers'}, ${failures(ofBackend)}`;
  const parties = {
    client: { text: errors === 0 ? 'no errors' : `${countOf(errors, 'error')} in the last minute`, isUnwell: false },
    gateway: { text: isDraining ? 'draining' : ownText, isUnwell: (own > 0 && !isOver) || isDraining },
    backend: {
      text: backend.isReachable ? backendText : `unreachable ${since}`,
      // As in the verdict, a few failures among thousands of calls are not marked.
      isUnwell: !backend.isReachable || (!isBackendOver && failedShareOf(now) >= failedShareNotice),
    },
  };
  // A party at fault without failures, for example a slow backend, is marked in the words of the verdict.
  const { party: blamed, title, isOver: hasEnded } = judge(now, facts);
  if (blamed !== undefined && !hasEnded && !parties[blamed].isUnwell) parties[blamed] = { text: title, isUnwell: true };
  return parties;
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
