// Counts requests and other events of one process in an array of fixed size, the block. All counts in /metrics and on
// the dashboard come from these blocks. A request changes at most eight numbers and allocates nothing. The
// blocks of several workers are added number by number.

import type { CallRecord } from '../core/call/call-record.ts';
import { operations, type OperationName } from '../core/operations.ts';
import {
  backendOutcomes,
  callOutcomes,
  outcomeOfMalformed,
  type BackendOutcome,
  type CallOutcome,
} from '../core/outcomes.ts';
import { tokenFlawNames, type TokenFlaw } from '../core/guards/ports/ports.ts';

/** An operation, or `none` for requests that matched no operation. */
export type FigureName = OperationName | 'none';

export const figureNames: readonly FigureName[] = [...operations.map(({ name }) => name), 'none'];

/**
 * Causes of a worker's unexpected end, as labels of the metrics [D63]. `exit`: the worker exited by itself, for instance
 * after an error outside of a request. `killed`: by SIGKILL, mostly from the kernel when memory ran out. `aborted`: by
 * SIGABRT, mostly from V8 when its heap was full. `signal`: by another signal. `frozen`: it hung, and the primary process
 * killed it.
 */
export const deathCauses = ['exit', 'killed', 'aborted', 'signal', 'frozen'] as const;

/** Events that are counted apart from the requests. The second part of a name is a label of the metrics. */
const events = [
  ...tokenFlawNames.map((flaw) => `token ${flaw}` as const),
  ...deathCauses.map((cause) => `death ${cause}` as const),
  'bug',
  'connection shed',
  'connection stalled',
  'handshake failed',
  'log line dropped',
  'span dropped',
  'key fetch ok',
  'key fetch failed',
] as const;

type CountedEvent = (typeof events)[number];

/** All statuses of replies; 0 stands for a request without a reply. */
export const statuses = [0, 200, 201, 204, 400, 401, 403, 404, 405, 408, 413, 417, 429, 431, 500, 503] as const;

/** Upper bounds of the published duration buckets, in seconds. They are public, as labels of the metrics. */
export const publishedBounds: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
];

// Each published bucket is split into this many parts, whose bounds grow by a constant factor. So the error of a
// percentile is at most about 20 % from 0.5 ms to 10 s, and about 25 % above.
const partsOfBucket = 5;

/** Upper bounds of the internal buckets, in milliseconds; every fifth is also a published bound. */
const boundsMs: readonly number[] = publishedBounds.flatMap((bound, index) => {
  const from = publishedBounds[index - 1] ?? bound / 10;
  return Array.from({ length: partsOfBucket }, (_, part) =>
    part === partsOfBucket - 1 ? bound * 1_000 : from * 1_000 * (bound / from) ** ((part + 1) / partsOfBucket),
  );
});

// Layout of the block. Each of `figureNames` has its statuses, outcomes, backend outcomes and three histograms. A
// histogram begins with the sum of the durations in milliseconds. The counts of the buckets follow; the last bucket
// counts durations above every bound. At the end of the block are the events.
const histogramSize = 1 + boundsMs.length + 1;
const outcomesAt = statuses.length;
const backendOutcomesAt = outcomesAt + callOutcomes.length;
const durationsAt = backendOutcomesAt + backendOutcomes.length;
const durationsWithoutCallAt = durationsAt + histogramSize;
const backendDurationsAt = durationsWithoutCallAt + histogramSize;
const nameSize = backendDurationsAt + histogramSize;
const eventsAt = nameSize * figureNames.length;
const blockSize = eventsAt + events.length;

const offsets = placesOf(figureNames, 0, nameSize);
const statusPlaces = placesOf(statuses, 0);
const outcomePlaces = placesOf(callOutcomes, outcomesAt);
const backendOutcomePlaces = placesOf(backendOutcomes, backendOutcomesAt);
const eventPlaces = placesOf(events, eventsAt);

/** The place of each value: `start` for the first value, and `step` more for each further value. */
function placesOf<Value extends string | number>(values: readonly Value[], start: number, step = 1) {
  const places = values.map((value, index) => [value, start + index * step]);
  return Object.fromEntries(places) as Readonly<Record<Value, number>>;
}

// A status that is not in the list is counted as a request without a reply.
function placeOfStatus(status: number): number {
  return (statusPlaces as Readonly<Record<number, number>>)[status] ?? 0;
}

export class Figures {
  readonly #block = new Float64Array(blockSize);

  /** Starts at zero, or with a block from `toJSON`. */
  constructor(block: ArrayLike<number> = []) {
    this.#block.set(block);
  }

