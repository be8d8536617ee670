// The record of a request, for observers and traces.

import type { Operation } from '../operations.ts';
import type { BackendOutcome, CallOutcome } from '../outcomes.ts';
import type { Reason } from '../reasons.ts';

/** Describes an ended request, without bodies. The only header values are request id, client, subject and agent. */
export interface CallRecord {
  readonly requestId: string;
  /** Undefined if the request matches no operation: an unknown path, or a method that the path does not have. */
  readonly operation: Operation | undefined;
  readonly method: string;
  /** The target's path, without the query. It is escaped and therefore safe to show [D52]. */
  readonly path: string;
  /** The client's address, from the connection or from trusted proxies [D52]; undefined if unknown. */
  readonly client: string | undefined;
  /** The verified token's subject, at most 256 characters, escaped; undefined if there is none [D62]. */
  readonly subject: string | undefined;
  /** The `user-agent`, at most 128 characters, escaped to printable ASCII; undefined if there is none [D62]. */
  readonly agent: string | undefined;
  readonly http: '1.0' | '1.1' | '2';
  /** The reply's status; 0 if there was no reply, because the client had left or the gateway stopped. */
  readonly status: number;
  readonly outcome: CallOutcome;
  /** Says why body or answer is unusable, or a guard refused. An error for a `bug`, or if the host replied first. */
  readonly cause: unknown;
  /** A code for the cause, if the request was malformed or the backend's answer unusable. */
  readonly reason?: Reason | undefined;
  /** For the outcome `invalid-token`: the guard's code for the token's defect. */
  readonly flaw?: string | undefined;
  /** Outcome of the call to the backend, if any. `cancelled`: the client left or the gateway stopped. */
  readonly backendOutcome: BackendOutcome | undefined;
  /** The status of the backend's answer; undefined if no readable answer arrived. */
  readonly backendStatus: number | undefined;
  /** Time from the arrival of the request's head until the reply is passed to the socket. */
  readonly durationMs: number;
  /** Time from calling the backend to the outcome; undefined if the backend was not called. */
  readonly backendDurationMs: number | undefined;
  readonly requestBytes: number;
  readonly replyBytes: number;
}
