// Finds the present troubles of the gateway, for the dashboard's verdict, /readyz and /metrics.

import { tokenFlawNames, type TokenFlaw } from '../core/guards/ports/ports.ts';
import { operations } from '../core/operations.ts';
import { callOutcomes, type CallOutcome } from '../core/outcomes.ts';
import { joinFailures, type Failure } from './failures.ts';
import { deathCauses, type Figures } from './figures.ts';
import { addFigures, minuteMs, type History, type Stretch } from './history.ts';
import type { Reports } from './report.ts';
import {
  refusalOutcomes,
  refusals,
  troubleOfReason,
  type CurrentTroubles,
  type Failing,
  type Passing,
  type Refused,
  type TroubleCode,
} from './troubles.ts';

// Troubles of clients, log and workers are shown until they have passed for this time [D71].
const passedMs = 300_000;
// With fewer refused requests in a minute than this, one client could be at fault.
const refusedMin = 10;

export function findTroubles(reports: Reports, history: History): CurrentTroubles {
  const counted = addFigures(reports);
  const backend = reports.living[0]?.backend;
  const failures = joinFailures([reports.ended, ...reports.living].map((each) => each.failures));
  return {
    unreachable: backend?.isReachable === false ? troubleOfReason(backend.reason) : undefined,
    failing: findFailing(history.since(minuteMs, counted), failures),
    hasNoSuccess: history.hasNoSuccess(counted),
    clients: findRefused(history, counted),
    log: findPassing(history, counted, 'log-lost', (figures) => figures.counted('log line dropped')),
    workers: findPassing(history, counted, 'worker-died', (figures) =>
      deathCauses.reduce((sum, cause) => sum + figures.counted(`death ${cause}`), 0),
    ),
  };
}

// The counts are exact but have no reasons, and only the last failures are kept. So each kept failure stands for its share of
// all failures with its outcome.
function findFailing({ from, passed }: Stretch, failures: readonly Failure[]): Failing | undefined {
  const recent = failures.filter(({ party, at }) => party === 'backend' && at >= from);
  const weights = new Map<TroubleCode, number>();
  for (const [outcome, kept] of Map.groupBy(recent, (each) => each.outcome)) {
    const weight = countOutcome(passed, outcome) / kept.length;
    for (const { trouble = 'server-error' } of kept) weights.set(trouble, (weights.get(trouble) ?? 0) + weight);
  }
  // Sorted, so that the choice between equally common troubles does not change with each failure.
  const code = commonest([...weights.keys()].sort(), (each) => weights.get(each) ?? 0);
  if (code === undefined) return undefined;
  const explained = recent.filter(({ trouble = 'server-error' }) => trouble === code);
  const alike = [...Map.groupBy(explained, ({ operation, cause }) => JSON.stringify([operation, cause])).values()];
  const { operation, cause } = commonest(alike, ({ length }) => length)?.[0] ?? {};
  return { code, operation, cause };
}

function findRefused(history: History, counted: Figures): Refused | undefined {
  const countRefused = (figures: Figures): number =>
    refusalOutcomes.reduce((sum, outcome) => sum + countOutcome(figures, outcome), 0);
  // Mostly, nothing was refused.
  if (countRefused(history.since(passedMs + minuteMs, counted).passed) < refusedMin) return undefined;
  for (const { at, passed } of history.minutes(passedMs, counted)) {
    const count = countRefused(passed);
    const calls = callOutcomes.reduce((sum, outcome) => sum + countOutcome(passed, outcome), 0);
    if (count >= refusedMin && count * 2 > calls) {
      const outcome = commonest(refusalOutcomes, (each) => countOutcome(passed, each)) ?? 'no-token';
      const flaw = commonest(tokenFlawNames, (each) => passed.counted(`token ${each}`));
      const code = outcome === 'invalid-token' && flaw !== undefined ? byFlaw[flaw] : refusals[outcome];
      return { code, count, calls, outcome, at };
    }
  }
  return undefined;
}

function findPassing(
  history: History,
  counted: Figures,
  code: TroubleCode,
  countIn: (figures: Figures) => number,
): Passing | undefined {
  const count = countIn(history.since(passedMs, counted).passed);
  return count === 0 ? undefined : { code, count, at: history.lastChange(counted, countIn) };
}

function countOutcome(figures: Figures, outcome: CallOutcome): number {
  return operations.reduce((sum, { name }) => sum + figures.outcomes(name, outcome), 0);
}

/** The first of the values with the highest count; undefined without values. */
function commonest<Value>(values: readonly Value[], count: (value: Value) => number): Value | undefined {
  const counted = values.map((value) => ({ value, count: count(value) }));
  return counted.sort((one, other) => other.count - one.count)[0]?.value;
}

const byFlaw: Readonly<Record<TokenFlaw, TroubleCode>> = {
  malformed: 'token-form',
  algorithm: 'token-algorithm',
  'unknown-key': 'token-key',
  signature: 'token-key',
  issuer: 'token-issuer',
  audience: 'token-audience',
  expired: 'token-time',
  'not-yet-valid': 'token-time',
  type: 'token-type',
  claims: 'token-form',
};
