// What a process that serves clients says of itself, as plain data: /readyz, /metrics and the dashboard are
// made from one report, or from those of several workers together.

import type { Gateway } from '../core/call/gateway.ts';
import type { BackendMonitor, BackendStatus } from './backend-status.ts';
import { RecentFailures, type Failure } from './failures.ts';
import { Figures } from './figures.ts';
import type { KeyRecords, KeyStatus } from './key-status.ts';
import { readProcessMetrics, type ProcessMetric } from './process-metrics.ts';

export interface Report {
  readonly pid: number;
  /** Of `Figures`. */
  readonly figures: readonly number[];
  readonly inFlight: number;
  readonly bufferedBytes: number;
  readonly clientConnections: number;
  /** Of those connections. */
  readonly http2Connections: number;
  readonly http2Streams: number;
  readonly backendConnections: number;
  readonly backend: BackendStatus;
  /** Of the issuer's keys; undefined where there are no tokens. */
  readonly keys: KeyStatus | undefined;
  /** Whether the Redis of the rate limit counts; undefined where none is asked. */
  readonly redisAnswers: boolean | undefined;
  /** The latest first. */
  readonly failures: readonly Failure[];
  readonly residentBytes: number;
  readonly heapUsedBytes: number;
  /** How late the event loop came to its work, the 99th percentile of the last few seconds. */
  readonly eventLoopDelayMs: number;
  /** the Prometheus client's figures of the process, where they were asked for. */
  readonly processMetrics: readonly ProcessMetric[] | undefined;
}

type Memory = Pick<Report, 'residentBytes' | 'heapUsedBytes'>;

export interface ReportRequest {
  /** the Prometheus client's figures of the process too: only /metrics needs them. */
  readonly withProcessMetrics: boolean;
  /** Connects to the backend where its last call is too old to tell: only while somebody looks. */
  readonly probesBackend: boolean;
}

/** Reports of every process that serves clients. */
export interface Reporter {
  readonly reports: (request: ReportRequest) => Promise<readonly Report[]>;
}

/** What every report of one process draws on; the gateway's observer writes into it. */
export interface Records {
  readonly figures: Figures;
  readonly failures: RecentFailures;
  readonly backend: BackendMonitor;
  readonly keys: KeyRecords;
}

/** Open connections of clients; what has `streams`, so many of them open, is one of HTTP/2. */
interface ClientConnections extends Iterable<{ readonly streams?: number }> {
  readonly size: number;
}

/** What serves clients by one set of settings; during a reload there are two. */
export interface ReportedServing {
  readonly gateway: Gateway;
  readonly connections: ClientConnections;
  readonly backend: BackendMonitor;
  readonly keys: KeyRecords;
  readonly redisAnswers: () => boolean | undefined;
}

/** Reports of this process: one or more `servings`, of which the first takes new connections. */
export function createReporter(
  { figures, failures }: Pick<Records, 'figures' | 'failures'>,
  servings: () => readonly ReportedServing[],
): Reporter {
  const eventLoop = watchEventLoop();
  let memory: Memory = { residentBytes: 0, heapUsedBytes: 0 };
  return {
    reports: async ({ withProcessMetrics, probesBackend }) => {
      memory = readMemory(memory);
      const all = servings();
      const [newest] = all;
      if (newest === undefined) {
        return [];
      }
      // Of each connection of HTTP/2, how many it has open.
      const streams = all.flatMap(({ connections }) =>
        [...connections].flatMap((each) => each.streams ?? []),
      );
      const sum = (valueOf: (serving: ReportedServing) => number): number =>
        all.reduce((total, serving) => total + valueOf(serving), 0);
      const [backend, processMetrics] = await Promise.all([
        probesBackend ? newest.backend.check() : newest.backend.last(),
        withProcessMetrics ? readProcessMetrics() : undefined,
      ]);
      return [
        {
          pid: process.pid,
          figures: figures.toJSON(),
          inFlight: sum(({ gateway }) => gateway.inFlight),
          bufferedBytes: sum(({ gateway }) => gateway.budget.bytes),
          clientConnections: sum(({ connections }) => connections.size),
          http2Connections: streams.length,
          http2Streams: streams.reduce((total, each) => total + each, 0),
          backendConnections: sum(({ gateway }) => gateway.backend.connectionCount),
          backend,
          keys: newest.keys.status,
          redisAnswers: newest.redisAnswers(),
          failures: failures.list(),
          ...memory,
          eventLoopDelayMs: eventLoop.delayMs(),
          processMetrics,
        },
      ];
    },
  };
}

const eventLoopWindowMs = 5_000;
const eventLoopResolutionMs = 20;

function watchEventLoop(): { delayMs(): number } {
  const { monitorEventLoopDelay } = process.getBuiltinModule('node:perf_hooks');
  const histogram = monitorEventLoopDelay({ resolution: eventLoopResolutionMs });
  histogram.enable();
  // A window that has ended, since one that has just begun knows nothing.
  let lastMs = 0;
  setInterval(() => {
    lastMs = msOf(histogram.percentile(99));
    histogram.reset();
  }, eventLoopWindowMs).unref();
  return { delayMs: () => Math.max(lastMs, histogram.count === 0 ? 0 : msOf(histogram.percentile(99))) };
}

function msOf(nanoseconds: number): number {
  return Math.max(0, nanoseconds / 1e6 - eventLoopResolutionMs);
}

// The system has it in a file, and descriptors may have run out: then what was read last stands.
function readMemory(last: Memory): Memory {
  try {
    const { rss, heapUsed } = process.memoryUsage();
    return { residentBytes: rss, heapUsedBytes: heapUsed };
  } catch {
    return last;
  }
}
