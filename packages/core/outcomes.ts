// The outcomes of a request, each with the party at fault [D51]. The log, the metrics, the alerts, the dashboard and the
// documents use this table. Replies to clients do not use it.

import type { Operation } from './operations.ts';

export type Fault = 'client' | 'backend' | 'gateway' | 'nobody';

interface OutcomeRow {
  readonly fault: Fault;
  readonly level: 'info' | 'warn' | 'error';
  /** The field `msg` of the request's log line. */
  readonly message: string;
  /** Shown on the dashboard. */
  readonly meaning: string;
}

// prettier-ignore
export const outcomes = {
  'ok':             { fault: 'nobody',  level: 'info',  message: 'request',             meaning: 'success' },
  'not-found':      { fault: 'client',  level: 'info',  message: 'request',             meaning: 'a read of an item that does not exist' },
  'rejected':       { fault: 'client',  level: 'info',  message: 'request',             meaning: 'the backend is healthy and rejected this request' },
  'refused':        { fault: 'backend', level: 'warn',  message: 'backend call failed', meaning: 'the backend answered without success' },
  'unreachable':    { fault: 'backend', level: 'warn',  message: 'backend call failed', meaning: 'no complete, well-formed answer' },
  'timed-out':      { fault: 'backend', level: 'warn',  message: 'backend call failed', meaning: 'no answer in time' },
  'not-json':       { fault: 'backend', level: 'warn',  message: 'backend call failed', meaning: 'a successful answer that is not JSON' },
  'too-large':      { fault: 'backend', level: 'warn',  message: 'backend call failed', meaning: 'an answer over the size limit' },
  'invalid-id':     { fault: 'client',  level: 'info',  message: 'request',             meaning: 'the id in the path is not an integer' },
  'invalid-body':   { fault: 'client',  level: 'info',  message: 'request',             meaning: 'the body is not JSON' },
  'body-too-large': { fault: 'client',  level: 'info',  message: 'request',             meaning: 'a body over the size limit' },
  'bad-request':    { fault: 'client',  level: 'info',  message: 'request',             meaning: 'a request that is malformed or too slow' },
  'no-operation':   { fault: 'client',  level: 'info',  message: 'request',             meaning: 'an unknown path or method' },
  'forbidden':      { fault: 'client',  level: 'info',  message: 'request',             meaning: 'sent by a page of another site, or to an unknown host name' },
  'rate-limited':   { fault: 'client',  level: 'info',  message: 'request',             meaning: 'more requests than the rate limit allows' },
  'no-token':       { fault: 'client',  level: 'info',  message: 'request',             meaning: 'no token was sent' },
  'invalid-token':  { fault: 'client',  level: 'info',  message: 'request',             meaning: 'an invalid or expired token' },
  'insufficient-scope': { fault: 'client', level: 'info', message: 'request',             meaning: 'a token without the scope that the operation requires' },
  'no-keys':        { fault: 'gateway', level: 'warn',  message: 'turned away',         meaning: 'no key to verify the token: the issuer does not answer' },
  'overload':       { fault: 'gateway', level: 'warn',  message: 'turned away',         meaning: 'too many calls or bytes at once, or no file descriptor left' },
  'bug':            { fault: 'gateway', level: 'error', message: 'internal error',      meaning: 'a bug in the gateway' },
  'client-gone':    { fault: 'nobody',  level: 'info',  message: 'request',             meaning: 'the client disconnected first' },
  'shutdown':       { fault: 'nobody',  level: 'info',  message: 'request',             meaning: 'cut off when the gateway stopped' },
} as const satisfies Readonly<Record<string, OutcomeRow>>;

export type CallOutcome = keyof typeof outcomes;

export const callOutcomes = Object.keys(outcomes) as readonly CallOutcome[];

/** Outcomes of a call to the backend. `cancelled`: the client left, or the gateway stopped, before the call ended. */
export const backendOutcomes = [
  'ok',
  'not-found',
  'rejected',
  'refused',
  'unreachable',
  'timed-out',
  'not-json',
  'too-large',
  'cancelled',
] as const satisfies readonly (CallOutcome | 'cancelled')[];

export type BackendOutcome = (typeof backendOutcomes)[number];

export function faultOfBackendOutcome(outcome: BackendOutcome): Fault {
  return outcome === 'cancelled' ? 'nobody' : outcomes[outcome].fault;
}

/** Statuses with which a healthy backend rejects a request. For `list` they are failures of the backend. */
export const rejectedStatuses: readonly number[] = [
  400, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 428, 431,
];

export const unsuccessfulAnswers = ['not-found', 'rejected', 'refused'] as const satisfies readonly BackendOutcome[];

/** Returns the outcome for a backend's answer whose `status` is not a success. */
export function outcomeOfAnswer(
  status: number | undefined,
  { on, takesBody, notFoundMessage }: Pick<Operation, 'on' | 'takesBody' | 'notFoundMessage'>,
): (typeof unsuccessfulAnswers)[number] {
  if (status === 404 && notFoundMessage !== undefined) return 'not-found';
  // If `list` is rejected, the backend's address must be wrong, because the request has no id and no body to reject.
  const canBeRejected = on === 'item' || takesBody;
  return canBeRejected && status !== undefined && rejectedStatuses.includes(status) ? 'rejected' : 'refused';
}

/** Returns the outcome of a malformed request from its reply's status. 404 and 405 mean: no operation matches [D6]. */
export function outcomeOfMalformed(status: number): 'no-operation' | 'bad-request' {
  return status === 404 || status === 405 ? 'no-operation' : 'bad-request';
}
