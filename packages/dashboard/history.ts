// The last 15 minutes in steps, in a ring of fixed size: what the dashboard draws, and what its
// tables add up. A step of a gateway at rest shares the figures of the one before it and costs nearly nothing.

import type { Flow, FlowName, LastFailure, LastFailures, Point, StatusClass, Summary } from './state.ts';
import {
  backendOutcomes,
  callOutcomes,
  faultOfBackendOutcome,
  outcomes,
  unsuccessfulAnswers,
  type BackendOutcome,
  type Fault,
} from '../core/outcomes.ts';
import type { Failure } from '../figures/failures.ts';
import {
  countOf,
  figureNames,
  Figures,
  percentile,
  statuses,
  type Durations,
  type FigureName,
} from '../figures/figures.ts';
import type { Report } from '../figures/report.ts';
import { deathCauses } from '../figures/worker-deaths.ts';

export const historyMs = 900_000;
// Fewer answers can be the mistakes of one client.
const noSuccessAnswersMin = 10;
const noSuccessMs = 300_000;

/** What all the processes of `reports` have counted, added up. */
export function addFigures(reports: readonly Report[]): Figures {
  const sum = new Figures();
  for (const report of reports) {
    sum.add(new Figures(report.figures));
  }
  return sum;
}

interface Step {
  readonly at: number;
  /** Counted up to then. */
  readonly figures: Figures;
  readonly point: Point;
}

export class History {
  readonly stepMs: number;
  readonly #steps: Step[] = [];
  // What the first step is compared with: the start, and later the step that has just left the ring.
  #before: { readonly at: number; readonly figures: Figures };
  // How things stood when a failure of each was last seen.
  readonly #marks = countCalls(new Figures());

  /** `startedAt` is in milliseconds since 1970; a step is to be recorded every `stepMs`. */
  constructor(startedAt: number, stepMs: number) {
    this.stepMs = stepMs;
    this.#before = { at: startedAt, figures: new Figures() };
  }

  /** Takes a step that ends now. */
  record(reports: readonly Report[]): void {
    if (reports.length === 0) {
      // No worker answers: what they have counted is not known.
      return;
    }
    const last = this.#steps.at(-1) ?? this.#before;
    const at = Date.now();
    const counted = addFigures(reports);
    this.#mark(counted);
    const passed = counted.since(last.figures);
    const hasCounted = counted.isOther(last.figures);
    const sum = (valueOf: (report: Report) => number): number =>
      reports.reduce((total, report) => total + valueOf(report), 0);
    this.#steps.push({
      at,
      figures: hasCounted ? counted : last.figures,
      point: {
        at,
        seconds: Math.max(1, at - last.at) / 1_000,
        flows: hasCounted ? flowsOf(passed) : noFlows,
        inFlight: sum(({ inFlight }) => inFlight),
        bufferedBytes: sum(({ bufferedBytes }) => bufferedBytes),
        residentBytes: sum(({ residentBytes }) => residentBytes),
        eventLoopDelayMs: Math.max(0, ...reports.map(({ eventLoopDelayMs }) => roundMs(eventLoopDelayMs))),
        workerDeaths: deathCauses.reduce((deaths, cause) => deaths + passed.workerDeaths(cause), 0),
      },
    });
    if (this.#steps.length > historyMs / this.stepMs) {
      this.#before = this.#steps.shift() ?? this.#before;
    }
  }

  /** Every step after `at`, the oldest first. */
  pointsAfter(at: number): Point[] {
    return this.#steps.filter((step) => step.at > at).map(({ point }) => point);
  }

  /** When the backend and the gateway last failed a call; `failures` has the latest first. */
  lastFailures(counted: Figures, failures: readonly Failure[]): LastFailures {
    this.#mark(counted);
    const count = countCalls(counted);
    const describe = (fault: 'backend' | 'gateway'): LastFailure | null => {
      const last = failures.find(({ party }) => party === fault);
      return last === undefined
        ? null
        : { at: last.at, callsSince: count[fault].well - this.#marks[fault].well };
    };
    return { backend: describe('backend'), gateway: describe('gateway') };
  }

  // A count that has shrunk (a worker was killed) says nothing of when: as if it had failed again.
  #mark(counted: Figures): void {
    const count = countCalls(counted);
    for (const fault of ['backend', 'gateway'] as const) {
      if (count[fault].failed !== this.#marks[fault].failed) {
        this.#marks[fault] = count[fault];
      }
    }
  }

  /** What has been counted in about the last `ms`, as far back as is known. */
  summarise(counted: Figures, ms: number): Summary {
    const now = Date.now();
    const from = this.#stepBefore(now - ms);
    const passed = counted.since(from.figures);
    return {
      from: from.at,
      seconds: Math.max(1, now - from.at) / 1_000,
      flows: flowsOf(passed),
      failures: failuresOf(passed),
    };
  }

  /** Whether the backend answered calls of the last 5 minutes, and none of them with success [D51]. */
  hasNoSuccess(counted: Figures): boolean {
    const passed = counted.since(this.#stepBefore(Date.now() - noSuccessMs).figures);
    const count = (outcome: BackendOutcome): number =>
      operationFlows.reduce((sum, name) => sum + passed.backendOutcomes(name, outcome), 0);
    return (
      count('ok') === 0 &&
      unsuccessfulAnswers.reduce((sum, outcome) => sum + count(outcome), 0) >= noSuccessAnswersMin
    );
  }

  #stepBefore(at: number): { readonly at: number; readonly figures: Figures } {
    return this.#steps.findLast((step) => step.at <= at) ?? this.#before;
  }
}

