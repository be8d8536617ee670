// Shortens a failing world: leaves out clients, requests and faults, as long as the same invariant is violated.

import { goodAnswer, type Plan } from './plan.ts';
import { runWorld } from './world.ts';

const triesMax = 600;
/** Parts of these lists may be left out. */
const lists = ['clients', 'requests', 'events'];
/** The simplest value of each property. */
const simple: Readonly<Record<string, unknown>> = {
  ...goodAnswer,
  ...{ startMs: 0, ahead: 1, stopsAfter: undefined, leaves: undefined, dials: [], guardMs: undefined, ageMs: 0 },
  ...{ fetches: undefined, token: 'none', isChunked: false, expects: false, conditions: false, gapMs: 0, pieces: 1 },
  network: { latencyMs: 0.1, pieceBytes: 65_536, readsPerTurn: 1, bufferBytes: 400_000 },
  limits: { inFlight: 1_000, connections: 1_000, bytes: 100_000_000 },
};

/** Returns the values that differ from `value` in one simpler or missing part. */
function* shorterThan(value: unknown): Generator {
  if (Array.isArray(value)) {
    for (const [index, each] of value.entries()) {
      for (const shorter of shorterThan(each)) yield value.with(index, shorter);
    }
  } else if (typeof value === 'object' && value !== null) {
    for (const [name, each] of Object.entries(value) as [string, unknown][]) {
      const list = lists.includes(name) ? (each as unknown[]) : [];
      for (let count = list.length; count >= 1; count >>= 1) {
        for (let from = 0; from < list.length; from += count) yield { ...value, [name]: list.toSpliced(from, count) };
      }
      if (!(name in simple)) {
        for (const shorter of shorterThan(each)) yield { ...value, [name]: shorter };
      } else if (JSON.stringify(each) !== JSON.stringify(simple[name])) {
        yield { ...value, [name]: simple[name] };
      }
    }
  }
}

/** Returns the shortest plan found that violates `invariant`. */
export async function shorten(plan: Plan, invariant: string): Promise<Plan> {
  let shortest = plan;
  let candidates = shorterThan(plan);
  for (let tries = 0; tries < triesMax; tries += 1) {
    const { value, done } = candidates.next() as IteratorResult<Plan, Plan>;
    if (done === true) break;
    const { violation } = await runWorld(value);
    if (violation?.invariant === invariant) candidates = shorterThan((shortest = value));
  }
  return shortest;
}
