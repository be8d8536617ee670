// Deadlines for what the whole process does, such as a drain.

import { catchUpMs, catchUpMsMax } from '../../time/monotonic.ts';

/**
 * Calls `onOver` after `ms`, when everything that has arrived until then is read. If this process was paused in that time
 * (SIGSTOP, a sleeping machine), `onOver` is called later, by at most `catchUpMsMax` in all, because requests and workers
 * had less time to finish. Returns the function that cancels the deadline.
 */
export function startDeadline(ms: number, onOver: () => void): () => void {
  let hasEnded = false;
  let spareMs = catchUpMsMax;
  let timer: NodeJS.Timeout;
  const wait = (waitMs: number): void => {
    const dueAt = performance.now() + waitMs;
    timer = setTimeout(setImmediate, waitMs, () => {
      const extraMs = Math.min(catchUpMs(dueAt, performance.now()), spareMs);
      spareMs -= extraMs;
      if (hasEnded) return;
      if (extraMs > 0) wait(extraMs);
      else onOver();
    });
  };
  wait(ms);
  return () => {
    hasEnded = true;
    clearTimeout(timer);
  };
}
