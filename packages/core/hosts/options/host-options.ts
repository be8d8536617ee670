// Options that several hosts have of their own.

import type { GatewayObserver } from '../../call/gateway.ts';
import type { ValueKind } from './kinds.ts';
import { Problem } from './problem.ts';

const prefixPattern = /^(?:\/[^/?#]+)*$/;

/** The path before those of the operations. */
export const prefix: ValueKind<string> = {
  accept: (given) =>
    prefixPattern.test(given) ? given : new Problem('must begin with a slash and not end in one'),
};

// One that lacks some would be told nothing, and nobody would be told of that.
const observerNames = ['onCallEnd', 'onMalformed', 'onStall', 'onBug'] satisfies (keyof GatewayObserver)[];

export const observer: ValueKind<GatewayObserver> = {
  accept: (given) =>
    isObserver(given)
      ? given
      : new Problem(`must be an object with the functions ${observerNames.join(', ')}`),
};

function isObserver(value: unknown): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    observerNames.every((name) => typeof Reflect.get(value, name) === 'function') &&
    ['function', 'undefined'].includes(typeof Reflect.get(value, 'onOutage'))
  );
}
