// The port through which calls are traced [D49]: what a call tells of itself, and what it asks for. Whoever records and
// exports spans is behind it, in the command's traces/.

import type { RequestHead } from '../http1/head.ts';
import type { CallRecord } from './call-record.ts';

/** Traces one request. */
export interface CallTrace {
  /** The backend is called now, at `path`: the trace context of that call, as name, value, ... To be asked once at most. */
  startBackendCall(path: string): readonly string[];
  /** The request has ended so. */
  end(record: CallRecord): void;
}

export interface Tracer {
  /** A request has come. Sampled or not, it has a trace, which costs little where it is not. */
  start(head: RequestHead): CallTrace;
}
