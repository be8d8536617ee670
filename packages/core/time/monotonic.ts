// Monotonic time, for deadlines and durations.

// The global `performance` is a getter that takes as long as reading the clock, and a call reads the clock 8 times.
const clock = performance;

/** Milliseconds since the process began, with fractions. */
export function monotonicMs(): number {
  return clock.now();
}
