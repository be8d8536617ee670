// Decides which calls are traced, by OpenTelemetry's standard samplers. A sampler runs for every call, so it only
// compares two texts [D49].

import type { TraceOptions } from '../options/tracing.ts';

/**
 * Decides whether a call is sampled. `traceParent` contains the trace id of the call. `isParentSampled` is the client's
 * decision, or undefined if the client sent no trace context.
 */
type Sampler = (traceParent: string, isParentSampled: boolean | undefined) => boolean;

type SamplerName = TraceOptions['otelTracesSampler'];

const parentBased = 'parentbased_';
const idRange = 2 ** 32;

/** Creates the sampler `name`. `ratio`, from 0 to 1, is used by the `traceidratio` samplers. */
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
      // Hexadecimal texts of equal length compare like their numbers. Comparing texts takes half the time of parsing one.
      const digits = limit.toString(16).padStart(8, '0');
      return (traceParent) => lastBitsOf(traceParent) < digits;
    }
  }
}

// The last 32 bits of the trace id, which are random in every version of trace ids (W3C Trace Context 2, 2.2.2).
function lastBitsOf(traceParent: string): string {
  return traceParent.slice(27, 35);
}
