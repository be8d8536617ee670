// The states of a worker, as the primary process sees them. member.ts changes the state only with `nextState`.

export type WorkerState = 'starting' | 'serving' | 'draining' | 'ended';

/**
 * `ready`: the worker serves clients. `leave`: the worker is to end, for a reason in `Departure`. `end`: its process has
 * ended.
 */
type WorkerEvent = 'ready' | 'leave' | 'end';

/**
 * Why a worker ends. `fault`: it had an internal error. `hung`: it did not answer. `surplus`: fewer workers are needed.
 * `stop`: the gateway stops.
 */
export type Departure = 'fault' | 'hung' | 'surplus' | 'stop';

// A worker that is to leave may still become ready, and may get a second reason to leave.
const states: Readonly<Record<WorkerState, Readonly<Partial<Record<WorkerEvent, WorkerState>>>>> = {
  starting: { ready: 'serving', leave: 'draining', end: 'ended' },
  serving: { leave: 'draining', end: 'ended' },
  draining: { ready: 'draining', leave: 'draining', end: 'ended' },
  ended: {},
};

/** Returns the state after `event`. Throws if the table above has no such event for `state`. */
export function nextState(state: WorkerState, event: WorkerEvent): WorkerState {
  const next = states[state][event];
  if (next === undefined) throw new Error(`a worker that is ${state} cannot have the event ${event}`);
  return next;
}
