// A process that sends one load after another to a contender, as the parent process orders over IPC. A wrong reply ends a load.
// At a constant rate, the latency is measured from the time when a call was due, so that a stall of the contender shows in every
// call that it delays.
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { Load, type Shot } from '../test/helpers/load.ts';
import { processorMs } from './processes.ts';

export interface LoadOrder {
  port: number;
  /** CA of the contender's certificate, as PEM; undefined for no TLS. */
  ca?: string | undefined;
  connections: number;
  /** Each connection sends these requests in turn, starting with a different request. */
  shots: Shot[];
  warmupMs: number;
  /** Closed loop only: the warm-up lasts until this number of replies, but at most `WARMUP_LIMIT_MS`. */
  warmupRequests: number;
  measureMs: number;
  /** Requests per second for a constant rate, 0 for a closed loop. */
  rate: number;
  /** Root of the process tree whose CPU time is measured; 0 to measure no CPU time. */
  pid: number;
}

export interface LoadResult {
  requests: number;
  /** Actual length of the measured time. */
  elapsedMs: number;
  processorMs: number;
  /** The latency of each request that was due in the measured time. In a closed loop, a request is due when the reply before it ends. */
  latenciesMs: number[];
  /** Constant rate only: requests without a reply two seconds after the end of the measured time. */
  unanswered: number;
}

const SLOT_MS = 0.25;
const LATE_MS = 2_000;
const RUN_LIMIT_MS = 120_000;
const WARMUP_LIMIT_MS = 10_000;

/** Calls `tick` every `SLOT_MS`, from the thread of metronome.ts. Returns a function that stops the thread. */
function startMetronome(tick: () => void): () => void {
  const stop = new Int32Array(new SharedArrayBuffer(4));
  const metronome = new Worker(new URL('./metronome.ts', import.meta.url), { workerData: { slotMs: SLOT_MS, stop } });
  metronome.on('message', tick);
  return () => {
    Atomics.store(stop, 0, 1);
    Atomics.notify(stop, 0);
    void metronome.terminate();
  };
}

async function run(order: LoadOrder): Promise<LoadResult> {
  const { shots, rate, port, ca, connections } = order;
  const { promise: failed, reject } = Promise.withResolvers<never>();
  const turns = Array.from({ length: connections }, (_, index) => index * 7);
  const latenciesMs: number[] = [];
  let requests = 0;
  let startedAt = Infinity;
  const load = new Load({
    place: { port, ca },
    connections,
    isEager: true,
    ...(rate > 0 && { rate, slotMs: SLOT_MS, startTicks: startMetronome }),
    nextShot: (connection) => {
      const turn = turns[connection] ?? 0;
      turns[connection] = turn + 1;
      return shots[turn % shots.length];
    },
    onEnd: ({ dueAt, endedAt, failure }) => {
      if (failure !== undefined) reject(new Error(failure));
      requests += 1;
      if (dueAt >= startedAt) latenciesMs.push(endedAt - dueAt);
    },
  });
  const measure = async (): Promise<LoadResult> => {
    const begin = performance.now();
    await delay(order.warmupMs);
    while (rate === 0 && requests < order.warmupRequests && performance.now() - begin < WARMUP_LIMIT_MS)
      await delay(50);
    requests = 0;
    const before = processorMs(order.pid);
    startedAt = performance.now();
    await delay(order.measureMs);
    const unanswered = rate === 0 ? 0 : await load.finish(LATE_MS);
    return {
      requests: rate === 0 ? requests : latenciesMs.length,
      elapsedMs: performance.now() - startedAt,
      processorMs: processorMs(order.pid) - before,
      latenciesMs,
      unanswered,
    };
  };
  const limit = setTimeout(() => reject(new Error('the run took too long')), RUN_LIMIT_MS);
  try {
    return await Promise.race([measure(), failed]);
  } finally {
    clearTimeout(limit);
    load.close();
  }
}

process.on('message', (order: LoadOrder) => {
  run(order).then(
    (result) => process.send?.(result),
    (error: unknown) => process.send?.({ failure: error instanceof Error ? error.message : String(error) }),
  );
});
process.on('disconnect', () => process.exit());
process.send?.({});
