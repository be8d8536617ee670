// Decides whether the gateway is well, and if not, who is at fault, from the stream's last message. Single mistakes of
// clients never change the verdict [D51].

import { formatAge, formatCount, formatMs, formatRate, formatTime } from './format.js';

/** @import { Facts, Now, ShownCertificate } from '../state.ts' */

/** @typedef {'client' | 'gateway' | 'backend'} Party */

/**
 * @typedef {object} Verdict
 * @property {'well' | 'notice' | 'unwell'} level
 * @property {Party | undefined} party who is at fault; undefined when all is well
 * @property {string} next what to do, in one short sentence; empty when all is well
 * @property {string} title without figures: it is read out when it changes
 * @property {string} detail
 * @property {boolean} [isOver] what is told of was wrong within the last minute, and is not any more
 */

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
 * @param {Now} now
 * @param {Facts} facts
 * @returns {Verdict}
 */
export function judge(now, facts) {
  return (
    findTrouble(now, facts) ??
    findRecovery(now, facts) ??
    findSlowness(now) ?? {
      level: 'well',
      party: undefined,
      next: '',
      title: 'All is well',
      detail: describeTraffic(now),
    }
  );
}

/**
 * @param {Now} now
 * @param {Facts} facts
 * @returns {Verdict | undefined}
 */
function findTrouble(now, facts) {
  const { lastMinute } = now;
  const { all } = lastMinute.flows;
  const bugs = countKind(now, 'bug');
  if (now.isDraining) {
    return {
      level: 'notice',
      party: 'gateway',
      next: 'Wait: it stops when these calls have ended, after SHUTDOWN_TIMEOUT_MS at the latest.',
      title: 'The gateway is draining',
      detail: `It has been told to stop: ${formatCount(now.inFlight)} calls are being finished.`,
    };
  }
  if (!now.backend.isReachable) {
    return {
      level: 'unwell',
      party: 'backend',
      next: 'Look whether the backend runs, and whether BACKEND_URL is its address.',
      title: 'The backend does not answer',
      detail: `Unreachable since ${formatTime(now.backend.since)} (${formatAge(now.at - now.backend.since)})${now.backend.cause === undefined ? '' : `: ${now.backend.cause}`}`,
    };
  }
  if (bugs > 0) {
    return {
      level: 'unwell',
      party: 'gateway',
      next: 'Report it, with the stack that the log has.',
      title: 'The gateway has a fault of its own',
      detail: `${formatCount(bugs)} calls ${inLastMinute(now)} ended in it.`,
    };
  }
  if (countKind(now, 'no-keys') > 0 && recoveredAt(now, 'gateway') === undefined) {
    return {
      level: 'unwell',
      party: 'gateway',
      next: "Look in the log why the issuer's keys cannot be fetched.",
      title: 'The gateway has no keys for tokens',
      detail: `${formatCount(countKind(now, 'no-keys'))} calls had a token ${inLastMinute(now)}, and there was no key to check it with.`,
    };
  }
  if (countKind(now, 'overload') > 0 && recoveredAt(now, 'gateway') === undefined) {
    return {
      level: 'unwell',
      party: 'gateway',
      next: 'See Load and Failed calls below for what ran out. Raise that limit, or add a gateway.',
      title: 'The gateway turns calls away',
      detail: `${formatCount(countKind(now, 'overload'))} ${inLastMinute(now)}, with ${formatCount(now.inFlight)} of ${formatCount(facts.inFlightMax)} calls in flight now. The backend's p99 is ${formatMs(all.backendP99)}.`,
    };
  }
  const share = failedShareOf(now);
  if (share >= failedShareNotice && recoveredAt(now, 'backend') === undefined) {
    return {
      level: share >= failedShareUnwell ? 'unwell' : 'notice',
      party: 'backend',
      next: "Look in the backend's log for the request id of a failed call below.",
      title: 'The backend fails calls',
      detail: `${describeFailed(now, facts)}.${now.hasNoSuccess ? ` No call of the last 5 minutes has succeeded. ${askForAddress(facts)}` : ''}`,
    };
  }
  if (now.hasNoSuccess) {
    return {
      level: 'notice',
      party: 'gateway',
      next: 'Compare BACKEND_URL with the address of the backend: `work-item-gateway check` tries it.',
      title: 'No call succeeds',
      detail: `No call of the last 5 minutes has succeeded, and the backend answers. ${askForAddress(facts)}`,
    };
  }
  if (
    now.inFlight >= facts.inFlightMax * fullShare ||
    now.bufferedBytes >= facts.bufferedBytesMax * fullShare
  ) {
    return {
      level: 'notice',
      party: 'gateway',
      next: 'See under Load which limit is nearly met. Raise it, or add a gateway.',
      title: 'The gateway is nearly full',
      detail: `${formatCount(now.inFlight)} of ${formatCount(facts.inFlightMax)} calls in flight now. The backend's p99 is ${formatMs(all.backendP99)}.`,
    };
  }
  return undefined;
}

