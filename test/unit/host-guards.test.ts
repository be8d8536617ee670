// A host's guards: they are created once, at the start or at the first request, and each outage is reported once
// [D44, D47].

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { GatewayObserver } from '../../packages/core/call/gateway.ts';
import type { GuardedRequest } from '../../packages/core/call/guard.ts';
import { guardRows, type GuardSettings } from '../../packages/core/options/guard-options.ts';
import { HostGuards } from '../../packages/core/hosts/common/host-guards.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { poll } from '../helpers/changes.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer, sending } from '../helpers/issuer.ts';

const pair = createPair('key-1', 'ES256');
const tokens = { authIssuer: issuerName, authAudience: [audience], authJwksRefreshMs: 1_000 };

function create(settings: Partial<GuardSettings>, onOutage?: GatewayObserver['onOutage'] | 'missing') {
  const told: string[] = [];
  const observer: GatewayObserver = {
    onCallEnd: () => undefined,
    onMalformed: () => undefined,
    onStall: () => undefined,
    onBug: (error) => told.push(`bug: ${String(error)}`),
    ...(onOutage !== 'missing' && {
      onOutage: onOutage ?? ((what, cause) => told.push(`${what}: ${cause ?? 'over'}`)),
    }),
  };
  const guards = new HostGuards({ ...defaultsOf(guardRows), ...settings }, observer);
  return Object.assign(guards, { told, [Symbol.dispose]: () => guards.close() });
}

const fields = ['authorization', `Bearer ${goodToken(pair)}`];
const head = { method: 'GET', target: '/', bodyLength: 0, expectation: 'none', persists: true, version: '1.1', fields } as const; // prettier-ignore
const request: GuardedRequest = { head, operation: 'list', client: '192.0.2.1', identity: undefined };

test('simultaneous requests share the guards that the first request creates; after close, the next request creates new guards', async () => {
  await using server = await KeyServer.start(keySetOf(pair));
  using guards = create({ ...tokens, authJwksUrl: server.url, authJwksRefreshMs: 300_000 });
  const isAdmitted = async () => (await guards.admit(request)).isAdmitted;
  assert.deepEqual(await Promise.all([isAdmitted(), isAdmitted()]), [true, true]);
  assert.equal(await isAdmitted(), true);
  assert.equal(server.count, 1);
  guards.close();
  assert.equal(await isAdmitted(), true);
  assert.equal(server.count, 2);
  assert.deepEqual(guards.told, []);
});

test('an outage of the issuer is reported when it begins and when it ends', async () => {
  await using server = await KeyServer.start('');
  server.respond = sending('\u0007', 200);
  using guards = create({ ...tokens, authJwksUrl: server.url });
  await guards.start();
  await poll(() => server.count === 2, 'the keys are fetched again');
  server.respond = sending(keySetOf(pair));
  await poll(() => guards.told.length > 1, 'the end of the outage is reported');
  assert.deepEqual(guards.told, ['keys: the key set is not JSON', 'keys: over']);
});

test('an outage of Redis is reported with its cause', async () => {
  using guards = create({ rateLimit: '1/1s', rateLimitRedisUrl: 'redis://127.0.0.1:1' });
  await guards.start();
  assert.deepEqual(guards.told, ['redis: connect ECONNREFUSED 127.0.0.1:1']);
});

test('an observer may have no onOutage; an exception of onOutage is reported as a bug', async () => {
  const redis = { rateLimit: '1/1s', rateLimitRedisUrl: 'redis://127.0.0.1:1' };
  using without = create(redis, 'missing');
  await without.start();
  assert.deepEqual(without.told, []);
  using failing = create(redis, () => {
    throw new Error('my fault');
  });
  await failing.start();
  assert.deepEqual(failing.told, ['bug: Error: my fault']);
});

test('a key file without keys makes the start fail, and the next request creates the guards again', async () => {
  using guards = create({ ...tokens, authJwksFile: import.meta.filename });
  for (let round = 1; round <= 2; round += 1) {
    await assert.rejects(guards.start(), new Error('authJwksFile has no keys: the key set is not JSON'));
  }
  assert.deepEqual(guards.told, ['keys: the key set is not JSON', 'keys: the key set is not JSON']);
  const admission = await guards.admit(request);
  assert.equal(admission.isAdmitted, false);
  assert.equal(admission.outcome, 'no-keys');
});

test('if no guard is on, admit() fails', async () => {
  using guards = create({});
  await assert.rejects(async () => await guards.admit(request), new Error('no guard is on'));
});
