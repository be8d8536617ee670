// Tokens, rate limit and identity as options of each host: what is served and refused, in which order, what the observer is
// told, and how they end [D41 to D48, D50]. That forged tokens are refused is in hosts-forged-tokens.test.ts.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { guardRows } from '../../packages/core/guards/options/guard-options.ts';
import { createFetchHandler } from '../../packages/core/hosts/fetch/fetch.ts';
import { defaultsOf } from '../../packages/core/hosts/options/rows.ts';
import { rowOf } from '../../packages/command/settings/settings.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply, badRequest, operations } from '../helpers/expected.ts';
import { hostNames, makeHost, serveHost, type HostOptions } from '../helpers/guarded-hosts.ts';
import {
  audience,
  createPair,
  goodToken,
  issuerName,
  KeyServer,
  keySetOf,
  sending,
} from '../helpers/issuer.ts';
import { createObserver } from '../helpers/in-process.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';
import { requestBytes, type Reply } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { assertInvalidToken, assertNoKeys, assertNoScope, assertNoToken, bearer } from '../helpers/tokens.ts';

const pair = createPair('one', 'ES256');
const other = createPair('two', 'ES256');
const item = '/api/work-items/5';
const tooMany = '{"error":"Too many requests"}';

const withTokens = (url: string, more: HostOptions = {}): HostOptions => ({
  authIssuer: issuerName,
  authAudience: [audience],
  authJwksUrl: url,
  ...more,
});

