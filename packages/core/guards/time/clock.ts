// The clock interface, which lets tests control time.

export interface Clock {
  /** Milliseconds since 1970. Jumps when the system's time is set. */
  now(): number;
  /** Monotonic milliseconds from an arbitrary origin. */
  steady(): number;
  /** Runs `action` once after `ms`; returns a function that cancels it. */
  after(ms: number, action: () => void): () => void;
}

/** The system's clock. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  steady: () => performance.now(),
  after: (ms, action) => {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },
};
