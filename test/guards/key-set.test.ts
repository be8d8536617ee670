// Fetching the issuer's keys, and how long they stay valid [D44]. The test sets the clock.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { FetchedKeys } from '../../packages/core/guards/ports/ports.ts';
import { systemClock, type Clock } from '../../packages/core/guards/time/clock.ts';
import { within } from '../../packages/core/guards/time/deadline.ts';
import { createKeySource, KeySet, type KeySetOptions } from '../../packages/core/guards/tokens/key-set.ts';
import { poll } from '../helpers/changes.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';
import { createPair, keySetOf } from '../helpers/issuer.ts';

const first = createPair('first', 'ES256');
const second = createPair('second', 'ES256');

type Source = () => Promise<string>;
const down: Source = () => Promise.reject(new Error('down'));
const giving =
  (text: string): Source =>
  () =>
    Promise.resolve(text);

function createKeySet(
  source: Source,
  { authJwksStaleMs = 86_400_000, share }: { authJwksStaleMs?: number; share?: KeySetOptions['share'] } = {},
) {
  const clock = new HandClock();
  const fetchedAt: number[] = [];
  const told: string[] = [];
  const state = { source };
  const keys = new KeySet({
    source: async (signal) => {
      fetchedAt.push(clock.steady());
      signal.addEventListener('abort', () => told.push('aborted'));
      return await state.source();
    },
    settings: { authAlgorithms: ['RS256', 'ES256'], authJwksRefreshMs: 300_000, authJwksStaleMs },
    clock,
    observer: {
      onKeys: (each) => told.push(`keys: ${each.map(({ kid }) => kid).join()}`),
      onFetch: (cause) => told.push(cause ?? 'ok'),
    },
    share,
  });
  const kids = () => keys.current.map(({ kid }) => kid);
  /** Waits until `count` fetches have ended. */
  const ended = async (count: number) => {
    const isEnd = (each: string) => !each.startsWith('keys: ') && each !== 'aborted';
    await poll(() => told.filter(isEnd).length === count, `${count} fetches have ended`);
    await settle();
  };
  return { keys, clock, fetchedAt, told, kids, ended, state };
}

test('keys are fetched at the start and again refreshMs after each fetch', async () => {
  const { keys, clock, fetchedAt, told, kids, ended } = createKeySet(giving(keySetOf(first)));
  assert.deepEqual(kids(), []);
  await keys.start();
  assert.deepEqual(kids(), ['first']);
  for (let count = 2; count <= 4; count += 1) {
    await clock.pass(300_000);
    await ended(count);
  }
  assert.deepEqual(fetchedAt, [0, 300_000, 600_000, 900_000]);
  assert.deepEqual(told, ['keys: first', 'ok', 'ok', 'ok', 'ok']);
  keys.close();
  await clock.pass(10_000_000);
  assert.equal(fetchedAt.length, 4, 'no fetch after close');
});

test('without any key the fetch is repeated after 1 s, then 2, 4, 8, 16 and 30 s', async () => {
  const { keys, clock, fetchedAt, state, ended, kids } = createKeySet(down);
  await keys.start();
  for (const [index, seconds] of [1, 2, 4, 8, 16, 30, 30].entries()) {
    assert.deepEqual(clock.waits, [seconds * 1_000]);
    await clock.pass(seconds * 1_000);
    await ended(index + 2);
  }
  assert.deepEqual(fetchedAt, [0, 1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000]);
  state.source = giving(keySetOf(first));
  await clock.pass(30_000);
  await ended(9);
  assert.deepEqual(kids(), ['first']);
  assert.deepEqual(clock.waits, [300_000]);
});

test('in an outage the fetched keys stay valid for staleMs; a fetch after the outage makes them valid again', async () => {
  const { keys, clock, state, ended, kids, told } = createKeySet(giving(keySetOf(first)), { authJwksStaleMs: 700_000 });
  await keys.start();
  state.source = down;
  await clock.pass(699_999);
  await ended(3);
  assert.deepEqual(kids(), ['first']);
  await clock.pass(1);
  assert.deepEqual(kids(), [], 'too stale');
  await ended(4);
  state.source = giving(keySetOf(first));
  await clock.pass(1_000);
  await ended(5);
  assert.deepEqual(kids(), ['first']);
  assert.deepEqual(told, ['keys: first', 'ok', 'down', 'down', 'down', 'ok']);
});

