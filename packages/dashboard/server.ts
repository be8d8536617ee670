// Serves the dashboard's files, and its figures as one JSON document that the page fetches every second.

import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';

import type { CreateDashboard, DashboardPort, DashboardSources } from '../command/admin/dashboard-port.ts';
import { share } from '../command/admin/share.ts';
import { callOutcomes, outcomes } from '../core/outcomes.ts';
import { shortTextOf } from '../core/reasons.ts';
import { createFixedReply, replyHeaders, type FixedReply } from '../core/replies.ts';
import { version } from '../core/version.ts';
import { latestBackendStatus } from '../figures/backend-status.ts';
import { joinFailures, type Failure } from '../figures/failures.ts';
import { figureNames, type Figures } from '../figures/figures.ts';
import { addFigures, historyMs, type History, type Stretch } from '../figures/history.ts';
import type { Report } from '../figures/report.ts';
import { loadOf, pointOf, sumOf, summaryOf } from './points.ts';
import type { Details, Facts, Kind, Message, Now, Point } from './state.ts';

const hostName = hostname();

const minuteMs = 60_000;

const contentTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};
const scripts = ['main', 'poll', 'verdict', 'charts', 'loads', 'tables', 'format', 'dom'];
const styles = ['style.css', 'tables.css', 'well.svg', 'unwell.svg'];

/** The dashboard's files by path. */
const files: ReadonlyMap<string, string> = new Map([
  ['/', 'index.html'],
  ...[...styles, ...scripts.map((name) => `${name}.js`)].map((name) => [`/dashboard/${name}`, name] as const),
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
  const { fault, title, meaning } = outcomes[kind];
  return fault === 'nobody' ? [] : [{ kind, party: fault, title, meaning }];
});

class Dashboard implements DashboardPort {
  readonly #sources: DashboardSources;
  readonly #history: History;
  /** The points of the last 15 minutes. */
  readonly #points: Point[] = [];
  // At most one state a second is made, whatever the number of pages [D59].
  readonly #state = share(() => this.#describeState());
  #details = '';
  #changedAt = 0;

  constructor(sources: DashboardSources, history: History) {
    this.#sources = sources;
    this.#history = history;
  }

  record(step: Stretch, reports: readonly Report[]): void {
    this.#points.push(pointOf(step, reports));
    if (this.#points.length > historyMs / this.#history.stepMs) {
      this.#points.shift();
    }
  }

  async answer(path: string, query: URLSearchParams): Promise<FixedReply | undefined> {
    if (path === '/dashboard/state') {
      const { details, ...state } = await this.#state();
      const message: Message = {
        ...state,
        points: this.#points.filter(({ at }) => at > Number(query.get('after'))),
        ...(query.get('changed') === String(state.changedAt) ? {} : details),
      };
      return page('application/json', Buffer.from(JSON.stringify(message)));
    }
    const name = files.get(path);
    if (name === undefined) {
      return undefined;
    }
    const body = await readFile(new URL(`./page/${name}`, import.meta.url));
    return page(contentTypes[name.replace(/.*\./, '')] ?? '', body);
  }

  async #describeState(): Promise<Omit<Message, 'points'> & { readonly details: Details }> {
    const reports = await this.#sources.reports({ withProcessMetrics: false, probesBackend: true });
    const failures = joinFailures(reports.map((report) => report.failures));
    const details = { facts: this.#describeFacts(), failures };
    const text = JSON.stringify(details);
    if (text !== this.#details) {
      this.#details = text;
      this.#changedAt = Date.now();
    }
    return { now: this.#describeNow(reports, failures), changedAt: this.#changedAt, details };
  }

  #describeFacts(): Facts {
    const facts = this.#sources.facts();
    return {
      ...facts,
      version,
      nodeVersion: process.version,
      startedAt: Math.round(performance.timeOrigin),
      instanceName: facts.instanceName.trim() === '' ? hostName : facts.instanceName,
      hostName,
      pid: process.pid,
      certificates: facts.certificates.map(({ use, own, problems }) => ({
        use,
        names: own?.names.join(', ') ?? '',
        expiresAt: own?.expiresAt ?? null,
        problems,
      })),
      historyMs,
      stepMs: this.#history.stepMs,
      kinds,
    };
  }

  #describeNow(reports: readonly Report[], failures: readonly Failure[]): Now {
    const counted = addFigures(reports);
    const backend = latestBackendStatus(reports.map((report) => report.backend));
    return {
      at: Date.now(),
      isDraining: this.#sources.isDraining(),
      workers: reports.map((report) => ({
        pid: report.pid,
        inFlight: report.inFlight,
        residentBytes: report.residentBytes,
        heapUsedBytes: report.heapUsedBytes,
        eventLoopDelayMs: Number(report.eventLoopDelayMs.toPrecision(3)),
      })),
      backend: {
        isReachable: backend?.isReachable === true,
        since: backend?.since ?? 0,
        cause: shortTextOf(backend?.reason, backend?.cause),
      },
      ...loadOf(reports),
      clientConnections: sumOf(reports, 'clientConnections'),
      backendConnections: sumOf(reports, 'backendConnections'),
      requestsEver: requestsOf(counted),
      lastMinute: summaryOf(this.#history.since(minuteMs, counted)),
      wholeHistory: summaryOf(this.#history.since(historyMs, counted)),
      lastFailures: this.#history.lastFailures(counted, failures),
      hasNoSuccess: this.#history.hasNoSuccess(counted),
    };
  }
}

export const createDashboard: CreateDashboard = (sources, history) => new Dashboard(sources, history);

function page(contentType: string, body: Buffer): FixedReply {
  return createFixedReply(200, replyHeaders(contentType, headers), body);
}

function requestsOf(figures: Figures): number {
  const counts = figureNames.flatMap((name) => callOutcomes.map((outcome) => figures.outcomes(name, outcome)));
  return counts.reduce((sum, count) => sum + count, 0);
}
