// Keeps the last failed requests for the dashboard, without their bodies. Each outcome has its own limit, so that a
// frequent failure does not displace a rare one.

import { escapeControls } from '../core/text/escape.ts';
import type { CallRecord } from '../core/call/call-record.ts';
import { callOutcomes, outcomeOfMalformed, outcomes, type CallOutcome, type Fault } from '../core/outcomes.ts';
import { shortTextOf } from '../core/reasons.ts';
import { troubleOfCall, type FailedCall, type TroubleCode } from './troubles.ts';

export type Party = Exclude<Fault, 'nobody'>;

export interface Failure {
  /** In ms since 1970. */
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
  readonly trouble?: TroubleCode | undefined;
  readonly durationMs: number;
}

export interface LastFailure {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Calls to the backend since then, except failures of this party. The most recent calls may not be counted yet. */
  readonly callsSince: number;
}

/** Failures kept of each outcome, even if all of them are older than the last `latestMax` failures. */
export const failuresMax = 50;
/** Number of failures kept of all outcomes together: those of a minute, at four a second. */
export const latestMax = 250;
const storedMax = 2 * latestMax + failuresMax * callOutcomes.length;
const causeLengthMax = 200;

/** A finished request; it was malformed if it has no path. */
type Ended = Pick<CallRecord, 'requestId' | 'client' | 'status' | 'cause' | 'durationMs'> &
  Partial<Pick<CallRecord, 'path'>> &
  FailedCall;

/** Merges the lists of several processes, latest first: the last `latestMax`, and the last `failuresMax` of each outcome. */
export function joinFailures(lists: readonly (readonly Failure[])[]): Failure[] {
  const counts: Partial<Record<CallOutcome, number>> = {};
  return lists
    .flat()
    .sort((one, other) => other.at - one.at)
    .filter(({ outcome }, index) => {
      const count = (counts[outcome] ?? 0) + 1;
      counts[outcome] = count;
      return index < latestMax || count <= failuresMax;
    });
}

export class RecentFailures {
  // In order of arrival, which `at` does not show: many failures can have the same `at`.
  #failures: Failure[] = [];

  /** Keeps `call` if it failed. Keeps the client's address only if `showsClient`. */
  record(call: Ended, showsClient: boolean): void {
    const party = outcomes[call.outcome].fault;
    if (party === 'nobody') return;
    // Describing the path takes time, and most calls succeed.
    const { requestId, operation, path, client, status, outcome, reason, durationMs } = call;
    this.#failures.push({
      at: Date.now(),
      requestId,
      operation: operation?.name,
      path: copyText(path),
      client: showsClient ? copyText(client) : undefined,
      status,
      outcome,
      party,
      cause: copyText(describeCause(shortTextOf(reason, call.cause))),
      trouble: party === 'backend' ? troubleOfCall(call) : undefined,
      durationMs,
    });
    if (this.#failures.length === storedMax) this.#failures = this.list().reverse();
  }

  recordMalformed(requestId: string, status: number, cause: string, client: string | undefined): void {
    const outcome = outcomeOfMalformed(status);
    this.record({ requestId, client, status, outcome, cause, durationMs: 0 }, true);
  }

  list(): Failure[] {
    return joinFailures([this.#failures.toReversed()]);
  }
}

// A part of a longer text, such as a path in a target of 16 KB, would keep all of that text in memory.
function copyText(text: string | undefined): string | undefined {
  return text && (JSON.parse(JSON.stringify(text)) as string);
}

function describeCause(cause: unknown): string | undefined {
  const text = cause instanceof Error ? cause.message : cause;
  return typeof text === 'string' ? escapeControls(text.slice(0, causeLengthMax)) : undefined;
}
