// The text of a `traceparent` of version 00 (W3C Trace Context 2): which part of it is what, and new ones. Nothing here checks
// a text: it is one of ours, or one that `readTraceContext` has checked.

import { RandomText } from '../../core/text/random-text.ts';

const sampledFlag = 1;
// The trace id is random (3.2.2.5.2), which does not depend on who samples.
const randomFlag = 2;

/** The `traceparent` of a call that has no parent and is not sampled. */
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

/** The `traceparent` of the span `spanId` below the span of `parent`, in the same trace. */
export function childOf(parent: string, spanId: string, isChildSampled: boolean): string {
  const flags = (flagsOf(parent) & randomFlag) | (isChildSampled ? sampledFlag : 0);
  return `00-${traceIdOf(parent)}-${spanId}-0${flags}`;
}

// All flags that there are stand in the last digit.
function flagsOf(traceParent: string): number {
  return Number.parseInt(traceParent.charAt(54), 16);
}
