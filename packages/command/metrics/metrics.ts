// The gateway's figures for Prometheus, from the reports of every process that serves. Names are a published
// surface: docs/operating.md has the meaning and unit of each. With process-metrics.ts the only place that
// knows the Prometheus client, which writes the text and adds the processes' own figures up.

import type { Gauge, PrometheusContentType, Registry } from '@prometheus-io/client';

import { version } from '../../core/version.ts';
import { backendOutcomes, callOutcomes, faultOfBackendOutcome, outcomes } from '../../core/outcomes.ts';
import {
  countOf,
  figureNames,
  Figures,
  publishedBounds,
  publishedCounts,
  statuses,
  type Durations,
  type FigureName,
} from '../../figures/figures.ts';
import { tokenFlawNames } from '../../core/guards/options/token-flaws.ts';
import { latestBackendStatus } from '../../figures/backend-status.ts';
import { daysLeft, type CertificateStatus } from '../../figures/certificate-status.ts';
import { loadPrometheusClient, type ProcessMetric } from '../../figures/process-metrics.ts';
import type { Report } from '../../figures/report.ts';
import { deathCauses } from '../../figures/worker-deaths.ts';

const prefix = 'work_item_gateway_';

interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  /** Where it is not the metric's own. */
  readonly metricName?: string;
}

/** Every figure of `reports`, added up, and what is said of `certificates`, in the Prometheus text format. */
export async function renderMetrics(
  reports: readonly Report[],
  certificates: readonly CertificateStatus[],
): Promise<string> {
  return await createRegistry(reports, certificates).metrics();
}

/** The media type of that text. */
export const metricsContentType: PrometheusContentType = 'text/plain; version=0.0.4; charset=utf-8';

/** A registry that holds the figures of `reports`, added up, and what is said of `certificates`. */
export function createRegistry(
  reports: readonly Report[],
  certificates: readonly CertificateStatus[],
): Registry {
  const { Registry } = loadPrometheusClient();
  const ofProcesses = reports.flatMap(({ processMetrics }) =>
    processMetrics === undefined ? [] : [processMetrics],
  );
  // One process keeps what has no sum, such as its start time.
  const [first] = ofProcesses;
  const registry =
    ofProcesses.length === 1 && first !== undefined
      ? addMetrics(new Registry(), first)
      : Registry.aggregate<PrometheusContentType>(ofProcesses.map((metrics) => [...metrics]));
  const figures = new Figures();
  for (const report of reports) {
    figures.add(new Figures(report.figures));
  }
  addFigures(registry, figures);
  addGauges(registry, reports);
  addCertificates(registry, certificates);
  return registry;
}

