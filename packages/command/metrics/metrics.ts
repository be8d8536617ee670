// Makes the Prometheus metrics from the reports of all serving processes. Metric names are a public interface, described in
// docs/operating.md. Only this file and process-metrics.ts use the Prometheus client, which writes the text and adds up the
// metrics of the processes.

import type { Gauge, PrometheusContentType, Registry } from '@prometheus-io/client';

import { version } from '../../core/version.ts';
import { operations } from '../../core/operations.ts';
import {
  backendOutcomes,
  callOutcomes,
  faultOfBackendOutcome,
  outcomes,
  type CallOutcome,
} from '../../core/outcomes.ts';
import {
  addDurations,
  countOf,
  deathCauses,
  figureNames,
  publishedBounds,
  publishedCounts,
  statuses,
  type Durations,
  type Figures,
} from '../../figures/figures.ts';
import { tokenFlawNames } from '../../core/guards/ports/ports.ts';
import { daysLeft, type CertificateStatus } from '../../figures/facts.ts';
import { addFigures } from '../../figures/history.ts';
import { refusalOutcomes, troubles as words, type CurrentTroubles } from '../../figures/troubles.ts';
import { loadPrometheusClient, type ProcessMetric } from '../../figures/process-metrics.ts';
import type { Report, Reports } from '../../figures/report.ts';

const prefix = 'work_item_gateway_';

interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  readonly metricName?: string;
}

export const metricsContentType: PrometheusContentType = 'text/plain; version=0.0.4; charset=utf-8';

export function createRegistry(
  reports: Reports,
  certificates: readonly CertificateStatus[],
  troubles?: CurrentTroubles,
): Registry {
  const { Registry } = loadPrometheusClient();
  const ofProcesses = reports.living.flatMap(({ processMetrics }) => (processMetrics ? [processMetrics] : []));
  // Metrics that cannot be added up, such as the start time, are shown only if there is a single process.
  const isSingle = ofProcesses.length < 2;
  const kept = isSingle ? ofProcesses.flat() : [];
  const registry = isSingle
    ? new Registry()
    : Registry.aggregate<PrometheusContentType>(ofProcesses.map((metrics) => [...metrics]));
  const own = [
    ...countersOf(addFigures(reports)),
    ...gaugesOf(reports.living),
    ...metricsOf(certificates),
    metricOfTroubles(troubles),
  ];
  // A registry accepts any object with a name and `get`, so the gateway's own figures need no counters of the client
  // library.
  for (const metric of [...kept, ...own]) {
    registry.registerMetric({ ...metric, get: () => Promise.resolve(metric) } as unknown as Gauge);
  }
  return registry;
}

const isAlerting = (outcome: CallOutcome): boolean =>
  outcome === 'ok' || refusalOutcomes.some((refusal) => refusal === outcome);

const successOf = new Map<string, number>(operations.map(({ name, successStatus }) => [name, successStatus]));

function countersOf(figures: Figures): ProcessMetric[] {
  const operationNames = figureNames.filter((name) => name !== 'none');
  return [
    counter(
      'requests_total',
      'Finished requests, by operation and status. Status 0: no reply, because the client left or the gateway stopped.',
      figureNames.flatMap((operation) =>
        statuses
          .map((status) => ({ labels: { operation, status }, value: figures.requests(operation, status) }))
          // The series of successes exist from the start, so that the first success counts as an increase.
          .filter(({ value, labels }) => value > 0 || labels.status === successOf.get(operation)),
      ),
    ),
    counter(
      'request_outcomes_total',
      'Finished requests, by operation, outcome and party at fault.',
      figureNames.flatMap((operation) =>
        callOutcomes
          .map((outcome) => ({
            labels: { operation, outcome, fault: outcomes[outcome].fault },
            value: figures.outcomes(operation, outcome),
          }))
          // Series that alerts use exist from the start, so that the first event counts as an increase.
          .filter(({ value, labels }) => value > 0 || labels.fault === 'gateway' || isAlerting(labels.outcome)),
      ),
    ),
    histogram(
      'request_duration_seconds',
      'Time from the request head until the reply is written to the socket, in seconds.',
      figureNames.map((name) => [name, addDurations([figures.durations(name), figures.durationsWithoutCall(name)])]),
    ),
    histogram(
      'backend_call_duration_seconds',
      'Time from sending a backend call to its outcome, in seconds.',
      operationNames.map((name) => [name, figures.backendDurations(name)]),
    ),
    counter(
      'backend_outcomes_total',
      'Backend calls, by operation, outcome and party at fault.',
      operationNames.flatMap((operation) =>
        backendOutcomes.map((outcome) => ({
          labels: { operation, outcome, fault: faultOfBackendOutcome(outcome) },
          value: figures.backendOutcomes(operation, outcome),
        })),
      ),
    ),
    counter('bugs_total', 'Internal errors of the gateway.', figures.counted('bug')),
    counter(
      'client_connections_shed_total',
      'Client connections, idle or new, that were closed because of the connection limit.',
      figures.counted('connection shed'),
    ),
    counter(
      'client_connections_stalled_total',
      'Connections closed because the client stopped reading its reply.',
      figures.counted('connection stalled'),
    ),
    counter(
      'invalid_tokens_total',
      'Calls with an invalid token, by reason.',
      samplesOf('reason', tokenFlawNames, (reason) => figures.counted(`token ${reason}`)).filter(
        ({ value }) => value > 0,
      ),
    ),
    counter(
      'key_fetches_total',
      "Fetches of the issuer's keys, by outcome: `ok` or `failed`.",
      samplesOf('outcome', ['ok', 'failed'], (outcome) => figures.counted(`key fetch ${outcome}`)),
    ),
    counter(
      'tls_handshakes_failed_total',
      'Client connections that ended before the TLS handshake was complete.',
      figures.counted('handshake failed'),
    ),
    counter('log_lines_dropped_total', 'Log lines that could not be written.', figures.counted('log line dropped')),
    counter(
      'trace_spans_dropped_total',
      'Spans of traced calls that did not reach the collector.',
      figures.counted('span dropped'),
    ),
    counter(
      'worker_deaths_total',
      'Workers that ended unexpectedly, by cause.',
      samplesOf('cause', deathCauses, (cause) => figures.counted(`death ${cause}`)),
    ),
  ];
}

