// Reads and writes `traceparent` values of version 00 (W3C Trace Context 2), and decides which calls are sampled. The
// functions expect values that this file wrote or that `readTraceContext` has checked.

import { RandomText } from '../../core/text/random-text.ts';
import type { TraceOptions } from '../service/process-parts.ts';

const sampledFlag = 1;
// Says that the trace id is random (3.2.2.5.2). Does not depend on sampling.
const randomFlag = 2;

/** `draw` returns a random `traceparent`, with the flags of a call that is not sampled. */
export const traceParents = new RandomText(`00-${'x'.repeat(32)}-${'x'.repeat(16)}-02`);

export function traceIdOf(traceParent: string): string {
  return traceParent.slice(3, 35);
}

export function spanIdOf(traceParent: string): string {
  return traceParent.slice(36, 52);
}

export function isSampled(traceParent: string): boolean {
  return (flagsOf(traceParent) & sampledFlag) !== 0;
}

/** Returns the `traceparent` of the span `spanId`, a child of the span in `parent`. */
export function childOf(parent: string, spanId: string, isChildSampled: boolean): string {
  const flags = (flagsOf(parent) & randomFlag) | (isChildSampled ? sampledFlag : 0);
  return `00-${traceIdOf(parent)}-${spanId}-0${flags}`;
}

// The last digit holds all defined flags.
function flagsOf(traceParent: string): number {
  return Number.parseInt(traceParent.charAt(54), 16);
}

/**
 * Decides whether a call is sampled. `traceParent` contains the trace id of the call. `isParentSampled` is the client's
 * decision, or undefined if the client sent no trace context.
 */
type Sampler = (traceParent: string, isParentSampled: boolean | undefined) => boolean;

const parentBased = 'parentbased_';
const idRange = 2 ** 32;

/** Creates OpenTelemetry's standard sampler `name`. `ratio`, from 0 to 1, is used by the `traceidratio` samplers. */
export function createSampler(name: TraceOptions['otelTracesSampler'], ratio: number): Sampler {
  const root = createRootSampler(name.replace(parentBased, ''), ratio);
  return name.startsWith(parentBased) ? (traceParent, isParentSampled) => isParentSampled ?? root(traceParent) : root;
}

function createRootSampler(name: string, ratio: number): (traceParent: string) => boolean {
  const limit = name === 'traceidratio' ? Math.ceil(ratio * idRange) : name === 'always_on' ? idRange : 0;
  if (limit === 0 || limit === idRange) return () => limit > 0;
  // Hexadecimal texts of equal length compare like their numbers. Comparing them takes half the time of parsing a text.
  const digits = limit.toString(16).padStart(8, '0');
  // The last 32 bits of the trace id are random in every version of trace ids (W3C Trace Context 2, 2.2.2).
  return (traceParent) => traceParent.slice(27, 35) < digits;
}
