// Reports the state of a process that serves clients, as plain data. /readyz, /metrics and the dashboard use the
// reports of all workers.

import type { Gateway } from '../core/call/gateway.ts';
import type { BackendMonitor, BackendStatus } from './backend-status.ts';
import { RecentFailures, type Failure } from './failures.ts';
import { Figures } from './figures.ts';
import { readProcessMetrics, type ProcessMetric } from './process-metrics.ts';

export interface Report {
  readonly pid: number;
  /** From `Figures.toJSON`. */
  readonly figures: readonly number[];
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly clientConnections: number;
  readonly http2Connections: number;
  readonly http2Streams: number;
  readonly backendConnections: number;
  readonly backend: BackendStatus;
  /** State of the issuer's keys; undefined if the gateway verifies no tokens. */
  readonly keys: KeyStatus | undefined;
  /** True if the Redis of the rate limit answers; undefined without Redis. */
  readonly redisAnswers: boolean | undefined;
  readonly failures: readonly Failure[];
  readonly residentBytes: number;
  readonly heapUsedBytes: number;
  /** The 99th percentile over the last few seconds. */
  readonly eventLoopDelayMs: number;
  /** The Prometheus client's process metrics; undefined unless requested. */
  readonly processMetrics: readonly ProcessMetric[] | undefined;
}

export interface ReportRequest {
  readonly withProcessMetrics: boolean;
  /** Connects to the backend if no recent call has shown the backend's state. */
  readonly probesBackend: boolean;
}

type Counts = Pick<Report, 'figures' | 'failures'>;

export interface Reports {
  /** True if a process accepts and serves connections. */
  readonly isServing: boolean;
  /** The last report of each process that serves clients. JoinedBackendStatus gives all of them one `backend`. */
  readonly living: readonly Report[];
  readonly ended: Counts;
}

export interface Reporter {
  readonly reports: (request: ReportRequest) => Promise<Reports>;
}

/** The data of one process, which the gateway's observer writes. */
export interface Records {
  readonly figures: Figures;
  readonly failures: RecentFailures;
  readonly backend: BackendMonitor;
  readonly keys: KeyRecords;
}

/** A generation: the objects that serve clients with one set of settings. During a reload a process has two generations. */
export interface ReportedGeneration extends Pick<Records, 'backend' | 'keys'> {
  readonly gateway: Gateway;
  /** Open client connections. An HTTP/2 connection has `streams`, its number of open streams. */
  readonly connections: Iterable<{ readonly streams?: number }> & { readonly size: number };
  readonly redisAnswers: () => boolean | undefined;
}

/** Creates the reporter of this process. The first of its `generations` accepts new connections. */
export function createReporter(
  { figures, failures }: Pick<Records, 'figures' | 'failures'>,
  generations: () => readonly ReportedGeneration[],
): Reporter {
  const readEventLoopDelay = watchEventLoop();
  let memory = { residentBytes: 0, heapUsedBytes: 0 };
  return {
    reports: async ({ withProcessMetrics, probesBackend }) => {
      try {
        const { rss, heapUsed } = process.memoryUsage();
        memory = { residentBytes: rss, heapUsedBytes: heapUsed };
      } catch {
        // Reading the memory opens a file, which fails if no file descriptor is free. The last values stay.
      }
      const all = generations();
      const [newest] = all;
      const ended = { figures: [], failures: [] };
      if (newest === undefined) return { isServing: false, living: [], ended };
      const streams = all.flatMap(({ connections }) => [...connections].flatMap((each) => each.streams ?? []));
      const sum = (valueOf: (generation: ReportedGeneration) => number): number =>
        all.reduce((total, generation) => total + valueOf(generation), 0);
      const [backend, processMetrics] = await Promise.all([
        probesBackend ? newest.backend.check() : newest.backend.status,
        withProcessMetrics ? readProcessMetrics() : undefined,
      ]);
      const report: Report = {
        pid: process.pid,
        figures: figures.toJSON(),
        inFlight: sum(({ gateway }) => gateway.inFlight),
        bufferedBytes: newest.gateway.budget.bytes,
        clientConnections: sum(({ connections }) => connections.size),
        http2Connections: streams.length,
        http2Streams: streams.reduce((total, each) => total + each, 0),
        backendConnections: sum(({ gateway }) => gateway.backend.connectionCount),
        backend,
        keys: newest.keys.status,
        redisAnswers: newest.redisAnswers(),
        failures: failures.list(),
        ...memory,
        eventLoopDelayMs: readEventLoopDelay(),
        processMetrics,
      };
      return { isServing: true, living: [report], ended };
    },
  };
}

const eventLoopWindowMs = 5_000;
const eventLoopResolutionMs = 20;

// Returns a function that returns the current delay.
function watchEventLoop(): () => number {
  const { monitorEventLoopDelay } = process.getBuiltinModule('node:perf_hooks');
  const histogram = monitorEventLoopDelay({ resolution: eventLoopResolutionMs });
  histogram.enable();
  // 0 without samples.
  const read = () => Math.max(0, histogram.percentile(99) / 1e6 - eventLoopResolutionMs);
  // The value of the last complete window. It is kept because a new window has no samples yet.
  let lastMs = 0;
  setInterval(() => {
    lastMs = read();
    histogram.reset();
  }, eventLoopWindowMs).unref();
  return () => Math.max(lastMs, read());
}

interface KeyStatus {
  readonly keys: number;
  /** Time of the last successful fetch, in milliseconds since 1970; undefined before the first. */
  readonly fetchedAt: number | undefined;
}

export class KeyRecords {
  /** Undefined until `note` is called for the first time. */
  status: KeyStatus | undefined;

  note(news: Partial<KeyStatus>): void {
    this.status = { keys: 0, fetchedAt: undefined, ...this.status, ...news };
  }
}
