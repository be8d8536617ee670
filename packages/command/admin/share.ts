// What takes work to make, made at most once a second however many ask for it [D59].

const restMs = 1_000;

/**
 * A function that gives what `make` does: while it is being made, and for a second from then on, the same to whoever
 * asks. So it is with a failure, and then it is tried again.
 */
export function share<T>(make: () => Promise<T>): () => Promise<T> {
  let shared: Promise<T> | undefined;
  let goodUntil = 0;
  return async () => {
    if (shared === undefined || performance.now() >= goodUntil) {
      goodUntil = Infinity;
      shared = make().finally(() => {
        goodUntil = performance.now() + restMs;
      });
    }
    return await shared;
  };
}
