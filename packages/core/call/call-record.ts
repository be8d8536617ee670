// What observers and traces get of a request that has ended.

import type { Operation } from '../operations.ts';
import type { BackendOutcome, CallOutcome } from '../outcomes.ts';
import type { Reason } from '../reasons.ts';

/** A request that has ended. Never a body, and of the headers' values only request id, client, subject and agent. */
export interface CallRecord {
  readonly requestId: string;
  /** Undefined where no operation was called: an unknown path, a method that the path does not have. */
  readonly operation: Operation | undefined;
  readonly method: string;
  /** The target's path, without its query: safe to show [D52]. */
  readonly path: string;
  /** The client's address, as far as it is known; behind trusted proxies that which they say [D52]. */
  readonly client: string | undefined;
  /** The subject of the verified token, at most 256 characters, safe to show; undefined where there is none [D62]. */
  readonly subject: string | undefined;
  /** The `user-agent`: printable ASCII, the rest escaped, at most 128 characters; undefined where there is none [D62]. */
  readonly agent: string | undefined;
  /** The version of HTTP that the client spoke [D62]. */
  readonly http: '1.0' | '1.1' | '2';
  /** The reply's status; 0 when the client had gone, or was cut off by our stop, before there was one. */
  readonly status: number;
  readonly outcome: CallOutcome;
  /** Why the backend's answer was of no use, or the error behind a `bug`. */
  readonly cause: unknown;
  /** The same as a code: why the backend's answer was of no use; undefined for other outcomes. */
  readonly reason?: Reason | undefined;
  /** What is wrong with the token of an `invalid-token`, as the guard calls it. */
  readonly flaw?: string | undefined;
  /** What came of the call to the backend; undefined where it was not called, `cancelled` when its client left. */
  readonly backendOutcome: BackendOutcome | undefined;
  /** The status of the backend's answer; undefined where it gave none that could be read. */
  readonly backendStatus: number | undefined;
  /** From the request's head to the reply being handed to the socket. */
  readonly durationMs: number;
  /** From sending to the outcome; undefined where the backend was not called. */
  readonly backendDurationMs: number | undefined;
  readonly requestBytes: number;
  readonly replyBytes: number;
}
