// Compares what a gateway in this process holds before and after a flood. Timers that do not keep the process running
// count, too.

import { createHook } from 'node:async_hooks';
import type { Connection } from '../../packages/core/http1/connection.ts';
import { poll } from './changes.ts';
import { countDescriptors } from './process-figures.ts';

interface Holder {
  readonly clients: Iterable<Connection> & { readonly size: number };
  readonly gateway?: { readonly inFlight: number; readonly budget: { readonly bytes: number } };
}

const timers = new Set<number>();
createHook({
  init: (id, type) => {
    if (type === 'Timeout') timers.add(id);
  },
  destroy: (id) => timers.delete(id),
}).enable();

function countHeld({ clients, gateway }: Holder) {
  return {
    connections: clients.size,
    streams: [...clients].reduce((sum, { streams = 0 }) => sum + streams, 0),
    calls: gateway?.inFlight ?? 0,
    bytes: gateway?.budget.bytes ?? 0,
    descriptors: countDescriptors(process.pid) ?? 0,
    timers: timers.size,
  };
}

/**
 * Remembers what `server` holds now. The returned function waits until it holds no more than that. `backendIdleTimeoutMs`
 * should be short, because idle connections to the backend count, too.
 */
export function rememberHeld(server: Holder): () => Promise<void> {
  const before = countHeld(server);
  // One timer serves the deadlines of all backend calls. It stays until the latest of these deadlines.
  before.timers += 1;
  let now = before;
  const isAsBefore = async () => {
    // Node reports the end of a timer, such as that of `poll`, in a later turn.
    for (let turns = 0; turns < 2; turns += 1) await new Promise((resolve) => setImmediate(resolve));
    now = countHeld(server);
    return Object.entries(now).every(([name, count]) => count <= before[name as keyof typeof before]);
  };
  return async () => {
    try {
      await poll(isAsBefore, 'all is released');
    } catch (error) {
      throw new Error(`left: ${JSON.stringify(now)}; before: ${JSON.stringify(before)}`, { cause: error });
    }
  };
}

/** Returns `server`, whose disposal first waits until the server holds no more than now. */
export function accounted<S extends Holder & AsyncDisposable>(server: S): S {
  const isAsBefore = rememberHeld(server);
  const dispose = () => isAsBefore().finally(() => server[Symbol.asyncDispose]());
  return { ...server, [Symbol.asyncDispose]: dispose };
}
