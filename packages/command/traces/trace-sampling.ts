// Decides which calls are traced, by the standard samplers of OpenTelemetry, and reads the text that they decide on. Every call
// is decided on, so a decision costs a comparison of texts [D49].

import type { TraceOptions } from '../options/tracing.ts';

/**
 * Decides whether a call is sampled. `traceParent` has its trace id; `isParentSampled` is what its client has decided, undefined
 * where the client sent no trace.
 */
type Sampler = (traceParent: string, isParentSampled: boolean | undefined) => boolean;

type SamplerName = TraceOptions['otelTracesSampler'];

const parentBased = 'parentbased_';
const idRange = 2 ** 32;

/** `ratio`, from 0 to 1, is for the samplers that have one. */
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
      // Texts of one length compare as their numbers do, and in half the time that it takes to parse one.
      const digits = limit.toString(16).padStart(8, '0');
      return (traceParent) => lastBitsOf(traceParent) < digits;
    }
  }
}

// The last 32 bits of the trace id: they are random in every version of trace ids (W3C Trace Context 2, 2.2.2).
function lastBitsOf(traceParent: string): string {
  return traceParent.slice(27, 35);
}