test('an unknown key causes at most one fetch in 30 s, for all callers together', async () => {
  const { keys, clock, fetchedAt, state, kids } = createKeySet(giving(keySetOf(first)));
  await keys.start();
  state.source = giving(keySetOf(first, second));
  const sought = Array.from({ length: 1_000 }, () => keys.seek());
  assert.equal(new Set(sought).size, 1, 'all callers wait for the same fetch');
  await sought[0];
  assert.deepEqual(kids(), ['first', 'second']);
  for (let round = 0; round < 1_000; round += 1) assert.equal(keys.seek(), undefined);
  await clock.pass(29_999);
  assert.equal(keys.seek(), undefined);
  await clock.pass(1);
  await keys.seek();
  assert.equal(keys.seek(), undefined);
  assert.deepEqual(fetchedAt, [0, 0, 30_000]);
  keys.close();
});

test('seek() during a fetch waits for that fetch instead of starting another, so the next seek() may start a fetch', async () => {
  const gate = Promise.withResolvers<string>();
  const { keys, fetchedAt, state, kids } = createKeySet(() => gate.promise);
  const start = keys.start();
  const sought = keys.seek();
  assert.notEqual(sought, undefined);
  gate.resolve(keySetOf(first));
  await Promise.all([start, sought]);
  assert.deepEqual([fetchedAt.length, kids()], [1, ['first']]);
  state.source = giving(keySetOf(second));
  await keys.seek();
  assert.deepEqual([fetchedAt.length, kids()], [2, ['second']]);
  keys.close();
});

test('a fetch is aborted after 5 s, and a late answer is ignored', async () => {
  const late = Promise.withResolvers<string>();
  const { keys, clock, told, state, ended, kids } = createKeySet(() => late.promise);
  const start = keys.start();
  assert.notEqual(keys.first, undefined);
  await clock.pass(5_000);
  await start;
  assert.deepEqual(told, ['aborted', 'no complete answer within 5000 ms']);
  assert.equal(keys.first, undefined);
  late.resolve(keySetOf(first));
  await settle();
  assert.deepEqual(kids(), []);
  state.source = giving(keySetOf(second));
  await clock.pass(1_000);
  await ended(2);
  assert.deepEqual(kids(), ['second']);
  keys.close();
});

test('an invalid key set changes nothing; an empty key set removes all keys', async () => {
  for (const text of ['', '{', '[]', 'null', '7', '{"keys":{}}', '{"keys":"x"}', '<html>']) {
    const { keys, clock, state, ended, kids } = createKeySet(giving(keySetOf(first)));
    await keys.start();
    state.source = giving(text);
    await clock.pass(300_000);
    await ended(2);
    assert.deepEqual(kids(), ['first'], text);
    state.source = giving('{"keys":[]}');
    await clock.pass(300_000);
    await ended(3);
    assert.deepEqual(kids(), []);
    assert.deepEqual(clock.waits, [1_000], 'the next fetch is due in 1 s');
    keys.close();
  }
});

test('the same keys in another order are not a change', async () => {
  const { keys, clock, state, ended, told } = createKeySet(giving(keySetOf(first, second)));
  await keys.start();
  state.source = giving(keySetOf(second, first));
  await clock.pass(300_000);
  await ended(2);
  // Another key with the same id is a change.
  state.source = giving(
    JSON.stringify({
      keys: [first.jwk, { ...first.jwk, ...second.jwk, kid: 'second', x: first.jwk['x'], y: first.jwk['y'] }],
    }),
  );
  await clock.pass(300_000);
  await ended(3);
  assert.deepEqual(told, ['keys: first,second', 'ok', 'ok', 'keys: first,second', 'ok']);
  keys.close();
});

