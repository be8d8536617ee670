// Why a worker ended although nobody told it to, as a label of the metrics [D63]. Imports nothing.

/**
 * `exit`: by itself, as after a fault outside any request. `killed`: SIGKILL, mostly the kernel's when memory ran out.
 * `aborted`: SIGABRT, mostly V8's own when its heap was full. `signal`: any other. `frozen`: we killed it, since it hung.
 */
export const deathCauses = ['exit', 'killed', 'aborted', 'signal', 'frozen'] as const;

export type DeathCause = (typeof deathCauses)[number];

/** The cause of an end by `signal`, or of an exit: null. */
export function causeOfDeath(signal: string | null, isFrozen: boolean): DeathCause {
  if (isFrozen) {
    return 'frozen';
  }
  return signal === null
    ? 'exit'
    : signal === 'SIGKILL'
      ? 'killed'
      : signal === 'SIGABRT'
        ? 'aborted'
        : 'signal';
}
