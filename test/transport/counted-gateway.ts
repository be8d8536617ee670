// A gateway in its own thread that counts its costs. costs.test.ts asks for the counts before and after some calls.

import { createHook } from 'node:async_hooks';
import { Socket } from 'node:net';
import { getHeapStatistics } from 'node:v8';
import { parentPort, workerData } from 'node:worker_threads';

/**
 * Counts since the start: `bytes` allocated in the heap of V8, `clockReads`, `writes` on sockets, and the promises, timers
 * and other asynchronous resources by Node's names.
 */
export type Counts = Readonly<Record<string, number>>;

let clockReads = 0;
const now = performance.now.bind(performance);
performance.now = () => {
  clockReads += 1;
  return now();
};

let writes = 0;
const write = Reflect.get(Socket.prototype, 'write') as (...args: unknown[]) => boolean;
Socket.prototype.write = function (this: Socket, ...args: unknown[]) {
  writes += 1;
  return Reflect.apply(write, this, args);
};

// Loaded only now, so that it uses the functions replaced above.
const { createGatewayServer } = await import('../../packages/core/hosts/index.ts');

const { backendUrl, countsResources } = workerData as { backendUrl: string; countsResources: boolean };
const resources: Record<string, number> = {};
if (countsResources) {
  createHook({
    init(_id, type) {
      resources[type] = (resources[type] ?? 0) + 1;
    },
  }).enable();
}

const server = createGatewayServer({ backendUrl });
const { port } = await server.listen(0, '127.0.0.1');
parentPort?.on('message', () => {
  const bytes = (getHeapStatistics() as { total_allocated_bytes?: number }).total_allocated_bytes ?? NaN;
  parentPort?.postMessage({ bytes, clockReads, writes, ...resources } satisfies Counts);
});
parentPort?.postMessage(port);
