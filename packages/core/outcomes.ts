// How a request can end, and who is at fault: one table for the log, the metrics, the alerts, the dashboard and the
// documents [D51]. A client's reply does not come from here.

import type { Operation } from './operations.ts';

export type Fault = 'client' | 'backend' | 'gateway' | 'nobody';

interface OutcomeRow {
  readonly fault: Fault;
  /** Of the request's line in the log. */
  readonly level: 'info' | 'warn' | 'error';
  /** `msg` of that line. */
  readonly message: string;
  /** For people: on the dashboard. */
  readonly title: string;
  readonly meaning: string;
}

// prettier-ignore
export const outcomes = {
  'ok':             { fault: 'nobody',  level: 'info',  message: 'request',                title: 'ok',             meaning: 'done' },
  'not-found':      { fault: 'client',  level: 'info',  message: 'request',                title: 'not found',      meaning: 'a read of an item that is not there' },
  'rejected':       { fault: 'client',  level: 'info',  message: 'request',                title: 'rejected',       meaning: 'the backend is healthy and rejected this request' },
  'refused':        { fault: 'backend', level: 'warn',  message: 'backend call failed',    title: 'refused',        meaning: 'it answered, but with no success' },
  'unreachable':    { fault: 'backend', level: 'warn',  message: 'backend call failed',    title: 'unreachable',    meaning: 'no complete, well-formed answer' },
  'timed-out':      { fault: 'backend', level: 'warn',  message: 'backend call failed',    title: 'timed out',      meaning: 'no answer in time' },
  'not-json':       { fault: 'backend', level: 'warn',  message: 'backend call failed',    title: 'not JSON',       meaning: 'success, but with no JSON' },
  'too-large':      { fault: 'backend', level: 'warn',  message: 'backend call failed',    title: 'too large',      meaning: 'an answer over its limit' },
  'invalid-id':     { fault: 'client',  level: 'info',  message: 'request',                title: 'invalid id',     meaning: 'the path holds no integer' },
  'invalid-body':   { fault: 'client',  level: 'info',  message: 'request',                title: 'body not JSON',  meaning: 'the body is not JSON' },
  'body-too-large': { fault: 'client',  level: 'info',  message: 'request',                title: 'body too large', meaning: 'a body over its limit' },
  'bad-request':    { fault: 'client',  level: 'info',  message: 'request',                title: 'malformed HTTP', meaning: 'malformed or too slow' },
  'no-operation':   { fault: 'client',  level: 'info',  message: 'request',                title: 'no operation',   meaning: 'an unknown path or method' },
  'forbidden':      { fault: 'client',  level: 'info',  message: 'request',                title: 'forbidden',      meaning: 'from a page of another site, or for a name that is not ours' },
  'rate-limited':   { fault: 'client',  level: 'info',  message: 'request',                title: 'rate limited',   meaning: 'more requests than the rate limit lets this client make' },
  'no-token':       { fault: 'client',  level: 'info',  message: 'request',                title: 'no token',       meaning: 'without a token' },
  'invalid-token':  { fault: 'client',  level: 'info',  message: 'request',                title: 'invalid token',  meaning: 'a token that is not valid, or not any more' },
  'insufficient-scope': { fault: 'client', level: 'info', message: 'request',              title: 'scope missing',  meaning: 'a token without the scope of its operation' },
  'no-keys':        { fault: 'gateway', level: 'warn',  message: 'turned away',            title: 'no keys',        meaning: 'no key to check its token with: the issuer does not answer' },
  'overload':       { fault: 'gateway', level: 'warn',  message: 'turned away',            title: 'overload',       meaning: 'turned away: too much at once, or no file descriptor left' },
  'bug':            { fault: 'gateway', level: 'error', message: 'a fault of the gateway', title: 'own fault',      meaning: 'a defect of the gateway: see the log' },
  'client-gone':    { fault: 'nobody',  level: 'info',  message: 'request',                title: 'client gone',    meaning: 'the client went away first' },
  'shutdown':       { fault: 'nobody',  level: 'info',  message: 'request',                title: 'shutdown',       meaning: 'cut when the gateway stopped' },
} as const satisfies Readonly<Record<string, OutcomeRow>>;

export type CallOutcome = keyof typeof outcomes;

export const callOutcomes = Object.keys(outcomes) as readonly CallOutcome[];

/** What can come of a call to the backend; `cancelled` where we ended it, since its client left or we stopped. */
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

/** Who is at fault when a call to the backend has come to that. */
export function faultOfBackendOutcome(outcome: BackendOutcome): Fault {
  return outcome === 'cancelled' ? 'nobody' : outcomes[outcome].fault;
}

/** Statuses of a healthy backend that rejects a request; for a list they are its failures too, as all others are. */
export const rejectedStatuses: readonly number[] = [
  400, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422, 428, 431,
];

/** The outcomes of a call that the backend answered without success. */
export const unsuccessfulAnswers = [
  'not-found',
  'rejected',
  'refused',
] as const satisfies readonly BackendOutcome[];

/** The outcome of an answer without success. */
export function outcomeOfAnswer(
  status: number | undefined,
  { on, takesBody, notFoundMessage }: Pick<Operation, 'on' | 'takesBody' | 'notFoundMessage'>,
): (typeof unsuccessfulAnswers)[number] {
  if (status === 404 && notFoundMessage !== undefined) {
    return 'not-found';
  }
  // A request without an id and a body has nothing to reject: its address is wrong.
  const canBeRejected = on === 'item' || takesBody;
  return canBeRejected && status !== undefined && rejectedStatuses.includes(status) ? 'rejected' : 'refused';
}

/** What bytes are that were no request, by the status of their reply: a method that nobody knows is well-formed [D6]. */
export function outcomeOfMalformed(status: number): 'no-operation' | 'bad-request' {
  return status === 404 || status === 405 ? 'no-operation' : 'bad-request';
}
