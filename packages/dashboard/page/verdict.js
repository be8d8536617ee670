// Decides whether the gateway is well, and if not, who is at fault, from the stream's last message. Single mistakes of
// clients never change the verdict [D51].

import { formatAge, formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Facts, Flow, Now, Party, ShownCertificate } from '../state.ts' */

/** @typedef {'well' | 'notice' | 'unwell'} Level */

/**
 * @typedef {object} Said
 * @property {Party | undefined} party who is at fault; undefined when all is well
 * @property {string} next what to do, in one short sentence; empty when all is well
 * @property {string} title without figures: it is read out when it changes
 * @property {boolean} [isOver] what is told of was wrong within the last minute, and is not any more
 */

/** @typedef {Said & { level: Level, detail: string }} Verdict */

// Of the last minute's calls to the backend.
const failedShareUnwell = 0.05;
const failedShareNotice = 0.01;
const slowMs = 1_000;
const delayMs = 250;
const fullShare = 0.8;
// Calls that came through in a row count as a recovery when failures as frequent as before would have let that happen
// once in a hundred times.
const chanceMax = 0.01;
const quietMs = 2_000;
const dayMs = 86_400_000;
// As the alert has it.
const certificateDaysMin = 14;

/**
 * @typedef {object} Judgement
 * @property {(now: Now, facts: Facts) => boolean} holds
 * @property {Level | ((now: Now) => Level)} level
 * @property {(now: Now, facts: Facts) => string} detail
 */

/** @typedef {Said & Judgement} Rule */