function addFigures(registry: Registry, figures: Figures): void {
  const operationNames = figureNames.filter((name) => name !== 'none');
  addMetric(
    registry,
    'requests_total',
    'counter',
    'Requests that have ended, by operation and status; status 0 had no reply: its client left, or we stopped.',
    figureNames.flatMap((operation) =>
      statuses
        .map((status) => ({
          labels: { operation, status: String(status) },
          value: figures.requests(operation, status),
        }))
        // A success is there from the beginning, so that a rate has a zero to grow from.
        .filter(({ value, labels }) => value > 0 || (operation !== 'none' && labels.status === '200')),
    ),
  );
  addMetric(
    registry,
    'request_outcomes_total',
    'counter',
    'Requests that have ended, by operation, outcome and who is at fault.',
    figureNames.flatMap((operation) =>
      callOutcomes
        .map((outcome) => ({
          labels: { operation, outcome, fault: outcomes[outcome].fault },
          value: figures.outcomes(operation, outcome),
        }))
        // What alerts look for is there from the beginning, so that the first one counts as a rise.
        .filter(({ value, labels }) => value > 0 || labels.fault === 'gateway' || labels.outcome === 'ok'),
    ),
  );
  addHistogram(
    registry,
    'request_duration_seconds',
    "From a request's head to its reply being handed to the socket, in seconds.",
    figureNames,
    (name) => figures.durations(name),
  );
  addHistogram(
    registry,
    'backend_call_duration_seconds',
    'From sending a call to the backend to its outcome, in seconds.',
    operationNames,
    (name) => figures.backendDurations(name),
  );
  addMetric(
    registry,
    'backend_outcomes_total',
    'counter',
    'Calls to the backend, by operation, outcome and who is at fault.',
    operationNames.flatMap((operation) =>
      backendOutcomes.map((outcome) => ({
        labels: { operation, outcome, fault: faultOfBackendOutcome(outcome) },
        value: figures.backendOutcomes(operation, outcome),
      })),
    ),
  );
  addMetric(registry, 'bugs_total', 'counter', 'Faults of the gateway itself.', [
    { labels: {}, value: figures.bugs },
  ]);
  addMetric(
    registry,
    'client_connections_shed_total',
    'counter',
    'Connections closed because there were too many: those at rest, and newcomers.',
    [{ labels: {}, value: figures.shedConnections }],
  );
  addMetric(
    registry,
    'client_connections_stalled_total',
    'counter',
    'Connections closed because their clients took nothing more of their replies.',
    [{ labels: {}, value: figures.stalledConnections }],
  );
  addMetric(
    registry,
    'invalid_tokens_total',
    'counter',
    'Calls whose token was not valid, by what was wrong with it.',
    tokenFlawNames
      .map((reason) => ({ labels: { reason }, value: figures.tokenFlaws(reason) }))
      .filter(({ value }) => value > 0),
  );
  addMetric(
    registry,
    'key_fetches_total',
    'counter',
    "Fetches of the issuer's keys, by whether they brought any: `ok` or `failed`.",
    [
      { labels: { outcome: 'ok' }, value: figures.keyFetches(true) },
      { labels: { outcome: 'failed' }, value: figures.keyFetches(false) },
    ],
  );
  addMetric(
    registry,
    'tls_handshakes_failed_total',
    'counter',
    'Connections closed before their clients had set up TLS.',
    [{ labels: {}, value: figures.failedHandshakes }],
  );
  addMetric(registry, 'log_lines_dropped_total', 'counter', 'Lines of the log that could not be written.', [
    { labels: {}, value: figures.droppedLogLines },
  ]);
  addMetric(
    registry,
    'trace_spans_dropped_total',
    'counter',
    'Spans of traced calls that did not reach the collector.',
    [{ labels: {}, value: figures.droppedSpans }],
  );
  addMetric(
    registry,
    'worker_deaths_total',
    'counter',
    'Workers that ended although they were not told to, by cause.',
    deathCauses.map((cause) => ({ labels: { cause }, value: figures.workerDeaths(cause) })),
  );
}

function addGauges(registry: Registry, reports: readonly Report[]): void {
  const gauge = (name: string, help: string, value: number): void => {
    addMetric(registry, name, 'gauge', help, [{ labels: {}, value }]);
  };
  const sum = (valueOf: (report: Report) => number): number =>
    reports.reduce((total, report) => total + valueOf(report), 0);
  gauge('workers', 'Processes that serve clients.', reports.length);
  gauge(
    'requests_in_flight',
    'Calls under way.',
    sum(({ inFlight }) => inFlight),
  );
  gauge(
    'buffered_bytes',
    'Bytes of bodies held now, requests and answers together.',
    sum(({ bufferedBytes }) => bufferedBytes),
  );
  gauge(
    'client_connections',
    'Connections of clients, idle or not.',
    sum(({ clientConnections }) => clientConnections),
  );
  gauge(
    'http2_connections',
    'Connections of clients that speak HTTP/2, idle or not; client_connections has them too.',
    sum(({ http2Connections }) => http2Connections),
  );
  gauge(
    'http2_streams',
    'Open streams of HTTP/2, each of which has one request.',
    sum(({ http2Streams }) => http2Streams),
  );
  gauge(
    'backend_connections',
    'Connections to the backend, open or being opened.',
    sum(({ backendConnections }) => backendConnections),
  );
  const backend = latestBackendStatus(reports.map((each) => each.backend));
  gauge(
    'backend_reachable',
    'Whether the backend answers, as the last call or a bare connection showed: 1 or 0.',
    backend?.isReachable === true ? 1 : 0,
  );
  const keys = reports.flatMap((report) => report.keys ?? []);
  addMetric(
    registry,
    'keys',
    'gauge',
    'Keys of the issuer that can be used, in the process that has fewest; absent without AUTH_ISSUER.',
    keys.length === 0 ? [] : [{ labels: {}, value: Math.min(...keys.map((each) => each.keys)) }],
  );
  const fetchedAt = keys.flatMap((each) => each.fetchedAt ?? []);
  addMetric(
    registry,
    'keys_fetched_timestamp_seconds',
    'gauge',
    "When the issuer's keys were last fetched, in the process where that is longest ago; absent before.",
    fetchedAt.length === 0 ? [] : [{ labels: {}, value: Math.min(...fetchedAt) / 1_000 }],
  );
  const ofRedis = reports.flatMap(({ redisAnswers }) => redisAnswers ?? []);
  addMetric(
    registry,
    'rate_limit_redis_reachable',
    'gauge',
    'Whether Redis counts requests for every process: 1 or 0; absent without RATE_LIMIT_REDIS_URL.',
    ofRedis.length === 0 ? [] : [{ labels: {}, value: ofRedis.every(Boolean) ? 1 : 0 }],
  );
  addMetric(registry, 'build_info', 'gauge', 'Always 1; the labels say what is running.', [
    { labels: { version, node_version: process.versions.node }, value: 1 },
  ]);
}

