// Estimates the memory that the settings can require, and reads the memory limit of the process.

import { totalmem } from 'node:os';

import type { Settings } from './settings.ts';

/** Bytes per idle client connection, by protocol (docs/performance.md, In machines). */
export const connectionBytes = { plain: 5_000, tls: 51_000, http2: 85_000 } as const;

// Bytes of one process under load, with a reserve, but without bodies and client connections.
const processBytes = 200_000_000;

type ConnectionKind = keyof typeof connectionBytes;

/** The kind of connection that needs the most memory with these settings. */
export function connectionKindOf({ tlsCertFile, http2 }: Pick<Settings, 'tlsCertFile' | 'http2'>): ConnectionKind {
  return http2 ? 'http2' : tlsCertFile === '' ? 'plain' : 'tls';
}

/** Bytes that all workers together need when bodies and connections are at their limits. */
export function neededMemory(
  { bufferedBytesMax, connectionsMax, workers }: Pick<Settings, 'bufferedBytesMax' | 'connectionsMax' | 'workers'>,
  kind: ConnectionKind,
): number {
  return Math.ceil((bufferedBytesMax * 4) / 3) + processBytes * workers + connectionBytes[kind] * connectionsMax;
}

/** The limit of the container (cgroup), or else the memory of the machine, in bytes. */
export function readMemoryLimit(): number {
  // Without a limit, `constrainedMemory` returns 0, or a number of bytes larger than any machine has.
  return Math.min(process.constrainedMemory() || Infinity, totalmem());
}