/** So many of `limit` are left, in a window that has not ended yet [D64]. */
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
    test('every operation needs a valid token; with one the backend is told who calls', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      await using host = await serveHost(name, withTokens(keys.url, { backendIdentityHeader: 'X-User' }));
      const authorization = bearer(goodToken(pair, undefined, { sub: 'Ada Lovelace, % é' }));
      for (const { method, path, options, status, body } of operations) {
        assertNoToken(await host.call(method, path, options));
        host.backend.answersOnce(answer(body === '{"success":true}' ? '{}' : body));
        const headers = [authorization, ['X-User', 'eve'], ['x-user', 'eve']] as const;
        assertReply(await host.call(method, path, { ...options, headers }), status, body);
      }
      assert.equal(host.backend.requests.length, operations.length);
      for (const { headers } of host.backend.requests) {
        const told = headers.filter(([field]) => /^(?:x-user|authorization)$/i.test(field));
        assert.deepEqual(
          told.map(([, value]) => value),
          ['Ada Lovelace, %25 %C3%A9'],
        );
      }
      assert.deepEqual(
        host.told.ended.map(({ outcome }) => outcome),
        operations.flatMap(() => ['no-token', 'ok']),
      );
      assert.equal(keys.count, 1, 'keys are fetched once for all calls');
    });

    test('what is no operation needs no token', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      await using host = await serveHost(name, withTokens(keys.url));
      assert.equal((await host.call('OPTIONS', item)).status, 204);
      assert.equal((await host.call('POST', item, { body: '{}' })).status, 405);
      assert.equal(host.backend.requests.length, 0);
    });

    test('an operation needs its scope, in the claim that is named', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      const authScopes = { read: 'items.read', delete: 'items.write' };
      await using host = await serveHost(name, withTokens(keys.url, { authScopes, authScopeClaim: 'scp' }));
      const headers = [bearer(goodToken(pair, undefined, { scp: ['items.read'], scope: 'items.write' }))];
      assertReply(await host.call('GET', item, { headers }), 200, '{"id":5}');
      assertNoScope(await host.call('DELETE', item, { headers }), 'items.write');
      assert.equal((await host.call('PUT', item, { headers, body: '{}' })).status, 200, 'not named');
      assert.equal(host.told.ended[1]?.outcome, 'insufficient-scope');
    });

    test('algorithms, type and clock are those of the options', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      const more = {
        authAlgorithms: ['RS256', 'ES256'],
        authTokenType: 'at+jwt',
        authClockSkewMs: 600_000,
      } as const;
      await using host = await serveHost(name, withTokens(keys.url, more));
      const late = { exp: Math.floor(Date.now() / 1_000) - 60 };
      const call = async (token: string) => await host.call('GET', item, { headers: [bearer(token)] });
      assert.equal((await call(goodToken(pair, undefined, late))).status, 200);
      assertInvalidToken(await call(goodToken(pair, undefined, late, { typ: 'JWT' })));
    });

    test('two authorization fields are refused, and whatever comes of them reaches nobody', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      await using host = await serveHost(name, withTokens(keys.url));
      const good = bearer(goodToken(pair));
      const headers = [good, good];
      const reply = await host.call('GET', item, { headers });
      // In a Request they have become one.
      if (name === 'fetch') assertInvalidToken(reply);
      else assertReply(reply, 400, badRequest);
      assert.equal(host.backend.requests.length, 0);
    });

    test('without keys a token is 503, no token 401; the outage is told once, and so is its end', async () => {
      await using keys = await KeyServer.start('');
      keys.respond = sending('no', 500);
      await using host = await serveHost(name, withTokens(keys.url));
      const headers = [bearer(goodToken(pair))];
      for (let count = 0; count < 3; count += 1) {
        assertNoKeys(await host.call('GET', item, { headers }));
        assertNoToken(await host.call('GET', item));
      }
      assert.deepEqual(host.outages, [['keys', 'it answered with status 500']]);
      keys.respond = sending(keySetOf(pair));
      await poll(
        async () => (await host.call('GET', item, { headers })).status === 200,
        'keys are fetched again',
      );
      assert.equal(host.backend.requests.length, 1);
      assert.deepEqual(host.outages.slice(1), [['keys', undefined]]);
      assert.ok(host.told.ended.some(({ outcome }) => outcome === 'no-keys'));
    });

    test('an observer that fails is told of that, and no call fails by it', async () => {
      await using keys = await KeyServer.start('no key set');
      const bugs: unknown[] = [];
      const fault = new Error('of the observer');
      const nothing = () => undefined;
      const observer = {
        ...{ onCallEnd: nothing, onMalformed: nothing, onStall: nothing },
        onBug: (error: unknown) => bugs.push(error),
        onOutage: () => {
          throw fault;
        },
      };
      await using host = await serveHost(name, withTokens(keys.url, { observer }));
      assertNoKeys(await host.call('GET', item, { headers: [bearer(goodToken(pair))] }));
      assert.deepEqual(bugs, [fault]);
    });

    test('a new key of the issuer counts with the first token that names it', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      await using host = await serveHost(name, withTokens(keys.url));
      const call = async (by: typeof pair) =>
        await host.call('GET', item, { headers: [bearer(goodToken(by))] });
      assert.equal((await call(pair)).status, 200);
      keys.respond = sending(keySetOf(other));
      assert.equal((await call(other)).status, 200);
      assertInvalidToken(await call(pair));
    });

    test('a client over its limit is 429, whatever its connection; refused tokens do not count', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      await using host = await serveHost(name, withTokens(keys.url, { rateLimit: '2/1h' }));
      const headers = [bearer(goodToken(pair))];
      for (let count = 0; count < 4; count += 1) {
        const refused = await host.call('GET', item);
        assertNoToken(refused);
        assert.equal(refused.header('ratelimit'), undefined);
        assertInvalidToken(await host.call('GET', item, { headers: [bearer('a.b.c')] }));
      }
      const first = await host.call('GET', item, { headers });
      assert.equal(first.status, 200);
      assertLeft(first, 1, 2, 3_600);
      const second = await host.call('GET', '/api/work-items/x', { headers });
      assert.equal(second.status, 400, 'it counts, too');
      assertLeft(second, 0, 2, 3_600);
      assertTooMany(await host.call('GET', item, { headers }), 2, 3_600);
      assertTooMany(await host.call('POST', '/api/work-items', { headers, body: '{}' }), 2, 3_600);
      assertNoToken(await host.call('GET', item));
      assert.equal((await host.call('OPTIONS', item)).status, 204);
      assert.equal(host.backend.requests.length, 1);
      assert.equal(host.told.ended.filter(({ outcome }) => outcome === 'rate-limited').length, 2);
    });

    test('a limit without tokens; what trusted proxies say of an address counts, and no other does', async () => {
      await using host = await serveHost(name, { rateLimit: '1/1h', trustedProxies: ['127.0.0.1'] });
      const from = async (...addresses: string[]) =>
        await host.call('GET', item, {
          headers: addresses.map((each) => ['X-Forwarded-For', each] as const),
        });
      assert.equal((await from('203.0.113.1')).status, 200);
      assertTooMany(await from('203.0.113.1'), 1, 3_600);
      assertTooMany(await from('198.51.100.7, 203.0.113.1'), 1, 3_600);
      assertTooMany(await from('198.51.100.7', '203.0.113.1'), 1, 3_600);
      assert.equal((await from('203.0.113.2')).status, 200);
      assert.equal((await from('2001:db8::1')).status, 200);
      assertTooMany(await from('2001:db8::2'), 1, 3_600);
    });

    test('a limit by identity: whom the token names', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      const more = { rateLimit: '1/1h', rateLimitKey: 'identity' } as const;
      await using host = await serveHost(name, withTokens(keys.url, more));
      const as = async (sub: string) =>
        await host.call('GET', item, { headers: [bearer(goodToken(pair, undefined, { sub }))] });
      assert.equal((await as('ada')).status, 200);
      assertTooMany(await as('ada'), 1, 3_600);
      assert.equal((await as('eve')).status, 200);
    });

    test('bodies of refused requests are not held: the memory for them is there for others', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      const more = { bufferedBytesMax: 150_000 };
      await using host = await serveHost(name, withTokens(keys.url, more));
      const body = JSON.stringify('x'.repeat(100_000));
      for (let count = 0; count < 5; count += 1) {
        assertNoToken(await host.call('PUT', item, { body }));
        assertInvalidToken(await host.call('PUT', item, { body, headers: [bearer('x.y.z')] }));
      }
      assert.equal(host.backend.requests.length, 0);
      const headers = [bearer(goodToken(pair))];
      assert.equal((await host.call('PUT', item, { body, headers })).status, 200);
    });

    test('requests sent ahead each need their own token', async () => {
      await using keys = await KeyServer.start(keySetOf(pair));
      await using host = await serveHost(name, withTokens(keys.url));
      await using client = await host.connect();
      const good = bearer(goodToken(pair));
      const headers = (index: number) =>
        index % 3 === 0 ? [good] : index % 3 === 1 ? [] : [bearer('x.y.z')];
      const total = 60;
      client.send(
        Buffer.concat(
          Array.from({ length: total }, (_, index) =>
            requestBytes('PUT', `/api/work-items/${index}`, { headers: headers(index), body: '{}' }),
          ),
        ),
      );
      for (let index = 0; index < total; index += 1) {
        const reply = await client.reply();
        if (index % 3 === 0) assert.equal(reply.status, 200);
        else if (index % 3 === 1) assertNoToken(reply);
        else assertInvalidToken(reply);
      }
      assert.deepEqual(
        host.backend.requests.map(({ target }) => Number(target.split('/').at(-1)) % 3),
        Array.from({ length: total / 3 }, () => 0),
      );
    });

    test('its end is that of a fetch of keys that is under way', async () => {
      await using keys = await KeyServer.start('');
      const asked = Promise.withResolvers<undefined>();
      const left = Promise.withResolvers<undefined>();
      keys.respond = (response) => {
        response.on('close', () => {
          left.resolve(undefined);
        });
        asked.resolve(undefined);
      };
      await using host = await serveHost(name, withTokens(keys.url));
      assertNoToken(await host.call('GET', item));
      await asked.promise;
      await host.close();
      await left.promise;
      assert.deepEqual(host.outages, [], 'an end is no outage');
    });

    test('keys of a file; one that has none is told at the start', async () => {
      const folder = mkdtempSync(join(tmpdir(), 'work-item-gateway-keys-'));
      try {
        const file = join(folder, 'keys.json');
        const options = { authIssuer: issuerName, authAudience: [audience], authJwksFile: file };
        if (name === 'fetch' || name === 'node') {
          // They have no start.
          await using host = await serveHost(name, options);
          assertNoKeys(await host.call('GET', item, { headers: [bearer(goodToken(pair))] }));
          assert.match(host.outages.join(), /^keys,ENOENT/);
        } else {
          await assert.rejects(serveHost(name, options), /^Error: authJwksFile has no keys: ENOENT/);
        }
        writeFileSync(file, keySetOf(pair));
        await using host = await serveHost(name, options);
        assert.equal((await host.call('GET', item, { headers: [bearer(goodToken(pair))] })).status, 200);
        assertInvalidToken(await host.call('GET', item, { headers: [bearer(goodToken(other))] }));
      } finally {
        rmSync(folder, { recursive: true });
      }
    });

    test('options that are wrong, or half set, are told all at once, by their names', async () => {
      const rows: [options: object, problems: readonly string[]][] = [
        [withTokens('https://keys.example', { authIssuer: '' }), ['authIssuer must be a text, and not empty (leave it out for none)']],
        [
          { authIssuer: issuerName },
          [
            'authIssuer is set, but authAudience is not: a token for anybody else would do',
            'authIssuer is set, but neither authJwksUrl nor authJwksFile: there are no keys',
          ],
        ],
        [{ authAudience: [audience] }, ['authAudience is set, but tokens are off: authIssuer is not set']],
        [
          { backendIdentityHeader: 'x-user' },
          ['backendIdentityHeader is set, but tokens are off: authIssuer is not set'],
        ],
        [
          withTokens('https://keys.example', { authJwksFile: 'keys' }),
          ['authJwksUrl and authJwksFile are both set: the keys come from one place'],
        ],
        [
          withTokens('http://user:geheim@keys.example', {
            ...{ authAudience: audience as never, authAlgorithms: ['HS256'], authClockSkewMs: 600_001 },
            ...{ authTokenType: 'jwt' as never, authScopes: { reed: 'x' } as never, authScopeClaim: 'a b' },
            backendIdentityHeader: 'Authorization',
          }),
          [
            'authAudience must be an array of texts, none of them empty, with at least one',
            'authJwksUrl must be an https address without user name, password and fragment',
            'authAlgorithms must be some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, Ed25519 (with a shared secret, whoever checks a token can make one)',
            "authTokenType must be 'any' or 'at+jwt'",
            'authScopes must have scopes of list, create, read, update, delete: did you mean read?',
            'authScopeClaim must be a text without spaces and control characters',
            'backendIdentityHeader must be the name of a header that has no meaning of its own, for instance x-user',
            'authClockSkewMs must be a whole number from 0 to 600000',
          ],
        ],
        [
          withTokens('http://keys.example', { authScopes: { read: 'a b' }, authJwksRefreshMs: 5_000, authJwksStaleMs: 4_000 }),
          [
            'authJwksUrl must be an https address (plain http only for localhost, 127.0.0.1 and [::1])',
            'authScopes must have one scope, a text without spaces, quotes and backslashes, for each operation',
            'authJwksStaleMs is below authJwksRefreshMs: keys would cease to count before the next fetch',
          ],
        ],
        [
          withTokens('https://keys.example', { authAlgorithms: [' RS256', 'none'], authScopeClaim: 'scp' }),
          [
            'authAlgorithms must be some of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA, Ed25519: did you mean RS256?',
            'authScopeClaim is set, but authScopes is not: no scope is looked for',
          ],
        ],
        [
          { rateLimit: '100', rateLimitKey: 'ip', rateLimitRedisUrl: 'http://:geheim@redis', rateLimitFallback: true },
          [
            'rateLimit must be requests/window, for instance 100/60s, 10/1s, 1000/5m or 10000/1h: at most 1000000 requests, in a window of 1s to 24h',
            "rateLimitKey must be 'address' or 'identity'",
            'rateLimitRedisUrl must be an address such as redis://redis.internal:6379/0 or, over TLS, rediss://user:password@redis.internal, with odd characters of both percent-encoded',
            "rateLimitFallback must be 'local' or 'allow' or 'deny'",
          ],
        ],
        [
          { rateLimit: '1/1s', rateLimitKey: 'identity', rateLimitFallback: 'deny' },
          [
            'rateLimitFallback is set, but does nothing without rateLimitRedisUrl',
            'rateLimitKey is identity, but no tokens say who a client is: authIssuer is not set',
          ],
        ],
      ]; // prettier-ignore
      for (const [options, problems] of rows) {
        await assert.rejects(makeHost(name, options), (error: Error) => {
          assert.equal(error.message, `The gateway cannot be made: ${problems.join('; ')}.`);
          return error instanceof TypeError && !error.message.includes('geheim');
        });
      }
      await assert.rejects(
        makeHost(name, { authIsuer: issuerName } as never),
        /there is no authIsuer: did you mean authIssuer\?/,
      );
    });

    describe('with Redis', { skip: withoutRedis }, () => {
      test('two count together; its outage is told, and no call fails', async () => {
        await using redis = await RedisServer.start();
        const options = {
          rateLimit: '3/1h',
          rateLimitRedisUrl: redis.url,
          rateLimitFallback: 'allow',
        } as const;
        await using one = await serveHost(name, options);
        await using two = await serveHost(name, options);
        for (const [left, host] of [[2, one], [1, two], [0, one]] as const) {
          const reply = await host.call('GET', item);
          assert.equal(reply.status, 200);
          assertLeft(reply, left, 3, 3_600);
        } // prettier-ignore
        assertTooMany(await two.call('GET', item), 3, 3_600);
        assert.deepEqual([...one.outages, ...two.outages], []);
        await redis.kill();
        await poll(async () => {
          const reply = await one.call('GET', item);
          assert.equal(reply.status, 200);
          assert.equal(reply.header('ratelimit'), undefined, 'nobody counts it');
          return one.outages.length === 1;
        }, 'the outage is told');
        assert.equal(one.outages[0]?.[0], 'redis');
        await redis.restart();
        await poll(() => one.outages.length === 2, 'its end is told');
        assert.deepEqual(one.outages[1], ['redis', undefined]);
      });
    });
  });
}

