// Deadlines of what is waited for while the process, or a serving of it, stops.

import type { Logger } from '../log/log.ts';

// A timer that is later than this was held up with its whole process, which then has this long to hear what has
// happened meanwhile.
const heldUpMs = 500;
const catchUpMs = 1_000;

/**
 * Calls `onOver` after `ms`, or later where this process was itself stopped meanwhile (SIGSTOP, a sleeping machine): it
 * must not judge others by a clock that went on without it. Returns what calls it off.
 */
export function startDeadline(ms: number, onOver: () => void): () => void {
  let dueAt = performance.now() + ms;
  const look = (): void => {
    if (performance.now() - dueAt <= heldUpMs) {
      onOver();
      return;
    }
    dueAt = performance.now() + catchUpMs;
    timer = setTimeout(look, catchUpMs);
  };
  let timer = setTimeout(look, ms);
  return () => {
    clearTimeout(timer);
  };
}

/** The time that calls under way may take to end [D33]: `signal` is aborted, and the log says so, when it is over. */
export function startShutdownTimeout(
  shutdownTimeoutMs: number,
  logger: Logger,
): { readonly signal: AbortSignal; readonly callOff: () => void } {
  const timeout = new AbortController();
  const callOff = startDeadline(shutdownTimeoutMs, () => {
    logger.warn({ shutdownTimeoutMs }, 'the shutdown timeout has passed: cutting what is left');
    timeout.abort();
  });
  return { signal: timeout.signal, callOff };
}
