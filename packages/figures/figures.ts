// Counts requests and other events of one process in an array of fixed size, the block. All counts in /metrics and on
// the dashboard come from these blocks. A request changes at most eight numbers and allocates nothing. Adding the
// blocks of several workers, number by number, gives their sum.

import type { CallRecord } from '../core/call/call-record.ts';
import { operations, type OperationName } from '../core/operations.ts';
import {
  backendOutcomes,
  callOutcomes,
  outcomeOfMalformed,
  type BackendOutcome,
  type CallOutcome,
} from '../core/outcomes.ts';
import { tokenFlawNames, type TokenFlaw } from '../core/guards/options/token-flaws.ts';
import { deathCauses, type DeathCause } from './worker-deaths.ts';

/** An operation, or `none` for requests that matched no operation. */
export type FigureName = OperationName | 'none';

export const figureNames: readonly FigureName[] = [...operations.map(({ name }) => name), 'none'];

/** All statuses of replies; 0 stands for a request without a reply. */
export const statuses = [0, 200, 201, 204, 400, 401, 403, 404, 405, 408, 413, 417, 429, 431, 500, 503] as const;

/** Upper bounds of the published duration buckets, in seconds. They are public, as labels of the metrics. */
export const publishedBounds: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
];

// Each published bucket is split into this many parts, whose bounds grow by a constant factor. So percentiles are exact
// to about 20 % (above 0.5 ms).
const partsOfBucket = 5;

/** Upper bounds of the internal buckets, in milliseconds; every fifth is a published one. */
const boundsMs: readonly number[] = publishedBounds.flatMap((bound, index) => {
  const from = publishedBounds[index - 1] ?? bound / 10;
  return Array.from({ length: partsOfBucket }, (_, part) =>
    part === partsOfBucket - 1 ? bound * 1_000 : from * 1_000 * (bound / from) ** ((part + 1) / partsOfBucket),
  );
});

// Layout of the block. Each name has its statuses, outcomes, backend outcomes and two histograms. A histogram is the
// sum of the durations in milliseconds, then the buckets; the last bucket counts durations above every bound. The
// figures without a name come last.
const histogramSize = 1 + boundsMs.length + 1;
const statusesAt = 0;
const outcomesAt = statusesAt + statuses.length;
const backendOutcomesAt = outcomesAt + callOutcomes.length;
const durationsAt = backendOutcomesAt + backendOutcomes.length;
const backendDurationsAt = durationsAt + histogramSize;
const nameSize = backendDurationsAt + histogramSize;
const bugsAt = nameSize * figureNames.length;
const shedConnectionsAt = bugsAt + 1;
const stalledConnectionsAt = shedConnectionsAt + 1;
const droppedLogLinesAt = stalledConnectionsAt + 1;
const failedHandshakesAt = droppedLogLinesAt + 1;
const keyFetchesAt = failedHandshakesAt + 1;
const failedKeyFetchesAt = keyFetchesAt + 1;
const tokenFlawsAt = failedKeyFetchesAt + 1;
const droppedSpansAt = tokenFlawsAt + tokenFlawNames.length;
const workerDeathsAt = droppedSpansAt + 1;
const blockSize = workerDeathsAt + deathCauses.length;

const offsets = new Map(figureNames.map((name, index) => [name, index * nameSize]));
const noneOffset = offsets.get('none') ?? 0;
const outcomeIndexes = new Map(callOutcomes.map((outcome, index) => [outcome, index]));
const backendOutcomeIndexes = new Map(backendOutcomes.map((outcome, index) => [outcome, index]));
const tokenFlawIndexes = new Map<unknown, number>(tokenFlawNames.map((flaw, index) => [flaw, index]));
// An array instead of a map, because every request looks up its status. Statuses are below 600.
const statusIndexes = new Uint8Array(600);
for (const [index, status] of statuses.entries()) {
  statusIndexes[status] = index;
}

export class Figures {
  readonly #block = new Float64Array(blockSize);

  /** Starts at zero, or with a block from `toJSON`. */
  constructor(block: readonly number[] = []) {
    this.#block.set(block);
  }

  /** Adds a completed request. */
  record(call: CallRecord): void {
    const offset = offsetOf(call.operation?.name ?? 'none');
    this.#count(offset + statusesAt + (statusIndexes[call.status] ?? 0));
    this.#count(offset + outcomesAt + (outcomeIndexes.get(call.outcome) ?? 0));
    this.#observe(offset + durationsAt, call.durationMs);
    if (call.backendDurationMs !== undefined && call.backendOutcome !== undefined) {
      this.#count(offset + backendOutcomesAt + (backendOutcomeIndexes.get(call.backendOutcome) ?? 0));
      this.#observe(offset + backendDurationsAt, call.backendDurationMs);
    }
    if (call.outcome === 'bug') {
      this.recordBug();
    } else if (call.outcome === 'invalid-token') {
      this.#count(tokenFlawsAt + (tokenFlawIndexes.get(call.flaw) ?? 0));
    }
  }

  /** Adds a reply to a malformed request. */
  recordMalformed(status: number): void {
    this.#count(noneOffset + statusesAt + (statusIndexes[status] ?? 0));
    this.#count(noneOffset + outcomesAt + (outcomeIndexes.get(outcomeOfMalformed(status)) ?? 0));
  }

  recordBug(): void {
    this.#count(bugsAt);
  }

  /** Adds a connection closed at the connection limit. */
  recordShedConnection(): void {
    this.#count(shedConnectionsAt);
  }

  /** Adds a connection closed because its client stopped reading. */
  recordStalledConnection(): void {
    this.#count(stalledConnectionsAt);
  }

