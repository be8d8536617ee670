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
  async until<T>(attempt: () => T | undefined, expected: () => string, limitMs = DEADLINE_MS): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const look = () => {
      try {
        const value = attempt();
        if (value === undefined) return;
        // Deleted at once: `attempt` may have taken the value from somewhere.
        this.#looks.delete(look);
        resolve(value);
      } catch (error) {
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    };
    this.#looks.add(look);
    look();
    try {
      return await within(promise, expected, limitMs);
    } finally {
      this.#looks.delete(look);
    }
  }
}

/** The value of `promise`; rejects with `expected` after `limitMs`. */
export async function within<T>(
  promise: Promise<T>,
  expected: string | (() => string),
  limitMs = DEADLINE_MS,
): Promise<T> {
  const { promise: deadline, reject } = Promise.withResolvers<never>();
  const fail = () =>
    reject(new Error(`not within ${limitMs} ms: ${typeof expected === 'string' ? expected : expected()}`));
  const timer = setTimeout(fail, limitMs);
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
