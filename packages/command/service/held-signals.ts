// Signals that come while the program is being loaded: held until it can do what they ask for. They would end it half
// started otherwise, or be lost where it is process 1 of a container.

import type { SignalSource } from './lifecycle.ts';

/** Passes signals on, and first those that have come before somebody listens. */
export interface HeldSignals extends SignalSource {
  /** Leaves the rest to the system, those that have come included: they end the process. */
  readonly release: () => void;
}

const heldSignals = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

export function holdSignals(source: NodeJS.Process): HeldSignals {
  const came = new Set<string>();
  const hold = (name: string): void => {
    came.add(name);
  };
  const letGo = (name: string): boolean => {
    source.off(name, hold);
    return came.delete(name);
  };
  for (const name of heldSignals) {
    source.on(name, hold);
  }
  return {
    on: (name: NodeJS.Signals | 'uncaughtException' | 'unhandledRejection', listener) => {
      source.on(name, listener);
      if (letGo(name)) {
        setImmediate(listener, name as NodeJS.Signals);
      }
    },
    release: () => {
      // One that has come is heard in the next turn at the latest.
      setImmediate(() => {
        for (const name of heldSignals) {
          if (letGo(name)) {
            source.kill(source.pid, name);
          }
        }
      });
    },
  };
}
