// Reads and writes `traceparent` values of version 00 (W3C Trace Context 2). The functions expect values that this file
// wrote or that `readTraceContext` has checked.

import { RandomText } from '../../core/text/random-text.ts';

const sampledFlag = 1;
// The trace id is random (3.2.2.5.2), whether or not the call is sampled.
const randomFlag = 2;

/** Draws the `traceparent` of a call that has no parent and is not sampled. */
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

/** Returns the `traceparent` of `spanId`, a child of the span of `parent`. */
export function childOf(parent: string, spanId: string, isChildSampled: boolean): string {
  const flags = (flagsOf(parent) & randomFlag) | (isChildSampled ? sampledFlag : 0);
  return `00-${traceIdOf(parent)}-${spanId}-0${flags}`;
}

// The last digit holds all defined flags.
function flagsOf(traceParent: string): number {
  return Number.parseInt(traceParent.charAt(54), 16);
}
