// Is it well, and if not, whose affair is it? One place decides, from what the stream said last.

import {
  formatAge,
  formatCount,
  formatMs,
  formatRate,
  formatShare,
  formatTime,
  nameOfKind,
} from './format.js';

/** @import { Facts, Now, Summary } from '../dashboard-state.ts' */

/** @typedef {'client' | 'gateway' | 'backend'} Party */

/**
 * @typedef {object} Verdict
 * @property {'well' | 'notice' | 'unwell'} level
 * @property {Party | undefined} party whose affair it is; undefined when all is well
 * @property {string} title without figures: it is read out when it changes
 * @property {string} detail
 */

// Of the calls of the last minute.
const failedShareUnwell = 0.05;
const failedShareNotice = 0.01;
const slowMs = 1_000;
const delayMs = 250;
const fullShare = 0.8;

/**
 * @param {Now} now
 * @param {Facts} facts
 * @returns {Verdict}
 */
export function judge(now, facts) {
  const { lastMinute } = now;
  const { all } = lastMinute.flows;
  const { failures } = lastMinute;
  const failed = formatShare(all.failed.backend, all.requests);
  if (now.isDraining) {
    return {
      level: 'notice',
      party: 'gateway',
      title: 'The gateway is draining',
      detail: `It has been told to stop: ${formatCount(now.inFlight)} calls are being finished.`,
    };
  }
  if (!now.backend.isReachable) {
    return {
      level: 'unwell',
      party: 'backend',
      title: 'The backend does not answer',
      detail: `Unreachable since ${formatTime(now.backend.since)} (${formatAge(now.at - now.backend.since)}). ${now.backend.cause ?? ''}`,
    };
  }
  if ((failures['bug'] ?? 0) > 0) {
    return {
      level: 'unwell',
      party: 'gateway',
      title: 'The gateway has a fault of its own',
      detail: `${formatCount(failures['bug'] ?? 0)} calls in the last minute ended in it. The log has the stack; please report it.`,
    };
  }
  if ((failures['overload'] ?? 0) > 0) {
    return {
      level: 'unwell',
      party: 'gateway',
      title: 'The gateway turns calls away',
      detail: `${formatCount(failures['overload'] ?? 0)} in the last minute, with ${formatCount(now.inFlight)} of ${formatCount(facts.inFlightMax)} calls in flight. The backend's p99 is ${formatMs(all.backendP99)}.`,
    };
  }
  if (all.failed.backend > 0 && all.failed.backend >= all.requests * failedShareNotice) {
    return {
      level: all.failed.backend >= all.requests * failedShareUnwell ? 'unwell' : 'notice',
      party: 'backend',
      title: 'The backend fails calls',
      detail: `${failed} of the last minute's calls: ${describeKinds(lastMinute, facts.failureKinds.backend)}.`,
    };
  }
  if (
    now.inFlight >= facts.inFlightMax * fullShare ||
    now.bufferedBytes >= facts.bufferedBytesMax * fullShare
  ) {
    return {
      level: 'notice',
      party: 'gateway',
      title: 'The gateway is nearly full',
      detail: `${formatCount(now.inFlight)} of ${formatCount(facts.inFlightMax)} calls in flight. The backend's p99 is ${formatMs(all.backendP99)}.`,
    };
  }
  if ((all.p99 ?? 0) >= slowMs) {
    const isBackend = (all.backendMean ?? 0) * 2 >= (all.mean ?? 0);
    return {
      level: 'notice',
      party: isBackend ? 'backend' : 'gateway',
      title: isBackend ? 'The backend is slow' : 'Calls are slow before and after the backend',
      detail: `p99 is ${formatMs(all.p99)}, the backend's ${formatMs(all.backendP99)}.${isBackend ? '' : ' Slow clients that send or take bodies count here too.'}`,
    };
  }
  if (now.workers.some(({ eventLoopDelayMs }) => eventLoopDelayMs >= delayMs)) {
    return {
      level: 'notice',
      party: 'gateway',
      title: 'The gateway is short of processor time',
      detail: 'Its event loop comes more than 0.25 s late to its work.',
    };
  }
  return { level: 'well', party: undefined, title: 'All is well', detail: describeTraffic(lastMinute) };
}

/** @param {Summary} summary */
function describeTraffic({ seconds, flows: { all } }) {
  if (all.requests === 0) {
    return 'No calls in the last minute.';
  }
  const failed = all.failed.backend + all.failed.gateway;
  return `${formatRate(all.requests / seconds)} requests a second, ${failed === 0 ? 'none failed' : `${formatShare(failed, all.requests)} failed`}, p99 ${formatMs(all.p99)}.`;
}

/**
 * @param {Summary} summary
 * @param {readonly string[]} kinds
 */
function describeKinds({ failures }, kinds) {
  return kinds
    .filter((kind) => (failures[kind] ?? 0) > 0)
    .map((kind) => `${formatCount(failures[kind] ?? 0)} ${nameOfKind(kind)}`)
    .join(', ');
}

/**
 * One short line for each party on the way of a call.
 * @param {Now} now
 * @param {Facts} facts
 * @returns {Record<Party, { text: string, isUnwell: boolean }>}
 */
export function describeParties(now, facts) {
  const { lastMinute, backend } = now;
  /** @param {Party} party */
  const count = (party) =>
    facts.failureKinds[party].reduce((sum, kind) => sum + (lastMinute.failures[kind] ?? 0), 0);
  const own = count('gateway');
  const mistakes = count('client');
  const ofBackend = count('backend');
  const since = `since ${formatTime(backend.since)}`;
  return {
    client: {
      text: mistakes === 0 ? 'no mistakes' : `${formatCount(mistakes)} mistakes in the last minute`,
      isUnwell: false,
    },
    gateway: {
      text: now.isDraining
        ? 'draining'
        : own === 0
          ? 'no failures'
          : `${formatCount(own)} failures in the last minute`,
      isUnwell: own > 0 || now.isDraining,
    },
    backend: {
      text: !backend.isReachable
        ? `unreachable ${since}`
        : ofBackend === 0
          ? `reachable ${since}`
          : `answers, ${formatCount(ofBackend)} failures in the last minute`,
      // As for the verdict: a single failure among thousands is none of the eye's business.
      isUnwell:
        !backend.isReachable ||
        (ofBackend > 0 && ofBackend >= lastMinute.flows.all.requests * failedShareNotice),
    },
  };
}
