// Two faults that whoever repeats writes does not survive: writes have been done, and then their answer is lost. With a
// gateway that is killed, for a balancer that repeats them; with a connection to the backend, for a gateway that does.

import { poll } from '../helpers/changes.ts';
import type { RestartingBackend, WriteAnswers } from '../helpers/restarting-backend.ts';
import type { Kill } from './verdict.ts';

const limitMs = 60_000;
/** From the end of a process until the last of its neighbours knows: `inter` times `fall` of deploy/haproxy.cfg. */
export const heardMs = 1_000;

/** Has the backends withhold answers to writes until they have withheld `count` together, calls `then`, and gives them again. */
async function withhold(
  backends: readonly RestartingBackend[],
  answers: WriteAnswers,
  count: number,
  then?: () => Promise<void>,
): Promise<void> {
  const sum = (): number => backends.reduce((total, { withheld }) => total + withheld, 0);
  const before = sum();
  for (const backend of backends) backend.answerWrites(answers);
  await poll(() => sum() >= before + count, `${count} writes are ${answers}`, limitMs);
  await then?.();
  for (const backend of backends) backend.answerWrites('given');
}

/** Calls `kill`, which kills a gateway, while `count` writes are done and not answered, through this gateway and others. */
export async function killWithDoneWrites(
  backends: readonly RestartingBackend[],
  count: number,
  kill: () => Promise<void>,
): Promise<void> {
  await withhold(backends, 'held', count, kill);
}

/** Has the backends close connections on which the gateway has called before, instead of answering `count` writes. */
export async function cutDoneWrites(backends: readonly RestartingBackend[], count: number): Promise<Kill> {
  const from = performance.now();
  await withhold(backends, 'cut', count);
  return { what: 'backend', from, to: performance.now() + heardMs };
}