// Without TLS there are none: no sample, and no alert.
function addCertificates(registry: Registry, certificates: readonly CertificateStatus[]): void {
  const now = Date.now();
  addMetric(
    registry,
    'certificate_days_left',
    'gauge',
    'Days until the certificate in force expires, by what it is for; below 0 when it has.',
    certificates.flatMap(({ use, own }) =>
      own === undefined ? [] : [{ labels: { use }, value: daysLeft(own.expiresAt, now) }],
    ),
  );
  addMetric(
    registry,
    'certificate_files_refused',
    'gauge',
    'Whether the certificate files that are there now were refused: 1 or 0.',
    certificates.map(({ use, problems }) => ({ labels: { use }, value: problems.length > 0 ? 1 : 0 })),
  );
  addMetric(
    registry,
    'certificate_reloads_total',
    'counter',
    'New certificate files that were seen, by what they are for and whether they were taken or refused.',
    certificates.flatMap(({ use, taken, refused }) => [
      { labels: { use, result: 'taken' }, value: taken },
      { labels: { use, result: 'refused' }, value: refused },
    ]),
  );
}

function addHistogram<Name extends FigureName>(
  registry: Registry,
  name: string,
  help: string,
  operationNames: readonly Name[],
  durationsOf: (operation: Name) => Durations,
): void {
  const metricName = prefix + name;
  addMetric(
    registry,
    name,
    'histogram',
    help,
    operationNames.flatMap((operation) => {
      const durations = durationsOf(operation);
      const counts = publishedCounts(durations);
      const count = countOf(durations);
      return [
        ...publishedBounds.map((le, index) => ({
          metricName: `${metricName}_bucket`,
          labels: { le, operation },
          value: counts[index] ?? 0,
        })),
        { metricName: `${metricName}_bucket`, labels: { le: '+Inf', operation }, value: count },
        { metricName: `${metricName}_sum`, labels: { operation }, value: durations.sumMs / 1_000 },
        { metricName: `${metricName}_count`, labels: { operation }, value: count },
      ];
    }),
  );
}

function addMetric(
  registry: Registry,
  name: string,
  type: 'counter' | 'gauge' | 'histogram',
  help: string,
  values: readonly Sample[],
): void {
  const metric = { name: prefix + name, help, type, aggregator: 'sum', values };
  register(registry, metric);
}

function addMetrics(registry: Registry, metrics: readonly ProcessMetric[]): Registry {
  for (const metric of metrics) {
    register(registry, metric);
  }
  return registry;
}

// A registry takes whatever has a name and says what it holds when it is asked: values that are counted
// elsewhere need no counters of the Prometheus client's own.
function register(registry: Registry, metric: ProcessMetric): void {
  registry.registerMetric({ ...metric, get: () => Promise.resolve(metric) } as unknown as Gauge);
}
