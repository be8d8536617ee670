// Creating guards: fetching the issuer's keys for an operator, state that outlives a reload, and the rate limit without
// Redis [D44, D46, D47].

import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { createKeeper } from '../../packages/command/service/keeper.ts';
import type { GuardedRequest } from '../../packages/core/call/guard.ts';
import { guardRows, type GuardSettings } from '../../packages/core/options/guard-options.ts';
import { explainLoading, MissingPackageError } from '../../packages/core/guards/ports/missing-package.ts';
import { createGuards, type Guards } from '../../packages/core/guards/parts.ts';
import type { GuardObserver, Keeper } from '../../packages/core/guards/ports/ports.ts';
import { fetchKeys } from '../../packages/core/guards/tokens/part.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { poll } from '../helpers/changes.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer, sending } from '../helpers/issuer.ts';
import { useFolder } from '../helpers/suites.ts';

const folder = useFolder();
const file = join(folder, 'keys.json');
const pair = createPair('key-1', 'RS256');
const closedPort = 'http://127.0.0.1:1/keys';
const defaults = defaultsOf(guardRows);
const withTokens = { ...defaults, authIssuer: issuerName, authAudience: [audience] };

function observe() {
  const told: string[] = [];
  const observer: GuardObserver = {
    onKeys: (keys) => told.push(`keys: ${keys.map(({ kid }) => kid).join()}`),
    onFetch: (error) => told.push(error === undefined ? 'fetched' : 'not fetched'),
    onInherited: (ageMs) => told.push(`inherited, ${ageMs} ms old`),
    onCounter: (who, cause) => told.push(`${who}: ${cause instanceof Error ? cause.message : String(cause)}`),
    onUnusedPassword: () => told.push('unused password'),
  };
  return { told, observer };
}

async function create(settings: Partial<GuardSettings>, keeper?: Keeper) {
  const { told, observer } = observe();
  const guards = await createGuards({ ...defaults, ...settings }, observer, keeper);
  return Object.assign(guards, { told, [Symbol.dispose]: () => guards.close() });
}

async function admit({ guards }: Guards, more: Partial<GuardedRequest> & { readonly authorization?: string } = {}) {
  const { authorization, ...rest } = more;
  const fields = authorization === undefined ? [] : ['authorization', authorization];
  const head = { method: 'GET', target: '/', bodyLength: 0, expectation: 'none', persists: true, version: '1.1', fields } as const; // prettier-ignore
  const request = { head, operation: 'list', client: '192.0.2.1', identity: undefined, ...rest } as const;
  assert.equal(guards.length, 1);
  return await guards[0]?.admit(request);
}

test('without an issuer and a rate there are no guards', async () => {
  using guards = await create({});
  assert.deepEqual([guards.guards, guards.fileProblem, guards.redisAnswers()], [[], undefined, undefined]);
});

describe('fetching keys once, for an operator', () => {
  const fetchFrom = async (authJwksUrl: string, more: Partial<GuardSettings> = {}) =>
    await fetchKeys({ ...withTokens, authJwksUrl, ...more });

  test('returns the usable keys, and explains the unusable keys only if no key is usable', async () => {
    await using server = await KeyServer.start(keySetOf(pair, createPair('other', 'ES256'), createPair('x', 'ES384')));
    const { keys, flaws } = await fetchFrom(server.url);
    assert.deepEqual(keys.map(({ kid, algorithm }) => [kid, algorithm]), [['key-1', 'RS256'], ['other', 'ES256']]); // prettier-ignore
    assert.deepEqual(flaws, []);
  });

  const rsaJwk = (bits: number) =>
    generateKeyPairSync('rsa', { modulusLength: bits }).publicKey.export({ format: 'jwk' });
  const long = 'k\n'.repeat(40);
  const sets: readonly (readonly [title: string, keys: readonly object[], flaws: readonly string[]])[] = [
    ['no key', [], []],
    ['a short RSA key', [{ ...rsaJwk(1_024), kid: 'short' }], ['short: an RSA key of 1024 bits, not 2048 to 8192']],
    ['a long RSA key', [{ kty: 'RSA', e: 'AQAB', n: 'x'.repeat(1_368) }], ['(no kid): an RSA key of 8208 bits, not 2048 to 8192']],
    ['a key for encryption', [{ ...rsaJwk(2_048), use: 'enc', kid: 1 }], ['(no kid): not for signatures']],
    ['a private key', [{ kid: 'd', kty: 'RSA', d: 'x' }], ['d: a private key, which must not be published']],
    ['a key for another algorithm', [createPair('x', 'ES384').jwk], ['x: not for RS256 or ES256']],
    ['a key with wrong parts', [{ kty: 'EC', crv: 'P-256', x: 1, kid: long }], [`${'k\\u000a'.repeat(20)}: malformed`]],
    ['an RSA key with wrong parts', [{ kty: 'RSA', n: 'x'.repeat(342), use: 'sig' }], ['(no kid): malformed']],
    ['six private keys', Array.from({ length: 6 }, (_, index) => ({ kid: `${index}`, kty: 'RSA', d: 'x' })), Array.from({ length: 5 }, (_, index) => `${index}: a private key, which must not be published`)],
  ]; // prettier-ignore
  for (const [title, keys, flaws] of sets) {
    test(`a key set with ${title} has the explanation: ${flaws[0] ?? '(none)'}`, async () => {
      writeFileSync(file, JSON.stringify({ keys }));
      assert.deepEqual(await fetchFrom('', { authJwksFile: file }), { keys: [], flaws });
    });
  }

  test('a failed fetch is explained', async () => {
    await assert.rejects(fetchFrom(closedPort), /^Error: connect ECONNREFUSED 127\.0\.0\.1:1$/);
    await assert.rejects(fetchFrom('', { authJwksFile: join(folder, 'nothing') }), /^Error: ENOENT/);
    await using server = await KeyServer.start('');
    server.respond = sending('no', 503);
    await assert.rejects(fetchFrom(server.url), /^Error: .*503/);
    const tls = server.url.replace('http:', 'https:');
    await assert.rejects(fetchFrom(tls), /^Error: the issuer does not speak TLS: did you mean http:\?$/);
  });
});

