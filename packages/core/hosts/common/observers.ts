// Calls the developer's observer, and makes the records that it gets [D50, D51].

import { inspect } from 'node:util';

import type { CallRecord as Call } from '../../call/call-record.ts';
import type { GatewayObserver as Receiver } from '../../call/gateway.ts';
import type { CallLine, CallRecord, GatewayObserver } from '../../options/observer-options.ts';

/** Joins the host's log of failures with the developer's observer. Each receives all events, even if the other throws. */
export function joinObservers(failures: Receiver | undefined, given: GatewayObserver = {}): Receiver {
  // All functions get the same record of a call, unless it is frozen.
  const records = new WeakMap<Call, EndedCall>();
  const recordOf = (call: Call): EndedCall => {
    const known = records.get(call);
    // A fault after the end changes a call. A record that the developer has frozen stays as it was.
    if (known !== undefined && !Object.isFrozen(known)) {
      return Object.assign(known, { outcome: call.outcome, cause: call.cause });
    }
    const record = new EndedCall(call);
    if (given.onStall ?? given.onBug) records.set(call, record);
    return record;
  };
  const onRejected = (error: unknown): void => {
    try {
      joined.onBug(error, undefined);
    } catch {
      // The observer itself fails, so the error cannot be reported.
    }
  };
  const settle = (result: unknown): void => catchRejection(result, onRejected);
  const joined: Receiver = {
    onCallEnd: (call) => {
      try {
        failures?.onCallEnd(call);
      } finally {
        settle(given.onCallEnd?.(recordOf(call)));
      }
    },
    onMalformed: (...event) => settle(given.onMalformed?.(...event)),
    onStall: (call) => settle(given.onStall?.(recordOf(call))),
    onBug: (error, call) => {
      try {
        failures?.onBug(error, call);
      } finally {
        // Reporting its rejection to itself could go on without end.
        catchRejection(given.onBug?.(error, call && recordOf(call)), () => undefined);
      }
    },
    onOutage: (...event) => {
      try {
        failures?.onOutage?.(...event);
      } finally {
        settle(given.onOutage?.(...event));
      }
    },
  };
  return joined;
}

/** Calls `onRejected` if `result` is a promise that rejects. Otherwise the rejection would end the process. */
export function catchRejection(result: unknown, onRejected: (error: unknown) => void): void {
  if (typeof (result as Partial<PromiseLike<unknown>> | null | undefined)?.then === 'function') {
    Promise.resolve(result).catch(onRejected);
  }
}

// A copy, because the call itself changes later, and holds connection and head. Its fields are its own, so that spread,
// `structuredClone` and loggers find them. Copying costs 0.1 µs; own getters would cost 1 µs.
class EndedCall implements CallRecord {
  readonly requestId;
  readonly operation;
  readonly method;
  readonly path;
  readonly http;
  readonly client;
  readonly subject;
  readonly agent;
  readonly status;
  readonly outcome;
  readonly cause;
  readonly reason;
  readonly flaw;
  readonly backendOutcome;
  readonly backendStatus;
  readonly durationMs;
  readonly backendDurationMs;
  readonly requestBytes;
  readonly replyBytes;

  constructor(call: Call) {
    this.requestId = call.requestId;
    this.operation = call.operation && { name: call.operation.name };
    this.method = call.method;
    this.path = call.path;
    this.http = call.http;
    this.client = call.client;
    this.subject = call.subject;
    this.agent = call.agent;
    this.status = call.status;
    this.outcome = call.outcome;
    this.cause = call.cause;
    this.reason = call.reason;
    this.flaw = call.flaw;
    this.backendOutcome = call.backendOutcome;
    this.backendStatus = call.backendStatus;
    this.durationMs = call.durationMs;
    this.backendDurationMs = call.backendDurationMs;
    this.requestBytes = call.requestBytes;
    this.replyBytes = call.replyBytes;
  }

  toJSON(): CallLine {
    const { requestId, method, path, http, client, subject, agent, status, outcome, requestBytes, replyBytes } = this;
    const { operation, durationMs, backendDurationMs, reason, cause } = this;
    const isBug = outcome === 'bug';
    return {
      ...{ requestId, operation: operation?.name, method, path, http, client, subject, agent, status, outcome },
      durationMs: roundMs(durationMs),
      backendMs: backendDurationMs === undefined ? undefined : roundMs(backendDurationMs),
      ...{ requestBytes, replyBytes },
      reason: isBug ? undefined : reason,
      cause: isBug || cause === undefined ? undefined : textOf(cause),
      err: isBug ? describe(cause) : undefined,
    };
  }
}

function textOf(cause: unknown): string {
  return typeof cause === 'string' ? cause : cause instanceof Error ? cause.message : inspect(cause);
}

function describe(error: unknown): NonNullable<CallLine['err']> {
  return error instanceof Error
    ? { type: error.constructor.name, message: error.message, stack: error.stack }
    : { type: typeof error, message: textOf(error), stack: undefined };
}

function roundMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