function gaugesOf(reports: readonly Report[]): ProcessMetric[] {
  const sum = (
    name: 'inFlight' | 'bufferedBytes' | `${'client' | 'http2' | 'backend'}Connections` | 'http2Streams',
  ): number => reports.reduce((total, report) => total + report[name], 0);
  const keys = reports.flatMap((report) => report.keys ?? []);
  const fetchedAt = keys.flatMap((each) => each.fetchedAt ?? []);
  const ofRedis = reports.flatMap(({ redisAnswers }) => redisAnswers ?? []);
  return [
    gauge('workers', 'Processes that serve clients.', reports.length),
    gauge('requests_in_flight', 'Requests in flight.', sum('inFlight')),
    gauge('buffered_bytes', 'Bytes of request and response bodies held.', sum('bufferedBytes')),
    gauge('client_connections', 'Client connections, including idle ones.', sum('clientConnections')),
    gauge(
      'http2_connections',
      'HTTP/2 client connections, including idle ones; also counted in client_connections.',
      sum('http2Connections'),
    ),
    gauge('http2_streams', 'Open HTTP/2 streams, one request each.', sum('http2Streams')),
    gauge('backend_connections', 'Connections to the backend, open or being opened.', sum('backendConnections')),
    gauge(
      'backend_reachable',
      'Whether the backend was reachable at the last call or connection test: 1 or 0.',
      reports[0]?.backend.isReachable === true ? 1 : 0,
    ),
    gauge(
      'keys',
      'Usable keys of the issuer, in the process with the fewest keys; absent without AUTH_ISSUER.',
      keys.length === 0 ? [] : Math.min(...keys.map((each) => each.keys)),
    ),
    gauge(
      'keys_fetched_timestamp_seconds',
      "Time of the last successful fetch of the issuer's keys, the earliest if processes differ; absent before the first fetch.",
      fetchedAt.length === 0 ? [] : Math.min(...fetchedAt) / 1_000,
    ),
    gauge(
      'rate_limit_redis_reachable',
      'Whether Redis counts the requests of all processes: 1 or 0; absent without RATE_LIMIT_REDIS_URL.',
      ofRedis.length === 0 ? [] : Number(ofRedis.every(Boolean)),
    ),
    gauge('build_info', 'Always 1; the labels are the versions.', [
      { labels: { version, node_version: process.versions.node }, value: 1 },
    ]),
  ];
}

// Without certificates these metrics have no samples, so no alert fires.
function metricsOf(certificates: readonly CertificateStatus[]): ProcessMetric[] {
  const now = Date.now();
  return [
    gauge(
      'certificate_days_left',
      'Days until the certificate in force expires, by use; negative once expired.',
      certificates.flatMap(({ use, own }) =>
        own === undefined ? [] : [{ labels: { use }, value: daysLeft(own.expiresAt, now) }],
      ),
    ),
    gauge(
      'certificate_files_refused',
      'Whether the current certificate files were refused, by use: 1 or 0.',
      certificates.map(({ use, problems }) => ({ labels: { use }, value: problems.length > 0 ? 1 : 0 })),
    ),
    counter(
      'certificate_reloads_total',
      'New certificate files, by use and result: `taken` or `refused`.',
      certificates.flatMap(({ use, taken, refused }) => [
        { labels: { use, result: 'taken' }, value: taken },
        { labels: { use, result: 'refused' }, value: refused },
      ]),
    ),
  ];
}

// The labels have the words for operators, which the alerts quote.
function metricOfTroubles(troubles: CurrentTroubles | undefined): ProcessMetric {
  const { unreachable, failing, hasNoSuccess = false, clients } = troubles ?? {};
  const found = {
    backend: unreachable ?? failing?.code ?? (hasNoSuccess ? ('no-call-succeeds' as const) : undefined),
    clients: clients?.code,
  };
  return gauge(
    'trouble',
    'Always 1; the labels are a present trouble of the backend or of most clients, and the next step.',
    Object.entries(found).flatMap(([of, code]) =>
      code === undefined ? [] : [{ labels: { of, trouble: code, ...words[code] }, value: 1 }],
    ),
  );
}

/** Returns a sample for each value of a label. */
function samplesOf<const Value extends string>(
  label: string,
  values: readonly Value[],
  count: (value: Value) => number,
) {
  return values.map((value): Sample => ({ labels: { [label]: value }, value: count(value) }));
}

const counter = metricOf('counter');
const gauge = metricOf('gauge');

/** Returns a function that makes metrics. A number is one sample without labels. */
function metricOf(type: 'counter' | 'gauge' | 'histogram') {
  return (name: string, help: string, values: number | readonly Sample[]): ProcessMetric => {
    const samples: readonly Sample[] = typeof values === 'number' ? [{ labels: {}, value: values }] : values;
    const metric = { name: prefix + name, help, type, values: samples };
    return metric;
  };
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
  return metricOf('histogram')(name, help, samples);
}
