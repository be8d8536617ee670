// Warns about valid settings that do not fit their environment, in the log at the start and in `check`.

import { readFileSync } from 'node:fs';

import { connectionKindOf, neededMemory, readMemoryLimit } from './memory.ts';
import type { Settings } from './settings.ts';

interface Warning {
  readonly message: string;
  /** Fields of the log line. */
  readonly facts: Readonly<Record<string, number>>;
}

// File descriptors for the log, the listeners, the connections of the admin listener and the dashboards, and Node itself.
const ownDescriptors = 150;

export function findWarnings(settings: Settings, environment: Readonly<Record<string, string | undefined>>): Warning[] {
  const { connectionsMax, inFlightMax, bufferedBytesMax, workers } = settings;
  const warnings: Warning[] = [];
  // File descriptors of one process at its limits; each worker has an equal share of the limits.
  const needed = Math.ceil(connectionsMax / workers) + Math.ceil(inFlightMax / workers) + ownDescriptors;
  const descriptors = { limit: readDescriptorLimit(), needed };
  if (descriptors.limit < descriptors.needed) {
    warnings.push({
      message:
        'too few file descriptors for the configured limits: raise ulimit -n, or lower CONNECTIONS_MAX or IN_FLIGHT_MAX',
      facts: { ...descriptors, connectionsMax, inFlightMax },
    });
  }
  const memory = { limit: readMemoryLimit(), needed: neededMemory(settings, connectionKindOf(settings)) };
  if (memory.limit < memory.needed) {
    warnings.push({
      message:
        'too little memory for the configured limits: give the gateway more memory, or lower BUFFERED_BYTES_MAX, CONNECTIONS_MAX or WORKERS',
      facts: { ...memory, bufferedBytesMax, connectionsMax, workers },
    });
  }
  if (environment['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    warnings.push({
      message:
        'NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect: certificates of the backend, the issuer, Redis and the collector are always verified',
      facts: {},
    });
  }
  return warnings;
}

/** The soft limit of file descriptors (`ulimit -n`) of this process; Infinity if there is none or it is unknown. */
function readDescriptorLimit(): number {
  try {
    // Name, soft limit, hard limit, unit (proc_pid_limits(5)).
    const [, soft = Infinity] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
    return Number(soft);
  } catch {
    // Not Linux.
    return Infinity;
  }
}