describe('the fetch handler', () => {
  test('a limit by address needs to be told addresses', () => {
    assert.throws(() => createFetchHandler({ backendUrl: 'http://localhost', rateLimit: '1/1s' }), {
      name: 'TypeError',
      message:
        "The gateway cannot be made: rateLimit counts by address, which a Request does not say: give clientAddress, or rateLimitKey: 'identity'.",
    });
    assert.throws(
      () => createFetchHandler({ backendUrl: 'http://localhost', clientAddress: '127.0.0.1' as never }),
      /clientAddress must be a function/,
    );
  });

  test('what is no address is nobody in particular: all of them count together, and none is told', async () => {
    const clientAddress = (request: Request) => request.headers.get('x-peer') ?? undefined;
    await using host = await serveHost('fetch', { rateLimit: '1/1h', clientAddress });
    const from = async (address: string) => await host.call('GET', item, { headers: [['X-Peer', address]] });
    assert.equal((await from('192.0.2.1')).status, 200);
    assert.equal((await from('a')).status, 200);
    for (const address of ['b', '192.0.2.1, 192.0.2.2', '1'.repeat(5_000), '192.0.2.999', '192.0.2.1:80']) {
      assertTooMany(await from(address), 1, 3_600);
    }
    assertTooMany(await host.call('GET', item), 1, 3_600);
    assert.deepEqual(
      host.told.ended.slice(1).map(({ client }) => client),
      Array.from({ length: 7 }, () => undefined),
    );
  });

  test('a clientAddress that throws is a fault, and lets nobody in [D28]', async () => {
    const clientAddress = () => {
      throw new Error('of the host');
    };
    await using host = await serveHost('fetch', { rateLimit: '1/1h', clientAddress });
    assert.equal((await host.call('GET', item)).status, 500);
    assert.equal(host.backend.requests.length, 0);
  });

  test('one that was closed and is used again has keys and counts anew', async () => {
    await using keys = await KeyServer.start(keySetOf(pair));
    await using host = await serveHost('fetch', { rateLimit: '1/1h' });
    const handler = createFetchHandler({
      ...{ backendUrl: host.backend.url, clientAddress: () => '192.0.2.1', rateLimit: '1/1h' },
      ...{ authIssuer: issuerName, authAudience: [audience], authJwksUrl: keys.url },
    });
    const call = async (by: typeof pair) =>
      await handler(
        new Request(`http://x.localhost${item}`, { headers: { authorization: bearer(goodToken(by))[1] } }),
      );
    assert.equal(keys.count, 0, 'nothing is fetched before the first call');
    assert.deepEqual([(await call(pair)).status, (await call(pair)).status], [200, 429]);
    await handler.close();
    keys.respond = sending(keySetOf(other));
    assert.deepEqual([(await call(other)).status, (await call(other)).status], [200, 429]);
    assert.equal(keys.count, 2);
    assert.equal((await call(pair)).status, 401);
    await handler.close();
  });

  test('closed while its first call waits for keys: that call is 503, and nothing is left', async () => {
    await using keys = await KeyServer.start('');
    const asked = Promise.withResolvers<undefined>();
    keys.respond = () => {
      asked.resolve(undefined);
    };
    const { told, observer } = createObserver();
    const handler = createFetchHandler({
      ...{ backendUrl: 'http://localhost:1', authIssuer: issuerName, authAudience: [audience] },
      ...{ authJwksUrl: keys.url, observer },
    });
    const call = handler(
      new Request(`http://x.localhost${item}`, { headers: { authorization: 'Bearer a.b.c' } }),
    );
    await asked.promise;
    await handler.close();
    assert.equal((await call).status, 503);
    assert.deepEqual([keys.count, told.ended[0]?.outcome], [1, 'no-keys']);
  });
});

test('defaults of the options are those of the settings', () => {
  const options = defaultsOf(guardRows);
  for (const name of Object.keys(guardRows) as (keyof typeof options)[]) {
    const value = options[name];
    assert.equal(Array.isArray(value) ? value.join() : value, rowOf(name).default, name);
  }
});

test('jose and ioredis are loaded for whom asks for them, and for nobody else', async () => {
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
