// How much memory the process may have, and how much its settings can make it need.

import { totalmem } from 'node:os';

import type { Settings } from './settings.ts';

/** What an idle connection of a client takes, by its protocol (docs/performance.md, In machines). */
export const connectionBytes = { plain: 5_000, tls: 51_000, http2: 85_000 } as const;

// A process under load, with room.
const processBytes = 200_000_000;

type ConnectionKind = keyof typeof connectionBytes;

/** What clients speak, at the most. */
export function connectionKindOf({
  tlsCertFile,
  http2,
}: Pick<Settings, 'tlsCertFile' | 'http2'>): ConnectionKind {
  return http2 ? 'http2' : tlsCertFile === '' ? 'plain' : 'tls';
}

/** What the gateway needs when it holds as many bodies and connections as it may: its workers together. */
export function neededMemory(
  {
    bufferedBytesMax,
    connectionsMax,
    workers,
  }: Pick<Settings, 'bufferedBytesMax' | 'connectionsMax' | 'workers'>,
  kind: ConnectionKind,
): number {
  return (
    Math.ceil((bufferedBytesMax * 4) / 3) + processBytes * workers + connectionBytes[kind] * connectionsMax
  );
}

/** The limit of the container (cgroup), or else the memory of the machine, in bytes. */
export function readMemoryLimit(): number {
  // Without a limit it is 0, or larger than any memory.
  return Math.min(process.constrainedMemory() || Infinity, totalmem());
}
