// Tokens and the issuer's keys over time: waiting for keys, new and old keys, remembered tokens, and floods of tokens
// [D44, D58]. The test sets the clock.

import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { TokenMemory } from '../../packages/core/guards/tokens/token-memory.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';
import { createPair, goodToken, keySetOf, type Pair } from '../helpers/issuer.ts';
import { repeat } from '../helpers/rate-guard.ts';
import { createTokenGuard, startTokenGuard } from '../helpers/tokens.ts';

const pair = createPair('one', 'ES256');
const other = createPair('two', 'ES256');
const twin = createPair('one', 'ES256');
const [invalid, expired, unknownKey] = ['signature', 'expired', 'unknown-key'].map((flaw) => `invalid-token: ${flaw}`);
const down = () => Promise.reject(new Error('down'));
const giving =
  (...pairs: readonly Pair[]) =>
  () =>
    Promise.resolve(keySetOf(...pairs));
const header = (token: string) => ['authorization', `Bearer ${token}`];

describe('a remembered token', () => {
  test('is admitted at once, and similar tokens are refused', async () => {
    using guard = await startTokenGuard(keySetOf(pair));
    const token = goodToken(pair, guard.clock.now());
    const first = guard.admit(header(token));
    assert.ok(first instanceof Promise);
    assert.deepEqual(await first, { isAdmitted: true, identity: 'ada' });
    assert.equal(guard.admit(header(token)), await first);
    // The last character of an ES256 signature in base64url has four unused bits, so `_` can decode to the same bytes.
    for (const like of [`${token.slice(0, -1)}_`, token.slice(0, -1), `${token}A`, token.toLowerCase(), `x${token}`]) {
      assert.match(await guard.ask(like), /^invalid-token/);
    }
    assert.equal(guard.guard.remembered, 1);
  });

  test('is verified again after its exp, and after 5 minutes of monotonic time', async (t) => {
    using guard = await startTokenGuard(keySetOf(pair));
    const verify = t.mock.method(globalThis.crypto.subtle, 'verify');
    const now = guard.clock.now();
    const short = goodToken(pair, now, { exp: Math.floor(now / 1_000) + 60 });
    const long = goodToken(pair, now, { exp: 9_999_999_999 });
    for (const token of [short, long, short, long]) assert.equal(await guard.ask(token), 'ada');
    assert.equal(verify.mock.callCount(), 2);
    // After its exp, but within the skew, the token is valid but no longer remembered.
    guard.clock.set(now + 61_000);
    assert.equal(await guard.ask(short), 'ada');
    assert.equal(verify.mock.callCount(), 3);
    guard.clock.set(now + 91_000);
    assert.equal(await guard.ask(short), expired);
    // The wall clock is set back, and the issuer is down.
    guard.clock.set(0);
    guard.issuer.read = down;
    const before = verify.mock.callCount();
    await guard.clock.pass(299_999);
    assert.equal(await guard.ask(long), 'ada');
    assert.equal(verify.mock.callCount(), before);
    await guard.clock.pass(1);
    assert.equal(await guard.ask(long), 'ada');
    assert.equal(verify.mock.callCount(), before + 1);
  });

  test('is forgotten when the keys change, also if it is verified meanwhile', async () => {
    using guard = await startTokenGuard(keySetOf(pair));
    const token = goodToken(pair, guard.clock.now(), { exp: 9_999_999_999 });
    const admission = guard.admit(header(token));
    // The verification runs in another thread: it cannot end in this turn of the event loop.
    for (let turn = 0; turn < 3; turn += 1) await Promise.resolve();
    guard.guard.forgetAll();
    await admission;
    assert.equal(guard.guard.remembered, 0);
    assert.equal(await guard.ask(token), 'ada');
    guard.issuer.read = giving(other);
    await guard.clock.pass(300_000);
    await poll(() => guard.keys.current[0]?.kid === 'two', 'the new keys are fetched');
    assert.equal(await guard.ask(token), unknownKey);
  });

  test('has a subject of at most 1,024 characters', async () => {
    using guard = await startTokenGuard(keySetOf(pair));
    await guard.ask(goodToken(pair, undefined, { sub: 'a'.repeat(1_025) }));
    assert.equal(guard.guard.remembered, 0);
    await guard.ask(goodToken(pair, undefined, { sub: 'a'.repeat(1_024) }));
    assert.equal(guard.guard.remembered, 1);
  });

  test('makes room for others if there are 10,000; tokens in use stay', () => {
    const memory = new TokenMemory<number>(new HandClock(0), 10_000);
    memory.remember('kept', -1, 1e12, 1e12);
    for (let index = 0; index < 100_000; index += 1) {
      memory.remember(String(index), index, 1e12, 1e12);
      if (index % 1_000 === 0) assert.equal(memory.find('kept'), -1);
      assert.ok(memory.size <= 10_000);
    }
    assert.deepEqual([memory.find('99999'), memory.find('0')], [99_999, undefined]);
  });
});

