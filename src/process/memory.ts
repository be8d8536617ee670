// How much memory the process may have, and how much its settings can make it need.

import type { Settings } from './settings.ts';

// docs/operating.md, Sizing: what it takes under a load of small bodies, and room.
const ownBytes = 200_000_000;

/** What the gateway needs when it holds as many bodies as it may: its workers together. */
export function neededMemory({
  bufferedBytesMax,
  workers,
}: Pick<Settings, 'bufferedBytesMax' | 'workers'>): number {
  return Math.ceil((bufferedBytesMax * 4) / 3) + ownBytes * workers;
}

/** The limit that the container has (cgroup), in bytes; undefined without any. */
export function readMemoryLimit(): number | undefined {
  const limit = process.constrainedMemory();
  // Without a limit it is 0, or larger than any memory.
  return limit > 0 && limit < 2 ** 50 ? limit : undefined;
}