test('only keys that an allowed algorithm can use are accepted', async () => {
  const rsa = createPair('rsa', 'RS256');
  const { alg, ...withoutAlg } = rsa.jwk;
  assert.equal(alg, 'RS256');
  const rows: [title: string, jwk: unknown, expected: string[]][] = [
    ['RSA for RS256', rsa.jwk, ['RS256']],
    ['RSA without an algorithm', withoutAlg, ['RS256']],
    ['ES256', first.jwk, ['ES256']],
    ['a key without an id', { ...first.jwk, kid: undefined }, ['ES256']],
    ['key_ops verify', { ...first.jwk, use: undefined, key_ops: ['verify'] }, ['ES256']],
    ['a key for another algorithm', { ...rsa.jwk, alg: 'PS256' }, []],
    ['a key for encryption', { ...rsa.jwk, use: 'enc' }, []],
    ['key_ops sign', { ...first.jwk, key_ops: ['sign'] }, []],
    ['key_ops that is not an array', { ...first.jwk, key_ops: 'verify' }, []],
    ['a private key', { ...first.privateKey.export({ format: 'jwk' }), kid: 'x' }, []],
    ['RSA of 1,024 bits', createPair('short', 'RS256', 1_024).jwk, []],
    ['a shared secret', { kty: 'oct', k: 'c2VjcmV0', alg: 'HS256', kid: 'x' }, []],
    ['a key of another curve', createPair('p384', 'ES384').jwk, []],
    ['a key without its curve', { ...first.jwk, crv: undefined }, []],
    ['a key of type OKP', { ...first.jwk, kty: 'OKP' }, []],
    ['a key whose type does not fit its algorithm', { ...first.jwk, alg: 'RS256' }, []],
    ['an invalid coordinate', { ...first.jwk, x: 'AAAA' }, []],
    ['an RSA key without n and e', { kty: 'RSA', kid: 'x', alg: 'RS256' }, []],
    ['an RSA modulus that is not a string', { ...rsa.jwk, n: 7 }, []],
    ['an id that is not a string', { ...first.jwk, kid: 7 }, []],
    ['an id of 2,000 characters', { ...first.jwk, kid: 'x'.repeat(2_000) }, []],
    ['a string', 'x', []],
    ['null', null, []],
    ['a list', [first.jwk], []],
  ];
  for (const [title, jwk, expected] of rows) {
    const { keys } = createKeySet(giving(JSON.stringify({ keys: [jwk, second.jwk] })));
    await keys.start();
    const found = keys.current.filter(({ kid }) => kid !== 'second').map(({ algorithm }) => algorithm);
    assert.deepEqual(found, expected, title);
    const others = keys.current.filter(({ algorithm, kid }) => algorithm === 'ES256' && kid === 'second');
    assert.equal(others.length, 1, 'the other key is accepted');
    keys.close();
  }
});

test('inherited keys are valid immediately, and until staleMs after they were fetched; the start still fetches the key set', async () => {
  const shared: FetchedKeys[] = [];
  const { keys: other } = createKeySet(giving(keySetOf(first)), { share: (each) => shared.push(each) });
  await other.start();
  other.close();
  const [{ text, ageMs } = { text: '', ageMs: NaN }] = shared;
  assert.deepEqual([shared.length, text, ageMs], [1, keySetOf(first), 0]);

  const { keys, clock, kids, ended, told } = createKeySet(down, { authJwksStaleMs: 1_000 });
  await keys.inherit({ text, ageMs: 400 });
  assert.deepEqual(kids(), ['first']);
  const started = keys.start();
  assert.equal(keys.first, undefined, 'no call waits for the first fetch');
  await started;
  await ended(1);
  assert.deepEqual(told, ['keys: first', 'down']);
  await clock.pass(599);
  assert.deepEqual(kids(), ['first']);
  await clock.pass(1);
  assert.deepEqual(kids(), []);
  keys.close();
});

test('keys stay valid for staleMs after the beginning of their fetch', async () => {
  const gate = Promise.withResolvers<string>();
  const { keys, clock, state, kids } = createKeySet(() => gate.promise, { authJwksStaleMs: 10_000 });
  const started = keys.start();
  await clock.pass(4_000);
  gate.resolve(keySetOf(first));
  await started;
  state.source = down;
  await clock.pass(5_999);
  assert.deepEqual(kids(), ['first']);
  await clock.pass(1);
  assert.deepEqual(kids(), [], 'the issuer may have withdrawn the keys right after the beginning of the fetch');
  keys.close();
});

test('the age of shared keys includes the duration of their fetch', async () => {
  const shared: FetchedKeys[] = [];
  const gate = Promise.withResolvers<string>();
  const { keys, clock } = createKeySet(() => gate.promise, { share: (each) => shared.push(each) });
  const started = keys.start();
  await clock.pass(700);
  gate.resolve(keySetOf(first));
  await started;
  assert.deepEqual(shared, [{ text: keySetOf(first), ageMs: 700 }]);
  keys.close();
});

test('an inherited key set without a usable key is ignored', async () => {
  const { keys, kids, told } = createKeySet(giving(keySetOf(second)));
  await keys.inherit({ text: '{"keys":[]}', ageMs: 0 });
  assert.deepEqual(told, []);
  const started = keys.start();
  assert.notEqual(keys.first, undefined);
  await started;
  assert.deepEqual(kids(), ['second']);
  keys.close();
});

const block = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

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
    await new Promise((resolve) => setImmediate(resolve));
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
