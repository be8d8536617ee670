// Creates the record of a failed call, for tests of the code that reads such records.

import type { CallRecord } from '../../packages/core/call/call-record.ts';

export function createCallRecord(changes: Partial<CallRecord> = {}): CallRecord {
  return {
    ...{ requestId: 'the-id', operation: undefined, method: 'GET', path: '/api/work-items/5', http: '1.1' },
    ...{ client: '127.0.0.1', subject: undefined, agent: undefined },
    ...{ status: 500, outcome: 'refused', cause: undefined, durationMs: 1, requestBytes: 0, replyBytes: 0 },
    ...{ backendOutcome: undefined, backendDurationMs: undefined, backendStatus: undefined },
    ...changes,
  };
}
