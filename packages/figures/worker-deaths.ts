// The causes of a worker's unexpected end, as labels of the metrics [D63].

/**
 * `exit`: the worker exited by itself, for instance after an error outside of a request. `killed`: by SIGKILL, mostly
 * from the kernel when memory ran out. `aborted`: by SIGABRT, mostly from V8 when its heap was full. `signal`: by
 * another signal. `frozen`: it hung, and the primary process killed it.
 */
export const deathCauses = ['exit', 'killed', 'aborted', 'signal', 'frozen'] as const;

type DeathCause = (typeof deathCauses)[number];

/** The cause of a worker's end. `signal` is null if the worker exited by itself. */
export function causeOfDeath(signal: string | null, isFrozen: boolean): DeathCause {
  if (isFrozen) {
    return 'frozen';
  }
  return signal === null ? 'exit' : signal === 'SIGKILL' ? 'killed' : signal === 'SIGABRT' ? 'aborted' : 'signal';
}
