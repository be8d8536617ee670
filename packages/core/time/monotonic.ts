// The time that goes only forward, for deadlines and durations.

// `performance` is a getter of the global object, which costs as much as the clock itself (measured: eight times a call).
const clock = performance;

/** Milliseconds since the process began, with parts of them. */
export function monotonicMs(): number {
  return clock.now();
}
