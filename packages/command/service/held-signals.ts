// Holds signals while the program is loading. This file runs before any other file is loaded, so it imports none.

import { readFileSync } from 'node:fs';

import type { SignalSource } from './lifecycle.ts';

/**
 * Passes signals on to listeners. Signals that arrive while the program is loading are held until a listener is added.
 * Otherwise they would end the half-started program, or would be lost if the program is process 1 of a container.
 */
export interface HeldSignals extends SignalSource {
  /** Stops holding signals. From now on every signal ends the process, and so does a signal that was held. */
  readonly release: () => void;
}

const heldSignals = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/** Also ignores SIGUSR1, on which Node would otherwise open its debugger. */
export function holdSignals(source: NodeJS.Process): HeldSignals {
  const came = new Set<string>(source.pid === 1 ? findDroppedSignals() : []);
  const hold = (name: string): void => {
    came.add(name);
  };
  const stopHolding = (name: string): boolean => {
    source.off(name, hold);
    return came.delete(name);
  };
  for (const name of heldSignals) source.on(name, hold);
  source.on('SIGUSR1', () => undefined);
  return {
    on: (name: NodeJS.Signals | 'uncaughtException' | 'unhandledRejection', listener) => {
      source.on(name, listener);
      if (stopHolding(name)) setImmediate(listener, name as NodeJS.Signals);
    },
    release: () => {
      // Waits one turn of the event loop, so that Node has delivered every pending signal.
      setImmediate(() => {
        for (const name of heldSignals) {
          if (stopHolding(name)) source.kill(source.pid, name);
        }
      });
    },
  };
}

// Node's own handler of SIGINT and SIGTERM removes itself, then raises the signal again to end the process. Linux drops the
// raised signal for process 1. So if the handler of one signal is missing, this signal came before this program began.
function findDroppedSignals(): readonly string[] {
  try {
    // The set of signals with a handler (proc_pid_status(5)): bit 1 is SIGINT, bit 14 is SIGTERM.
    const [, caught = '0'] = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'latin1')) ?? [];
    const [hasInt, hasTerm] = [1n, 14n].map((bit) => (BigInt(`0x${caught}`) >> bit) & 1n);
    return hasInt === hasTerm ? [] : [hasInt === 0n ? 'SIGINT' : 'SIGTERM'];
  } catch {
    // The system is not Linux, or has no /proc.
    return [];
  }
}
