// Deadlines of what is waited for while the process stops.

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
