// The gateway's figures for Prometheus. The only place that knows prom-client. Every label is bound once,
// at start, so that a request adds to a few numbers and looks nothing up. Names are a published surface:
// docs/operating.md has the meaning and unit of each.

import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';

import type { BackendOutcome, CallRecord } from '../gateway/call.ts';
import { operations, type OperationName } from '../gateway/operations.ts';

export interface MetricsSources {
  readonly inFlight: () => number;
  readonly bufferedBytes: () => number;
  readonly backendConnections: () => number;
  /** 1 when the backend answers, 0 when it does not. */
  readonly backendReachable: () => Promise<number>;
  readonly version: string;
}

const prefix = 'work_item_gateway_';
const durationBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const noOperation = 'none';
const backendOutcomes: readonly BackendOutcome[] = [
  'ok',
  'not-found',
  'refused',
  'unreachable',
  'timed-out',
  'not-json',
  'too-large',
  'cancelled',
];

export class Metrics {
  readonly registry = new Registry();
  readonly #requests: Counter<'operation' | 'status'>;
  readonly #boundRequests = new Map<string, Counter.Internal>();
  readonly #durations = new Map<string, Histogram.Internal<'operation'>>();
  readonly #backendDurations = new Map<string, Histogram.Internal<'operation'>>();
  readonly #backendOutcomes = new Map<string, Counter.Internal>();
  readonly #bugs: Counter;

  constructor(sources: MetricsSources) {
    const registers = [this.registry];
    this.#requests = new Counter({
      name: `${prefix}requests_total`,
      help: 'Requests answered, by operation and status; status 0 is a client that went away first.',
      labelNames: ['operation', 'status'],
      registers,
    });
    const durations = new Histogram({
      name: `${prefix}request_duration_seconds`,
      help: "From a request's head to its reply being handed to the socket, in seconds.",
      labelNames: ['operation'],
      buckets: durationBuckets,
      registers,
    });
    const backendDurations = new Histogram({
      name: `${prefix}backend_call_duration_seconds`,
      help: 'From sending a call to the backend to its outcome, in seconds.',
      labelNames: ['operation'],
      buckets: durationBuckets,
      registers,
    });
    const outcomes = new Counter({
      name: `${prefix}backend_outcomes_total`,
      help: 'Calls to the backend, by operation and outcome.',
      labelNames: ['operation', 'outcome'],
      registers,
    });
    this.#bugs = new Counter({
      name: `${prefix}bugs_total`,
      help: 'Faults of the gateway itself.',
      registers,
    });

    const names: readonly (OperationName | typeof noOperation)[] = [
      ...operations.map(({ name }) => name),
      noOperation,
    ];
    for (const operation of names) {
      this.#durations.set(operation, durations.labels({ operation }));
    }
    for (const { name, successStatus } of operations) {
      this.#bindRequests(name, successStatus);
      this.#backendDurations.set(name, backendDurations.labels({ operation: name }));
      for (const outcome of backendOutcomes) {
        const bound = outcomes.labels({ operation: name, outcome });
        bound.inc(0);
        this.#backendOutcomes.set(`${name} ${outcome}`, bound);
      }
    }

    const gauge = (name: string, help: string, value: () => number | Promise<number>): void => {
      new Gauge({
        name: `${prefix}${name}`,
        help,
        registers,
        async collect() {
          this.set(await value());
        },
      });
    };
    gauge('requests_in_flight', 'Calls under way.', sources.inFlight);
    gauge(
      'buffered_bytes',
      'Bytes of bodies held now, requests and answers together.',
      sources.bufferedBytes,
    );
    gauge(
      'backend_connections',
      'Connections to the backend, open or being opened.',
      sources.backendConnections,
    );
    gauge(
      'backend_reachable',
      'Whether the backend answers, as the last call or a TCP connect showed: 1 or 0.',
      sources.backendReachable,
    );
    new Gauge({
      name: `${prefix}build_info`,
      help: 'Always 1; the labels say what is running.',
      labelNames: ['version', 'node_version'],
      registers,
    }).set({ version: sources.version, node_version: process.versions.node }, 1);
    collectDefaultMetrics({ register: this.registry });
  }

  /** Adds one request that has ended. */
  record(call: CallRecord): void {
    const operation = call.operation?.name ?? noOperation;
    this.#bindRequests(operation, call.status).inc();
    this.#durations.get(operation)?.observe(call.durationMs / 1_000);
    if (call.backendDurationMs !== undefined && call.backendOutcome !== undefined) {
      this.#backendDurations.get(operation)?.observe(call.backendDurationMs / 1_000);
      this.#backendOutcomes.get(`${operation} ${call.backendOutcome}`)?.inc();
    }
    if (call.outcome === 'bug') {
      this.#bugs.inc();
    }
  }

  /** Adds one reply to bytes that were no request. */
  recordMalformed(status: number): void {
    this.#bindRequests(noOperation, status).inc();
  }

  recordBug(): void {
    this.#bugs.inc();
  }

  // Bound at its first use; the set of statuses is that of the tables, so this stays small.
  #bindRequests(operation: string, status: number): Counter.Internal {
    const key = `${operation} ${status}`;
    let bound = this.#boundRequests.get(key);
    if (bound === undefined) {
      bound = this.#requests.labels({ operation, status: String(status) });
      this.#boundRequests.set(key, bound);
    }
    return bound;
  }
}
