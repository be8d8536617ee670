// The last requests that failed, for the dashboard: so many of each party's, so that a client that sends
// nothing but mistakes does not push out what the backend did. Never a body.

import { escapeControls } from '../core/text/escape.ts';
import type { CallRecord } from '../core/call/call-record.ts';
import { outcomeOfMalformed, outcomes, type CallOutcome, type Fault } from '../core/outcomes.ts';
import { shortTextOf } from '../core/reasons.ts';

/** Who is at fault when a request has failed. */
export type Party = Exclude<Fault, 'nobody'>;

export interface Failure {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly requestId: string;
  /** Undefined where no operation was called. */
  readonly operation: string | undefined;
  /** Of its target, without the query; undefined for bytes that were no request. */
  readonly path: string | undefined;
  /** The client's address; undefined where it is not known, or not to be shown. */
  readonly client: string | undefined;
  readonly status: number;
  readonly outcome: CallOutcome;
  readonly party: Party;
  readonly cause: string | undefined;
  readonly durationMs: number;
}

/** How many failures are kept of each party. */
export const failuresMax = 50;
const causeLengthMax = 200;

function describeCause(cause: unknown): string | undefined {
  const text = cause instanceof Error ? cause.message : cause;
  return typeof text === 'string' ? escapeControls(text.slice(0, causeLengthMax)) : undefined;
}

/** Lists of several processes as one, the latest first, with no more of a party than one list may have. */
export function joinFailures(lists: readonly (readonly Failure[])[]): Failure[] {
  const counts: Record<Party, number> = { client: 0, gateway: 0, backend: 0 };
  return lists
    .flat()
    .sort((one, other) => other.at - one.at)
    .filter(({ party }) => {
      counts[party] += 1;
      return counts[party] <= failuresMax;
    });
}

export class RecentFailures {
  // In the order in which they came: many can have the same millisecond.
  readonly #failures: Failure[] = [];
  readonly #counts: Record<Party, number> = { client: 0, gateway: 0, backend: 0 };

  /** Keeps `call` if it failed; with its client's address where `showsClient`. */
  record(call: CallRecord, showsClient: boolean): void {
    const party = outcomes[call.outcome].fault;
    if (party === 'nobody') {
      return;
    }
    this.#keep({
      at: Date.now(),
      requestId: call.requestId,
      operation: call.operation?.name,
      path: call.path,
      client: showsClient ? call.client : undefined,
      status: call.status,
      outcome: call.outcome,
      party,
      cause: describeCause(shortTextOf(call.reason, call.cause)),
      durationMs: call.durationMs,
    });
  }

  /** Keeps bytes that were no request; `code` is what the parser called them. */
  recordMalformed(requestId: string, status: number, code: string, client: string | undefined): void {
    this.#keep({
      at: Date.now(),
      requestId,
      operation: undefined,
      path: undefined,
      client,
      status,
      outcome: outcomeOfMalformed(status),
      party: 'client',
      cause: code === '' ? undefined : code,
      durationMs: 0,
    });
  }

  /** Every failure that is kept, the latest first. */
  list(): Failure[] {
    return this.#failures.toReversed();
  }

  #keep(failure: Failure): void {
    const { party } = failure;
    this.#failures.push(failure);
    this.#counts[party] += 1;
    if (this.#counts[party] > failuresMax) {
      this.#counts[party] -= 1;
      const oldest = this.#failures.findIndex((each) => each.party === party);
      this.#failures.splice(oldest, 1);
    }
  }
}
