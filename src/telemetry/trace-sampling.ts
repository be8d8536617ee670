// Which calls are traced: the samplers of OpenTelemetry by their standard names, and the ids that they look at. A decision
// is made for every call, on random bytes that are there already, and builds nothing [D49].

import { randomFillSync } from 'node:crypto';

import type { SamplerName } from './trace-settings.ts';

/**
 * Whether a call is sampled. `lastBits` are the last 32 bits of its trace id: those are random in every version of trace ids
 * (W3C Trace Context 2, 2.2.2). `isParentSampled` is what its client has decided, undefined without a trace of the client's.
 */
export type Sampler = (lastBits: number, isParentSampled: boolean | undefined) => boolean;

const parentBased = 'parentbased_';
const idRange = 2 ** 32;

/** `ratio`, from 0 to 1, counts for the samplers that have one. */
export function createSampler(name: SamplerName, ratio: number): Sampler {
  if (name.startsWith(parentBased)) {
    const root = createSampler(name.slice(parentBased.length) as SamplerName, ratio);
    return (lastBits, isParentSampled) => isParentSampled ?? root(lastBits, undefined);
  }
  switch (name) {
    case 'always_on':
      return () => true;
    case 'always_off':
      return () => false;
    default: {
      const below = ratio * idRange;
      return (lastBits) => lastBits < below;
    }
  }
}

const traceIdBytes = 16;
const spanIdBytes = 8;
const pairBytes = traceIdBytes + spanIdBytes;
// Random bytes are asked for a few times a second, and written in hexadecimal for many calls at once: that is what they
// cost. The text of a block is short, since each id that is still used holds all of it.
const blockBytes = 32 * pairBytes;
const randomBytesMade = 64 * blockBytes;

/** Makes trace ids and span ids, which are never all zero in anyone's lifetime. */
export class IdSource {
  /** The last 32 bits of the trace id that was drawn last. */
  lastBits = 0;
  readonly #random = Buffer.allocUnsafeSlow(randomBytesMade);
  // Where the next block begins among the bytes, where the next ids begin in the block, and its text.
  #next = randomBytesMade;
  #at = blockBytes;
  #block = '';

  /** A trace id and the id of a span in it, in hexadecimal: 32 and 16 digits. */
  drawPair(): string {
    const at = this.#take(pairBytes);
    this.lastBits = this.#random.readUInt32BE(this.#next - blockBytes + at + traceIdBytes - 4);
    return this.#block.slice(2 * at, 2 * (at + pairBytes));
  }

  /** The id of a span, in hexadecimal: 16 digits. */
  drawSpanId(): string {
    const at = this.#take(spanIdBytes);
    return this.#block.slice(2 * at, 2 * (at + spanIdBytes));
  }

  #take(bytes: number): number {
    if (this.#at + bytes > blockBytes) {
      if (this.#next === randomBytesMade) {
        randomFillSync(this.#random);
        this.#next = 0;
      }
      this.#block = this.#random.toString('hex', this.#next, this.#next + blockBytes);
      this.#next += blockBytes;
      this.#at = 0;
    }
    const at = this.#at;
    this.#at += bytes;
    return at;
  }
}