describe('the guard of tokens', () => {
  test('keeps its keys for later guards, which use them while the issuer is down', async () => {
    let now = 10_000;
    const keeper = createKeeper(() => now);
    const token = { authorization: `Bearer ${goodToken(pair)}` };
    const server = await KeyServer.start(keySetOf(pair));
    const { url } = server;
    const settings = { ...withTokens, authJwksUrl: url };
    {
      using first = await create(settings, keeper);
      await poll(() => first.told.includes('fetched'), 'the keys are fetched');
      assert.equal((await admit(first, token))?.isAdmitted, true);
      assert.deepEqual(first.told, ['keys: key-1', 'fetched']);
    }
    await server[Symbol.asyncDispose]();
    const { text, ageMs = NaN } = keeper.findKeys(url) ?? {};
    assert.equal(text, keySetOf(pair));
    now += 5_000 - ageMs;
    using second = await create(settings, keeper);
    assert.deepEqual(second.told.slice(0, 2), ['keys: key-1', 'inherited, 5000 ms old']);
    assert.equal((await admit(second, token))?.isAdmitted, true);
    keeper.keepKeys(url, { text: keySetOf(createPair('x', 'ES384')), ageMs: 5_000 });
    using third = await create(settings, keeper);
    assert.ok(!third.told.some((each) => each.startsWith('inherited')), 'unusable keys are not inherited');
    using other = await create({ ...settings, authJwksUrl: closedPort }, keeper);
    assert.ok(!other.told.some((each) => each.startsWith('inherited')), 'keys of another address are not inherited');
  });

  test('waits until a key file is read, and reports why the file has no keys', async () => {
    writeFileSync(file, keySetOf(pair));
    const settings = { ...withTokens, authJwksFile: file };
    const keeper = createKeeper();
    keeper.keepKeys('', { text: keySetOf(pair), ageMs: 5_000 });
    using well = await create(settings, keeper);
    assert.deepEqual([well.fileProblem, well.told], [undefined, ['keys: key-1', 'fetched']]);
    writeFileSync(file, '{');
    using broken = await create(settings);
    assert.equal(broken.fileProblem, 'the key set is not JSON');
    using away = await create({ ...settings, authJwksFile: '', authJwksUrl: closedPort });
    await poll(() => away.told.includes('not fetched'), 'the fetch has failed');
    assert.equal(away.fileProblem, undefined);
  });
});

test('the error for a missing package has the command that installs it; any other error is not changed', () => {
  for (const code of ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND']) {
    const missing = Object.assign(new Error('no'), { code });
    const error = explainLoading('RATE_LIMIT', 'ioredis', missing);
    assert.ok(error instanceof MissingPackageError);
    assert.equal(error.message, 'RATE_LIMIT needs the package ioredis: run `npm install ioredis`');
    assert.equal(error.cause, missing);
  }
  const other = new SyntaxError('broken');
  assert.equal(explainLoading('RATE_LIMIT', 'ioredis', other), other);
});
