// Two faults that reveal repeated writes. In both, the backend completes writes whose answers are lost. If a gateway is
// killed, a balancer could repeat the writes. If a backend closes its connection to the gateway, the gateway could
// repeat them.

import { poll } from '../helpers/changes.ts';
import type { RestartingBackend, Answers } from './restarting-backend.ts';
import type { Fault } from './verdict.ts';

const limitMs = 60_000;
/** How long after a fault new calls may still be lost. */
export const recoveryMs = 2_000;

/**
 * Makes the backends withhold answers to writes (`answers`: `held` or `cut`). When `count` answers are withheld, calls
 * `then`, which kills a gateway. Afterwards the backends answer again.
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
  return {
    what: 'backend',
    name: 'backends close connections after writes, before the answers',
    from,
    limitMs: performance.now() - from,
  };
}
