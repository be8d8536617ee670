// The issuer's keys: when they are fetched and how long they stay valid, where they come from, which keys can be used, and
// the guards that keep them [D44].

import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { createKeeper } from '../../packages/command/service/keeper.ts';
import { guardRows, type GuardSettings } from '../../packages/core/options/guard-options.ts';
import type { FetchedKeys, Keeper } from '../../packages/core/guards/ports/ports.ts';
import { createGuards } from '../../packages/core/guards/guard-parts.ts';
import { systemClock } from '../../packages/core/guards/time/clock.ts';
import { within } from '../../packages/core/guards/time/deadline.ts';
import {
  createKeySource,
  KeySet,
  keySetBytesMax,
  type KeySetOptions,
} from '../../packages/core/guards/tokens/key-set.ts';
import { fetchKeys } from '../../packages/core/guards/tokens/tokens-part.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { poll } from '../helpers/changes.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';
import { audience, createPair, issuerName, KeyServer, keySetOf, sending } from '../helpers/issuer.ts';
import { useFolder } from '../helpers/suites.ts';

const first = createPair('first', 'ES256');
const second = createPair('second', 'ES256');
const folder = useFolder();
const file = join(folder, 'keys.json');
const closedPort = 'http://127.0.0.1:1/keys';
const settings = { ...defaultsOf(guardRows), authIssuer: issuerName, authAudience: [audience] };

type Source = () => Promise<string>;
const down: Source = () => Promise.reject(new Error('down'));
const giving =
  (text: string): Source =>
  () =>
    Promise.resolve(text);

/** A key set whose clock and source the test sets. `told` has the observer's events. */
function createKeySet(source: Source, more: Partial<GuardSettings> = {}, share?: KeySetOptions['share']) {
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
    settings: { ...settings, ...more },
    clock,
    observer: {
      onKeys: (each) => told.push(`keys: ${each.map(({ kid }) => kid).join()}`),
      onFetch: (cause) => told.push(cause ?? 'ok'),
    },
    share,
  });
  const kids = () => keys.current.map(({ kid }) => kid).join();
  /** Advances the clock, and waits until all begun fetches have ended. */
  const pass = async (ms: number) => {
    await clock.pass(ms);
    const isEnd = (each: string) => !each.startsWith('keys: ') && each !== 'aborted';
    await poll(() => told.filter(isEnd).length === fetchedAt.length, 'the fetches have ended');
    await settle();
  };
  return { keys, clock, fetchedAt, told, kids, pass, state, [Symbol.dispose]: () => keys.close() };
}