  record(call: CallRecord): void {
    const offset = offsets[call.operation?.name ?? 'none'];
    this.#increase(offset + placeOfStatus(call.status));
    this.#increase(offset + outcomePlaces[call.outcome]);
    if (call.backendDurationMs !== undefined && call.backendOutcome !== undefined) {
      this.#observe(offset + durationsAt, call.durationMs);
      this.#increase(offset + backendOutcomePlaces[call.backendOutcome]);
      this.#observe(offset + backendDurationsAt, call.backendDurationMs);
    } else {
      this.#observe(offset + durationsWithoutCallAt, call.durationMs);
    }
    if (call.outcome === 'bug') {
      this.count('bug');
    } else if (call.outcome === 'invalid-token') {
      this.count(`token ${call.flaw as TokenFlaw}`);
    }
  }

  recordMalformed(status: number): void {
    this.#increase(offsets.none + placeOfStatus(status));
    this.#increase(offsets.none + outcomePlaces[outcomeOfMalformed(status)]);
  }

  count(event: CountedEvent, times = 1): void {
    this.#increase(eventPlaces[event], times);
  }

  counted(event: CountedEvent): number {
    return this.#at(eventPlaces[event]);
  }

  add(other: Figures): this {
    for (const [index, value] of other.#block.entries()) this.#increase(index, value);
    return this;
  }

  /** Returns the growth since `earlier`. A figure that shrank is counted from zero. */
  since(earlier: Figures): Figures {
    const growth = this.#block.map((now, index) => {
      const before = earlier.#at(index);
      return now < before ? now : now - before;
    });
    return new Figures(growth);
  }

  isOther(other: Figures): boolean {
    return this.#block.some((value, index) => value !== other.#at(index));
  }

  requests(name: FigureName, status: (typeof statuses)[number]): number {
    return this.#at(offsets[name] + statusPlaces[status]);
  }

  outcomes(name: FigureName, outcome: CallOutcome): number {
    return this.#at(offsets[name] + outcomePlaces[outcome]);
  }

  backendOutcomes(name: FigureName, outcome: BackendOutcome): number {
    return this.#at(offsets[name] + backendOutcomePlaces[outcome]);
  }

  /** Durations from a request's head until its reply is passed to the socket, of requests that called the backend. */
  durations(name: FigureName): Durations {
    return this.#durations(offsets[name] + durationsAt);
  }

  durationsWithoutCall(name: FigureName): Durations {
    return this.#durations(offsets[name] + durationsWithoutCallAt);
  }

  /** Durations of backend calls, from sending the call until its outcome. */
  backendDurations(name: FigureName): Durations {
    return this.#durations(offsets[name] + backendDurationsAt);
  }

  toJSON(): readonly number[] {
    return [...this.#block];
  }

  #at(index: number): number {
    return this.#block[index] ?? 0;
  }

  #increase(index: number, by = 1): void {
    this.#block[index] = this.#at(index) + by;
  }

  #observe(offset: number, durationMs: number): void {
    this.#increase(offset, durationMs);
    this.#increase(offset + 1 + bucketOf(durationMs));
  }

  #durations(offset: number): Durations {
    return { sumMs: this.#at(offset), counts: this.#block.slice(offset + 1, offset + histogramSize) };
  }
}

// Returns the index of the first bucket whose bound is at least `durationMs`.
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
  /** Counts per bucket of `boundsMs`. The last count is for durations above every bound. */
  readonly counts: Float64Array;
}

export function addDurations(all: readonly Durations[]): Durations {
  const countIn = (index: number): number => all.reduce((sum, { counts }) => sum + (counts[index] ?? 0), 0);
  return {
    sumMs: all.reduce((sum, { sumMs }) => sum + sumMs, 0),
    counts: Float64Array.from(all[0]?.counts ?? [], (_, index) => countIn(index)),
  };
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

/** Returns a quantile in milliseconds; undefined without durations. `share` is, for instance, 0.99. */
export function percentile(durations: Durations, share: number): number | undefined {
  const count = countOf(durations);
  if (count === 0) return undefined;
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

/** The cause of a worker's end. `signal` is null if the worker exited by itself. */
export function causeOfDeath(signal: string | null, isFrozen: boolean): (typeof deathCauses)[number] {
  if (isFrozen) return 'frozen';
  return signal === null ? 'exit' : signal === 'SIGKILL' ? 'killed' : signal === 'SIGABRT' ? 'aborted' : 'signal';
}