/**
 * What was wrong within the last minute and is not any more.
 * @param {Now} now
 * @param {Facts} facts
 * @returns {Verdict | undefined}
 */
function findRecovery(now, facts) {
  const turnedAway = countKind(now, 'overload') + countKind(now, 'no-keys');
  const gatewayAt = turnedAway > 0 ? recoveredAt(now, 'gateway') : undefined;
  if (gatewayAt !== undefined) {
    return {
      level: 'notice',
      isOver: true,
      party: 'gateway',
      next: 'See Load and Failed calls below for what had run out.',
      title: 'The gateway takes all calls again',
      detail: `Recovered ${formatAge(now.at - gatewayAt)} ago. ${formatCount(turnedAway)} calls were turned away ${inLastMinute(now)}.`,
    };
  }
  const backendAt = failedShareOf(now) >= failedShareNotice ? recoveredAt(now, 'backend') : undefined;
  if (backendAt !== undefined) {
    return {
      level: 'notice',
      isOver: true,
      party: 'backend',
      next: "Look in the backend's log for the request id of a failed call below.",
      title: 'The backend has recovered',
      detail: `Recovered ${formatAge(now.at - backendAt)} ago. It failed ${describeFailed(now, facts)}.`,
    };
  }
  return undefined;
}

/**
 * @param {Now} now
 * @returns {Verdict | undefined}
 */
function findSlowness(now) {
  const { all, list, read } = now.lastMinute.flows;
  if ((all.backendP99 ?? 0) >= slowMs) {
    return {
      level: 'notice',
      party: 'backend',
      next: 'See below which operation is slow, then look at the load of the backend.',
      title: 'The backend is slow',
      detail: `Its p99 is ${formatMs(all.backendP99)} ${inLastMinute(now)}.`,
    };
  }
  // Only of what has no body: how long a client takes to send one is its own affair.
  const slow = [list, read].find(({ p99, mean, backendMean }) => {
    return (p99 ?? 0) >= slowMs && (backendMean ?? 0) * 2 < (mean ?? 0);
  });
  if (slow !== undefined) {
    return {
      level: 'notice',
      party: 'gateway',
      next: "Look at the processors of the gateway's machine, and at the network of the clients.",
      title: 'Calls are slow before and after the backend',
      detail: `The p99 of reads is ${formatMs(slow.p99)} ${inLastMinute(now)}, the backend's ${formatMs(slow.backendP99)}.`,
    };
  }
  if (now.workers.some(({ eventLoopDelayMs }) => eventLoopDelayMs >= delayMs)) {
    return {
      level: 'notice',
      party: 'gateway',
      next: 'Raise WORKERS, give the machine more processors, or add a gateway.',
      title: 'The gateway is short of processor time',
      detail: 'Its event loop comes more than 0.25 s late to its work.',
    };
  }
  return undefined;
}

/**
 * Since when a party that failed calls in the last minute fails no more, in ms since 1970; undefined while it may.
 * @param {Now} now
 * @param {'backend' | 'gateway'} party
 */
function recoveredAt({ at, backend, lastFailures, lastMinute }, party) {
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
}

/**
 * The part of the last minute's calls to the backend that the backend failed.
 * @param {Now} now
 */
function failedShareOf({ lastMinute: { flows } }) {
  return flows.all.backendCalls === 0 ? 0 : flows.all.failed.backend / flows.all.backendCalls;
}

/** @param {Now} now */
function describeTraffic(now) {
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
}