describe('fetching', () => {
  test('is repeated refreshMs after each fetch, until close', async () => {
    using set = createKeySet(giving(keySetOf(first)));
    assert.equal(set.kids(), '');
    await set.keys.start();
    assert.equal(set.kids(), 'first');
    for (let count = 0; count < 3; count += 1) await set.pass(300_000);
    assert.deepEqual(set.fetchedAt, [0, 300_000, 600_000, 900_000]);
    assert.deepEqual(set.told, ['keys: first', 'ok', 'ok', 'ok', 'ok']);
    set.keys.close();
    await set.pass(10_000_000);
    assert.equal(set.fetchedAt.length, 4);
  });

  test('is repeated after 1, 2, 4, 8, 16 and 30 s without any key', async () => {
    using set = createKeySet(down);
    await set.keys.start();
    for (const seconds of [1, 2, 4, 8, 16, 30, 30]) {
      assert.deepEqual(set.clock.waits, [seconds * 1_000]);
      await set.pass(seconds * 1_000);
    }
    set.state.source = giving(keySetOf(first));
    await set.pass(30_000);
    assert.equal(set.kids(), 'first');
    assert.deepEqual(set.clock.waits, [300_000]);
    set.state.source = giving('{"keys":[]}');
    await set.pass(300_000);
    assert.deepEqual(set.clock.waits, [1_000], 'after a success, the pauses begin again');
  });

  test('fails in an outage: the keys stay valid for staleMs after the beginning of their fetch', async () => {
    const gate = Promise.withResolvers<string>();
    using set = createKeySet(() => gate.promise, { authJwksStaleMs: 700_000 });
    const started = set.keys.start();
    await set.clock.pass(4_000);
    gate.resolve(keySetOf(first));
    await started;
    set.state.source = down;
    await set.pass(695_999);
    assert.equal(set.kids(), 'first');
    await set.pass(1);
    assert.equal(set.kids(), '', 'the issuer may have withdrawn the keys right after the beginning of the fetch');
    set.state.source = giving(keySetOf(first));
    await set.pass(1_000);
    assert.equal(set.kids(), 'first');
    assert.deepEqual(set.fetchedAt, [0, 304_000, 604_000, 700_000, 701_000]);
    assert.deepEqual(set.told, ['keys: first', 'ok', 'down', 'down', 'down', 'ok']);
  });

  test('ends after 5 s, and a late answer is ignored', async () => {
    const late = Promise.withResolvers<string>();
    using set = createKeySet(() => late.promise);
    const start = set.keys.start();
    assert.notEqual(set.keys.first, undefined);
    await set.clock.pass(5_000);
    await start;
    assert.deepEqual(set.told, ['aborted', 'no complete answer within 5000 ms']);
    assert.equal(set.keys.first, undefined);
    late.resolve(keySetOf(first));
    await settle();
    assert.equal(set.kids(), '');
  });

  test('of an invalid key set changes nothing; the same keys in another order are no change; an empty set removes all', async () => {
    using set = createKeySet(giving(keySetOf(first, second)));
    await set.keys.start();
    const replaced = { ...second.jwk, x: first.jwk['x'], y: first.jwk['y'] };
    for (const text of ['', '{', '[]', 'null', '7', '{"keys":{}}', '{"keys":"x"}', '<html>', keySetOf(second, first)]) {
      set.state.source = giving(text);
      await set.pass(300_000);
      assert.match(set.kids(), /^(first,second|second,first)$/, text);
    }
    assert.equal(set.told.filter((each) => each.startsWith('keys: ')).length, 1);
    // Another key with the same id is a change.
    for (const [text, told] of [[JSON.stringify({ keys: [first.jwk, replaced] }), 'keys: first,second'], ['{"keys":[]}', 'keys: ']] as const) {
      set.state.source = giving(text);
      await set.pass(300_000);
      assert.equal(set.told.findLast((each) => each.startsWith('keys: ')), told);
    } // prettier-ignore
    assert.equal(set.kids(), '');
  });

  test('shares the keys with their age; inherited keys are valid at once, until staleMs after they were fetched', async () => {
    const shared: FetchedKeys[] = [];
    const gate = Promise.withResolvers<string>();
    using other = createKeySet(
      () => gate.promise,
      {},
      (each) => shared.push(each),
    );
    const otherStarted = other.keys.start();
    await other.clock.pass(700);
    gate.resolve(keySetOf(first));
    await otherStarted;
    assert.deepEqual(shared, [{ text: keySetOf(first), ageMs: 700 }]);

    using set = createKeySet(down, { authJwksStaleMs: 1_000 });
    await set.keys.inherit({ text: '{"keys":[]}', ageMs: 0 });
    assert.deepEqual(set.told, [], 'a key set without a usable key is ignored');
    await set.keys.inherit({ text: keySetOf(first), ageMs: 400 });
    assert.equal(set.kids(), 'first');
    const started = set.keys.start();
    assert.equal(set.keys.first, undefined, 'no call waits for the first fetch');
    await started;
    assert.deepEqual(set.told, ['keys: first', 'down']);
    await set.clock.pass(599);
    assert.equal(set.kids(), 'first');
    await set.clock.pass(1);
    assert.equal(set.kids(), '');
  });

  const block = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

  test('without an answer ends although the event loop is blocked in every turn', async () => {
    const timer = setInterval(() => block(30), 1);
    const late = within(systemClock, 50, new Promise(() => undefined), 'late');
    await assert.rejects(late, new Error('late'));
    clearInterval(timer);
  });
});

