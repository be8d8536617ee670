// Keeps the last failed requests for the dashboard, without their bodies. Each party at fault has its own limit, so
// that failures of clients do not displace failures of the backend.

import { escapeControls } from '../core/text/escape.ts';
import type { CallRecord } from '../core/call/call-record.ts';
import { outcomeOfMalformed, outcomes, type CallOutcome, type Fault } from '../core/outcomes.ts';
import { shortTextOf } from '../core/reasons.ts';

/** The party at fault for a failed request. */
export type Party = Exclude<Fault, 'nobody'>;

export interface Failure {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly requestId: string;
  /** Undefined if the request matched no operation. */
  readonly operation: string | undefined;
  /** The target without its query; undefined for a malformed request. */
  readonly path: string | undefined;
  /** The client's address; undefined if it is unknown or must not be shown. */
  readonly client: string | undefined;
  readonly status: number;
  readonly outcome: CallOutcome;
  readonly party: Party;
  readonly cause: string | undefined;
  readonly durationMs: number;
}

/** The last failure that one party caused. */
export interface LastFailure {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Calls to the backend since then, except failures of this party. The most recent calls may not be counted yet. */
  readonly callsSince: number;
}

/** Number of failures shown per party. */
export const failuresMax = 50;
const storedMax = 4 * failuresMax;
const causeLengthMax = 200;

/** A finished request; it was malformed if it has no path. */
type Ended = Pick<CallRecord, 'requestId' | 'client' | 'status' | 'outcome' | 'cause' | 'durationMs'> &
  Partial<Pick<CallRecord, 'operation' | 'path' | 'reason'>>;

/** Merges the lists of several processes, latest first, with at most `failuresMax` per party. */
export function joinFailures(lists: readonly (readonly Failure[])[]): Failure[] {
  const counts: Record<Party, number> = { client: 0, gateway: 0, backend: 0 };
  return lists
    .flat()
    .sort((one, other) => other.at - one.at)
    .filter(({ party }) => (counts[party] += 1) <= failuresMax);
}

export class RecentFailures {
  // In order of arrival, which `at` does not show: many failures can have the same `at`.
  #failures: Failure[] = [];

  /** Keeps `call` if it failed. Keeps the client's address only if `showsClient`. */
  record(call: Ended, showsClient: boolean): void {
    const party = outcomes[call.outcome].fault;
    if (party === 'nobody') return;
    // Describing the path takes time, and most calls succeed.
    const { requestId, operation, path, status, outcome, durationMs } = call;
    const client = showsClient ? call.client : undefined;
    const cause = describeCause(shortTextOf(call.reason, call.cause));
    const at = Date.now();
    const failure = {
      at,
      requestId,
      operation: operation?.name,
      path,
      client,
      status,
      outcome,
      party,
      cause,
      durationMs,
    };
    this.#failures.push(failure);
    if (this.#failures.length === storedMax) this.#failures = this.list().reverse();
  }

  /** Keeps a malformed request. */
  recordMalformed(requestId: string, status: number, cause: string, client: string | undefined): void {
    const outcome = outcomeOfMalformed(status);
    this.record({ requestId, client, status, outcome, cause, durationMs: 0 }, true);
  }

  /** All failures kept, latest first. */
  list(): Failure[] {
    return joinFailures([this.#failures.toReversed()]);
  }
}

function describeCause(cause: unknown): string | undefined {
  const text = cause instanceof Error ? cause.message : cause;
  return typeof text === 'string' ? escapeControls(text.slice(0, causeLengthMax)) : undefined;
}