/** @param {Facts} facts */
function askForAddress({ backendUrl }) {
  return `Is BACKEND_URL right? It is ${backendUrl}.`;
}

/**
 * @param {Now} now
 * @param {Facts} facts
 */
function describeFailed(now, facts) {
  const { all } = now.lastMinute.flows;
  const kinds = facts.failureKinds.backend
    .filter((kind) => countKind(now, kind) > 0)
    .map((kind) => `${formatCount(countKind(now, kind))} ${facts.kindWords[kind]?.title ?? kind}`);
  // The numbers of the table of operations, so that one figure is not another one there.
  return `${formatCount(all.failed.backend)} of ${formatCount(all.backendCalls)} calls to it ${inLastMinute(now)}: ${kinds.join(', ')}`;
}

/**
 * Which time the figures are of: a step of the history more than a minute at most.
 * @param {Now} now
 */
function inLastMinute({ at, lastMinute }) {
  return `in the last minute (${formatTime(lastMinute.from)} to ${formatTime(at)})`;
}

/**
 * @param {Now} now
 * @param {string} kind
 */
function countKind({ lastMinute }, kind) {
  return lastMinute.failures[kind] ?? 0;
}

/**
 * One short line for each party on the way of a call.
 * @param {Now} now
 * @param {Facts} facts
 * @returns {Record<Party, { text: string, isUnwell: boolean }>}
 */
export function describeParties(now, facts) {
  const { backend } = now;
  /** @param {Party} party */
  const count = (party) => facts.failureKinds[party].reduce((sum, kind) => sum + countKind(now, kind), 0);
  const own = count('gateway');
  const mistakes = count('client');
  const ofBackend = count('backend');
  const since = `since ${formatTime(backend.since)}`;
  const ownRecoveredAt = countKind(now, 'bug') > 0 ? undefined : recoveredAt(now, 'gateway');
  const backendRecoveredAt = recoveredAt(now, 'backend');
  return {
    client: {
      text: mistakes === 0 ? 'no mistakes' : `${countOf(mistakes, 'mistake')} in the last minute`,
      isUnwell: false,
    },
    gateway: {
      text: now.isDraining
        ? 'draining'
        : own === 0
          ? 'no failures'
          : `${describeRecovery(now, ownRecoveredAt)}${countOf(own, 'failure')} in the last minute`,
      isUnwell: (own > 0 && ownRecoveredAt === undefined) || now.isDraining,
    },
    backend: {
      text: !backend.isReachable
        ? `unreachable ${since}`
        : ofBackend === 0
          ? `reachable ${since}`
          : `${describeRecovery(now, backendRecoveredAt) || 'answers, '}${countOf(ofBackend, 'failure')} in the last minute`,
      // As for the verdict: a single failure among thousands is none of the eye's business.
      isUnwell:
        !backend.isReachable || (backendRecoveredAt === undefined && failedShareOf(now) >= failedShareNotice),
    },
  };
}

/**
 * What is said of a certificate in force, and whether somebody has to do something about it.
 * @param {ShownCertificate} certificate
 * @param {number} now in milliseconds since 1970
 * @returns {{ text: string, isUnwell: boolean }}
 */
export function describeCertificate({ expiresAt, problems }, now) {
  const refused = problems.length === 0 ? '' : '; the new files are refused';
  if (expiresAt === null) {
    return { text: `authorities only${refused}`, isUnwell: refused !== '' };
  }
  const days = Math.floor((expiresAt - now) / dayMs);
  const date = new Date(expiresAt).toISOString().slice(0, 10);
  const text = expiresAt < now ? `expired on ${date}` : `until ${date}, ${countOf(days, 'day')} left`;
  return { text: text + refused, isUnwell: days < certificateDaysMin || refused !== '' };
}

/**
 * @param {Now} now
 * @param {number | undefined} recoveredSince
 */
function describeRecovery({ at }, recoveredSince) {
  return recoveredSince === undefined ? '' : `recovered ${formatAge(at - recoveredSince)} ago, `;
}

/**
 * @param {number} count
 * @param {string} word
 */
function countOf(count, word) {
  return `${formatCount(count)} ${word}${count === 1 ? '' : 's'}`;
}