describe('without valid keys', () => {
  test('a request with any token is 503, and a request without a token 401', async () => {
    using guard = createTokenGuard('');
    guard.issuer.read = down;
    await guard.keys.start();
    assert.equal(await guard.decide([]), 'no-token');
    for (const token of [goodToken(pair), 'x.y.z', 'x']) assert.equal(await guard.ask(token), 'no-keys');
    guard.issuer.read = giving(pair);
    await guard.clock.pass(1_000);
    await poll(() => guard.keys.current.length === 1, 'the key is fetched');
    assert.equal(await guard.ask(goodToken(pair)), 'ada');
  });

  test('a request with a token waits for the first keys', async () => {
    const gate = Promise.withResolvers<string>();
    using guard = createTokenGuard('');
    guard.issuer.read = () => gate.promise;
    void guard.keys.start();
    const decision = guard.ask(goodToken(pair));
    assert.equal(await guard.decide([]), 'no-token');
    gate.resolve(keySetOf(pair));
    assert.equal(await decision, 'ada');
  });

  test('because they are too stale, a remembered token is 503, too', async () => {
    using guard = await startTokenGuard(keySetOf(pair), { authJwksStaleMs: 400_000 });
    await guard.clock.pass(200_000);
    const token = goodToken(pair, undefined, { exp: 9_999_999_999 });
    assert.equal(await guard.ask(token), 'ada');
    guard.issuer.read = down;
    await guard.clock.pass(199_999);
    assert.equal(await guard.ask(token), 'ada');
    await guard.clock.pass(1);
    assert.equal(await guard.ask(token), 'no-keys');
  });

  test('because a token made the gateway fetch a key set without a usable key, the request is 503', async () => {
    for (const text of ['{"keys":[]}', JSON.stringify({ keys: [{ ...other.jwk, use: 'enc' }] })]) {
      for (const signer of [other, twin]) {
        using guard = await startTokenGuard(keySetOf(pair));
        guard.issuer.read = () => Promise.resolve(text);
        assert.equal(await guard.ask(goodToken(signer)), 'no-keys');
      }
    }
  });
});

describe('a new key of the issuer', () => {
  const withoutId = createPair(undefined, 'ES256');
  for (const [title, before, after] of [
    ['has another id', pair, other],
    ['has the id of the old key', pair, twin],
    ['has the id of the old key and another algorithm', pair, createPair('one', 'RS256')],
    ['has no id, like the old key', withoutId, createPair(undefined, 'ES256')],
    ['has no id, and the old key had one', pair, withoutId],
  ] as const) {
    test(`that ${title} is fetched once for the first tokens signed with it, while other requests go on`, async () => {
      using guard = await startTokenGuard(keySetOf(before));
      const gate = Promise.withResolvers<string>();
      guard.issuer.read = () => gate.promise;
      const decisions = repeat(20, after).map((signer, jti) => guard.ask(goodToken(signer, undefined, { jti })));
      assert.equal(await guard.ask(goodToken(before)), 'ada');
      gate.resolve(keySetOf(after));
      assert.deepEqual(await Promise.all(decisions), repeat(20, 'ada'));
      assert.match(await guard.ask(goodToken(before)), /^invalid-token/);
      assert.equal(guard.issuer.fetches, 2);
    });
  }

  test('is fetched, too, if the issuer replaces its key while a fetch is in progress', async (t) => {
    using guard = await startTokenGuard(keySetOf(pair));
    const gate = Promise.withResolvers<string>();
    guard.issuer.read = () => gate.promise;
    await guard.clock.pass(300_000);
    assert.equal(guard.issuer.fetches, 2, 'a regular fetch is in progress');
    const seek = t.mock.method(guard.keys, 'seek');
    const decision = guard.ask(goodToken(twin));
    guard.issuer.read = giving(twin);
    await poll(() => seek.mock.callCount() === 1, 'the token waits for the fetch in progress');
    gate.resolve(keySetOf(pair));
    assert.equal(await decision, 'ada');
    assert.equal(guard.issuer.fetches, 3);
  });

  test('is fetched 30 s later if the issuer fails during its rotation; meanwhile the old keys stay valid', async () => {
    using guard = await startTokenGuard(keySetOf(pair));
    for (const read of [down, () => Promise.resolve('<html>')]) {
      guard.issuer.read = read;
      assert.equal(await guard.ask(goodToken(twin)), invalid);
      assert.equal(await guard.ask(goodToken(pair)), 'ada');
      await guard.clock.pass(30_000);
    }
    guard.issuer.read = giving(twin);
    assert.equal(await guard.ask(goodToken(twin)), 'ada');
    assert.equal(guard.issuer.fetches, 4);
  });

  test('is not sought for a token with a known key, or that is invalid for another reason', async () => {
    using guard = await startTokenGuard(keySetOf(pair));
    for (const kid of ['one', undefined]) assert.equal(await guard.ask(goodToken(pair, undefined, {}, { kid })), 'ada');
    for (const more of [{ exp: 1 }, { aud: 'x' }, { iss: 'x' }, { exp: undefined }, { sub: 7 }]) {
      assert.match(await guard.ask(goodToken(pair, undefined, more)), /^invalid-token/);
    }
    for (const token of ['x', goodToken(createPair('one', 'ES384'))]) await guard.ask(token);
    assert.equal(guard.issuer.fetches, 1);
  });
});

