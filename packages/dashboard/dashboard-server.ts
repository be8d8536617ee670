// Serves the dashboard's files, and its figures as one JSON document that the page fetches every second.

import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';

import { callOutcomes, outcomes } from '../core/outcomes.ts';
import { shortTextOf } from '../core/reasons.ts';
import { createFixedReply, replyHeaders, type FixedReply } from '../core/replies.ts';
import { version } from '../core/version.ts';
import { findTroubles } from '../figures/current-troubles.ts';
import type { CreateDashboard, DashboardSources } from '../figures/dashboard-port.ts';
import { joinFailures, type Failure } from '../figures/failures.ts';
import { figureNames } from '../figures/figures.ts';
import { addFigures, historyMs, minuteMs, stepMs, type History } from '../figures/history.ts';
import type { Reports } from '../figures/report.ts';
import { share } from '../figures/share.ts';
import { troubles } from '../figures/troubles.ts';
import { flowOf, loadOf, pointOf, sumOf, summaryOf } from './points.ts';
import type { Details, Facts, Kind, Message, Now, Point } from './state.ts';

const hostName = hostname();

const contentTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};
const scripts = ['main', 'verdict', 'charts', 'tables', 'format', 'dom'].map((name) => `${name}.js`);

/** The dashboard's files by path. */
const files = new Map([
  ['/', 'index.html'],
  ...[...scripts, 'style.css', 'tables.css', 'well.svg', 'unwell.svg'].map(
    (name) => [`/dashboard/${name}`, name] as const,
  ),
]);

const headers = [
  'content-security-policy',
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy',
  'no-referrer',
  'cross-origin-opener-policy',
  'same-origin',
  'cross-origin-resource-policy',
  'same-origin',
];

const kinds: readonly Kind[] = callOutcomes.flatMap((kind) => {
  const { fault, meaning } = outcomes[kind];
  return fault === 'nobody' ? [] : [{ kind, party: fault, meaning }];
});

export const createDashboard: CreateDashboard = (sources, history) => {
  // The points of the last 15 minutes.
  const points: Point[] = [];
  let shown = '';
  let changedAt = 0;
  // Reads the state at most once a second, whatever the number of open pages [D59].
  const readState = share(async () => {
    const reports = await sources.reports({ withProcessMetrics: false, probesBackend: true });
    const details: Details = {
      facts: describeFacts(sources.facts()),
      failures: joinFailures([reports.ended, ...reports.living].map((each) => each.failures)),
    };
    const text = JSON.stringify(details);
    if (text !== shown) {
      shown = text;
      changedAt = Date.now();
    }
    return { now: describeNow(reports, details.failures, history, sources.isDraining()), changedAt, details };
  });
  return {
    record: (step, reports) => {
      points.push(pointOf(step, reports));
      if (points.length > historyMs / stepMs) points.shift();
    },
    answer: async (path, query) => {
      if (path === '/dashboard/state') {
        const { details, ...state } = await readState();
        const message: Message = {
          ...state,
          points: points.filter(({ at }) => at > Number(query.get('after'))),
          ...(query.get('changed') === String(state.changedAt) ? {} : details),
        };
        return page('application/json', Buffer.from(JSON.stringify(message)));
      }
      const name = files.get(path);
      if (name === undefined) return undefined;
      const body = await readFile(new URL(`./page/${name}`, import.meta.url));
      return page(contentTypes[name.replace(/.*\./, '')] ?? '', body);
    },
  };
};

function page(contentType: string, body: Buffer): FixedReply {
  return createFixedReply(200, replyHeaders(contentType, headers), body);
}

function describeFacts(facts: ReturnType<DashboardSources['facts']>): Facts {
  return {
    ...facts,
    version,
    nodeVersion: process.version,
    startedAt: Math.round(performance.timeOrigin),
    instanceName: facts.instanceName.trim() === '' ? hostName : facts.instanceName,
    hostName,
    pid: process.pid,
    historyMs,
    stepMs,
    kinds,
    troubles,
  };
}

function describeNow(reports: Reports, failures: readonly Failure[], history: History, isDraining: boolean): Now {
  const counted = addFigures(reports);
  const { living } = reports;
  const backend = living[0]?.backend;
  return {
    at: Date.now(),
    isDraining,
    workers: living.map((report) => ({ pid: report.pid, heapUsedBytes: report.heapUsedBytes, ...loadOf([report]) })),
    backend: {
      isReachable: backend?.isReachable === true,
      since: backend?.since ?? 0,
      cause: shortTextOf(backend?.reason, backend?.cause),
    },
    ...loadOf(living),
    clientConnections: sumOf(living, 'clientConnections'),
    backendConnections: sumOf(living, 'backendConnections'),
    requestsEver: flowOf(counted, figureNames).requests,
    lastMinute: summaryOf(history.since(minuteMs, counted)),
    wholeHistory: summaryOf(history.since(historyMs, counted)),
    lastFailures: history.lastFailures(counted, failures),
    troubles: findTroubles(reports, history),
  };
}
