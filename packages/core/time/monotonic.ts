// Monotonic time, for deadlines and durations.

// The global `performance` is a getter that takes as long as reading the clock, so it is read only once.
const clock = performance;
let instant: number | undefined;

/** Milliseconds since the process began, with fractions. */
export function monotonicMs(): number {
  return instant ?? clock.now();
}

/**
 * Stops the clock until `releaseClock` is called. Used while arrived bytes are handled: one gateway call then reads
 * the clock 3 times instead of 9, and uses 1 % less processor time. Release the clock before other events are handled.
 */
export function holdClock(): void {
  instant = clock.now();
}

export function releaseClock(): void {
  instant = undefined;
}

/** A time limit is extended by this time in all, so that it passes even if the process is always late [D19]. */
export const catchUpMsMax = 1_000;

/**
 * Returns by how many ms to extend time limits, if a timer that was due at `dueAt` fires now. If the process was held up
 * (SIGSTOP, a sleeping machine, one long task), the other side had no chance to be in time.
 */
export function catchUpMs(dueAt: number, now: number): number {
  return now - dueAt > 500 ? Math.min(now - dueAt, catchUpMsMax) : 0;
}
