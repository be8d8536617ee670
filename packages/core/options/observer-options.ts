// The options `observer` and `log` of hosts: what a developer's code learns about requests [D50, D51].

import type { CallRecord as Call } from '../call/call-record.ts';
import type { GatewayObserver as Receiver } from '../call/gateway.ts';
import type { OperationName } from '../operations.ts';
import type { Reason } from '../reasons.ts';
import { onlyInCode } from './kinds.ts';
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

const observer = onlyInCode<GatewayObserver>((given) => {
  const problem = findProblem(given);
  return problem === undefined ? given : new Problem(problem);
});

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

const log = onlyInCode<false | ((line: string) => void)>((given: unknown) =>
  given === false || typeof given === 'function'
    ? (given as false | ((line: string) => void))
    : new Problem('must be false or a function that receives a line'),
);

export const observerRows = {
  /** Its functions are called for the events of requests; each is optional. Failures are logged as without an observer. */
  observer: { kind: observer },
  /**
   * Receives a line of text for each failure of the backend or gateway; `false` writes no lines. Default: `console.error`,
   * and in Fastify `request.log`. Lines are limited to ten in ten seconds, except in `request.log`.
   */
  log: { kind: log },
};
