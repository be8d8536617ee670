// The pauses before the primary process replaces a worker. The workers are simulated.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { test } from 'node:test';
import { startPool, type PoolSystem } from '../../packages/command/cluster/worker-pool.ts';
import { resolveSettings } from '../../packages/command/settings/resolve.ts';

class Worker extends EventEmitter {
  readonly pid = 1;
  readonly connected = false;
  readonly end = (): void => void this.emit('exit', 1, null);
}

test('after the second early death there is a pause before a worker is replaced; each further one doubles it', async (t) => {
  const workers: Worker[] = [];
  const system = {
    fork: () => {
      const worker = new Worker();
      // The pool listens for messages first.
      queueMicrotask(() => worker.emit('message', { kind: 'ready', report: undefined }));
      workers.push(worker);
      return worker;
    },
    listen: () => Promise.resolve({ url: 'http://127.0.0.1:1', close: () => Promise.resolve() }),
  } as unknown as PoolSystem;
  const logger = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const { settings } = resolveSettings('serve', { backendUrl: 'http://127.0.0.1:1', port: '0', workers: '2' }, {});
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  const pool = await startPool(settings, { logger, output: {} } as never, {}, [], system);
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  for (const pauseMs of [0, 100, 200, 400]) {
    const count = workers.length;
    workers.at(-1)?.end();
    await settle();
    if (pauseMs > 0) {
      t.mock.timers.tick(pauseMs - 1);
      await settle();
      assert.equal(workers.length, count, `less than ${pauseMs} ms`);
    }
    t.mock.timers.tick(1);
    await settle();
    assert.equal(workers.length, count + 1, `${pauseMs} ms`);
  }
  const stopped = pool.stop();
  await settle();
  for (const worker of workers) worker.end();
  await stopped;
});
