// The tracing interface [D49]. packages/command/traces/ records and exports the spans.

import type { RequestHead } from '../http1/head.ts';
import type { CallRecord } from './call-record.ts';

export interface CallTrace {
  /** Called at most once, when the backend is called. Returns the trace context for the backend: names and values. */
  startBackendCall(path: string): readonly string[];
  end(record: CallRecord): void;
}

export interface Tracer {
  /** Called for every request, sampled or not. The trace of an unsampled request costs little. */
  start(head: RequestHead): CallTrace;
}
