// Time, as whoever waits for it is given it: so that a test can turn the hands itself.

export interface Clock {
  /** Milliseconds since 1970, as tokens count; somebody may set it. */
  now(): number;
  /** Milliseconds since anywhere; only ever goes forward. */
  steady(): number;
  /** Runs `action` once, `ms` from now; returns what calls it off. */
  after(ms: number, action: () => void): () => void;
}

/** The machine's own. What waits keeps no process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  steady: () => performance.now(),
  after: (ms, action) => {
    const timer = setTimeout(action, ms).unref();
    return () => {
      clearTimeout(timer);
    };
  },
};
