// What became of the calls of a fleet run: which were lost, by whose end, and whether the bar holds. Pure: data in, data out.

import { isServed, type FleetCall } from './calls.ts';

/** Something was killed: from the moment before the signal until everybody had heard of it. */
export interface Kill {
  readonly what: 'gateway' | 'backend';
  readonly from: number;
  readonly to: number;
}

/** A client that makes more requests than it may, all in one window of the rate limit. */
export interface Probe {
  readonly when: string;
  readonly asked: number;
  readonly served: number;
  readonly refused: number;
  /** How many it may be served. */
  readonly limit: number;
}

export interface Evidence {
  readonly calls: readonly FleetCall[];
  /** For each backend, how often each request id came to it. */
  readonly records: readonly ReadonlyMap<string, number>[];
  readonly kills: readonly Kill[];
  /** What the gateways' logs say of calls that failed: the outcome by request id. */
  readonly outcomes: ReadonlyMap<string, string>;
  readonly probes: readonly Probe[];
}

export interface Verdict {
  readonly calls: number;
  readonly served: number;
  /** Lost with a gateway that was killed: no reply, or the 502 of HAProxy. */
  readonly lostWithGateway: number;
  /** Lost with a backend that was killed: the 500 of their operation, `unreachable` in the gateway's log. */
  readonly lostWithBackend: number;
  /** Of both, the writes that had been done all the same. */
  readonly lostButDone: number;
  /** Anything else. */
  readonly lostOtherwise: readonly FleetCall[];
  readonly writesTwice: readonly string[];
  /** Writes that were answered as successes and never came to a backend. */
  readonly writesInvented: readonly string[];
  readonly readsAgain: number;
  readonly probes: readonly Probe[];
  /** What does not hold; empty: the bar holds. */
  readonly problems: readonly string[];
}

export function judge({ calls, records, kills, outcomes, probes }: Evidence): Verdict {
  const timesOf = (marker: string): number =>
    records.reduce((sum, record) => sum + (record.get(marker) ?? 0), 0);
  const met = (call: FleetCall, what: Kill['what']): boolean =>
    kills.some((kill) => kill.what === what && call.sentAt <= kill.to && call.endedAt >= kill.from);
  const isLostWithGateway = (call: FleetCall): boolean =>
    (call.end === 'none' || call.end === 502) && met(call, 'gateway');
  const isLostWithBackend = (call: FleetCall): boolean =>
    call.end === 500 && outcomes.get(call.marker) === 'unreachable' && met(call, 'backend');

  const lost = calls.filter((call) => !isServed(call));
  const withGateway = lost.filter(isLostWithGateway);
  const withBackend = lost.filter(isLostWithBackend);
  const lostOtherwise = lost.filter((call) => !isLostWithGateway(call) && !isLostWithBackend(call));
  const writes = calls.filter(({ method }) => method !== 'GET');
  const writesTwice = writes.filter(({ marker }) => timesOf(marker) > 1).map(({ marker }) => marker);
  const writesInvented = writes
    .filter((call) => isServed(call) && timesOf(call.marker) === 0)
    .map(({ marker }) => marker);
  const readsAgain = calls.filter(({ method, marker }) => method === 'GET' && timesOf(marker) > 1).length;
  const countDone = (some: readonly FleetCall[]): number =>
    some.filter(({ method, marker }) => method !== 'GET' && timesOf(marker) > 0).length;
  const done = { gateway: countDone(withGateway), backend: countDone(withBackend) };
  // Without such a write nothing shows whether writes are repeated.
  const untried = (['gateway', 'backend'] as const).filter(
    (what) => done[what] === 0 && kills.some((kill) => kill.what === what),
  );

  const problems = [
    ...(lostOtherwise.length > 0 ? [`${lostOtherwise.length} calls were lost with nothing that was killed`] : []),
    ...(writesTwice.length > 0 ? [`${writesTwice.length} writes came to the backends more than once`] : []),
    ...untried.map((what) => `no write that had been done was lost with a ${what}: whether writes are repeated was not tried`),
    ...(writesInvented.length > 0
      ? [`${writesInvented.length} writes were answered as successes and never came to a backend`]
      : []),
    ...probes
      .filter(({ served, limit }) => served > limit)
      .map(({ when, served, limit }) => `the rate limit, ${when}: ${served} requests served, and ${limit} allowed`),
    ...probes
      .filter(({ asked, served, refused }) => served + refused !== asked)
      .map(({ when, asked, served, refused }) => `the rate limit, ${when}: of ${asked} requests ${asked - served - refused} were neither served nor refused`),
    ...(probes.length === 0 ? ['the rate limit was not tried'] : []),
  ]; // prettier-ignore
  return {
    calls: calls.length,
    served: calls.length - lost.length,
    lostWithGateway: withGateway.length,
    lostWithBackend: withBackend.length,
    lostButDone: done.gateway + done.backend,
    lostOtherwise,
    writesTwice,
    writesInvented,
    readsAgain,
    probes,
    problems,
  };
}