describe('a source of keys', () => {
  const createUrlSource = (authJwksUrl: string) => createKeySource({ authJwksUrl, authJwksFile: '' });
  const { signal } = new AbortController();

  test('gives a text of UTF-8, of at most 1 MiB', async () => {
    assert.equal(keySetBytesMax, 2 ** 20);
    const longest = ' '.repeat(keySetBytesMax);
    await using server = await KeyServer.start('');
    for (const [bytes, problem] of [
      [keySetOf(first), undefined], [longest, undefined], [`${longest} `, 'the key set is larger than 1048576 bytes'],
      [Buffer.from([0x22, 0xff, 0x22]), 'the key set is not UTF-8'],
    ] as const) {
      server.respond = (response) => response.end(bytes);
      writeFileSync(file, bytes);
      for (const source of [createUrlSource(server.url), createKeySource({ authJwksUrl: '', authJwksFile: file })]) {
        if (problem === undefined) assert.equal(await source(signal), bytes);
        else await assert.rejects(source(signal), new Error(problem));
      }
    } // prettier-ignore
  });

  test('requests a key set without compression, and follows no redirect', async () => {
    await using server = await KeyServer.start('');
    const requested: unknown[] = [];
    server.respond = (response: ServerResponse) => {
      const { accept, 'accept-encoding': encoding, 'user-agent': agent } = response.req.headers;
      requested.push([accept, encoding, agent]);
      sending('', 302, { location: server.url })(response);
    };
    const source = createUrlSource(server.url);
    await assert.rejects(source(signal), new Error('the issuer answered with status 302'));
    assert.deepEqual(requested, [['application/jwk-set+json, application/json', 'identity', 'work-item-gateway']]);
    for (const [coding, bytes] of [
      ['identity', keySetOf(first)],
      ['gzip', gzipSync(keySetOf(first))],
      ['br', brotliCompressSync(keySetOf(first))],
    ] as const) {
      server.respond = (response) => response.writeHead(200, { 'content-encoding': coding }).end(bytes);
      const text = source(signal);
      if (coding === 'identity') assert.equal(await text, bytes);
      else await assert.rejects(text, /^Error: the issuer compressed the key set, /);
    }
  });

  test('closes its connection, even if the answer is endless', async () => {
    await using server = await KeyServer.start('');
    const { promise: closed, resolve } = Promise.withResolvers<unknown>();
    server.respond = (response: ServerResponse) => {
      response.writeHead(500).write('more to come');
      resolve(once(response, 'close'));
    };
    await assert.rejects(createUrlSource(server.url)(signal), /status 500/);
    await closed;
  });
});

