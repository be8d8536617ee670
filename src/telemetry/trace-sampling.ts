// Which calls are traced: the samplers of OpenTelemetry by their standard names, and the ids that they look at. A decision
// is made for every call, so it builds nothing [D49].

import { randomFillSync } from 'node:crypto';

import type { SamplerName } from './trace-settings.ts';

/** Whether a call is sampled; `isParentSampled` is what its client has decided, undefined without a trace of the client's. */
export type Sampler = (traceId: string, isParentSampled: boolean | undefined) => boolean;

const parentBased = 'parentbased_';
const idRange = 2 ** 32;

/** `ratio`, from 0 to 1, counts for the samplers that have one. */
export function createSampler(name: SamplerName, ratio: number): Sampler {
  if (name.startsWith(parentBased)) {
    const root = createSampler(name.slice(parentBased.length) as SamplerName, ratio);
    return (traceId, isParentSampled) => isParentSampled ?? root(traceId, undefined);
  }
  switch (name) {
    case 'always_on':
      return () => true;
    case 'always_off':
      return () => false;
    default: {
      // The last bits are those that are random in every version of trace ids (W3C Trace Context 2, 2.2.2).
      const below = ratio * idRange;
      return (traceId) => Number.parseInt(traceId.slice(-8), 16) < below;
    }
  }
}

const randomBytes = Buffer.alloc(4_096);
let randomAt = randomBytes.length;

// Random bytes are made many at a time: that is what they cost.
function takeRandom(bytes: number): string {
  if (randomAt + bytes > randomBytes.length) {
    randomFillSync(randomBytes);
    randomAt = 0;
  }
  const hex = randomBytes.toString('hex', randomAt, randomAt + bytes);
  randomAt += bytes;
  return hex;
}

/** 16 random bytes in hexadecimal; never all zero in anyone's lifetime. */
export function createTraceId(): string {
  return takeRandom(16);
}

/** 8 random bytes in hexadecimal. */
export function createSpanId(): string {
  return takeRandom(8);
}
