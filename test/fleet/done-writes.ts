// Two faults that reveal repeated writes. In both, the backend completes writes whose answers are lost. Either a
// gateway is killed, and a balancer could repeat the writes; or its connection to the backend is closed, and the
// gateway could repeat them.

import { poll } from '../helpers/changes.ts';
import type { RestartingBackend, Answers } from './restarting-backend.ts';
import type { Fault } from './verdict.ts';

const limitMs = 60_000;
/** After this long no new call may be lost with a killed process. */
export const recoveryMs = 2_000;

/**
 * Makes the backends withhold answers to writes: `held` or `cut`. After `count` such answers, calls `then`, which kills
 * a gateway, and stops withholding.
 */
export async function withhold(
  backends: readonly RestartingBackend[],
  answers: Answers,
  count: number,
  then?: () => Promise<void>,
): Promise<void> {
  const sum = (): number => backends.reduce((total, { withheld }) => total + withheld, 0);
  const before = sum();
  for (const backend of backends) backend.answerWith(answers);
  await poll(() => sum() >= before + count, `${count} writes are ${answers}`, limitMs);
  await then?.();
  for (const backend of backends) backend.answerWith('given');
}

/** Makes the backends close reused connections of gateways instead of answering `count` writes. */
export async function cutDoneWrites(backends: readonly RestartingBackend[], count: number): Promise<Fault> {
  const from = performance.now();
  await withhold(backends, 'cut', count);
  return { what: 'backend', name: 'answers to writes cut', from, limitMs: performance.now() - from };
}