test('of keys with the same id, at most four are tried; the cause comes from the key that signed the token', async () => {
  const pairs = Array.from({ length: 5 }, () => createPair('one', 'ES256'));
  using guard = await startTokenGuard(keySetOf(...pairs));
  const decisions = await Promise.all(pairs.map((each) => guard.ask(goodToken(each))));
  assert.deepEqual(decisions, [...repeat(4, 'ada'), invalid]);
  assert.equal(await guard.ask(goodToken(pairs[0] ?? pair, 0)), expired);
});

test('forged tokens with a known key id cause one fetch in 30 s, and each is verified once while the keys stay', async (t) => {
  using guard = await startTokenGuard(keySetOf(pair));
  const verify = t.mock.method(globalThis.crypto.subtle, 'verify');
  const forge = (jti: number) => goodToken(twin, undefined, { jti }, { kid: jti % 2 === 0 ? 'one' : undefined });
  for (let jti = 0; jti < 300; jti += 1) assert.equal(await guard.ask(forge(jti)), invalid);
  assert.deepEqual([guard.issuer.fetches, verify.mock.callCount()], [2, 300]);
  await guard.clock.pass(29_999);
  assert.equal(await guard.ask(forge(300)), invalid);
  assert.equal(guard.issuer.fetches, 2);
  await guard.clock.pass(1);
  for (let jti = 301; jti < 350; jti += 1) assert.equal(await guard.ask(forge(jti)), invalid);
  assert.equal(guard.issuer.fetches, 3);
  assert.equal(await guard.ask(goodToken(pair)), 'ada');
});

describe('in a flood of tokens', () => {
  /** Starts a guard that remembers the token `known`. All later verifications wait for `gate`. */
  async function startFlood(t: TestContext, waitingMax?: number) {
    const guard = await startTokenGuard(keySetOf(pair), {}, waitingMax);
    const known = goodToken(pair);
    assert.equal(await guard.ask(known), 'ada');
    const gate = createGate();
    const flood = { begun: [] as string[], now: 0, most: 0 };
    const { subtle } = globalThis.crypto;
    const verify = subtle.verify.bind(subtle);
    t.mock.method(subtle, 'verify', async (...input: Parameters<typeof verify>) => {
      const [, payload = ''] = Buffer.from(input[3] as Uint8Array).toString().split('.'); // prettier-ignore
      flood.begun.push((JSON.parse(Buffer.from(payload, 'base64url').toString()) as { sub: string }).sub);
      flood.now += 1;
      flood.most = Math.max(flood.most, flood.now);
      await gate.opened;
      return await verify(...input).finally(() => (flood.now -= 1));
    });
    const ask = (sub: string, signer = pair) => guard.ask(goodToken(signer, undefined, { sub }));
    return Object.assign(flood, { guard, gate, known, ask });
  }

  test('two are verified at a time, in the order of their arrival; a remembered token does not wait', async (t) => {
    const flood = await startFlood(t);
    const subjects = Array.from({ length: 100 }, (_, index) => `client ${index}`);
    const decisions = subjects.map((sub, index) => flood.ask(sub, index % 3 === 0 ? twin : pair));
    await poll(() => flood.begun.length === 2, 'two tokens are being verified');
    for (let call = 0; call < 10; call += 1) assert.equal(await flood.guard.ask(flood.known), 'ada');
    assert.equal(flood.begun.length, 2);
    flood.gate.open();
    const expected = subjects.map((sub, index) => (index % 3 === 0 ? invalid : sub));
    assert.deepEqual(await Promise.all(decisions), expected);
    assert.deepEqual([flood.begun, flood.most], [subjects, 2]);
  });

  test('when too many wait, the next token is 503 at once, except if it needs no verification', async (t) => {
    const flood = await startFlood(t, 3);
    const decisions = repeat(5, 'bob').map((sub) => flood.ask(sub));
    await settle();
    assert.equal(await flood.ask('late'), 'overload: too many tokens wait to be verified');
    assert.equal(await flood.guard.decide([]), 'no-token');
    assert.equal(await flood.guard.ask('x'), 'invalid-token: malformed');
    assert.equal(await flood.guard.ask(goodToken(pair, undefined, {}, { kid: 'unknown' })), unknownKey);
    assert.equal(await flood.guard.ask(flood.known), 'ada');
    flood.gate.open();
    assert.deepEqual(await Promise.all(decisions), repeat(5, 'bob'));
    assert.equal(await flood.ask('late'), 'late');
  });

  test('a waiting token is refused if its key is removed meanwhile', async (t) => {
    const flood = await startFlood(t);
    const decisions = ['ada', 'bob', 'eve'].map((sub) => flood.ask(sub));
    await settle();
    flood.guard.issuer.read = giving(other);
    await flood.guard.clock.pass(300_000);
    flood.gate.open();
    // The verification of the first two tokens began before the keys changed.
    assert.deepEqual(await Promise.all(decisions), ['ada', 'bob', unknownKey]);
    assert.deepEqual(flood.begun, ['ada', 'bob']);
  });
});
