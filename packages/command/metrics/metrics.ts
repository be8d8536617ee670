// The gateway's figures for Prometheus, from the reports of every process that serves. Names are a published
// surface: docs/operating.md has the meaning and unit of each. With process-metrics.ts the only place that
// knows the Prometheus client, which writes the text and adds the processes' own figures up.

import type { Gauge, PrometheusContentType, Registry } from '@prometheus-io/client';

import { version } from '../../core/version.ts';
import { backendOutcomes, callOutcomes, faultOfBackendOutcome, outcomes } from '../../core/outcomes.ts';
import {
  countOf,
  figureNames,
  publishedBounds,
  publishedCounts,
  statuses,
  type Durations,
  type Figures,
} from '../../figures/figures.ts';
import { tokenFlawNames } from '../../core/guards/options/token-flaws.ts';
import { latestBackendStatus } from '../../figures/backend-status.ts';
import { daysLeft, type CertificateStatus } from '../../figures/certificate-status.ts';
import { addFigures } from '../../figures/history.ts';
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

/** The media type of what the registry writes. */
export const metricsContentType: PrometheusContentType = 'text/plain; version=0.0.4; charset=utf-8';

/** A registry that holds the figures of `reports`, added up, and what is said of `certificates`. */
export function createRegistry(
  reports: readonly Report[],
  certificates: readonly CertificateStatus[],
): Registry {
  const { Registry } = loadPrometheusClient();
  const ofProcesses = reports.flatMap(({ processMetrics }) => (processMetrics ? [processMetrics] : []));
  // One process keeps what has no sum, such as its start time.
  const [first, ...others] = ofProcesses;
  const kept = others.length === 0 ? (first ?? []) : [];
  const registry =
    others.length === 0
      ? new Registry()
      : Registry.aggregate<PrometheusContentType>(ofProcesses.map((metrics) => [...metrics]));
  const own = [...countersOf(addFigures(reports)), ...gaugesOf(reports), ...metricsOf(certificates)];
  // A registry takes whatever has a name and says what it holds when it is asked: values that are counted elsewhere
  // need no counters of the Prometheus client's own.
  for (const metric of [...kept, ...own]) {
    registry.registerMetric({ ...metric, get: () => Promise.resolve(metric) } as unknown as Gauge);
  }
  return registry;
}

function countersOf(figures: Figures): ProcessMetric[] {
  const operationNames = figureNames.filter((name) => name !== 'none');
  return [
    counter(
      'requests_total',
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
    ),
    counter(
      'request_outcomes_total',
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
    ),
    histogram(
      'request_duration_seconds',
      "From a request's head to its reply being handed to the socket, in seconds.",
      figureNames.map((name) => [name, figures.durations(name)]),
    ),
    histogram(
      'backend_call_duration_seconds',
      'From sending a call to the backend to its outcome, in seconds.',
      operationNames.map((name) => [name, figures.backendDurations(name)]),
    ),
    counter(
      'backend_outcomes_total',
      'Calls to the backend, by operation, outcome and who is at fault.',
      operationNames.flatMap((operation) =>
        backendOutcomes.map((outcome) => ({
          labels: { operation, outcome, fault: faultOfBackendOutcome(outcome) },
          value: figures.backendOutcomes(operation, outcome),
        })),
      ),
    ),
    counter('bugs_total', 'Faults of the gateway itself.', figures.bugs),
    counter(
      'client_connections_shed_total',
      'Connections closed because there were too many: those at rest, and newcomers.',
      figures.shedConnections,
    ),
    counter(
      'client_connections_stalled_total',
      'Connections closed because their clients took nothing more of their replies.',
      figures.stalledConnections,
    ),
    counter(
      'invalid_tokens_total',
      'Calls whose token was not valid, by what was wrong with it.',
      tokenFlawNames
        .map((reason) => ({ labels: { reason }, value: figures.tokenFlaws(reason) }))
        .filter(({ value }) => value > 0),
    ),
    counter(
      'key_fetches_total',
      "Fetches of the issuer's keys, by whether they brought any: `ok` or `failed`.",
      ['ok', 'failed'].map((outcome) => ({
        labels: { outcome },
        value: figures.keyFetches(outcome === 'ok'),
      })),
    ),
    counter(
      'tls_handshakes_failed_total',
      'Connections closed before their clients had set up TLS.',
      figures.failedHandshakes,
    ),
    counter(
      'log_lines_dropped_total',
      'Lines of the log that could not be written.',
      figures.droppedLogLines,
    ),
    counter(
      'trace_spans_dropped_total',
      'Spans of traced calls that did not reach the collector.',
      figures.droppedSpans,
    ),
    counter(
      'worker_deaths_total',
      'Workers that ended although they were not told to, by cause.',
      deathCauses.map((cause) => ({ labels: { cause }, value: figures.workerDeaths(cause) })),
    ),
  ];
}