describe('a key set', () => {
  const fetchFrom = async (authJwksUrl: string, more: Partial<GuardSettings> = {}) =>
    await fetchKeys({ ...settings, authJwksUrl, ...more });
  const read = async (keys: unknown) => {
    writeFileSync(file, JSON.stringify(keys));
    const { keys: usable, flaws } = await fetchFrom('', { authJwksFile: file });
    return { usable: usable.map(({ kid, algorithm }) => `${kid} ${algorithm}`), flaws };
  };
  const rsaJwk = (bits: number) =>
    generateKeyPairSync('rsa', { modulusLength: bits }).publicKey.export({ format: 'jwk' });
  const rsa = { ...rsaJwk(2_048), kid: 'rsa' };
  const long = 'k\n'.repeat(40);
  const es384 = createPair('x', 'ES384').jwk;
  const notFor = 'not for RS256 or ES256';
  const isPrivate = 'a private key, which must not be published';

  // Each key alone: the algorithm for which it can be used, or why it cannot be used.
  for (const [title, jwk, expected] of [
    ['RSA for RS256', { ...rsa, alg: 'RS256' }, 'rsa RS256'],
    ['RSA without an algorithm', rsa, 'rsa RS256'],
    ['ES256', first.jwk, 'first ES256'],
    ['a key without an id', { ...first.jwk, kid: undefined }, 'undefined ES256'],
    ['key_ops verify', { ...first.jwk, use: undefined, key_ops: ['verify'] }, 'first ES256'],
    ['a key for another algorithm', { ...rsa, alg: 'PS256' }, `rsa: ${notFor}`],
    ['a key of another curve', es384, `x: ${notFor}`],
    ['a key without its curve', { ...first.jwk, crv: undefined }, `first: ${notFor}`],
    ['a key of type OKP', { ...first.jwk, kty: 'OKP' }, `first: ${notFor}`],
    ['a key whose type does not fit its algorithm', { ...first.jwk, alg: 'RS256' }, `first: ${notFor}`],
    ['key_ops sign', { ...first.jwk, key_ops: ['sign'] }, `first: ${notFor}`],
    ['key_ops that is not an array', { ...first.jwk, key_ops: 'verify' }, `first: ${notFor}`],
    ['a shared secret', { kty: 'oct', k: 'c2VjcmV0', alg: 'HS256', kid: 'x' }, `x: ${notFor}`],
    ['a key for encryption', { ...rsa, use: 'enc', kid: 1 }, '(no kid): not for signatures'],
    ['a private key', { ...first.privateKey.export({ format: 'jwk' }), kid: 'd' }, `d: ${isPrivate}`],
    ['a short RSA key', { ...rsaJwk(1_024), kid: 'short' }, 'short: an RSA key of 1024 bits, not 2048 to 8192'],
    ['a long RSA key', { kty: 'RSA', e: 'AQAB', n: 'x'.repeat(1_368) }, '(no kid): an RSA key of 8208 bits, not 2048 to 8192'],
    ['an RSA key without n and e', { kty: 'RSA', kid: 'x', alg: 'RS256' }, 'x: malformed'],
    ['an RSA modulus that is not a string', { ...rsa, n: 7 }, 'rsa: an RSA key of 0 bits, not 2048 to 8192'],
    ['an RSA key without e', { kty: 'RSA', n: 'x'.repeat(342), use: 'sig' }, '(no kid): malformed'],
    ['an invalid coordinate', { ...first.jwk, x: 'AAAA' }, 'first: malformed'],
    ['a long id', { ...first.jwk, x: 1, kid: long }, `${'k\\u000a'.repeat(20)}: malformed`],
    ['an id of 2,000 characters', { ...first.jwk, kid: 'x'.repeat(2_000) }, `${'x'.repeat(40)}: ${notFor}`],
    ['an id that is not a string', { ...first.jwk, kid: 7 }, `(no kid): ${notFor}`],
    ...['x', null, [first.jwk]].map((odd) => [`the key ${typeof odd}`, odd, `(no kid): ${notFor}`] as const),
  ] as const) {
    test(`with ${title}: ${expected}`, async () => {
      const { usable, flaws } = await read({ keys: [jwk] });
      assert.deepEqual([...usable, ...flaws], [expected]);
      const { usable: both } = await read({ keys: [jwk, second.jwk] });
      assert.deepEqual(both, [...usable, 'second ES256'], 'the other key can be used');
    });
  } // prettier-ignore

  test('is explained up to its fifth key, and read up to its 200th', async () => {
    const flawed = (count: number) => Array.from({ length: count }, (_, index) => ({ kid: `${index}`, kty: 'RSA', d: 'x' }));
    assert.deepEqual((await read({ keys: flawed(6) })).flaws, flawed(5).map(({ kid }) => `${kid}: ${isPrivate}`));
    assert.deepEqual(await read({ keys: [] }), { usable: [], flaws: [] });
    assert.deepEqual((await read({ keys: [...flawed(199), first.jwk] })).usable, ['first ES256']);
    assert.deepEqual((await read({ keys: [...flawed(200), first.jwk] })).usable, []);
  }); // prettier-ignore

  test('that cannot be fetched or is not a key set has an explanation', async () => {
    writeFileSync(file, '{');
    await assert.rejects(fetchFrom('', { authJwksFile: file }), new Error('the key set is not JSON'));
    for (const odd of [[], null, 'keys', {}, { keys: {} }, { keys: null }]) {
      await assert.rejects(read(odd), new Error('the key set is JSON, but not a JSON Web Key Set: it has no array "keys"'));
    }
    await assert.rejects(fetchFrom(closedPort), /^Error: connect ECONNREFUSED 127\.0\.0\.1:1$/);
    await assert.rejects(fetchFrom('', { authJwksFile: join(folder, 'nothing') }), /^Error: ENOENT/);
    await using server = await KeyServer.start('');
    server.respond = sending('no', 503);
    await assert.rejects(fetchFrom(server.url), /^Error: .*503/);
    const tls = server.url.replace('http:', 'https:');
    await assert.rejects(fetchFrom(tls), /^Error: the issuer does not speak TLS: did you mean http:\?$/);
  }); // prettier-ignore
});

