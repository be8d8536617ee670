// Time limits for answers. An answer can arrive while the event loop is blocked or the process is paused. Then timers run
// before the answer is read. So a time limit consists of steps. Each step ends after what has arrived is read, and counts
// once, however late it ends.

import type { Clock } from './clock.ts';

// Number of steps of a time limit. If every turn of the event loop is long, each turn ends one step. A new connection with
// TLS, a password and a first answer takes about eight turns.
const stepsMax = 10;

/** The time limit of an answer has passed. */
export class LateError extends Error {}

/** Settles like `promise`. At the time limit of `ms`, calls `onLate` and rejects with a `LateError` with `message`. */
export async function within<T>(
  clock: Clock,
  ms: number,
  promise: Promise<T>,
  message = `no answer within ${ms} ms`,
  onLate = (): void => undefined,
): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  let callOff = (): void => undefined;
  let immediate: NodeJS.Immediate | undefined;
  const wait = (steps: number): void => {
    callOff = clock.after(ms / stepsMax, () => {
      immediate = setImmediate(() => {
        if (steps > 1) {
          wait(steps - 1);
        } else {
          reject(new LateError(message));
          onLate();
        }
      });
    });
  };
  wait(stepsMax);
  try {
    return await Promise.race([promise, late]);
  } finally {
    callOff();
    clearImmediate(immediate);
  }
}