function gaugesOf(reports: readonly Report[]): ProcessMetric[] {
  const sum = (
    name: 'inFlight' | 'bufferedBytes' | `${'client' | 'http2' | 'backend'}Connections` | 'http2Streams',
  ): number => reports.reduce((total, report) => total + report[name], 0);
  const backend = latestBackendStatus(reports.map((each) => each.backend));
  const keys = reports.flatMap((report) => report.keys ?? []);
  const fetchedAt = keys.flatMap((each) => each.fetchedAt ?? []);
  const ofRedis = reports.flatMap(({ redisAnswers }) => redisAnswers ?? []);
  return [
    gauge('workers', 'Processes that serve clients.', reports.length),
    gauge('requests_in_flight', 'Calls under way.', sum('inFlight')),
    gauge('buffered_bytes', 'Bytes of bodies held now, requests and answers together.', sum('bufferedBytes')),
    gauge('client_connections', 'Connections of clients, idle or not.', sum('clientConnections')),
    gauge(
      'http2_connections',
      'Connections of clients that speak HTTP/2, idle or not; client_connections has them too.',
      sum('http2Connections'),
    ),
    gauge('http2_streams', 'Open streams of HTTP/2, each of which has one request.', sum('http2Streams')),
    gauge(
      'backend_connections',
      'Connections to the backend, open or being opened.',
      sum('backendConnections'),
    ),
    gauge(
      'backend_reachable',
      'Whether the backend answers, as the last call or a bare connection showed: 1 or 0.',
      backend?.isReachable === true ? 1 : 0,
    ),
    gauge(
      'keys',
      'Keys of the issuer that can be used, in the process that has fewest; absent without AUTH_ISSUER.',
      keys.length === 0 ? [] : Math.min(...keys.map((each) => each.keys)),
    ),
    gauge(
      'keys_fetched_timestamp_seconds',
      "When the issuer's keys were last fetched, in the process where that is longest ago; absent before.",
      fetchedAt.length === 0 ? [] : Math.min(...fetchedAt) / 1_000,
    ),
    gauge(
      'rate_limit_redis_reachable',
      'Whether Redis counts requests for every process: 1 or 0; absent without RATE_LIMIT_REDIS_URL.',
      ofRedis.length === 0 ? [] : Number(ofRedis.every(Boolean)),
    ),
    gauge('build_info', 'Always 1; the labels say what is running.', [
      { labels: { version, node_version: process.versions.node }, value: 1 },
    ]),
  ];
}

// Without TLS there are none: no sample, and no alert.
function metricsOf(certificates: readonly CertificateStatus[]): ProcessMetric[] {
  const now = Date.now();
  return [
    gauge(
      'certificate_days_left',
      'Days until the certificate in force expires, by what it is for; below 0 when it has.',
      certificates.flatMap(({ use, own }) =>
        own === undefined ? [] : [{ labels: { use }, value: daysLeft(own.expiresAt, now) }],
      ),
    ),
    gauge(
      'certificate_files_refused',
      'Whether the certificate files that are there now were refused: 1 or 0.',
      certificates.map(({ use, problems }) => ({ labels: { use }, value: problems.length > 0 ? 1 : 0 })),
    ),
    counter(
      'certificate_reloads_total',
      'New certificate files that were seen, by what they are for and whether they were taken or refused.',
      certificates.flatMap(({ use, taken, refused }) => [
        { labels: { use, result: 'taken' }, value: taken },
        { labels: { use, result: 'refused' }, value: refused },
      ]),
    ),
  ];
}

/** `values` may be one number without labels. */
function counter(name: string, help: string, values: number | readonly Sample[]): ProcessMetric {
  return createMetric('counter', name, help, values);
}

function gauge(name: string, help: string, values: number | readonly Sample[]): ProcessMetric {
  return createMetric('gauge', name, help, values);
}

function histogram(
  name: string,
  help: string,
  durationsOf: readonly (readonly [operation: string, durations: Durations])[],
): ProcessMetric {
  const samples = durationsOf.flatMap(([operation, durations]) => {
    const counts = publishedCounts(durations);
    const count = countOf(durations);
    const sample = (part: string, value: number, labels: Sample['labels'] = {}): Sample => ({
      metricName: `${prefix}${name}_${part}`,
      labels: { ...labels, operation },
      value,
    });
    return [
      ...publishedBounds.map((le, index) => sample('bucket', counts[index] ?? 0, { le })),
      sample('bucket', count, { le: '+Inf' }),
      sample('sum', durations.sumMs / 1_000),
      sample('count', count),
    ];
  });
  return createMetric('histogram', name, help, samples);
}

function createMetric(
  type: 'counter' | 'gauge' | 'histogram',
  name: string,
  help: string,
  values: number | readonly Sample[],
): ProcessMetric {
  const samples = typeof values === 'number' ? [{ labels: {}, value: values }] : values;
  const metric = { name: prefix + name, help, type, values: samples };
  return metric;
}
