// Serves the dashboard's files and its stream of server-sent events. Events are made once for all viewers, and only while
// there are viewers. A slow viewer has at most one event waiting in memory.

import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { hostname } from 'node:os';

import type { CreateDashboard, DashboardPort, DashboardSources } from '../command/admin/dashboard-port.ts';
import { callOutcomes, outcomes } from '../core/outcomes.ts';
import { shortTextOf } from '../core/reasons.ts';
import { version } from '../core/version.ts';
import { latestBackendStatus } from '../figures/backend-status.ts';
import { joinFailures, type Failure, type Party } from '../figures/failures.ts';
import { figureNames, type Figures } from '../figures/figures.ts';
import { addFigures, historyMs, type History, type Stretch } from '../figures/history.ts';
import type { Report } from '../figures/report.ts';
import { Points, summaryOf, sumOf } from './points.ts';
import type { Facts, Message, Now } from './state.ts';

const hostName = hostname();

const viewersMax = 50;
const roundMs = 1_000;
// A viewer that has not read its event after this time is disconnected. The viewer's page reconnects by itself.
const slowMs = 5_000;
const minuteMs = 60_000;

const contentTypes: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
};
const scripts = ['main', 'stream', 'verdict', 'charts', 'loads', 'tables', 'format', 'dom'];
const ours = ['style.css', 'tables.css', 'well.svg', 'unwell.svg', ...scripts.map((name) => `${name}.js`)];

/** The dashboard's files by path. */
const files: ReadonlyMap<string, () => URL> = new Map([
  ['/', () => new URL('./page/index.html', import.meta.url)],
  ...ours.map((name) => [`/dashboard/${name}`, () => new URL(`./page/${name}`, import.meta.url)] as const),
  ...['uPlot.iife.min.js', 'uPlot.min.css'].map(
    (name) => [`/dashboard/${name}`, () => new URL(import.meta.resolve(`uplot/dist/${name}`))] as const,
  ),
]);

const headers = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
} as const;

const kindWords: Facts['kindWords'] = Object.fromEntries(
  callOutcomes.map((name) => [name, { title: outcomes[name].title, meaning: outcomes[name].meaning }]),
);

interface Viewer {
  readonly response: ServerResponse;
  /** Time (`performance.now()`) since when the viewer has unread bytes; undefined if it has read everything. */
  behindSince: number | undefined;
  /**
   * True if the viewer's next event must have the whole state and not only changes, because the viewer has missed events or
   * has had none yet.
   */
  needsAll: boolean;
}

class Dashboard implements DashboardPort {
  readonly #sources: DashboardSources;
  readonly #history: History;
  readonly #points: Points;
  readonly #viewers = new Set<Viewer>();
  // Timer of the round that is due or running. A round sends one event to each viewer.
  #round: NodeJS.Timeout | undefined;
  #roundAt = -Infinity;
  // Returns the last round's event with the whole state. The first call makes this event.
  #whole: (() => Buffer) | undefined;
  #isClosed = false;
  #lastPointAt = 0;
  #lastFailures = '';
  #lastFacts = '';

  constructor(sources: DashboardSources, history: History) {
    this.#sources = sources;
    this.#history = history;
    this.#points = new Points(history.stepMs);
  }

  record(step: Stretch, reports: readonly Report[]): void {
    this.#points.record(step, reports);
  }

