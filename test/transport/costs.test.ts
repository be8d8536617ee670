// Counts the costs of a call instead of timing them. An extra write, timer, promise or allocation makes a test fail.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { RawClient, requestBytes, type CallOptions } from '../helpers/raw-client.ts';
import { answer, noContent, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import type { Counts } from './counted-gateway.ts';

const backend = await useBackend();
const item = '{"id":5}';
const json: CallOptions = { headers: [['Content-Type', 'application/json']], body: item };
const calls: readonly [name: string, method: string, path: string, answer: Answer, options?: CallOptions][] = [
  ['list', 'GET', '/api/work-items', answer('[]')],
  ['create', 'POST', '/api/work-items', answer(item, { status: 201 }), json],
  ['read', 'GET', '/api/work-items/5', answer(item)],
  ['update', 'PUT', '/api/work-items/5', noContent, json],
  ['delete', 'DELETE', '/api/work-items/5', noContent],
];

/** A gateway in a thread, and one connection to it. */
async function start(countsResources: boolean) {
  const worker = new Worker(new URL('counted-gateway.ts', import.meta.url), {
    workerData: { backendUrl: backend.url, countsResources },
  });
  const ask = async (): Promise<Counts> => {
    worker.postMessage(undefined);
    return ((await once(worker, 'message')) as [Counts])[0];
  };
  const [port] = (await once(worker, 'message')) as [number];
  const client = await RawClient.open(port);
  const send = async (count: number, [, method, path, , options]: (typeof calls)[number]) => {
    for (let sent = 0; sent < count; sent += 1) {
      client.send(requestBytes(method, path, options));
      assert.ok((await client.reply()).status < 300);
    }
  };
  return {
    /** The average counts of `count` calls, after `warmUp` calls in which V8 optimizes the code. */
    async measure(call: (typeof calls)[number], warmUp: number, count: number): Promise<Counts> {
      backend.answers(call[3]);
      await send(warmUp, call);
      const before = await ask();
      await send(count, call);
      const after = await ask();
      const each = (of: (counts: Counts) => number) => (of(after) - of(before)) / count;
      const names = Object.keys(after.resources);
      return {
        bytes: each(({ bytes }) => bytes),
        clockReads: each(({ clockReads }) => clockReads),
        writes: each(({ writes }) => writes),
        resources: Object.fromEntries(names.map((name) => [name, each(({ resources }) => resources[name] ?? 0)])),
      };
    },
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await worker.terminate();
    },
  };
}

const bytesMax = 7_000;

describe('on open connections, each call', () => {
  for (const call of calls) {
    test(`of operation ${call[0]} needs two writes, one immediate, one tick, three clock readings, no promise and no timer`, async () => {
      await using gateway = await start(true);
      const { clockReads, writes, resources } = await gateway.measure(call, 20, 100);
      assert.equal(writes, 2);
      // The limits allow for timers that belong to no call and fire meanwhile.
      assert.ok(clockReads >= 3 && clockReads <= 3.1, `${clockReads} clock readings`);
      const whole = (count: number): number => Math.ceil(count - 0.04);
      const made = Object.entries(resources).map(([name, count]) => [name, whole(count)] as const);
      assert.deepEqual(Object.fromEntries(made.filter(([, count]) => count > 0)), { Immediate: 1, TickObject: 1 });
    });
  }

  const isCounted = 'total_allocated_bytes' in getHeapStatistics();
  const skip = !isCounted && 'this Node does not count allocated bytes';
  test('allocates at most 7 KB', { skip }, async () => {
    await using gateway = await start(false);
    for (const call of calls) {
      let bytes = Infinity;
      // Measures again, because code that V8 has not optimized yet allocates more.
      for (let round = 0; round < 20 && bytes > bytesMax; round += 1) {
        ({ bytes } = await gateway.measure(call, 500, 500));
      }
      assert.ok(bytes <= bytesMax, `${call[0]}: ${bytes} bytes`);
    }
  });
});
