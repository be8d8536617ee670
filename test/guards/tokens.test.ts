// Calls with and without valid tokens [D41 to D44, D48]. hosts.test.ts tests tokens in each host.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { guardRows } from '../../packages/core/options/guard-options.ts';
import { TokenMemory } from '../../packages/core/guards/tokens/token-memory.ts';
import { Problem } from '../../packages/core/options/problem.ts';
import type { RequestHead } from '../../packages/core/http1/head.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply, badRequest } from '../helpers/expected.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';
import { createPair, goodToken, keySetOf, signToken, claimsAt } from '../helpers/issuer.ts';
import { requestBytes } from '../helpers/raw-client.ts';
import {
  assertInvalidToken,
  assertNoKeys,
  assertNoScope,
  assertNoToken,
  bearer,
  serveWithTokens,
  type TokenServerOptions,
  unauthorized,
} from '../helpers/tokens.ts';

const pair = createPair('one', 'ES256');
const other = createPair('two', 'ES256');
const read = ['GET', '/api/work-items/5'] as const;

const headWith = (token: string): RequestHead => ({
  ...{ method: 'GET', target: '/', bodyLength: 0, expectation: 'none', persists: true, version: '1.1' },
  fields: ['authorization', `Bearer ${token}`],
});

/** Starts a server, which fetches the key of `pair`, and connects a client. */
async function start(options: TokenServerOptions = {}, keyText = keySetOf(pair)) {
  const server = await serveWithTokens(keyText, options);
  await server.keys.start();
  const client = await server.connect();
  return {
    ...server,
    client,
    /** Reads an item with `token`. */
    get: (token: string) => client.call(...read, { headers: [bearer(token)] }),
    /** Asks the guard about a read with `token`. */
    admit: (token: string) =>
      server.guard.admit({ head: headWith(token), operation: 'read', client: undefined, identity: undefined }),
    [Symbol.asyncDispose]: async () => {
      await client[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe('with keys', () => {
  test('a call without Authorization, with another scheme, or with the scheme alone has no token', async () => {
    await using server = await start();
    const { client } = server;
    const token = goodToken(pair);
    const values = [
      undefined, '', ' ', 'Bearer', 'bearer', 'BEARER', 'Bearer   ', 'Basic YTpi', `Basic ${token}`,
      `Token ${token}`, `Bearer${token}`, `Bearer:${token}`, `Bearer\t${token}`, `Bearer, ${token}`,
      `DPoP ${token}`, `JWT ${token}`, `xBearer ${token}`, `"Bearer" ${token}`, token,
      `Digest username="Bearer ${token}"`, `Bea rer ${token}`,
    ]; // prettier-ignore
    for (const value of values) {
      const headers = value === undefined ? [] : [['Authorization', value] as const];
      assertNoToken(await client.call(...read, { headers }));
      assert.equal(server.last(), 'no-token undefined', String(value));
    }
    assert.equal(server.backend.requests.length, 0);
  });

  test('a token is read from the Authorization header only', async () => {
    await using server = await start();
    const { client } = server;
    const token = goodToken(pair);
    const otherNames = [
      'Proxy-Authorization', 'X-Authorization', 'Cookie', 'X-Forwarded-Authorization', 'Authorization-', 'X-Access-Token',
    ]; // prettier-ignore
    for (const name of otherNames) {
      assertNoToken(await client.call(...read, { headers: [[name, `Bearer ${token}`]] }));
    }
    assertNoToken(await client.call('GET', `/api/work-items/5?access_token=${token}`));
    const headers = [['Content-Type', 'application/x-www-form-urlencoded']] as const;
    assertNoToken(await client.call('PUT', '/api/work-items/5', { headers, body: `access_token=${token}` }));
    // A trailer comes too late: the token is checked before the body.
    client.send(
      `PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer ${token}\r\n\r\n`,
    );
    assertNoToken(await client.reply());
    assert.equal(server.backend.requests.length, 0);
    // Name and scheme may be in any case, with any number of spaces.
    for (const [name, value] of [
      ['AUTHORIZATION', `bearer ${token}`],
      ['authorization', `BEARER     ${token}  `],
    ] as const) {
      assertReply(await client.call(...read, { headers: [[name, value]] }), 200, '{"id":5}');
    }
  });

  test('two Authorization headers are 400, whatever their values', async () => {
    await using server = await start();
    const { client } = server;
    const good = bearer(goodToken(pair));
    const basic = ['authorization', 'Basic YTpi'] as const;
    const empty = ['AUTHORIZATION', ''] as const;
    for (const headers of [
      [good, good],
      [good, basic],
      [basic, good],
      [good, empty],
      [good, good, good],
    ]) {
      assertReply(await client.call(...read, { headers }), 400, badRequest);
      assert.equal(server.last(), 'bad-request two authorization fields');
    }
    assert.equal(server.backend.requests.length, 0);
  });

  test('HEAD without a token is 401 without a body; with a token it is served', async () => {
    await using server = await start();
    const { client } = server;
    const reply = await client.call('HEAD', '/api/work-items');
    assert.equal(reply.status, 401);
    assert.equal(reply.header('www-authenticate'), 'Bearer realm="work-items"');
    assert.equal(reply.header('content-length'), String(unauthorized.length));
    assert.equal((await client.call('HEAD', '/api/work-items', { headers: [bearer(goodToken(pair))] })).status, 200);
    assert.equal(server.backend.requests.length, 1);
  });

  test('AUTH_TOKEN_TYPE=at+jwt accepts only access tokens of RFC 9068', async () => {
    await using server = await start({ authTokenType: 'at+jwt' });
    for (const typ of ['at+jwt', 'AT+JWT', 'application/at+jwt']) {
      assert.equal((await server.get(goodToken(pair, undefined, {}, { typ }))).status, 200, typ);
    }
    const refusedTypes = [
      undefined, 'JWT', 'jwt', '', 'at+jwt ', 'application/jwt', 'id+jwt', 7, null, ['at+jwt'],
    ]; // prettier-ignore
    for (const typ of refusedTypes) {
      assertInvalidToken(await server.get(goodToken(pair, undefined, {}, { typ })));
      assert.equal(server.last(), 'invalid-token type', String(typ));
    }
  });

  const signatureAlgorithms = [
    'RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519',
  ] as const; // prettier-ignore
  for (const alg of signatureAlgorithms) {
    test(`${alg} is accepted only if it is allowed`, async () => {
      const own = createPair('own', alg);
      for (const isAllowed of [true, false]) {
        const allowed = isAllowed ? alg : alg === 'RS512' ? 'RS384' : 'RS512';
        await using server = await start({ authAlgorithms: [allowed] }, keySetOf(own, createPair('x', allowed)));
        const reply = await server.get(goodToken(own));
        if (isAllowed) assert.equal(reply.status, 200, server.last());
        else assertInvalidToken(reply);
      }
    });
  }
});

describe('scopes', () => {
  const authScopes = ['read=items.read', 'update=items.write'];

  test('an operation with a configured scope needs a token with that scope; other operations need only a valid token', async () => {
    await using server = await start({ authScopes });
    const { client } = server;
    const rows: [claim: unknown, mayRead: boolean, mayUpdate: boolean][] = [
      ['items.read', true, false],
      ['items.read items.write', true, true],
      ['openid items.write  profile', false, true],
      [['items.read'], true, false],
      [['items.write', 'items.read', 7, null], true, true],
      [undefined, false, false],
      [null, false, false],
      ['', false, false],
      ['items.reads', false, false],
      ['ITEMS.READ', false, false],
      ['items.read,items.write', false, false],
      ['items.read\titems.write', false, false],
      ['items.*', false, false],
      [[['items.read']], false, false],
      [['items.read items.write'], false, false],
      [{ 'items.read': true }, false, false],
      [{ 0: 'items.read', length: 1 }, false, false],
      [7, false, false],
      [true, false, false],
    ];
    for (const [scope, mayRead, mayUpdate] of rows) {
      const headers = [bearer(goodToken(pair, undefined, { scope }))];
      // The second round uses the remembered token.
      for (let round = 0; round < 2; round += 1) {
        const readReply = await client.call(...read, { headers });
        if (mayRead) assert.equal(readReply.status, 200);
        else assertNoScope(readReply, 'items.read');
        const updateReply = await client.call('PUT', '/api/work-items/5', { headers, body: '{}' });
        if (mayUpdate) assert.equal(updateReply.status, 200);
        else assertNoScope(updateReply, 'items.write');
        assert.equal((await client.call('DELETE', '/api/work-items/5', { headers })).status, 200);
      }
    }
    const allowed = rows.flatMap(([, ...may]) => may).filter(Boolean).length + rows.length;
    assert.equal(server.backend.requests.length, 2 * allowed);
  });

  test('the scope claims may have other names and be in objects; inherited properties are ignored', async () => {
    const client = { 'my.client': { roles: ['items.read'] }, other: { roles: ['items.write'] } };
    for (const [claims, more, isAllowed] of [
      ['scp', { scp: ['items.read'] }, true],
      ['scp', { scope: 'items.read' }, false],
      ['permissions', { permissions: 'items.read' }, true],
      ['__proto__', { scope: 'items.read' }, false],
      ['toString', {}, false],
      // Entra ID: `scp` for users, `roles` for applications.
      ['scp,roles', { scp: 'openid items.read' }, true],
      ['scp,roles', { roles: ['items.read'] }, true],
      ['scp,roles', { scp: 'items.write', roles: ['items.read'] }, true],
      ['scp,roles', { scp: 'items.write', roles: ['items.delete'] }, false],
      ['scp,roles', { scope: 'items.read', 'scp,roles': 'items.read' }, false],
      // Keycloak.
      ['realm_access.roles', { realm_access: { roles: ['offline_access', 'items.read'] } }, true],
      ['realm_access.roles', { realm_access: { roles: 'items.write items.read' } }, true],
      ['realm_access.roles', { roles: ['items.read'], realm_access: ['items.read'] }, false],
      ['realm_access.roles', { realm_access: 'items.read' }, false],
      ['realm_access.roles', { realm_access: null }, false],
      ['realm_access.roles', { realm_access: { roles: { 'items.read': true } } }, false],
      ['realm_access', { realm_access: { roles: ['items.read'] } }, false],
      ['resource_access.api.roles', { resource_access: { api: { roles: ['items.read'] } } }, true],
      ['resource_access.api.roles', { resource_access: { web: { roles: ['items.read'] } } }, false],
      ['resource_access.my.client.roles', { resource_access: client }, true],
      ['resource_access.other.roles', { resource_access: client }, false],
      ['scope,realm_access.roles', { realm_access: { roles: ['items.read'] } }, true],
      ['a.0', { a: ['items.read'] }, false],
      ['realm_access.constructor.name', { realm_access: {} }, false],
      // A name with dots, as Auth0 requires for own claims.
      ['https://x.y/roles', { 'https://x.y/roles': ['items.read'] }, true],
      ['https://x.y/auth.roles', { 'https://x.y/auth': { roles: ['items.read'] } }, true],
      ['https://x.y/roles', { 'https://x': { 'y/roles': ['items.read'] } }, true],
      ['https://x.y/roles', { 'https://x.z/roles': ['items.read'] }, false],
      ['cognito:groups', { 'cognito:groups': ['items.read'] }, true],
      ['sub', { sub: 'items.read' }, true],
    ] as const) {
      const authScopeClaim = guardRows.authScopeClaim.kind.parse(claims);
      assert.ok(!(authScopeClaim instanceof Problem), claims);
      await using server = await start({ authScopes, authScopeClaim });
      const reply = await server.get(goodToken(pair, undefined, more));
      assert.equal(reply.status, isAllowed ? 200 : 403, `${claims} ${JSON.stringify(more)}`);
      if (!isAllowed) assert.equal(server.last(), 'insufficient-scope the token lacks the scope items.read');
    }
  });
});

describe('remembered tokens', () => {
  test('a valid token is remembered, and similar tokens are refused', async () => {
    await using server = await start();
    const token = goodToken(pair, server.clock.now());
    for (let round = 0; round < 5; round += 1) {
      assert.equal((await server.get(token)).status, 200);
    }
    assert.equal(server.guard.remembered, 1);
    // The last character of an ES256 signature in base64url has four unused bits, so `_` can decode to the same bytes.
    for (const like of [`${token.slice(0, -1)}_`, token.slice(0, -1), `${token}A`, token.toLowerCase(), `x${token}`]) {
      assertInvalidToken(await server.get(like));
    }
    assert.equal(server.guard.remembered, 1);
  });

  test('a remembered token is admitted synchronously', async () => {
    await using server = await start();
    const token = goodToken(pair, server.clock.now());
    const admit = () => server.admit(token);
    const first = admit();
    assert.ok(first instanceof Promise);
    const admission = await first;
    assert.deepEqual(admission, { isAdmitted: true, identity: 'ada' });
    assert.equal(admit(), admission);
  });

  test('a token is remembered until its exp; after that, it is verified for each call', async () => {
    await using server = await start();
    const now = server.clock.now();
    const token = signToken(pair, { alg: 'ES256', kid: 'one' }, claimsAt(now, { exp: Math.floor(now / 1_000) + 60 }));
    const call = async () => (await server.get(token)).status;
    assert.equal(await call(), 200);
    server.clock.set(now + 61_000);
    // After its exp, but within the skew, the token is valid but no longer remembered.
    assert.equal(await call(), 200);
    await poll(() => server.guard.remembered <= 1, 'at most one token is remembered');
    server.clock.set(now + 91_000);
    assert.equal(await call(), 401);
    assert.equal(server.last(), 'invalid-token expired');
  });

  test('a token is remembered for at most 5 minutes of monotonic time', async () => {
    await using server = await start();
    const token = goodToken(pair, server.clock.now(), { exp: 9_999_999_999 });
    const call = async () => (await server.get(token)).status;
    assert.equal(await call(), 200);
    // The wall clock is set back, and the issuer is down.
    server.clock.set(0);
    server.issuer.read = () => Promise.reject(new Error('down'));
    await server.clock.pass(299_999);
    assert.equal(server.guard.remembered, 1);
    const remembered = server.guard.remembered;
    assert.equal(await call(), 200);
    await server.clock.pass(1);
    await settle();
    // nbf and exp are checked again: the token is verified and remembered again.
    assert.equal(await call(), 200);
    assert.equal(server.guard.remembered, remembered);
  });

  test('when the keys change, all tokens are forgotten: a token signed with a removed key is refused', async () => {
    await using server = await start();
    const token = goodToken(pair, server.clock.now(), { exp: 9_999_999_999 });
    assert.equal((await server.get(token)).status, 200);
    server.issuer.read = () => Promise.resolve(keySetOf(other));
    await server.clock.pass(300_000);
    await poll(() => server.keys.current.some(({ kid }) => kid === 'two'), 'the new keys are fetched');
    assert.equal(server.guard.remembered, 0);
    assertInvalidToken(await server.get(token));
    assert.equal(server.last(), 'invalid-token unknown-key');
  });

  test('a token verified while the keys change is not remembered', async () => {
    await using server = await start();
    const token = goodToken(pair, server.clock.now());
    const admission = server.admit(token);
    // The verification runs in another thread: it cannot end in this turn of the event loop.
    await Promise.resolve();
    await Promise.resolve();
    await Promise.resolve();
    server.guard.forgetAll();
    await admission;
    assert.equal(server.guard.remembered, 0);
  });

  test('a token with a long subject is verified each time', async () => {
    await using server = await start();
    const call = async (length: number) => {
      const token = goodToken(pair, server.clock.now(), { sub: 'a'.repeat(length) });
      assert.equal((await server.get(token)).status, 200);
      return server.guard.remembered;
    };
    assert.equal(await call(1_025), 0);
    assert.equal(await call(1_024), 1);
  });

  test('at most 10,000 of 100,000 distinct tokens stay in memory', () => {
    const memory = new TokenMemory<number>(new HandClock(0), 10_000);
    memory.remember('kept', -1, 1e12, 1e12);
    for (let index = 0; index < 100_000; index += 1) {
      memory.remember(String(index), index, 1e12, 1e12);
      if (index % 1_000 === 0) assert.equal(memory.find('kept'), -1, 'used tokens stay');
      assert.ok(memory.size <= 10_000);
    }
    assert.equal(memory.find('99999'), 99_999);
    assert.equal(memory.find('0'), undefined);
  });
});

describe('the issuer', () => {
  test('without keys, a call without a token is 401, and a call with any token is 503', async () => {
    await using server = await serveWithTokens('{"keys":[]}');
    server.issuer.read = () => Promise.reject(new Error('down'));
    await server.keys.start();
    await using client = await server.connect();
    assertNoToken(await client.call(...read));
    for (const token of [goodToken(pair), 'x.y.z', 'x']) {
      assertNoKeys(await client.call(...read, { headers: [bearer(token)] }));
      assert.equal(server.last(), 'no-keys undefined');
    }
    server.issuer.read = () => Promise.resolve(keySetOf(pair));
    await server.clock.pass(1_000);
    await poll(() => server.keys.current.length === 1, 'the key is fetched');
    assert.equal((await client.call(...read, { headers: [bearer(goodToken(pair))] })).status, 200);
    assert.equal(server.backend.requests.length, 1);
  });

  test('a call with a token waits for the first keys', async () => {
    const gate = Promise.withResolvers<string>();
    await using server = await serveWithTokens('');
    server.issuer.read = () => gate.promise;
    void server.keys.start();
    await using client = await server.connect();
    client.send(requestBytes(...read, { headers: [bearer(goodToken(pair))] }));
    await using second = await server.connect();
    assertNoToken(await second.call(...read));
    gate.resolve(keySetOf(pair));
    assert.equal((await client.reply()).status, 200);
  });

  test('when the keys are too stale, every token is 503, even if it is remembered', async () => {
    await using server = await start({ authJwksStaleMs: 400_000 });
    const { client } = server;
    await server.clock.pass(200_000);
    const token = goodToken(pair, undefined, { exp: 9_999_999_999 });
    assert.equal((await server.get(token)).status, 200);
    server.issuer.read = () => Promise.reject(new Error('down'));
    await server.clock.pass(199_999);
    assert.equal((await server.get(token)).status, 200);
    await server.clock.pass(1);
    assertNoKeys(await server.get(token));
    assertNoToken(await client.call(...read));
    assert.equal(server.backend.requests.length, 2);
  });

  test('the first tokens signed with a new key cause one fetch, and their calls wait for the key', async () => {
    await using server = await start();
    const gate = Promise.withResolvers<string>();
    server.issuer.read = () => gate.promise;
    const clients = await Promise.all(Array.from({ length: 10 }, () => server.connect()));
    const now = server.clock.now();
    for (const [index, client] of clients.entries()) {
      client.send(requestBytes(...read, { headers: [bearer(goodToken(other, now, { jti: index }))] }));
    }
    await poll(() => server.issuer.fetches === 2, 'the fetch has begun');
    await using known = await server.connect();
    assert.equal((await known.call(...read, { headers: [bearer(goodToken(pair, now))] })).status, 200);
    gate.resolve(keySetOf(pair, other));
    for (const client of clients) {
      assert.equal((await client.reply()).status, 200);
      client.destroy();
    }
    assert.equal(server.issuer.fetches, 2);
  });

  test('if two keys have the same id, a token signed with either key is valid', async () => {
    const twin = createPair('one', 'ES256');
    await using server = await start({}, keySetOf(pair, twin));
    for (const each of [pair, twin]) assert.equal((await server.get(goodToken(each))).status, 200);
    assertInvalidToken(await server.get(goodToken(createPair('one', 'ES256'))));
    assert.equal(server.last(), 'invalid-token signature');
    assertInvalidToken(await server.get(goodToken(pair, 0)));
    assert.equal(server.last(), 'invalid-token expired', 'the cause comes from the key that signed the token');
  });

  const withoutId = createPair(undefined, 'ES256');
  for (const [title, before, after] of [
    ['has the id of the old key', pair, createPair('one', 'ES256')],
    ['has the id of the old key and another algorithm', pair, createPair('one', 'RS256')],
    ['has no id, like the old key', withoutId, createPair(undefined, 'ES256')],
    ['has no id, and the old key had one', pair, withoutId],
  ] as const) {
    test(`a new key that ${title} is fetched for the first tokens signed with it [D44]`, async () => {
      await using server = await start({}, keySetOf(before));
      assert.equal((await server.get(goodToken(before))).status, 200);
      server.issuer.read = () => Promise.resolve(keySetOf(after));
      const replies = await Promise.all(
        Array.from({ length: 20 }, async (_, jti) => {
          await using client = await server.connect();
          return await client.call(...read, { headers: [bearer(goodToken(after, undefined, { jti }))] });
        }),
      );
      assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]));
      assert.equal(server.issuer.fetches, 2);
      assertInvalidToken(await server.get(goodToken(before)));
      assert.equal(server.issuer.fetches, 2);
    });
  }

  test('a new key is fetched, too, if the issuer replaces its key while a fetch is in progress [D44]', async (t) => {
    await using server = await start();
    const gate = Promise.withResolvers<string>();
    const next = createPair('one', 'ES256');
    server.issuer.read = () => gate.promise;
    await server.clock.pass(300_000);
    assert.equal(server.issuer.fetches, 2, 'a regular fetch is in progress');
    const seek = t.mock.method(server.keys, 'seek');
    const reply = server.get(goodToken(next));
    server.issuer.read = () => Promise.resolve(keySetOf(next));
    await poll(() => seek.mock.callCount() === 1, 'the token waits for the fetch in progress');
    gate.resolve(keySetOf(pair));
    assert.equal((await reply).status, 200);
    assert.equal(server.issuer.fetches, 3);
  });

  test('forged tokens with a known key id cause one fetch in 30 s, and each is verified once while the keys stay', async (t) => {
    await using server = await start();
    const { subtle } = globalThis.crypto;
    const verify = t.mock.method(subtle, 'verify', subtle.verify.bind(subtle));
    const forger = createPair('one', 'ES256');
    const forge = (jti: number) => goodToken(forger, undefined, { jti }, { kid: jti % 2 === 0 ? 'one' : undefined });
    for (let jti = 0; jti < 300; jti += 1) assertInvalidToken(await server.get(forge(jti)));
    assert.deepEqual([server.issuer.fetches, verify.mock.callCount()], [2, 300]);
    assert.equal(server.last(), 'invalid-token signature');
    await server.clock.pass(30_000);
    for (let jti = 300; jti < 350; jti += 1) assertInvalidToken(await server.get(forge(jti)));
    assert.equal(server.issuer.fetches, 3);
    assert.equal((await server.get(goodToken(pair))).status, 200);
  });

  test('if the issuer fails during its rotation, the old keys stay valid, and a token fetches the new key 30 s later', async () => {
    await using server = await start();
    const next = createPair('one', 'ES256');
    for (const read of [() => Promise.reject(new Error('status 503')), () => Promise.resolve('<html>')]) {
      server.issuer.read = read;
      assertInvalidToken(await server.get(goodToken(next)));
      assert.equal((await server.get(goodToken(pair))).status, 200);
      await server.clock.pass(30_000);
    }
    server.issuer.read = () => Promise.resolve(keySetOf(next));
    assert.equal((await server.get(goodToken(next))).status, 200);
    assert.equal(server.issuer.fetches, 4);
  });

  test('a token that is invalid for another reason causes no fetch', async () => {
    await using server = await start();
    const invalid = [{ exp: 1 }, { aud: 'x' }, { iss: 'x' }, { exp: undefined }, { sub: 7 }];
    for (const more of invalid) assertInvalidToken(await server.get(goodToken(pair, undefined, more)));
    for (const token of ['x', goodToken(createPair('one', 'ES384'))]) assertInvalidToken(await server.get(token));
    assert.equal(server.issuer.fetches, 1);
  });

  test('a token with a known key id, or with no key id at all, causes no fetch', async () => {
    await using server = await start();
    for (const kid of ['one', undefined]) {
      assert.equal((await server.get(goodToken(pair, server.clock.now(), {}, { kid }))).status, 200);
    }
    assert.equal(server.issuer.fetches, 1);
  });

  test('at most four keys with the same id are tried', async () => {
    const pairs = Array.from({ length: 5 }, () => createPair('one', 'ES256'));
    await using server = await start({}, keySetOf(...pairs));
    for (const [index, each] of pairs.entries()) {
      const reply = await server.get(goodToken(each));
      if (index < 4) assert.equal(reply.status, 200);
      else assertInvalidToken(reply);
    }
  });

  test('if no key verifies a token and the new key set has no usable key, the call is 503', async () => {
    const forEncryption = JSON.stringify({ keys: [{ ...other.jwk, use: 'enc' }] });
    for (const text of ['{"keys":[]}', forEncryption]) {
      for (const signer of [other, createPair('one', 'ES256')]) {
        await using server = await start();
        server.issuer.read = () => Promise.resolve(text);
        assertNoKeys(await server.get(goodToken(signer)));
        assert.equal(server.last(), 'no-keys undefined');
      }
    }
  });
});

describe('identity for the backend [D48]', () => {
  const rows: [sub: unknown, expected: string | undefined][] = [
    ['ada', 'ada'], ['auth0|5f7c8ec7c33c6c004bbafe82', 'auth0|5f7c8ec7c33c6c004bbafe82'],
    ['Ada Lovelace', 'Ada Lovelace'], [' ada', '%20ada'], ['ada  ', 'ada%20%20'], [' ', '%20'],
    ['100%', '100%25'], ['%41', '%2541'], ['é', '%C3%A9'], ['日本', '%E6%97%A5%E6%9C%AC'],
    ['👩', '%F0%9F%91%A9'], ['a\r\nX-Admin: true', 'a%0D%0AX-Admin: true'], ['\0\t\x7f', '%00%09%7F'],
    ['a, b; c="d"', 'a, b; c="d"'],
    ['~!@#$^&*()_+`-={}|[]\\:";\'<>?,./', '~!@#$^&*()_+`-={}|[]\\:";\'<>?,./'], ['\ufeffx', '%EF%BB%BFx'],
    ['x'.repeat(3_000), 'x'.repeat(3_000)], ['', undefined], [undefined, undefined],
  ]; // prettier-ignore

  test('the backend gets the verified sub, percent-encoded, and no header of the client with that name', async () => {
    await using server = await start({ backendIdentityHeader: 'X-User' });
    const { client } = server;
    for (const [sub, expected] of rows) {
      const forged = [['x-user', 'eve'], ['X-User', 'mallory'], ['x_user', 'eve'], ['connection', 'x-user']] as const; // prettier-ignore
      const headers = [bearer(goodToken(pair, undefined, { sub })), ...forged];
      for (const [method, path, body] of [
        ['GET', '/api/work-items', undefined],
        ['PUT', '/api/work-items/5', '{}'],
        ['DELETE', '/api/work-items/5', undefined],
      ] as const) {
        await client.call(method, path, { headers, ...(body !== undefined && { body }) });
        const request = server.backend.requests.at(-1);
        assert.equal(request?.method, method);
        assert.equal(request.header('x-user'), expected, JSON.stringify(sub));
        assert.ok(!request.headers.some(([name, value]) => /user/i.test(name) && /eve|mallory/.test(value)));
        if (expected !== undefined) assert.equal(decodeURIComponent(request.header('x-user') ?? ''), sub);
      }
    }
    assert.equal(server.backend.requests.length, rows.length * 3);
    assert.deepEqual(server.backend.violations, []);
  });

  test('without the setting the backend gets no identity', async () => {
    await using server = await start();
    // Not `ada`: these letters are hexadecimal digits, so a traceparent can contain them by chance.
    const sub = 'grace.hopper';
    await server.get(goodToken(pair, undefined, { sub }));
    assert.equal(server.backend.requests.length, 1);
    assert.equal(server.backend.requests[0]?.head.includes(sub), false);
  });
});
