// Tokens, rate limit and identity as options of each host: replies, the order of the guards, calls of the observer, and
// closing [D41 to D48, D50]. Forged tokens are in tokens.test.ts.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { guardRows } from '../../packages/core/options/guard-options.ts';
import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { defaultsOf } from '../../packages/core/options/rows.ts';
import { rowOf } from '../../packages/command/settings/settings.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, badRequest, operations } from '../helpers/expected.ts';
import { createObserver, hostNames, startGateway, type Settings } from '../helpers/gateway.ts';
import { audience, createPair, goodToken, issuerName, KeyServer, keySetOf, sending } from '../helpers/issuer.ts';
import { repeat } from '../helpers/rate-guard.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';
import type { Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { useFolder } from '../helpers/suites.ts';
import { assertInvalidToken, assertNoKeys, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const pair = createPair('one', 'ES256');
const other = createPair('two', 'ES256');
const item = '/api/work-items/5';
const tooMany = '{"error":"Too many requests"}';
const folder = useFolder();

const withTokens = (url: string, more: Settings = {}): Settings => ({
  authIssuer: issuerName,
  authAudience: [audience],
  authJwksUrl: url,
  ...more,
});

/** Starts a host that requires tokens, and the server of its keys. */
async function startWithTokens(host: (typeof hostNames)[number], more?: Settings, respond = sending(keySetOf(pair))) {
  const keys = await KeyServer.start('');
  keys.respond = respond;
  const started = await startGateway({ host, settings: withTokens(keys.url, more) });
  const dispose = async () => {
    await started[Symbol.asyncDispose]();
    await keys[Symbol.asyncDispose]();
  };
  return { ...started, keys, [Symbol.asyncDispose]: dispose };
}

/** Asserts that the reply reports `left` of `limit` requests in a window of `seconds` [D64]. */
function assertLeft(reply: Reply, left: number, limit: number, seconds: number): void {
  assert.equal(reply.header('ratelimit-policy'), `"default";q=${limit};w=${seconds}`);
  assert.match(reply.header('ratelimit') ?? 'none', new RegExp(`^"default";r=${left};t=\\d+$`));
  assert.equal(reply.header('retry-after'), undefined);
}

function assertTooMany(reply: Reply, limit: number, seconds: number): void {
  assertReply(reply, 429, tooMany, ['retry-after', 'ratelimit', 'ratelimit-policy']);
  assert.equal(reply.header('ratelimit-policy'), `"default";q=${limit};w=${seconds}`);
  const left = Number(reply.header('retry-after'));
  assert.ok(left > 0 && left <= seconds);
  assert.equal(reply.header('ratelimit'), `"default";r=0;t=${left}`);
}

for (const name of hostNames) {
  describe(name, () => {
    describe('with tokens', async () => {
      const host = await startWithTokens(name, {
        ...{ backendIdentityHeader: 'X-User', bufferedBytesMax: 150_000, authScopes: { read: 'items.read', delete: 'items.write' } },
        ...{ authScopeClaim: name === 'server' ? 'scp,realm_access.roles' : ['scp', 'realm_access.roles'] },
        ...{ authAlgorithms: ['RS256', 'ES256'], authTokenType: 'at+jwt', authClockSkewMs: 600_000 },
      }); // prettier-ignore
      after(() => host[Symbol.asyncDispose]());
      beforeEach(() => {
        host.backend.reset();
        host.backend.answers(answer('{"id":5}'));
        host.told.ended.length = 0;
      });
      const tokenFor = (roles: string[], more = {}, header = {}) =>
        bearer(goodToken(pair, undefined, { realm_access: { roles }, scope: 'items.write', ...more }, header));
      const good = tokenFor(['items.read', 'items.write']);

      test('every operation needs a valid token; the backend gets the subject, but not the token', async () => {
        const sub = 'Ada Lovelace, % é';
        const headers = [
          tokenFor(['items.read', 'items.write'], { sub }),
          ['X-User', 'eve'],
          ['x-user', 'eve'],
        ] as const;
        for (const { method, path, options, status, body } of operations) {
          assertNoToken(await host.call(method, path, options));
          assertReply(await host.call(method, path, { ...options, headers }), status, body);
        }
        const told = host.backend.requests.map((call) =>
          call.headers.filter(([field]) => /^(?:x-user|authorization)$/i.test(field)).map(([, value]) => value),
        );
        assert.deepEqual(told, repeat(operations.length, ['Ada Lovelace, %25 %C3%A9']));
        const outcomes = host.told.ended.map(({ outcome }) => outcome);
        assert.deepEqual(outcomes, operations.flatMap(() => ['no-token', 'ok'])); // prettier-ignore
        assert.equal(host.keys.count, 1, 'keys are fetched once for all calls');
      });

      test('requests with OPTIONS, and requests that get 404 or 405, need no token', async () => {
        for (const [method, path, status] of [
          ['OPTIONS', '/api/work-items', 204], ['OPTIONS', item, 204], ['POST', item, 405], ['PATCH', item, 405],
          ['GET', '/elsewhere', 404], ['GET', `${item}/6`, 404],
        ] as const) {
          assert.equal((await host.call(method, path)).status, status, `${method} ${path}`);
        } // prettier-ignore
        assert.equal(host.backend.requests.length, 0);
      });

      test('the options set scopes, the accepted algorithms, token type and clock skew', async () => {
        const headers = [tokenFor(['items.read'])];
        assertReply(await host.call('GET', item, { headers }), 200, '{"id":5}');
        assertNoScope(await host.call('DELETE', item, { headers }), 'items.write');
        assert.equal(host.told.ended[1]?.outcome, 'insufficient-scope');
        assert.equal((await host.call('PUT', item, { headers, body: '{}' })).status, 200, 'no scope set');
        const late = { exp: Math.floor(Date.now() / 1_000) - 60 };
        const call = (header: object) => host.call('GET', item, { headers: [tokenFor(['items.read'], late, header)] });
        assert.equal((await call({})).status, 200);
        assertInvalidToken(await call({ typ: 'JWT' }));
      });

      test('two authorization fields are refused without a backend call', async () => {
        const reply = await host.call('GET', item, { headers: [good, good] });
        // A `Request` joins the two fields into one invalid value.
        if (name === 'fetch') assertInvalidToken(reply);
        else assertReply(reply, 400, badRequest);
        assert.equal(host.backend.requests.length, 0);
      });

      test('bodies of refused requests are not buffered', async () => {
        const body = JSON.stringify('x'.repeat(100_000));
        for (let count = 0; count < 5; count += 1) {
          assertNoToken(await host.call('PUT', item, { body }));
          assertInvalidToken(await host.call('PUT', item, { body, headers: [bearer('x.y.z')] }));
        }
        assert.equal(host.backend.requests.length, 0);
        assert.equal((await host.call('PUT', item, { body, headers: [good] })).status, 200);
      });
    });

    test('without keys, calls with a token are 503, and calls without a token are 401; the outage and its end are each reported once', async () => {
      await using host = await startWithTokens(name, { authJwksRefreshMs: 1_000 }, sending('no', 500));
      const headers = [bearer(goodToken(pair))];
      for (let count = 0; count < 3; count += 1) {
        assertNoKeys(await host.call('GET', item, { headers }));
        assertNoToken(await host.call('GET', item));
      }
      await poll(() => host.keys.count > 1, 'keys are fetched again');
      assert.deepEqual(host.told.outages, [['keys', 'the issuer answered with status 500']]);
      host.keys.respond = sending(keySetOf(pair));
      await poll(async () => (await host.call('GET', item, { headers })).status === 200, 'keys are there');
      assert.equal(host.backend.requests.length, 1);
      assert.deepEqual(host.told.outages.slice(1), [['keys', undefined]]);
      assert.ok(host.told.ended.some(({ outcome }) => outcome === 'no-keys'));
    });

    test('simultaneous first calls share their guards; an exception of onOutage is a bug, and no reply changes', async () => {
      const fault = new Error('of the observer');
      const bugs: unknown[] = [];
      const onOutage = () => assert.fail(fault);
      const observer = { onBug: (error: unknown) => bugs.push(error), onOutage };
      await using host = await startWithTokens(name, { observer }, sending('no key set'));
      const options = { headers: [bearer(goodToken(pair))] };
      const replies = await Promise.all([host.call('GET', item, options), host.call('GET', item, options)]);
      for (const reply of replies) assertNoKeys(reply);
      assert.deepEqual([bugs, host.keys.count], [[fault], 1]);
    });

    test('a client over its limit gets 429 on every connection; requests with refused tokens are not counted', async () => {
      await using host = await startWithTokens(name, { rateLimit: '2/1h' });
      const headers = [bearer(goodToken(pair))];
      for (let count = 0; count < 4; count += 1) {
        const refused = await host.call('GET', item);
        assertNoToken(refused);
        assert.equal(refused.header('ratelimit'), undefined);
        assertInvalidToken(await host.call('GET', item, { headers: [bearer('a.b.c')] }));
      }
      for (const [left, path, status] of [[1, item, 200], [0, '/api/work-items/x', 400]] as const) {
        const reply = await host.call('GET', path, { headers });
        assert.equal(reply.status, status);
        assertLeft(reply, left, 2, 3_600);
      } // prettier-ignore
      assertTooMany(await host.call('GET', item, { headers }), 2, 3_600);
      assertTooMany(await host.call('POST', '/api/work-items', { headers, body: '{}' }), 2, 3_600);
      assertNoToken(await host.call('GET', item));
      assert.equal((await host.call('OPTIONS', item)).status, 204);
      assert.equal(host.backend.requests.length, 1);
      assert.equal(host.told.ended.filter(({ outcome }) => outcome === 'rate-limited').length, 2);
    });

    test('without tokens, requests are counted for each address that a trusted proxy reports', async () => {
      const settings = { rateLimit: '1/1h', trustedProxies: ['127.0.0.1'] };
      await using host = await startGateway({ host: name, settings });
      for (const [isServed, ...addresses] of [
        [true, '203.0.113.1'], [false, '203.0.113.1'], [false, '198.51.100.7, 203.0.113.1'], [false, '198.51.100.7', '203.0.113.1'],
        [true, '203.0.113.2'], [true, '2001:db8::1'], [false, '2001:db8::2'],
      ] as const) {
        const reply = await host.call('GET', item, { headers: addresses.map((each) => ['X-Forwarded-For', each]) });
        if (isServed) assert.equal(reply.status, 200);
        else assertTooMany(reply, 1, 3_600);
      } // prettier-ignore
    });

    test('with rateLimitKey identity, requests are counted for each subject of a token', async () => {
      await using host = await startWithTokens(name, { rateLimit: '1/1h', rateLimitKey: 'identity' });
      for (const sub of ['ada', 'ada', 'eve']) {
        await host.call('GET', item, { headers: [bearer(goodToken(pair, undefined, { sub }))] });
      }
      const logged = host.told.ended.map(({ status, outcome, subject }) => [status, outcome, subject]);
      assert.deepEqual(logged, [[200, 'ok', 'ada'], [429, 'rate-limited', 'ada'], [200, 'ok', 'eve']]); // prettier-ignore
    });

    test('closing the host ends the fetch of keys that is in flight', async () => {
      const [fetched, left] = [createGate(), createGate()];
      await using host = await startWithTokens(name, {}, (response) => {
        response.on('close', left.open);
        fetched.open();
      });
      assertNoToken(await host.call('GET', item));
      await fetched.opened;
      await host.close();
      await left.opened;
      assert.deepEqual(host.told.outages, [], 'a cancelled fetch is not an outage');
    });

    test('keys come from a file; if the file is missing, the start or the first call fails', async () => {
      const file = join(folder, `${name}\u0007.json`);
      const options = { authIssuer: issuerName, authAudience: [audience], authJwksFile: file };
      if (name === 'fetch' || name === 'node') {
        // A fetch or Node handler has no start, so its first call finds that the file is missing.
        await using host = await startGateway({ host: name, settings: options });
        assertNoKeys(await host.call('GET', item, { headers: [bearer(goodToken(pair))] }));
        assert.match(host.told.outages.join(), /^keys,ENOENT\P{Cc}*$/u);
      } else {
        const started = startGateway({ host: name, settings: options });
        await assert.rejects(started, /^Error: authJwksFile has no keys: ENOENT/);
      }
      writeFileSync(file, keySetOf(pair));
      await using host = await startGateway({ host: name, settings: options });
      assert.equal((await host.call('GET', item, { headers: [bearer(goodToken(pair))] })).status, 200);
      assertInvalidToken(await host.call('GET', item, { headers: [bearer(goodToken(other))] }));
    });

    test('an outage of Redis is reported with its cause, and calls still succeed', async () => {
      const settings = { rateLimit: '1/1s', rateLimitRedisUrl: 'redis://127.0.0.1:1' } as const;
      await using host = await startGateway({ host: name, settings });
      assert.equal((await host.call('GET', item)).status, 200);
      assert.deepEqual(host.told.outages, [['redis', 'connect ECONNREFUSED 127.0.0.1:1']]);
    });

    describe('with Redis', { skip: withoutRedis }, () => {
      test('two hosts share one count; an outage of Redis is reported, and calls still succeed', async () => {
        await using redis = await RedisServer.start();
        const options = { rateLimit: '3/1h', rateLimitRedisUrl: redis.url, rateLimitFallback: 'allow' } as const;
        await using one = await startGateway({ host: name, settings: options });
        await using two = await startGateway({ host: name, settings: options });
        for (const [left, host] of [[2, one], [1, two], [0, one]] as const) {
          const reply = await host.call('GET', item);
          assert.equal(reply.status, 200);
          assertLeft(reply, left, 3, 3_600);
        } // prettier-ignore
        assertTooMany(await two.call('GET', item), 3, 3_600);
        assert.deepEqual([...one.told.outages, ...two.told.outages], []);
        await redis.kill();
        await poll(async () => {
          const reply = await one.call('GET', item);
          assert.equal(reply.status, 200);
          assert.equal(reply.header('ratelimit'), undefined, 'not counted');
          return one.told.outages.length === 1;
        }, 'the outage is reported');
        assert.equal(one.told.outages[0]?.[0], 'redis');
        await redis.restart();
        await poll(() => one.told.outages.length === 2, 'the end of the outage is reported');
        assert.deepEqual(one.told.outages[1], ['redis', undefined]);
      });
    });
  });
}

describe('the fetch handler', () => {
  test('clients with invalid addresses share one count and are reported without an address', async () => {
    const clientAddress = (request: Request) => request.headers.get('x-peer') ?? undefined;
    await using host = await startGateway({ host: 'fetch', settings: { rateLimit: '1/1h', clientAddress } });
    const from = (address: string) => host.call('GET', item, { headers: [['X-Peer', address]] });
    for (const address of ['192.0.2.1', 'a']) assert.equal((await from(address)).status, 200);
    for (const address of ['b', '192.0.2.1, 192.0.2.2', '1'.repeat(5_000), '192.0.2.999', '192.0.2.1:80']) {
      assertTooMany(await from(address), 1, 3_600);
    }
    assertTooMany(await host.call('GET', item), 1, 3_600);
    const clients = host.told.ended.map(({ client }) => client);
    assert.deepEqual(clients, ['192.0.2.1', ...repeat(7, undefined)]);
  });

  test('if clientAddress throws, the client gets 500 without a backend call [D28]', async () => {
    const clientAddress = () => assert.fail('of the host');
    await using host = await startGateway({ host: 'fetch', settings: { rateLimit: '1/1h', clientAddress } });
    assert.equal((await host.call('GET', item)).status, 500);
    assert.equal(host.backend.requests.length, 0);
  });

  test('a handler can be used after close(): it then fetches the keys again and counts from zero', async () => {
    await using keys = await KeyServer.start(keySetOf(pair));
    await using host = await startGateway({ host: 'fetch', settings: { rateLimit: '1/1h' } });
    const handler = createFetchHandler({
      ...{ backendUrl: host.backend.url, clientAddress: () => '192.0.2.1', rateLimit: '1/1h' },
      ...{ authIssuer: issuerName, authAudience: [audience], authJwksUrl: keys.url },
    });
    const call = async (by: typeof pair) =>
      await handler(new Request(`http://x.localhost${item}`, { headers: { authorization: bearer(goodToken(by))[1] } }));
    assert.equal(keys.count, 0, 'nothing is fetched before the first call');
    // Simultaneous first calls share their guards.
    const first = await Promise.all([call(pair), call(pair)]);
    assert.deepEqual(first.map(({ status }) => status), [200, 429]); // prettier-ignore
    await handler.close();
    keys.respond = sending(keySetOf(other));
    assert.deepEqual([(await call(other)).status, (await call(other)).status], [200, 429]);
    assert.equal(keys.count, 2);
    assert.equal((await call(pair)).status, 401);
    await handler.close();
  });

  test('if close() comes while the first call waits for keys, the call is 503, and keys are fetched only once', async () => {
    await using keys = await KeyServer.start('');
    const fetched = createGate();
    keys.respond = fetched.open;
    const { told, observer } = createObserver();
    const handler = createFetchHandler({
      ...{ backendUrl: 'http://localhost:1', authIssuer: issuerName, authAudience: [audience] },
      ...{ authJwksUrl: keys.url, observer },
    });
    const call = handler(new Request(`http://x.localhost${item}`, { headers: { authorization: 'Bearer a.b.c' } }));
    await fetched.opened;
    await handler.close();
    assert.equal((await call).status, 503);
    assert.deepEqual([keys.count, told.ended[0]?.outcome], [1, 'no-keys']);
  });
});

test('options and settings have the same defaults', () => {
  const options = defaultsOf(guardRows);
  for (const name of Object.keys(guardRows) as (keyof typeof options)[]) {
    const value = options[name];
    assert.equal(Array.isArray(value) ? value.join() : value, rowOf(name).default, name);
  }
});

test('jose and ioredis are loaded only if the options need them', async () => {
  const program = `
    import { registerHooks } from 'node:module';
    const loaded = new Set();
    registerHooks({ resolve: (name, context, next) => (loaded.add(name), next(name, context)) });
    const { createFetchHandler } = await import('./packages/core/hosts/fetch/fetch.ts');
    await import('./packages/core/hosts/index.ts');
    const has = () => ['jose', 'ioredis'].filter((name) => loaded.has(name)).join();
    const backendUrl = 'http://127.0.0.1:1';
    const call = async (options) => {
      const handler = createFetchHandler({ backendUrl, clientAddress: () => '192.0.2.1', ...options });
      const { status } = await handler(new Request('http://x.localhost/api/work-items/5'));
      await handler.close();
      console.log(status, has());
    };
    await call({});
    await call({ rateLimit: '1/1s' });
    await call({ authIssuer: 'x', authAudience: ['x'], authJwksUrl: 'http://127.0.0.1:1' });
    await call({ rateLimit: '1/1s', rateLimitRedisUrl: 'redis://127.0.0.1:1' });
    await import('./packages/core/hosts/fetch/fetch-edge.ts');`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
    cwd: resolve(import.meta.dirname, '../..'),
  });
  assert.equal(stdout, '500 \n500 \n401 jose\n500 jose,ioredis\n');
});
