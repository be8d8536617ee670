// The verdict on a fleet run: lost calls with their cause, recovery, writes done twice, the rate limit. A pure function.

import type { Command } from '../helpers/command.ts';
import { isServed, type MarkedCall } from './marked-load.ts';

/** Something that may lose calls: calls in flight at its start, and calls sent up to `limitMs` later. */
export interface Fault {
  /** The part that failed. It determines how lost calls may end. */
  readonly what: 'gateway' | 'balancer' | 'backend';
  readonly name: string;
  /** On the clock of `performance.now()`. */
  readonly from: number;
  readonly limitMs: number;
}

/** A test of the rate limit: a client sends more requests than its limit within one window. */
export interface Probe {
  readonly when: string;
  readonly asked: number;
  readonly served: number;
  readonly refused: number;
  /** The most requests that may be served. */
  readonly limit: number;
}

export interface Evidence {
  /** False if only some steps were taken. */
  readonly isComplete: boolean;
  readonly calls: readonly MarkedCall[];
  /** For each backend, the number of requests by request id. */
  readonly records: readonly ReadonlyMap<string, number>[];
  readonly faults: readonly Fault[];
  /** Outcomes of failed calls by request id, from the gateways' logs. */
  readonly outcomes: ReadonlyMap<string, string>;
  readonly probes: readonly Probe[];
}

/** A call that is served only after this time is a problem. A frozen gateway may keep a call for a shorter time. */
const slowMs = 5_500;
/** How long after a fault new calls may still be lost. */
export const recoveryMs = 2_000;

const endsWith: Readonly<Record<Fault['what'], readonly MarkedCall['end'][]>> = {
  // No reply, or HAProxy's 502.
  gateway: ['none', 502],
  balancer: ['none', 'timeout', 'no connection'],
  backend: [500],
};
const backendOutcomes: ReadonlySet<string | undefined> = new Set(['unreachable', 'timed-out']);

/** The outcomes in the logs of gateways, by request id. */
export function outcomesIn(commands: readonly Pick<Command, 'logs'>[]): Map<string, string> {
  const lines = commands.flatMap(({ logs }) => logs);
  return new Map(lines.map(({ requestId, outcome }) => [String(requestId), String(outcome)]));
}

export type Verdict = ReturnType<typeof judge>;

/** In the result, `problems` lists the violations of the requirements. */
export function judge({ isComplete, calls, records, faults, outcomes, probes }: Evidence) {
  const timesOf = (marker: string): number => records.reduce((sum, record) => sum + (record.get(marker) ?? 0), 0);
  const explains = ({ what, from, limitMs }: Fault, call: MarkedCall): boolean =>
    call.sentAt <= from + limitMs &&
    call.endedAt >= from &&
    endsWith[what].includes(call.end) &&
    (what !== 'backend' || backendOutcomes.has(outcomes.get(call.marker)));
  /** The number of writes in `some` that a backend has done. */
  const countDone = (some: readonly MarkedCall[]): number =>
    some.filter(({ method, marker }) => method !== 'GET' && timesOf(marker) > 0).length;

  const lost = calls.filter((call) => !isServed(call));
  // The newest fault that explains a loss is its cause.
  const causes = Map.groupBy(lost, (call) => faults.findLast((fault) => explains(fault, call)));
  const losses = faults.map((fault) => {
    const own = causes.get(fault) ?? [];
    return {
      name: fault.name,
      lost: own.length,
      lostButDone: countDone(own),
      // The time from the fault until the last lost call was sent.
      recoveredMs: Math.max(0, ...own.map(({ sentAt }) => sentAt - fault.from)),
    };
  });
  const lostOtherwise = causes.get(undefined) ?? [];
  const writes = calls.filter(({ method }) => method !== 'GET');
  const writesTwice = writes.filter(({ marker }) => timesOf(marker) > 1).map(({ marker }) => marker);
  const invented = writes.filter((call) => isServed(call) && timesOf(call.marker) === 0);
  const writesInvented = invented.map(({ marker }) => marker);
  const slow = calls.filter((call) => isServed(call) && call.endedAt - call.sentAt > slowMs);
  const readsAgain = calls.filter(({ method, marker }) => method === 'GET' && timesOf(marker) > 1).length;
  // A complete run must test that no write is repeated. For that, a completed write must have lost its reply.
  const untried = (['gateway', 'backend'] as const).filter((what) => {
    const own = faults.filter((fault) => fault.what === what);
    return isComplete && own.length > 0 && own.every((fault) => countDone(causes.get(fault) ?? []) === 0);
  });

  const unkept = probes.filter(({ served, limit }) => served > limit);
  const unanswered = probes.filter(({ asked, served, refused }) => served + refused !== asked);
  const counted: [count: number, what: string][] = [
    [lostOtherwise.length, 'calls were lost without a fault that explains them'],
    [slow.length, `calls were served only after ${slowMs / 1_000} s`],
    [writesTwice.length, 'writes reached the backends more than once'],
    [writesInvented.length, 'writes were answered as successes, but reached no backend'],
    ...unanswered.map(({ when, asked, served, refused }): [number, string] => [
      asked - served - refused,
      `requests were neither served nor refused by the rate limit, ${when}`,
    ]),
  ];
  const problems = [
    ...counted.filter(([count]) => count > 0).map(([count, what]) => `${count} ${what}`),
    ...untried.map(
      (what) => `no fault of a ${what} lost the reply to a completed write, so repetition of writes was not tested`,
    ),
    ...unkept.map(
      ({ when, served, limit }) => `the rate limit, ${when}: ${served} requests served, and ${limit} allowed`,
    ),
  ];
  return {
    calls: calls.length,
    served: calls.length - lost.length,
    losses,
    lostButDone: countDone(lost),
    lostOtherwise,
    writesTwice,
    writesInvented,
    readsAgain,
    probes,
    problems,
  };
}
