// Counts the costs of a call instead of timing them. An extra write, timer, promise or allocation makes a test fail.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { RawClient, requestBytes, type CallOptions } from '../helpers/raw-client.ts';
import { answer, noContent, type Answer } from '../helpers/scripted-backend.ts';
import { useBackend } from '../helpers/suites.ts';
import type { Counts } from './counted-gateway.ts';

const backend = await useBackend();
const item = '{"id":5}';
const json: CallOptions = { headers: [['Content-Type', 'application/json']], body: item };
type Call = readonly [name: string, method: string, path: string, answer: Answer, options?: CallOptions];
const calls: readonly Call[] = [
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
  const send = async (count: number, [, method, path, , options]: Call) => {
    for (let sent = 0; sent < count; sent += 1) {
      client.send(requestBytes(method, path, options));
      assert.ok((await client.reply()).status < 300);
    }
  };
  return {
    /** The average counts of `count` calls, after `warmUp` calls in which V8 optimizes the code. */
    async measure(call: Call, warmUp: number, count: number): Promise<Map<string, number>> {
      backend.answers(call[3]);
      await send(warmUp, call);
      const before = await ask();
      await send(count, call);
      const after = Object.entries(await ask());
      return new Map(after.map(([name, value]) => [name, (value - (before[name] ?? 0)) / count]));
    },
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await worker.terminate();
    },
  };
}

const bytesMax = 7_000;

test('on open connections, each call needs two writes, one immediate, one tick, three clock readings, no promise and no timer', async () => {
  await using gateway = await start(true);
  for (const call of calls) {
    const counts = await gateway.measure(call, 20, 100);
    counts.delete('bytes');
    // The slack is for timers that belong to no call and fire meanwhile.
    const made = [...counts].map(([name, count]) => [name, Math.ceil(count - 0.1)] as const);
    const expected = { clockReads: 3, writes: 2, Immediate: 1, TickObject: 1 };
    assert.deepEqual(Object.fromEntries(made.filter(([, count]) => count > 0)), expected, call[0]);
  }
});

const isCounted = 'total_allocated_bytes' in getHeapStatistics();
const skip = !isCounted && 'this Node does not count allocated bytes';
test('on open connections, each call allocates at most 7 KB', { skip }, async () => {
  await using gateway = await start(false);
  // With and without a request's body.
  for (const call of calls.filter(([name]) => name === 'create' || name === 'read')) {
    let bytes = Infinity;
    // Measures again, because code that V8 has not optimized yet allocates more.
    for (let round = 0; round < 30 && bytes > bytesMax; round += 1) {
      bytes = (await gateway.measure(call, 500, 500)).get('bytes') ?? NaN;
    }
    assert.ok(bytes <= bytesMax, `${call[0]}: ${bytes} bytes`);
  }
});
