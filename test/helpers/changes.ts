// Waiting for what a test expects to happen: never a sleep, always a bound that fails the test.

/** How long anything may take before a test gives up on it. Less where a failure is what is looked for. */
export const DEADLINE_MS = Number(process.env['TEST_DEADLINE_MS'] ?? 10_000);

/** Whoever changes something observable calls `notify`; `until` looks again at each change. */
export class Changes {
  readonly #looks = new Set<() => void>();

  notify(): void {
    for (const look of [...this.#looks]) look();
  }

  /** Gives the first value of `attempt` that is not undefined; rejects with what `expected` says at the deadline. */
  until<T>(attempt: () => T | undefined, expected: () => string, limitMs = DEADLINE_MS): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = () => {
        let value: T | undefined;
        try {
          value = attempt();
        } catch (error) {
          done();
          reject(error instanceof Error ? error : new Error(String(error)));
          return;
        }
        if (value === undefined) return;
        done();
        resolve(value);
      };
      const timer = setTimeout(() => {
        done();
        reject(new Error(`not within ${limitMs} ms: ${expected()}`));
      }, limitMs);
      const done = () => {
        clearTimeout(timer);
        this.#looks.delete(look);
      };
      this.#looks.add(look);
      look();
    });
  }
}

/** The promise's value, or a failure that names `expected` when it is not there within `limitMs`. */
export async function within<T>(promise: Promise<T>, expected: string, limitMs = DEADLINE_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`not within ${limitMs} ms: ${expected}`));
    }, limitMs);
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/** A promise that the test settles itself: a gate that holds an answer back until it is opened. */
export function createGate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  return {
    opened: promise,
    open: () => {
      resolve(undefined);
    },
  };
}

/** Asks again and again, one turn of the event loop apart, until `isSo` says yes; fails at the deadline. */
export async function poll(
  isSo: () => boolean | Promise<boolean>,
  expected: string,
  limitMs = DEADLINE_MS,
): Promise<void> {
  const end = performance.now() + limitMs;
  while (!(await isSo())) {
    if (performance.now() > end) throw new Error(`not within ${limitMs} ms: ${expected}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