/** Calls since the start that someone has failed, and those that came through. */
interface Count {
  readonly failed: number;
  readonly well: number;
}

function countCalls(figures: Figures): Record<'backend' | 'gateway', Count> {
  let answered = 0;
  let failedByBackend = 0;
  let failedByGateway = 0;
  for (const name of figureNames) {
    for (const outcome of backendOutcomes) {
      const calls = figures.backendOutcomes(name, outcome);
      answered += outcome === 'cancelled' ? 0 : calls;
      failedByBackend += faultOfBackendOutcome(outcome) === 'backend' ? calls : 0;
    }
    for (const outcome of callOutcomes) {
      failedByGateway += outcomes[outcome].fault === 'gateway' ? figures.outcomes(name, outcome) : 0;
    }
  }
  return {
    backend: { failed: failedByBackend, well: answered - failedByBackend },
    gateway: { failed: failedByGateway, well: answered },
  };
}

const operationFlows = ['list', 'create', 'read', 'update', 'delete'] as const;

function flowsOf(figures: Figures): Record<FlowName, Flow> {
  const flowOf = (...names: FigureName[]): Flow => describeFlow(figures, names);
  return {
    all: flowOf(...operationFlows),
    list: flowOf('list'),
    create: flowOf('create'),
    read: flowOf('read'),
    update: flowOf('update'),
    delete: flowOf('delete'),
    none: flowOf('none'),
  };
}

const noFlows = flowsOf(new Figures());

function describeFlow(figures: Figures, names: readonly FigureName[]): Flow {
  const byFault: Record<Fault, number> = { backend: 0, gateway: 0, client: 0, nobody: 0 };
  const byStatus: Record<StatusClass, number> = { '2xx': 0, '4xx': 0, '5xx': 0, none: 0 };
  for (const name of names) {
    for (const outcome of callOutcomes) {
      byFault[outcomes[outcome].fault] += figures.outcomes(name, outcome);
    }
    for (const status of statuses) {
      byStatus[classOf(status)] += figures.requests(name, status);
    }
  }
  const { nobody, ...failed } = byFault;
  const durations = addDurations(names.map((name) => figures.durations(name)));
  const backend = addDurations(names.map((name) => figures.backendDurations(name)));
  const ended = countOf(durations);
  return {
    requests: nobody + failed.backend + failed.gateway + failed.client,
    byStatus,
    failed,
    p50: roundedPercentile(durations, 0.5),
    p99: roundedPercentile(durations, 0.99),
    mean: ended === 0 ? null : roundMs(durations.sumMs / ended),
    backendCalls: countOf(backend),
    // Every failure that is the backend's has its call.
    backendFailed: failed.backend,
    backendP50: roundedPercentile(backend, 0.5),
    backendP99: roundedPercentile(backend, 0.99),
    backendMean: ended === 0 ? null : roundMs(backend.sumMs / ended),
  };
}

function classOf(status: number): StatusClass {
  return status >= 500 ? '5xx' : status >= 400 ? '4xx' : status === 0 ? 'none' : '2xx';
}

function failuresOf(figures: Figures): Record<string, number> {
  const failures: Record<string, number> = {};
  for (const outcome of callOutcomes) {
    const count = [...operationFlows, 'none' as const].reduce(
      (sum, name) => sum + figures.outcomes(name, outcome),
      0,
    );
    if (outcomes[outcome].fault !== 'nobody' && count > 0) {
      failures[outcome] = count;
    }
  }
  return failures;
}

function addDurations(all: readonly Durations[]): Durations {
  const [first] = all;
  const counts = new Float64Array(first?.counts.length ?? 0);
  let sumMs = 0;
  for (const durations of all) {
    sumMs += durations.sumMs;
    for (const [index, count] of durations.counts.entries()) {
      counts[index] = (counts[index] ?? 0) + count;
    }
  }
  return { sumMs, counts };
}

function roundedPercentile(durations: Durations, share: number): number | null {
  const ms = percentile(durations, share);
  return ms === undefined ? null : roundMs(ms);
}

// Three digits are more than the buckets know, and keep the history short on the wire.
function roundMs(ms: number): number {
  return Number(ms.toPrecision(3));
}
