// Options that several hosts have and the command does not have.

import type { GatewayObserver } from '../../call/gateway.ts';
import type { ValueKind } from './kinds.ts';
import { timeLimitRows } from './limits.ts';
import { Problem } from './problem.ts';

const prefixPattern = /^(?:\/[^/?#]+)*$/;

const prefix: ValueKind<string> = {
  accept: (given) => (prefixPattern.test(given) ? given : new Problem('must start with a slash and not end with one')),
};

// All functions in this list are required: an observer with a misspelt function name would silently miss events.
const observerNames = ['onCallEnd', 'onMalformed', 'onStall', 'onBug'] satisfies (keyof GatewayObserver)[];

export const observer: ValueKind<GatewayObserver> = {
  accept: (given) =>
    isObserver(given) ? given : new Problem(`must be an object with the functions ${observerNames.join(', ')}`),
};

function isObserver(value: unknown): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    observerNames.every((name) => typeof Reflect.get(value, name) === 'function') &&
    ['function', 'undefined'].includes(typeof Reflect.get(value, 'onOutage'))
  );
}

/** The options of the handlers for Node and fetch. */
export const handlerRows = {
  /** Path prefix before `/api/work-items`, as the client sends it, such as the base path of a site. Default: none. */
  prefix: { kind: prefix },
  /**
   * Timeout for receiving a request body, in milliseconds. A late body gets 408, and a Node server closes the connection
   * [D35]. Default 30,000.
   */
  requestTimeoutMs: timeLimitRows.requestTimeoutMs,
  /** Called for every finished request. Default: writes failures with `console.error`, one line each. */
  observer: { kind: observer },
};
