// How many file descriptors the process may have open, and how many its settings can make it need.

import { readFileSync } from 'node:fs';

import type { Settings } from './settings.ts';

// The log, the listeners, the connections of the admin listener, dashboards, and what Node opens for itself.
const ownDescriptors = 150;

/** What a process that serves needs when it is as full as it may get; each worker has its share. */
export function neededDescriptors({
  connectionsMax,
  inFlightMax,
  workers,
}: Pick<Settings, 'connectionsMax' | 'inFlightMax' | 'workers'>): number {
  return Math.ceil(connectionsMax / workers) + Math.ceil(inFlightMax / workers) + ownDescriptors;
}

/** `ulimit -n` as it is for this process: the soft limit of `limitsFile`. Undefined where nobody says it, or without any. */
export function readDescriptorLimit(limitsFile = '/proc/self/limits'): number | undefined {
  try {
    // Name, soft limit, hard limit, unit (proc_pid_limits(5)).
    const [, soft] = /^Max open files +(\d+) /m.exec(readFileSync(limitsFile, 'latin1')) ?? [];
    return soft === undefined ? undefined : Number(soft);
  } catch {
    // Not Linux.
    return undefined;
  }
}
