// Creates the record of a failed call, for tests of the code that reads such records.

import type { CallRecord } from '../../packages/core/call/call-record.ts';

export function createCallRecord(changes: Partial<CallRecord> = {}): CallRecord {
  return {
    requestId: 'the-id',
    operation: undefined,
    method: 'GET',
    path: '/api/work-items/5',
    client: '127.0.0.1',
    subject: undefined,
    agent: undefined,
    http: '1.1',
    status: 500,
    outcome: 'refused',
    cause: undefined,
    backendOutcome: undefined,
    durationMs: 1,
    backendDurationMs: undefined,
    backendStatus: undefined,
    requestBytes: 0,
    replyBytes: 0,
    ...changes,
  };
}