/** @type {readonly Rule[]} the first one that holds is the verdict */
const rules = [
  {
    holds: ({ isDraining }) => isDraining,
    level: 'notice',
    party: 'gateway',
    next: 'Wait: it stops when these calls have ended, after SHUTDOWN_TIMEOUT_MS at the latest.',
    title: 'The gateway is draining',
    detail: ({ inFlight }) => `It has been told to stop: ${formatCount(inFlight)} calls are being finished.`,
  },
  {
    holds: ({ backend }) => !backend.isReachable,
    level: 'unwell',
    party: 'backend',
    next: 'Look whether the backend runs, and whether BACKEND_URL is its address.',
    title: 'The backend does not answer',
    detail: ({ at, backend: { since, cause } }) =>
      `Unreachable since ${formatTime(since)} (${formatAge(at - since)})${cause === undefined ? '' : `: ${cause}`}`,
  },
  {
    holds: (now) => countKind(now, 'bug') > 0,
    level: 'unwell',
    party: 'gateway',
    next: 'Report it, with the stack that the log has.',
    title: 'The gateway has a fault of its own',
    detail: (now) => `${formatCount(countKind(now, 'bug'))} calls ${inLastMinute(now)} ended in it.`,
  },
  {
    holds: (now) => countKind(now, 'no-keys') > 0 && recoveredAt(now, 'gateway') === undefined,
    level: 'unwell',
    party: 'gateway',
    next: "Look in the log why the issuer's keys cannot be fetched.",
    title: 'The gateway has no keys for tokens',
    detail: (now) =>
      `${formatCount(countKind(now, 'no-keys'))} calls had a token ${inLastMinute(now)}, and there was no key to check it with.`,
  },
  {
    holds: (now) => countKind(now, 'overload') > 0 && recoveredAt(now, 'gateway') === undefined,
    level: 'unwell',
    party: 'gateway',
    next: 'See Load and Failed calls below for what ran out. Raise that limit, or add a gateway.',
    title: 'The gateway turns calls away',
    detail: (now, facts) =>
      `${formatCount(countKind(now, 'overload'))} ${inLastMinute(now)}, with ${describeFill(now, facts)}`,
  },
  {
    holds: (now) => failedShareOf(now) >= failedShareNotice && recoveredAt(now, 'backend') === undefined,
    level: (now) => (failedShareOf(now) >= failedShareUnwell ? 'unwell' : 'notice'),
    party: 'backend',
    next: "Look in the backend's log for the request id of a failed call below.",
    title: 'The backend fails calls',
    detail: (now, facts) =>
      `${describeFailed(now, facts)}.${now.hasNoSuccess ? ` No call of the last 5 minutes has succeeded. ${askForAddress(facts)}` : ''}`,
  },
  {
    holds: ({ hasNoSuccess }) => hasNoSuccess,
    level: 'notice',
    party: 'gateway',
    next: 'Compare BACKEND_URL with the address of the backend: `work-item-gateway check` tries it.',
    title: 'No call succeeds',
    detail: (_, facts) =>
      `No call of the last 5 minutes has succeeded, and the backend answers. ${askForAddress(facts)}`,
  },
  {
    holds: ({ inFlight, bufferedBytes }, { inFlightMax, bufferedBytesMax }) =>
      inFlight >= inFlightMax * fullShare || bufferedBytes >= bufferedBytesMax * fullShare,
    level: 'notice',
    party: 'gateway',
    next: 'See under Load which limit is nearly met. Raise it, or add a gateway.',
    title: 'The gateway is nearly full',
    detail: describeFill,
  },
  // What was wrong within the last minute and is not any more.
  {
    holds: (now) => countTurnedAway(now) > 0 && recoveredAt(now, 'gateway') !== undefined,
    level: 'notice',
    isOver: true,
    party: 'gateway',
    next: 'See Load and Failed calls below for what had run out.',
    title: 'The gateway takes all calls again',
    detail: (now) =>
      `Recovered ${agoOf(now, 'gateway')}. ${formatCount(countTurnedAway(now))} calls were turned away ${inLastMinute(now)}.`,
  },
  {
    holds: (now) => failedShareOf(now) >= failedShareNotice && recoveredAt(now, 'backend') !== undefined,
    level: 'notice',
    isOver: true,
    party: 'backend',
    next: "Look in the backend's log for the request id of a failed call below.",
    title: 'The backend has recovered',
    detail: (now, facts) => `Recovered ${agoOf(now, 'backend')}. It failed ${describeFailed(now, facts)}.`,
  },
  {
    holds: ({ lastMinute }) => (lastMinute.flows.all.backendP99 ?? 0) >= slowMs,
    level: 'notice',
    party: 'backend',
    next: 'See below which operation is slow, then look at the load of the backend.',
    title: 'The backend is slow',
    detail: (now) => `Its p99 is ${formatMs(now.lastMinute.flows.all.backendP99)} ${inLastMinute(now)}.`,
  },
  {
    holds: (now) => slowBeside(now) !== undefined,
    level: 'notice',
    party: 'gateway',
    next: "Look at the processors of the gateway's machine, and at the network of the clients.",
    title: 'Calls are slow before and after the backend',
    detail: (now) =>
      `The p99 of reads is ${formatMs(slowBeside(now)?.p99)} ${inLastMinute(now)}, the backend's ${formatMs(slowBeside(now)?.backendP99)}.`,
  },
  {
    holds: ({ workers }) => workers.some(({ eventLoopDelayMs }) => eventLoopDelayMs >= delayMs),
    level: 'notice',
    party: 'gateway',
    next: 'Raise WORKERS, give the machine more processors, or add a gateway.',
    title: 'The gateway is short of processor time',
    detail: () => 'Its event loop comes more than 0.25 s late to its work.',
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
 * Since when a party that failed calls in the last minute fails no more, in ms since 1970; undefined while it may.
 * @type {(now: Now, party: 'backend' | 'gateway') => number | undefined}
 */
const recoveredAt = ({ at, backend, lastFailures, lastMinute }, party) => {
  const last = lastFailures[party];
  if (last === null || at - last.at < quietMs) {
    return undefined;
  }
  const { all } = lastMinute.flows;
  const failed = all.failed[party];
  // Calls that were turned away are none of the backend's.
  const calls = all.backendCalls + (party === 'gateway' ? failed : 0);
  const before = Math.max(failed, calls - last.callsSince);
  if (last.callsSince > 0) {
    return (1 - failed / before) ** last.callsSince < chanceMax ? last.at : undefined;
  }
  // Nobody has called since; but it was away and takes connections again.
  return party === 'backend' && backend.since > last.at ? backend.since : undefined;
};

/** @type {(now: Now) => number} the part of the last minute's calls to the backend that the backend failed */
const failedShareOf = ({ lastMinute: { flows } }) =>
  flows.all.failed.backend / Math.max(1, flows.all.backendCalls);

/** @type {(now: Now) => string} */
const describeTraffic = (now) => {
  const { seconds, flows } = now.lastMinute;
  const { all } = flows;
  if (all.requests === 0) {
    return `No calls ${inLastMinute(now)}.`;
  }
  const { backend, gateway, client } = all.failed;
  const failed = [
    ...(backend + gateway > 0 ? [`${formatCount(backend + gateway)} failed`] : []),
    ...(client > 0 ? [`${formatCount(client)} with a mistake of the client`] : []),
  ];
  return `${formatRate(all.requests / seconds)} requests a second, ${failed.join(', ') || 'none failed'}, p99 ${formatMs(all.p99)} ${inLastMinute(now)}.`;
};

/** @type {(facts: Facts) => string} */
const askForAddress = ({ backendUrl }) => `Is BACKEND_URL right? It is ${backendUrl}.`;

/** @type {(now: Now, facts: Facts) => string} */
const describeFailed = (now, facts) => {
  const { all } = now.lastMinute.flows;
  const kinds = facts.failureKinds.backend
    .filter((kind) => countKind(now, kind) > 0)
    .map((kind) => `${formatCount(countKind(now, kind))} ${facts.kindWords[kind]?.title ?? kind}`);
  // The numbers of the table of operations, so that one figure is not another one there.
  return `${formatCount(all.failed.backend)} of ${formatCount(all.backendCalls)} calls to it ${inLastMinute(now)}: ${kinds.join(', ')}`;
};

/** @type {(now: Now, facts: Facts) => string} */
function describeFill({ inFlight, lastMinute }, { inFlightMax }) {
  return `${formatCount(inFlight)} of ${formatCount(inFlightMax)} calls in flight now. The backend's p99 is ${formatMs(lastMinute.flows.all.backendP99)}.`;
}

/** @type {(now: Now) => string} the time of the figures: a step of the history more than a minute at most */
const inLastMinute = ({ at, lastMinute }) =>
  `in the last minute (${formatTime(lastMinute.from)} to ${formatTime(at)})`;

/** @type {(now: Now, kind: string) => number} */
const countKind = ({ lastMinute }, kind) => lastMinute.failures[kind] ?? 0;

/** @type {(now: Now) => number} */
const countTurnedAway = (now) => countKind(now, 'overload') + countKind(now, 'no-keys');

/**
 * A flow that is slow while the backend is not. Only those without a body: the client decides how long it sends one.
 * @type {(now: Now) => Flow | undefined}
 */
const slowBeside = ({ lastMinute: { flows } }) =>
  [flows.list, flows.read].find(
    ({ p99, mean, backendMean }) => (p99 ?? 0) >= slowMs && (backendMean ?? 0) * 2 < (mean ?? 0),
  );

/**
 * One short line for each party on the way of a call.
 * @type {(now: Now, facts: Facts) => Record<Party, { text: string, isUnwell: boolean }>}
 */
export const describeParties = (now, facts) => {
  const { backend, isDraining } = now;
  const count = (/** @type {Party} */ party) =>
    facts.failureKinds[party].reduce((sum, kind) => sum + countKind(now, kind), 0);
  const [own, mistakes, ofBackend] = [count('gateway'), count('client'), count('backend')];
  const since = `since ${formatTime(backend.since)}`;
  const isOver = countKind(now, 'bug') === 0 && recoveredAt(now, 'gateway') !== undefined;
  const isBackendOver = recoveredAt(now, 'backend') !== undefined;
  const failures = (/** @type {number} */ of) => `${countOf(of, 'failure')} in the last minute`;
  const ownText =
    own === 0 ? 'no failures' : `${isOver ? `recovered ${agoOf(now, 'gateway')}, ` : ''}${failures(own)}`;
  const backendText =
    ofBackend === 0
      ? `reachable ${since}`
      : `${isBackendOver ? `recovered ${agoOf(now, 'backend')}` : 'answers'}, ${failures(ofBackend)}`;
  return {
    client: {
      text: mistakes === 0 ? 'no mistakes' : `${countOf(mistakes, 'mistake')} in the last minute`,
      isUnwell: false,
    },
    gateway: { text: isDraining ? 'draining' : ownText, isUnwell: (own > 0 && !isOver) || isDraining },
    backend: {
      text: backend.isReachable ? backendText : `unreachable ${since}`,
      // As for the verdict: a single failure among thousands is none of the eye's business.
      isUnwell: !backend.isReachable || (!isBackendOver && failedShareOf(now) >= failedShareNotice),
    },
  };
};

/**
 * What is said of a certificate in force, and whether somebody has to do something about it.
 * @type {(certificate: ShownCertificate, now: number) => { text: string, isUnwell: boolean }}
 */
export const describeCertificate = ({ expiresAt, problems }, now) => {
  const refused = problems.length === 0 ? '' : '; the new files are refused';
  if (expiresAt === null) {
    return { text: `authorities only${refused}`, isUnwell: refused !== '' };
  }
  const days = Math.floor((expiresAt - now) / dayMs);
  const date = new Date(expiresAt).toISOString().slice(0, 10);
  const text = expiresAt < now ? `expired on ${date}` : `until ${date}, ${countOf(days, 'day')} left`;
  return { text: text + refused, isUnwell: days < certificateDaysMin || refused !== '' };
};

/** @type {(now: Now, party: 'backend' | 'gateway') => string} */
const agoOf = (now, party) => `${formatAge(now.at - (recoveredAt(now, party) ?? now.at))} ago`;

/** @type {(count: number, word: string) => string} */
const countOf = (count, word) => `${formatCount(count)} ${word}${count === 1 ? '' : 's'}`;
