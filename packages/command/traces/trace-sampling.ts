// Which calls are traced: the samplers of OpenTelemetry by their standard names, and the trace context that they look at. A
// decision is made for every call, on a text that is there already, and builds nothing [D49].

import { RandomText } from '../../core/text/random-text.ts';
import type { SamplerName } from './trace-settings.ts';

/**
 * Whether a call is sampled. `traceParent` has its trace id; `isParentSampled` is what its client has decided, undefined
 * without a trace of the client's.
 */
export type Sampler = (traceParent: string, isParentSampled: boolean | undefined) => boolean;

const parentBased = 'parentbased_';
const idRange = 2 ** 32;

/** `ratio`, from 0 to 1, counts for the samplers that have one. */
export function createSampler(name: SamplerName, ratio: number): Sampler {
  if (name.startsWith(parentBased)) {
    const root = createSampler(name.slice(parentBased.length) as SamplerName, ratio);
    return (traceParent, isParentSampled) => isParentSampled ?? root(traceParent, undefined);
  }
  switch (name) {
    case 'always_on':
      return () => true;
    case 'always_off':
      return () => false;
    default: {
      const limit = Math.ceil(ratio * idRange);
      if (limit >= idRange) {
        return () => true;
      }
      const digits = limit.toString(16).padStart(8, '0');
      return (traceParent) => isBelow(traceParent, digits);
    }
  }
}

/** The `traceparent` of a call that is not sampled, and has no parent but random ids (W3C Trace Context 2, 3.2.2.5.2). */
export const traceParents = new RandomText(`00-${'x'.repeat(32)}-${'x'.repeat(16)}-02`);

/** The trace id in a `traceparent` of version 00. */
export function traceIdOf(traceParent: string): string {
  return traceParent.slice(3, 35);
}

/** The id of the span in a `traceparent` of version 00. */
export function spanIdOf(traceParent: string): string {
  return traceParent.slice(36, 52);
}

// Whether the last 32 bits of the trace id are below `digits`, hexadecimal: those bits are random in every version of trace
// ids (W3C Trace Context 2, 2.2.2). Nearly always the first digit decides.
function isBelow(traceParent: string, digits: string): boolean {
  for (let index = 0; index < digits.length; index += 1) {
    const difference = traceParent.charCodeAt(lastBitsAt + index) - digits.charCodeAt(index);
    if (difference !== 0) {
      return difference < 0;
    }
  }
  return false;
}

const lastBitsAt = 27;
