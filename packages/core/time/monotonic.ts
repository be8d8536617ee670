// Monotonic time, for deadlines and durations.

// The global `performance` is read once, because this getter takes as long as reading the clock.
const clock = performance;
let instant: number | undefined;

/** Milliseconds since the process began, with fractions. */
export function monotonicMs(): number {
  return instant ?? clock.now();
}

/**
 * Stops the clock until `releaseClock`, while bytes that have just arrived are handled. One gateway call then reads
 * the clock 3 times instead of 9, and uses 1 % less processor time. Release the clock before other events are handled.
 */
export function holdClock(): void {
  instant = clock.now();
}

export function releaseClock(): void {
  instant = undefined;
}