describe('the guard of tokens', () => {
  async function create(more: Partial<GuardSettings>, keeper?: Keeper) {
    const told: string[] = [];
    const guards = await createGuards({ ...settings, ...more }, {
      onKeys: (keys) => told.push(`keys: ${keys.map(({ kid }) => kid).join()}`),
      onFetch: (error) => told.push(error === undefined ? 'fetched' : 'not fetched'),
      onInherited: (ageMs) => told.push(`inherited, ${ageMs} ms old`),
      onCounter: () => told.push('counter'),
      onUnusedPassword: () => told.push('unused password'),
    }, keeper); // prettier-ignore
    return Object.assign(guards, { told, [Symbol.dispose]: () => guards.close() });
  }

  test('keeps its keys for later guards, which use them while the issuer is down', async () => {
    let now = 10_000;
    const keeper = createKeeper(() => now);
    const server = await KeyServer.start(keySetOf(first));
    const { url } = server;
    {
      using guards = await create({ authJwksUrl: url }, keeper);
      await poll(() => guards.told.length === 2, 'the keys are fetched');
      assert.deepEqual(guards.told, ['keys: first', 'fetched']);
    }
    await server[Symbol.asyncDispose]();
    const { text, ageMs = NaN } = keeper.findKeys(url) ?? {};
    assert.equal(text, keySetOf(first));
    now += 5_000 - ageMs;
    keeper.keepKeys(closedPort, { text: keySetOf(createPair('x', 'ES384')), ageMs: 500 });
    for (const [authJwksUrl, ...expected] of [
      [url, 'keys: first', 'inherited, 5000 ms old', 'not fetched'],
      // Unusable keys are not inherited, and neither are keys of another address.
      [closedPort, 'not fetched'],
      ['http://127.0.0.1:1/other', 'not fetched'],
    ] as const) {
      using guards = await create({ authJwksUrl }, keeper);
      await poll(() => guards.told.at(-1) === 'not fetched', 'the fetch has failed');
      assert.deepEqual([guards.told, guards.fileProblem], [expected, undefined]);
    }
  });

  test('waits until a key file is read, and reports why the file has no keys; without an issuer there is no guard', async () => {
    const keeper = createKeeper();
    keeper.keepKeys('', { text: keySetOf(first), ageMs: 5_000 });
    writeFileSync(file, keySetOf(first));
    using well = await create({ authJwksFile: file }, keeper);
    assert.deepEqual([well.fileProblem, well.told], [undefined, ['keys: first', 'fetched']]);
    writeFileSync(file, '{');
    using broken = await create({ authJwksFile: file });
    assert.equal(broken.fileProblem, 'the key set is not JSON');
    using none = await create({ authIssuer: '' });
    assert.deepEqual([none.guards, none.fileProblem, none.redisAnswers()], [[], undefined, undefined]);
  });

  test('if a key file is unusable, a worker that follows others uses its last keys, but none that were withdrawn', async () => {
    const keeper = { ...createKeeper(), replacesFile: false };
    const place = { authJwksFile: file, authJwksRefreshMs: 20 };
    writeFileSync(file, keySetOf(first));
    using running = await create(place, keeper);
    writeFileSync(file, '{');
    using refused = await create(place, keeper);
    assert.equal(refused.fileProblem, 'the key set is not JSON');
    keeper.replacesFile = true;
    using follower = await create(place, keeper);
    assert.deepEqual([follower.fileProblem, follower.told[0]], [undefined, 'keys: first']);
    writeFileSync(file, '{"keys":[]}');
    await poll(() => running.told.includes('keys: '), 'the keys are withdrawn');
    writeFileSync(file, '{');
    using later = await create(place, keeper);
    assert.deepEqual([later.fileProblem, later.told], [undefined, ['not fetched']]);
  });
});