  /** Adds log lines that could not be written [D53]. */
  recordDroppedLogLines(lines: number): void {
    this.#block[droppedLogLinesAt] = this.droppedLogLines + lines;
  }

  /** Adds a connection closed before its TLS handshake was complete. */
  recordFailedHandshake(): void {
    this.#count(failedHandshakesAt);
  }

  /** Adds a fetch of the issuer's keys. */
  recordKeyFetch(isOk: boolean): void {
    this.#count(isOk ? keyFetchesAt : failedKeyFetchesAt);
  }

  /** Adds spans dropped before they reached the collector [D49]. */
  recordDroppedSpans(spans: number): void {
    this.#block[droppedSpansAt] = this.droppedSpans + spans;
  }

  /** Adds a worker that ended unexpectedly [D63]. */
  recordWorkerDeath(cause: DeathCause): void {
    this.#count(workerDeathsAt + deathCauses.indexOf(cause));
  }

  add(other: Figures): void {
    for (let index = 0; index < blockSize; index += 1) {
      this.#block[index] = this.#at(index) + other.#at(index);
    }
  }

  /** Returns the growth since `earlier`. A figure that shrank (its worker was replaced) is counted from zero. */
  since(earlier: Figures): Figures {
    const difference = new Figures();
    for (let index = 0; index < blockSize; index += 1) {
      const now = this.#at(index);
      const grown = now - earlier.#at(index);
      difference.#block[index] = grown < 0 ? now : grown;
    }
    return difference;
  }

  /** Returns true if any figure differs from that of `other`. */
  isOther(other: Figures): boolean {
    return this.#block.some((value, index) => value !== other.#at(index));
  }

  requests(name: FigureName, status: (typeof statuses)[number]): number {
    return this.#at(offsetOf(name) + statusesAt + statuses.indexOf(status));
  }

  outcomes(name: FigureName, outcome: CallOutcome): number {
    return this.#at(offsetOf(name) + outcomesAt + callOutcomes.indexOf(outcome));
  }

  backendOutcomes(name: FigureName, outcome: BackendOutcome): number {
    return this.#at(offsetOf(name) + backendOutcomesAt + backendOutcomes.indexOf(outcome));
  }

  /** Durations from a request's head until its reply is passed to the socket. */
  durations(name: FigureName): Durations {
    return this.#durations(offsetOf(name) + durationsAt);
  }

  /** Durations from sending a call to the backend to its outcome. */
  backendDurations(name: FigureName): Durations {
    return this.#durations(offsetOf(name) + backendDurationsAt);
  }

  get bugs(): number {
    return this.#at(bugsAt);
  }

  get shedConnections(): number {
    return this.#at(shedConnectionsAt);
  }

  get stalledConnections(): number {
    return this.#at(stalledConnectionsAt);
  }

  get failedHandshakes(): number {
    return this.#at(failedHandshakesAt);
  }

  get droppedLogLines(): number {
    return this.#at(droppedLogLinesAt);
  }

  /** Fetches of the issuer's keys that succeeded, or failed. */
  keyFetches(isOk: boolean): number {
    return this.#at(isOk ? keyFetchesAt : failedKeyFetchesAt);
  }

  /** Calls whose token had this flaw. */
  tokenFlaws(flaw: TokenFlaw): number {
    return this.#at(tokenFlawsAt + tokenFlawNames.indexOf(flaw));
  }

  get droppedSpans(): number {
    return this.#at(droppedSpansAt);
  }

  workerDeaths(cause: DeathCause): number {
    return this.#at(workerDeathsAt + deathCauses.indexOf(cause));
  }

  /** The block, for the constructor in another process. */
  toJSON(): readonly number[] {
    return [...this.#block];
  }

  #at(index: number): number {
    return this.#block[index] ?? 0;
  }

  #count(index: number): void {
    this.#block[index] = this.#at(index) + 1;
  }

  #observe(offset: number, durationMs: number): void {
    this.#block[offset] = this.#at(offset) + durationMs;
    this.#count(offset + 1 + bucketOf(durationMs));
  }

  #durations(offset: number): Durations {
    return { sumMs: this.#at(offset), counts: this.#block.slice(offset + 1, offset + histogramSize) };
  }
}

function offsetOf(name: FigureName): number {
  return offsets.get(name) ?? noneOffset;
}

// Finds the first bucket whose bound is not below the duration.
function bucketOf(durationMs: number): number {
  let low = 0;
  let high = boundsMs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((boundsMs[middle] ?? 0) < durationMs) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

export interface Durations {
  readonly sumMs: number;
  /** Counts per bucket of `boundsMs`, and a last one for durations above every bound. */
  readonly counts: Float64Array;
}

export function countOf({ counts }: Durations): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Cumulative counts for the published bounds, as Prometheus requires. */
export function publishedCounts({ counts }: Durations): number[] {
  let sum = 0;
  const sums = Array.from(counts, (count) => (sum += count));
  return sums.filter((_, index) => index % partsOfBucket === partsOfBucket - 1);
}

/** Returns the quantile `share`, such as 0.99, in milliseconds; undefined without durations. */
export function percentile(durations: Durations, share: number): number | undefined {
  const count = countOf(durations);
  if (count === 0) {
    return undefined;
  }
  const rank = count * share;
  let sum = 0;
  for (const [index, inBucket] of durations.counts.entries()) {
    if (sum + inBucket >= rank && inBucket > 0) {
      const low = index === 0 ? 0 : (boundsMs[index - 1] ?? 0);
      const high = boundsMs[index] ?? low;
      return low + ((high - low) * (rank - sum)) / inBucket;
    }
    sum += inBucket;
  }
  return boundsMs.at(-1);
}
