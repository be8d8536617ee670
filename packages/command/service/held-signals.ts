// Holds signals that arrive while the program is loading, until the program can handle them. Otherwise a signal would end
// the half-started program, or would be lost if the program is process 1 of a container.

import type { SignalSource } from './lifecycle.ts';

/** Passes signals on to listeners. Held signals come first. */
export interface HeldSignals extends SignalSource {
  /** Stops holding signals. From now on every signal, also a held one, ends the process. */
  readonly release: () => void;
}

const heldSignals = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

export function holdSignals(source: NodeJS.Process): HeldSignals {
  const came = new Set<string>();
  const hold = (name: string): void => {
    came.add(name);
  };
  const stopHolding = (name: string): boolean => {
    source.off(name, hold);
    return came.delete(name);
  };
  for (const name of heldSignals) {
    source.on(name, hold);
  }
  return {
    on: (name: NodeJS.Signals | 'uncaughtException' | 'unhandledRejection', listener) => {
      source.on(name, listener);
      if (stopHolding(name)) {
        setImmediate(listener, name as NodeJS.Signals);
      }
    },
    release: () => {
      // Node delivers a pending signal in the next turn at the latest.
      setImmediate(() => {
        for (const name of heldSignals) {
          if (stopHolding(name)) {
            source.kill(source.pid, name);
          }
        }
      });
    },
  };
}
