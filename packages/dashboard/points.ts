// Computes the points of the charts, and the summaries, from the figures of a period.

import { operations } from '../core/operations.ts';
import { callOutcomes, outcomes, type Fault } from '../core/outcomes.ts';
import {
  addDurations,
  countOf,
  deathCauses,
  figureNames,
  Figures,
  percentile,
  statuses,
  type Durations,
  type FigureName,
} from '../figures/figures.ts';
import type { Stretch } from '../figures/history.ts';
import type { Report } from '../figures/report.ts';
import type { Flow, FlowName, Load, Point, StatusClass, Summary } from './state.ts';

export function sumOf(
  reports: readonly Report[],
  name: 'inFlight' | 'bufferedBytes' | 'residentBytes' | 'clientConnections' | 'backendConnections',
): number {
  return reports.reduce((sum, report) => sum + report[name], 0);
}

export function loadOf(reports: readonly Report[]): Load {
  return {
    inFlight: sumOf(reports, 'inFlight'),
    bufferedBytes: sumOf(reports, 'bufferedBytes'),
    residentBytes: sumOf(reports, 'residentBytes'),
    eventLoopDelayMs: Math.max(0, ...reports.map(({ eventLoopDelayMs }) => roundMs(eventLoopDelayMs))),
  };
}

export function pointOf({ from, at, passed, isIdle }: Stretch, reports: readonly Report[]): Point {
  return {
    at,
    seconds: secondsOf(from, at),
    flows: isIdle ? noFlows : flowsOf(passed),
    ...loadOf(reports),
    workerDeaths: deathCauses.reduce((deaths, cause) => deaths + passed.counted(`death ${cause}`), 0),
  };
}

export function summaryOf({ from, at, passed }: Stretch): Summary {
  return { from, seconds: secondsOf(from, at), flows: flowsOf(passed), failures: failuresOf(passed) };
}

function secondsOf(from: number, at: number): number {
  return Math.max(1, at - from) / 1_000;
}

const operationNames = operations.map(({ name }) => name);

function flowsOf(figures: Figures): Record<FlowName, Flow> {
  const flows = figureNames.map((name) => [name, flowOf(figures, [name])] as const);
  return { all: flowOf(figures, operationNames), ...(Object.fromEntries(flows) as Record<FigureName, Flow>) };
}

const noFlows = flowsOf(new Figures());

export function flowOf(figures: Figures, names: readonly FigureName[]): Flow {
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
  const rounded = (ms: number | undefined): number | null => (ms === undefined ? null : roundMs(ms));
  const meanOf = ({ sumMs }: Durations): number | null => (ended === 0 ? null : roundMs(sumMs / ended));
  return {
    requests: nobody + failed.backend + failed.gateway + failed.client,
    byStatus,
    failed,
    p50: rounded(percentile(durations, 0.5)),
    p99: rounded(percentile(durations, 0.99)),
    mean: meanOf(durations),
    backendCalls: countOf(backend),
    backendP50: rounded(percentile(backend, 0.5)),
    backendP99: rounded(percentile(backend, 0.99)),
    backendMean: meanOf(backend),
  };
}

function classOf(status: number): StatusClass {
  return status >= 500 ? '5xx' : status >= 400 ? '4xx' : status === 0 ? 'none' : '2xx';
}

function failuresOf(figures: Figures): Record<string, number> {
  const failures: Record<string, number> = {};
  for (const outcome of callOutcomes) {
    const count = figureNames.reduce((sum, name) => sum + figures.outcomes(name, outcome), 0);
    if (outcomes[outcome].fault !== 'nobody' && count > 0) failures[outcome] = count;
  }
  return failures;
}

// Rounds to three digits, for shorter messages. The durations come from buckets, which are less precise than that.
function roundMs(ms: number): number {
  return Number(ms.toPrecision(3));
}
