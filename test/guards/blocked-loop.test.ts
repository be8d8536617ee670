// Time limits while the event loop is blocked: an answer that arrives meanwhile is read before the limit is judged
// [D44, D47].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { RedisCounter, answerMsMax } from '../../packages/core/guards/rate-limit/redis-counter.ts';
import { SharedCount } from '../../packages/core/guards/rate-limit/shared-count.ts';
import { within } from '../../packages/core/guards/time/deadline.ts';
import { createKeySource, KeySet } from '../../packages/core/guards/tokens/key-set.ts';
import { systemClock, type Clock } from '../../packages/core/guards/time/clock.ts';
import { poll } from '../helpers/changes.ts';
import { startGateway } from '../helpers/gateway.ts';
import { createPair, keySetOf } from '../helpers/issuer.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';

const block = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
const nextTurn = () => new Promise((resolve) => setImmediate(resolve));
const rate = { limit: 10, windowMs: 60_000 };

/** Starts a count in `redis`. The fallback admits every request, and `uncounted` has the number of its requests. */
async function startCount(redis: RedisServer, url = redis.url) {
  const state = { uncounted: 0, causes: [] as unknown[] };
  const count = new SharedCount({
    rate,
    clock: systemClock,
    counter: new RedisCounter(new URL(url), () => undefined),
    answerMsMax,
    fallback: {
      take: () => {
        state.uncounted += 1;
        return undefined;
      },
    },
    onChange: (cause) => state.causes.push(cause),
  });
  await count.start();
  await poll(() => count.isAnswering, 'Redis counts');
  state.causes.length = 0;
  return { count, state, [Symbol.dispose]: () => count.close() };
}

const takeAll = (count: SharedCount, requests: number, key: string) =>
  Promise.all(Array.from({ length: requests }, async () => await count.take(key)));

describe('a count in Redis', { skip: withoutRedis }, () => {
  for (const blockedMs of [150, 1_000]) {
    for (const [moment, wait, turns] of [
      ['before the question is sent', () => Promise.resolve(), 1],
      ['when the question is sent', nextTurn, 1],
      ['in each of three turns', nextTurn, 3],
    ] as const) {
      test(`if the loop is blocked for ${blockedMs} ms ${moment}, all requests are counted`, async () => {
        await using redis = await RedisServer.start();
        using started = await startCount(redis);
        const taken = takeAll(started.count, 40, 'a');
        for (let turn = 0; turn < turns; turn += 1) {
          await wait();
          block(blockedMs);
        }
        const admitted = (await taken).filter((each) => each === undefined || each.left >= 0).length;
        assert.deepEqual([admitted, started.state], [10, { uncounted: 0, causes: [] }]);
      });
    }
  }

  test('if the loop is blocked while 3,000 requests wait, all are counted', async () => {
    await using redis = await RedisServer.start();
    using started = await startCount(redis);
    const taken = Array.from({ length: 3_000 }, async (_, index) => await started.count.take(`key ${index % 100}`));
    await nextTurn();
    block(400);
    const admitted = (await Promise.all(taken)).filter((each) => each === undefined || each.left >= 0).length;
    assert.deepEqual([admitted, started.state], [1_000, { uncounted: 0, causes: [] }]);
  });

  test('if every turn is long while Redis closes the connection, all requests are counted', async () => {
    await using redis = await RedisServer.start();
    await redis.send('ACL SETUSER gateway on >password ~* +@all');
    using started = await startCount(redis, `redis://gateway:password@127.0.0.1:${redis.port}/1`);
    const startedAt = performance.now();
    // The end of a younger connection is an outage.
    await poll(() => performance.now() > startedAt + 600, 'the connection is old enough');
    let isBlocking = true;
    const blockEachTurn = (): void => {
      block(60);
      if (isBlocking) setImmediate(blockEachTurn);
    };
    blockEachTurn();
    await redis.send('CLIENT KILL TYPE normal SKIPME yes');
    const taken = takeAll(started.count, 40, 'a');
    const admitted = (await taken).filter((each) => each === undefined || each.left >= 0).length;
    isBlocking = false;
    assert.deepEqual([admitted, started.state], [10, { uncounted: 0, causes: [] }]);
  });
});

test('a client cannot open its limit with turns of 150 ms, although requests without a count are admitted', { skip: withoutRedis }, async () => {
  await using redis = await RedisServer.start();
  await using host = await startGateway({
    settings: { rateLimit: '3/1h', rateLimitRedisUrl: redis.url, rateLimitFallback: 'allow' },
  });
  const isCounted = async () => (await host.call('GET', '/api/work-items/5')).header('ratelimit') !== undefined;
  await poll(isCounted, 'Redis counts');
  await redis.send('DEL work-item-gateway:rate:3600:127.0.0.1');
  let isBlocking = true;
  const blockEachTurn = (): void => {
    block(150);
    if (isBlocking) setImmediate(blockEachTurn);
  };
  blockEachTurn();
  const replies = await Promise.all(Array.from({ length: 20 }, () => host.call('GET', '/api/work-items/5')));
  isBlocking = false;
  assert.equal(replies.filter(({ status }) => status === 429).length, 17);
  assert.deepEqual(host.told.outages, []);
}); // prettier-ignore

/** Starts a server in another thread, which answers each request with `text` after `delayMs`. Returns its address. */
async function serveInThread(text: string, delayMs: number) {
  const code = `
    const { parentPort, workerData: { text, delayMs } } = require('node:worker_threads');
    const server = require('node:http').createServer((request, response) => setTimeout(() => response.end(text), delayMs));
    server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
  `;
  const worker = new Worker(code, { eval: true, workerData: { text, delayMs } });
  const [port] = (await once(worker, 'message')) as [number];
  return {
    url: `http://127.0.0.1:${port}/`,
    [Symbol.asyncDispose]: async () => {
      await worker.terminate();
    },
  };
}

test('keys that arrive while the loop is blocked for longer than the time limit are used', async () => {
  await using server = await serveInThread(keySetOf(createPair('one', 'ES256')), 20);
  // The limit of 5 s takes 100 ms.
  const clock: Clock = { ...systemClock, after: (ms, action) => systemClock.after(ms / 50, action) };
  const causes: unknown[] = [];
  const keys = new KeySet({
    settings: { authAlgorithms: ['ES256'], authJwksRefreshMs: 300_000, authJwksStaleMs: 86_400_000 },
    source: createKeySource({ authJwksUrl: server.url, authJwksFile: '' }),
    clock,
    observer: { onKeys: () => undefined, onFetch: (cause) => causes.push(cause) },
  });
  const started = keys.start();
  for (const turn of [1, 2, 3]) {
    block(100 + turn);
    await nextTurn();
  }
  await started;
  keys.close();
  assert.deepEqual(causes, [undefined]);
});

test('without an answer, the wait ends although the loop is blocked in every turn', async () => {
  const timer = setInterval(() => block(30), 1);
  const late = within(systemClock, 50, new Promise(() => undefined), 'late');
  await assert.rejects(late, new Error('late'));
  clearInterval(timer);
});
