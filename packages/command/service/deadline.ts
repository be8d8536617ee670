// Deadlines for stopping the process or one `Serving` (serving.ts).

import type { Logger } from '../log/log.ts';

// If a timer fires more than `heldUpMs` late, the whole process was delayed. The process then gets `catchUpMs` to
// handle the events that have piled up.
const heldUpMs = 500;
const catchUpMs = 1_000;

/**
 * Calls `onOver` after `ms`. If this process was stopped in that time (SIGSTOP, a sleeping machine), calls it later,
 * because calls and workers had less time to finish. Returns the function that cancels the deadline.
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
  return () => clearTimeout(timer);
}

/**
 * Limits the time in which calls in flight may finish [D33]. When the time is over, a line is logged and `signal` is
 * aborted.
 */
export function startShutdownTimeout(
  shutdownTimeoutMs: number,
  logger: Logger,
): { readonly signal: AbortSignal; readonly callOff: () => void } {
  const timeout = new AbortController();
  const callOff = startDeadline(shutdownTimeoutMs, () => {
    logger.warn({ shutdownTimeoutMs }, 'shutdown timeout reached: cutting requests still in flight');
    timeout.abort();
  });
  return { signal: timeout.signal, callOff };
}
