// Waits for an event or a state; a deadline fails the test.

/** The default deadline. */
export const DEADLINE_MS = Number(process.env['TEST_DEADLINE_MS'] ?? 10_000);

/** Code that changes a state calls `notify`; `until` then tries again. */
export class Changes {
  readonly #looks = new Set<() => void>();

  notify(): void {
    for (const look of [...this.#looks]) look();
  }

  /** Resolves with the first value of `attempt` that is not undefined; rejects with `expected` at the deadline. */
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

/** The value of `promise`; rejects with `expected` after `limitMs`. */
export async function within<T>(promise: Promise<T>, expected: string, limitMs = DEADLINE_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${limitMs} ms: ${expected}`)), limitMs);
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/** A gate: a promise that resolves when the test calls `open`. */
export function createGate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  return { opened: promise, open: () => resolve(undefined) };
}

// Saved before a test can replace them by mocks.
const { setTimeout: pause } = globalThis;
const now = performance.now.bind(performance);

/**
 * Calls `isSo` until it returns true: first once per turn of the event loop, later every few milliseconds, so that polling does
 * not slow the processes that the test waits for. Rejects with `expected` at the deadline.
 */
export async function poll(
  isSo: () => boolean | Promise<boolean>,
  expected: string,
  limitMs = DEADLINE_MS,
): Promise<void> {
  const end = now() + limitMs;
  for (let round = 0; !(await isSo()); round += 1) {
    if (now() > end) throw new Error(`not within ${limitMs} ms: ${expected}`);
    await new Promise((resolve) => (round < 20 ? setImmediate(resolve) : pause(resolve, Math.min(round - 19, 20))));
  }
}
