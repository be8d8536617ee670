// Makes an expensive result at most once a second, and shares it between callers [D59].

const restMs = 1_000;

/** Wraps `make`. Calls during a run of `make`, and up to 1 s after its end, get the result or failure of that run. */
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
