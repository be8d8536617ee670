// The options `observer` and `log` of hosts: what a developer's code learns about requests [D50, D51].

import { inspect } from 'node:util';

import type { CallRecord as Call } from '../../call/call-record.ts';
import type { GatewayObserver as Receiver } from '../../call/gateway.ts';
import type { OperationName } from '../../operations.ts';
import type { Reason } from '../../reasons.ts';
import type { ValueKind } from './kinds.ts';
import { Problem } from './problem.ts';
import { suggest } from './similar.ts';

/** The fields that the command's log lines have for a request. JSON leaves out undefined fields. */
export interface CallLine extends Pick<
  CallRecord,
  'requestId' | 'method' | 'path' | 'http' | 'client' | 'subject' | 'agent' | 'status' | 'outcome' | 'durationMs'
> {
  readonly operation: OperationName | undefined;
  readonly backendMs: number | undefined;
  readonly requestBytes: number;
  readonly replyBytes: number;
  /** Why the request failed, as a code and in words. Undefined for the outcome `bug`. */
  readonly reason: Reason | undefined;
  readonly cause: string | undefined;
  /** The error of the outcome `bug`. */
  readonly err: { readonly type: string; readonly message: string; readonly stack: string | undefined } | undefined;
}

/** Describes an ended request, without bodies. The only header values are request id, client, subject and agent. */
export interface CallRecord extends Omit<Call, 'operation'> {
  /** Undefined if the request matches no operation: an unknown path, or a method that the path does not have. */
  readonly operation: { readonly name: OperationName } | undefined;
  /** Returns the fields of the command's log line. Called by `JSON.stringify` and by most loggers. */
  toJSON(): CallLine;
}

/**
 * Called for the events of requests. Every function is optional. A slow function delays all requests. If a function
 * throws or rejects, `onBug` receives the error.
 */
export type GatewayObserver = {
  readonly [Name in keyof Receiver<CallRecord>]?: Receiver<CallRecord>[Name] | undefined;
};

const names: readonly string[] = [
  'onCallEnd',
  'onMalformed',
  'onStall',
  'onBug',
  'onOutage',
] satisfies (keyof GatewayObserver)[];

const observer: ValueKind<GatewayObserver> = {
  accept: (given) => {
    const problem = findProblem(given);
    return problem === undefined ? given : new Problem(problem);
  },
};

function findProblem(given: unknown): string | undefined {
  const list = names.join(', ');
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    return `must be an object with functions among ${list}`;
  }
  const prototype: unknown = Object.getPrototypeOf(given);
  const isPlain = prototype === Object.prototype || prototype === null;
  // An instance of a class may have other members, but no misspelt function.
  const found = isPlain ? Object.keys(given) : namesOf(given).filter((name) => /^on[A-Z]/.test(name));
  const unknown = found.find((name) => !names.includes(name));
  if (unknown !== undefined) return `has the unknown name ${unknown}${suggest(unknown, names)}`;
  const wrong = found.find((name) => !['function', 'undefined'].includes(typeof Reflect.get(given, name)));
  if (wrong !== undefined) return `must have a function as ${wrong}`;
  return isPlain || found.length > 0 ? undefined : `must have one of the functions ${list}`;
}

/** Lists the names of an object's own and inherited properties. */
function namesOf(value: object): string[] {
  const prototype = Object.getPrototypeOf(value) as object | null;
  const inherited = prototype === null || prototype === Object.prototype ? [] : namesOf(prototype);
  return [...Object.getOwnPropertyNames(value), ...inherited];
}

const log: ValueKind<false | ((line: string) => void)> = {
  accept: (given: unknown) =>
    given === false || typeof given === 'function'
      ? (given as false | ((line: string) => void))
      : new Problem('must be false or a function that receives a line'),
};

export const observerRows = {
  /** Its functions are called for the events of requests; each is optional. Failures are logged as without an observer. */
  observer: { kind: observer },
  /**
   * Receives a line of text for each failure of the backend or gateway; `false` writes no lines. Default: `console.error`,
   * and in Fastify `request.log`. Lines are limited to ten in ten seconds, except in `request.log`.
   */
  log: { kind: log },
};

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
