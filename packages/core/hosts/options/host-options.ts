// Options of several hosts that the command does not have.

import type { GatewayObserver } from '../../call/gateway.ts';
import type { ValueKind } from './kinds.ts';
import { Problem } from './problem.ts';

const prefixPattern = /^(?:\/[^/?#]+)*$/;

/** A path prefix, empty or such as `/base`. */
export const prefix: ValueKind<string> = {
  accept: (given) => (prefixPattern.test(given) ? given : new Problem('must start with a slash and not end with one')),
};

// All are required, because an observer with a misspelt function name would silently miss events.
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