  async answer(
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<'answered' | 'streaming' | 'not-found'> {
    if (path === '/dashboard/events') {
      return this.#stream(request, response) ? 'streaming' : 'answered';
    }
    const url = files.get(path)?.();
    if (url === undefined) {
      return 'not-found';
    }
    const body = await readFile(url);
    const contentType = contentTypes[url.pathname.replace(/.*\./, '')];
    response.writeHead(200, { ...headers, 'content-type': contentType, 'content-length': body.length }).end(body);
    return 'answered';
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#round);
    for (const { response } of this.#viewers) {
      response.end();
    }
  }

  // Returns true if the response is now a stream.
  #stream(request: IncomingMessage, response: ServerResponse): boolean {
    // A page of another site cannot read streams, but it could open `viewersMax` streams and leave none for operators.
    if (request.headers['sec-fetch-site'] === 'cross-site') {
      refuse(response, 403, 'The dashboard is not available to other sites');
      return false;
    }
    if (this.#isClosed) {
      // The listener is about to close every connection.
      response.destroy();
      return false;
    }
    if (this.#viewers.size >= viewersMax) {
      refuse(response, 503, `${viewersMax} dashboards are already open`);
      return false;
    }
    response.writeHead(200, { ...headers, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
    if (request.method === 'HEAD') {
      response.end();
      return false;
    }
    response.flushHeaders();
    const viewer: Viewer = { response, behindSince: undefined, needsAll: true };
    this.#viewers.add(viewer);
    response.on('close', () => this.#viewers.delete(viewer));
    response.on('error', () => undefined);
    // A new viewer gets the event of the last round at once and does not cause another round.
    if (this.#whole !== undefined && performance.now() - this.#roundAt < roundMs) {
      response.write(this.#whole());
      viewer.needsAll = false;
    }
    this.#schedule();
    return true;
  }

  // At most one round per second, and only while there are viewers, however often they reconnect [D59].
  #schedule(): void {
    if (this.#round === undefined && this.#viewers.size > 0 && !this.#isClosed) {
      const restMs = Math.max(0, this.#roundAt + roundMs - performance.now());
      this.#round = setTimeout(() => {
        this.#roundAt = performance.now();
        this.#send()
          .catch((error: unknown) => this.#sources.onFault(error))
          .finally(() => {
            this.#round = undefined;
            this.#schedule();
          });
      }, restMs).unref();
    }
  }

  async #send(): Promise<void> {
    const reports = await this.#sources.reports({ withProcessMetrics: false, probesBackend: true });
    if (this.#isClosed) {
      return;
    }
    const failures = joinFailures(reports.map((report) => report.failures));
    const now = this.#describeNow(reports, failures);
    const failuresText = JSON.stringify(failures);
    const points = this.#points.after(this.#lastPointAt);
    const change: Message = {
      now,
      ...(points.length === 0 ? {} : { points }),
      ...(failuresText === this.#lastFailures ? {} : { failures }),
    };
    this.#lastPointAt = points.at(-1)?.at ?? this.#lastPointAt;
    this.#lastFailures = failuresText;
    const changeEvent = eventOf(change);
    const facts = this.#describeFacts();
    const factsText = JSON.stringify(facts);
    const hasNewFacts = factsText !== this.#lastFacts;
    this.#lastFacts = factsText;
    const allPoints = this.#points.after(0);
    let wholeEvent: Buffer | undefined;
    const whole = (): Buffer => (wholeEvent ??= Buffer.from(eventOf({ now, facts, points: allPoints, failures })));
    this.#whole = whole;
    for (const viewer of this.#viewers) {
      // Only an event with the whole state has the facts. The facts change after a reload, or with new certificates.
      viewer.needsAll ||= hasNewFacts;
      if (hasRoom(viewer)) {
        viewer.response.write(viewer.needsAll ? whole() : changeEvent);
        viewer.needsAll = false;
      }
    }
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
      failureKinds: { backend: kindsOf('backend'), gateway: kindsOf('gateway'), client: kindsOf('client') },
      kindWords,
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
      inFlight: sumOf(reports, 'inFlight'),
      bufferedBytes: sumOf(reports, 'bufferedBytes'),
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

function kindsOf(party: Party): string[] {
  return callOutcomes.filter((outcome) => outcomes[outcome].fault === party);
}

// Returns true if the viewer has read all events sent to it. Otherwise its next event will have the whole state, and after
// `slowMs` the viewer is disconnected.
function hasRoom(viewer: Viewer): boolean {
  if (viewer.response.writableLength === 0) {
    viewer.behindSince = undefined;
    return true;
  }
  viewer.behindSince ??= performance.now();
  viewer.needsAll = true;
  if (performance.now() - viewer.behindSince >= slowMs) {
    viewer.response.destroy();
  }
  return false;
}

function requestsOf(figures: Figures): number {
  const counts = figureNames.flatMap((name) => callOutcomes.map((outcome) => figures.outcomes(name, outcome)));
  return counts.reduce((sum, count) => sum + count, 0);
}

function eventOf(message: Message): string {
  return `data: ${JSON.stringify(message)}\n\n`;
}

function refuse(response: ServerResponse, status: number, error: string): void {
  const body = JSON.stringify({ error });
  response
    .writeHead(status, {
      ...headers,
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(body),
      ...(status === 503 ? { 'retry-after': '5' } : {}),
    })
    .end(body);
}
