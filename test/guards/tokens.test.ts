// Who may call where tokens are wanted, and what the others get [D41 to D44, D48].

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { TokenMemory } from '../../packages/core/guards/tokens/token-memory.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply, badRequest, operations } from '../helpers/expected.ts';
import { HandClock, settle } from '../helpers/hand-clock.ts';
import { createPair, goodToken, keySetOf, signToken, claimsAt } from '../helpers/issuer.ts';
import { oddTargets } from '../helpers/odd-targets.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import {
  assertInvalidToken,
  assertNoKeys,
  assertNoScope,
  assertNoToken,
  bearer,
  serveWithTokens,
  unauthorized,
} from '../helpers/tokens.ts';

const pair = createPair('one', 'ES256');
const other = createPair('two', 'ES256');
const read = ['GET', '/api/work-items/5'] as const;

describe('with keys', () => {
  test('every operation needs a valid token; with one it is as without tokens', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await using client = await server.connect();
    await server.keys.start();
    for (const { method, path, options, status, body } of operations) {
      assertNoToken(await client.call(method, path, options));
      const headers = [bearer(goodToken(pair))];
      server.backend.answersOnce(answer(body === '{"success":true}' ? '{}' : body));
      assertReply(await client.call(method, path, { ...options, headers }), status, body);
    }
    assert.equal(server.backend.requests.length, operations.length);
    for (const { headers } of server.backend.requests) {
      assert.deepEqual(
        headers
          .map(([name]) => name)
          .filter((name) => !/^(?:host|content-type|content-length|x-request-id)$/i.test(name)),
        [],
        'nothing of a token goes to the backend',
      );
    }
  });

  test('no token: none, another scheme, the scheme alone', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await using client = await server.connect();
    await server.keys.start();
    const token = goodToken(pair);
    for (const value of [
      undefined,
      '',
      ' ',
      'Bearer',
      'bearer',
      'BEARER',
      'Bearer   ',
      'Basic YTpi',
      `Basic ${token}`,
      `Token ${token}`,
      `Bearer${token}`,
      `Bearer:${token}`,
      `Bearer\t${token}`,
      `Bearer, ${token}`,
      `DPoP ${token}`,
      `JWT ${token}`,
      `xBearer ${token}`,
      `"Bearer" ${token}`,
      token,
      `Digest username="Bearer ${token}"`,
      `Bea rer ${token}`,
    ]) {
      // prettier-ignore
      const headers = value === undefined ? [] : [['Authorization', value] as const];
      assertNoToken(await client.call(...read, { headers }));
      assert.equal(server.last(), 'no-token undefined', String(value));
    }
    assert.equal(server.backend.requests.length, 0);
  });

  test('a token is in that header and nowhere else', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await using client = await server.connect();
    await server.keys.start();
    const token = goodToken(pair);
    for (const name of [
      'Proxy-Authorization',
      'X-Authorization',
      'Cookie',
      'X-Forwarded-Authorization',
      'Authorization-',
      'X-Access-Token',
    ]) {
      assertNoToken(await client.call(...read, { headers: [[name, `Bearer ${token}`]] }));
    }
    assertNoToken(await client.call('GET', `/api/work-items/5?access_token=${token}`));
    assertNoToken(
      await client.call('PUT', '/api/work-items/5', {
        headers: [['Content-Type', 'application/x-www-form-urlencoded']],
        body: `access_token=${token}`,
      }),
    );
    // In a trailer it comes too late.
    client.send(
      `PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: Bearer ${token}\r\n\r\n`,
    );
    assertNoToken(await client.reply());
    assert.equal(server.backend.requests.length, 0);
    // In any case of its name and scheme, and with any number of spaces.
    for (const [name, value] of [
      ['AUTHORIZATION', `bearer ${token}`],
      ['authorization', `BEARER     ${token}  `],
    ] as const) {
      assertReply(await client.call(...read, { headers: [[name, value]] }), 200, '{"id":5}');
    }
  });

  test('two authorization headers are 400, whatever is in them', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await using client = await server.connect();
    await server.keys.start();
    const good = bearer(goodToken(pair));
    const basic = ['authorization', 'Basic YTpi'] as const;
    for (const headers of [
      [good, good],
      [good, basic],
      [basic, good],
      [good, ['AUTHORIZATION', ''] as const],
      [good, good, good],
    ]) {
      assertReply(await client.call(...read, { headers }), 400, badRequest);
      assert.equal(server.last(), 'bad-request two authorization fields');
    }
    assert.equal(server.backend.requests.length, 0);
  });

  test('what is no operation needs none: OPTIONS, 404, 405', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await using client = await server.connect();
    assert.equal((await client.call('OPTIONS', '/api/work-items')).status, 204);
    assert.equal((await client.call('OPTIONS', '/api/work-items/5')).status, 204);
    assert.equal((await client.call('PATCH', '/api/work-items/5')).status, 405);
    assert.equal((await client.call('GET', '/elsewhere')).status, 404);
    assert.equal((await client.call('GET', '/api/work-items/5/6')).status, 404);
    assert.equal(server.backend.requests.length, 0);
  });

  test('a token comes before everything of the operation: its id, its body, the size of it', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    assertNoToken(await client.call('GET', '/api/work-items/abc'));
    assertNoToken(await client.call('PUT', '/api/work-items/5', { body: '{' }));
    // The body of a refused call is not asked for.
    client.send(
      'PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n',
    );
    assertNoToken(await client.reply());
    await using second = await server.connect();
    second.send('PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n');
    assertNoToken(await second.reply());
  });

  test('nothing reaches the backend without a token, whatever its target, method or encoding', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    const statuses = new Set<number>();
    const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'get', 'TRACE'];
    for (const [index, target] of oddTargets().entries()) {
      const method = methods[index % methods.length] ?? 'GET';
      await using client = await server.connect();
      client.send(
        `${method} ${target} HTTP/1.1\r\nHost: x\r\nX-Forwarded-User: ada\r\nX-Http-Method-Override: GET\r\nX-Original-Url: /api/work-items\r\nConnection: close\r\n\r\n`,
      );
      statuses.add((await client.reply({ hasBody: method !== 'HEAD' })).status);
    }
    assert.equal(server.backend.requests.length, 0);
    assert.deepEqual([...statuses].sort(), [400, 401, 404, 405]);
  });

  test('requests sent ahead each need their own: a good one does not open the door for others', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const good = bearer(goodToken(pair));
    const headers = (index: number) => (index % 3 === 0 ? [good] : index % 3 === 1 ? [] : [bearer('x.y.z')]);
    const total = 90;
    client.send(
      Buffer.concat(
        Array.from({ length: total }, (_, index) =>
          index % 2 === 0
            ? requestBytes('GET', `/api/work-items/${index}`, { headers: headers(index) })
            : requestBytes('PUT', `/api/work-items/${index}`, { headers: headers(index), body: '{}' }),
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
      server.backend.requests.map(({ target }) => Number(target.split('/').at(-1)) % 3),
      Array.from({ length: total / 3 }, () => 0),
    );
  });

  test('HEAD is as GET, without the body', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const reply = await client.call('HEAD', '/api/work-items');
    assert.equal(reply.status, 401);
    assert.equal(reply.header('www-authenticate'), 'Bearer realm="work-items"');
    assert.equal(reply.header('content-length'), String(unauthorized.length));
    assert.equal(
      (await client.call('HEAD', '/api/work-items', { headers: [bearer(goodToken(pair))] })).status,
      200,
    );
    assert.equal(server.backend.requests.length, 1);
  });

  test('with AUTH_TOKEN_TYPE only access tokens of RFC 9068 will do', async () => {
    await using server = await serveWithTokens(keySetOf(pair), { type: 'at+jwt' });
    await server.keys.start();
    await using client = await server.connect();
    for (const typ of ['at+jwt', 'AT+JWT', 'application/at+jwt']) {
      const reply = await client.call(...read, {
        headers: [bearer(goodToken(pair, undefined, {}, { typ }))],
      });
      assert.equal(reply.status, 200, typ);
    }
    for (const typ of [
      undefined,
      'JWT',
      'jwt',
      '',
      'at+jwt ',
      'application/jwt',
      'id+jwt',
      7,
      null,
      ['at+jwt'],
    ]) {
      assertInvalidToken(
        await client.call(...read, { headers: [bearer(goodToken(pair, undefined, {}, { typ }))] }),
      );
      assert.equal(server.last(), 'invalid-token type', String(typ));
    }
  });

  for (const alg of [
    'RS256',
    'RS384',
    'RS512',
    'PS256',
    'PS384',
    'PS512',
    'ES256',
    'ES384',
    'ES512',
    'EdDSA',
    'Ed25519',
  ] as const) {
    test(`${alg} where it is allowed, and not where it is not`, async () => {
      const own = createPair('own', alg);
      for (const isAllowed of [true, false]) {
        const algorithms = [isAllowed ? alg : alg === 'RS512' ? 'RS384' : 'RS512'] as const;
        await using server = await serveWithTokens(keySetOf(own, createPair('x', algorithms[0])), {
          algorithms,
        });
        await server.keys.start();
        await using client = await server.connect();
        const reply = await client.call(...read, { headers: [bearer(goodToken(own))] });
        if (isAllowed) assert.equal(reply.status, 200, server.last());
        else assertInvalidToken(reply);
      }
    });
  }
});

describe('scopes', () => {
  const scopes = new Map([
    ['read', 'items.read'],
    ['update', 'items.write'],
  ] as const);

  test('an operation that is named needs its scope, others only a valid token', async () => {
    await using server = await serveWithTokens(keySetOf(pair), { scopes });
    await server.keys.start();
    await using client = await server.connect();
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
      // Twice: what is remembered says the same.
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

  test('the claim can have another name, and is the claim itself', async () => {
    for (const [scopeClaim, more, isAllowed] of [
      ['scp', { scp: ['items.read'] }, true],
      ['scp', { scope: 'items.read' }, false],
      ['permissions', { permissions: 'items.read' }, true],
      ['__proto__', { scope: 'items.read' }, false],
      ['toString', {}, false],
    ] as const) {
      await using server = await serveWithTokens(keySetOf(pair), { scopes, scopeClaim });
      await server.keys.start();
      await using client = await server.connect();
      const reply = await client.call(...read, { headers: [bearer(goodToken(pair, undefined, more))] });
      assert.equal(reply.status, isAllowed ? 200 : 403, scopeClaim);
      if (!isAllowed) assert.equal(server.last(), 'insufficient-scope it lacks the scope items.read');
    }
  });
});

describe('what is remembered', () => {
  test('a token is verified once; what is like it is another one', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const token = goodToken(pair, server.clock.now());
    for (let round = 0; round < 5; round += 1) {
      assert.equal((await client.call(...read, { headers: [bearer(token)] })).status, 200);
    }
    assert.equal(server.guard.remembered, 1);
    // The last character of an ES256 signature has four bits that mean nothing.
    for (const like of [
      `${token.slice(0, -1)}_`,
      token.slice(0, -1),
      `${token}A`,
      token.toLowerCase(),
      `x${token}`,
    ]) {
      assertInvalidToken(await client.call(...read, { headers: [bearer(like)] }));
    }
    assert.equal(server.guard.remembered, 1);
  });

  test('a remembered token is let in at once, without a turn', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    const value = `Bearer ${goodToken(pair, server.clock.now())}`;
    const ask = () =>
      server.guard.admit({
        head: {
          method: 'GET',
          target: '/',
          bodyLength: 0,
          expectation: 'none',
          persists: true,
          version: '1.1',
          fields: ['authorization', value],
        },
        operation: 'read',
        client: undefined,
        identity: undefined,
      });
    const first = ask();
    assert.ok(first instanceof Promise);
    const admission = await first;
    assert.deepEqual(admission, { isAdmitted: true, identity: 'ada' });
    assert.equal(ask(), admission);
  });

  test('it is remembered until its exp, and then as good as its signature says', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const now = server.clock.now();
    const token = signToken(
      pair,
      { alg: 'ES256', kid: 'one' },
      claimsAt(now, { exp: Math.floor(now / 1_000) + 60 }),
    );
    const call = async () => (await client.call(...read, { headers: [bearer(token)] })).status;
    assert.equal(await call(), 200);
    server.clock.set(now + 61_000);
    // Within the skew it is valid, but no longer remembered.
    assert.equal(await call(), 200);
    await poll(() => server.guard.remembered <= 1, 'at most that one');
    server.clock.set(now + 91_000);
    assert.equal(await call(), 401);
    assert.equal(server.last(), 'invalid-token expired');
  });

  test('for at most 5 minutes, by a clock that nobody sets', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const token = goodToken(pair, server.clock.now(), { exp: 9_999_999_999 });
    const call = async () => (await client.call(...read, { headers: [bearer(token)] })).status;
    assert.equal(await call(), 200);
    // Somebody sets the wall clock back, and takes the key away, which is not known yet.
    server.clock.set(0);
    server.issuer.read = () => Promise.reject(new Error('away'));
    await server.clock.pass(299_999);
    assert.equal(server.guard.remembered, 1);
    const remembered = server.guard.remembered;
    assert.equal(await call(), 200);
    await server.clock.pass(1);
    await settle();
    // nbf and exp are looked at again: it is verified anew, and remembered anew.
    assert.equal(await call(), 200);
    assert.equal(server.guard.remembered, remembered);
  });

  test('it is forgotten when the keys change: a token of a key that is gone is refused', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const now = server.clock.now();
    const headers = [bearer(goodToken(pair, now, { exp: 9_999_999_999 }))];
    assert.equal((await client.call(...read, { headers })).status, 200);
    server.issuer.read = () => Promise.resolve(keySetOf(other));
    await server.clock.pass(300_000);
    await poll(() => server.keys.current.has('two'), 'the new keys');
    assert.equal(server.guard.remembered, 0);
    assertInvalidToken(await client.call(...read, { headers }));
    assert.equal(server.last(), 'invalid-token unknown-key');
  });

  test('what was verified with keys that are gone meanwhile is not remembered', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    const token = goodToken(pair, server.clock.now());
    const admission = server.guard.admit({
      head: {
        method: 'GET',
        target: '/',
        bodyLength: 0,
        expectation: 'none',
        persists: true,
        version: '1.1',
        fields: ['authorization', `Bearer ${token}`],
      },
      operation: 'read',
      client: undefined,
      identity: undefined,
    });
    // The verification is under way in a thread of the platform: its end cannot come before this turn's.
    await Promise.resolve();
    await Promise.resolve();
    await Promise.resolve();
    server.guard.forgetAll();
    await admission;
    assert.equal(server.guard.remembered, 0);
  });

  test('a token with a long subject is verified each time', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    const call = async (length: number) => {
      const token = goodToken(pair, server.clock.now(), { sub: 'a'.repeat(length) });
      assert.equal((await client.call(...read, { headers: [bearer(token)] })).status, 200);
      return server.guard.remembered;
    };
    assert.equal(await call(1_025), 0);
    assert.equal(await call(1_024), 1);
  });

  test('100,000 distinct tokens leave at most 10,000 in memory', async () => {
    const memory = new TokenMemory<number>(new HandClock(0), 10_000);
    memory.remember('kept', -1, 1e12, 1e12);
    for (let index = 0; index < 100_000; index += 1) {
      memory.remember(String(index), index, 1e12, 1e12);
      if (index % 1_000 === 0) assert.equal(memory.find('kept'), -1, 'what is used stays');
      assert.ok(memory.size <= 10_000);
    }
    assert.equal(memory.find('99999'), 99_999);
    assert.equal(memory.find('0'), undefined);
    await using server = await serveWithTokens(keySetOf(pair), { entriesMax: 10 });
    await server.keys.start();
    await using client = await server.connect();
    for (let index = 0; index < 50; index += 1) {
      const headers = [bearer(goodToken(pair, server.clock.now(), { jti: index }))];
      assert.equal((await client.call(...read, { headers })).status, 200);
      assert.ok(server.guard.remembered <= 10);
    }
  });
});

describe('the issuer', () => {
  test('without keys: 401 without a token, 503 with one, whatever it is', async () => {
    await using server = await serveWithTokens('{"keys":[]}');
    server.issuer.read = () => Promise.reject(new Error('away'));
    await server.keys.start();
    await using client = await server.connect();
    assertNoToken(await client.call(...read));
    for (const token of [goodToken(pair), 'x.y.z', 'x']) {
      assertNoKeys(await client.call(...read, { headers: [bearer(token)] }));
      assert.equal(server.last(), 'no-keys undefined');
    }
    server.issuer.read = () => Promise.resolve(keySetOf(pair));
    await server.clock.pass(1_000);
    await poll(() => server.keys.current.keys.length === 1, 'the keys are there');
    assert.equal((await client.call(...read, { headers: [bearer(goodToken(pair))] })).status, 200);
    assert.equal(server.backend.requests.length, 1);
  });

  test('a call that comes before the first keys waits for them', async () => {
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

  test('when its keys are too stale every token is 503, the remembered ones too', async () => {
    await using server = await serveWithTokens(keySetOf(pair), { staleMs: 400_000 });
    await server.keys.start();
    await using client = await server.connect();
    await server.clock.pass(200_000);
    const headers = [bearer(goodToken(pair, undefined, { exp: 9_999_999_999 }))];
    assert.equal((await client.call(...read, { headers })).status, 200);
    server.issuer.read = () => Promise.reject(new Error('away'));
    await server.clock.pass(199_999);
    assert.equal((await client.call(...read, { headers })).status, 200);
    await server.clock.pass(1);
    assertNoKeys(await client.call(...read, { headers }));
    assertNoToken(await client.call(...read));
    assert.equal(server.backend.requests.length, 2);
  });

  test('a new key is fetched when its first token comes, and that call waits for it', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
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

  test('a call that waits for a key waits no longer than the fetch may take', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    server.issuer.read = () => new Promise<never>(() => undefined);
    await using client = await server.connect();
    client.send(requestBytes(...read, { headers: [bearer(goodToken(other))] }));
    await poll(() => server.issuer.fetches === 2, 'the fetch has begun');
    await server.clock.pass(5_000);
    assertInvalidToken(await client.reply());
    assert.equal(server.last(), 'invalid-token unknown-key');
  });

  test('a flood of unknown keys is at most one fetch in 30 s, and good clients are served', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    const clients = await Promise.all(Array.from({ length: 20 }, () => server.connect()));
    const now = server.clock.now();
    const good = [bearer(goodToken(pair, now, { exp: 9_999_999_999 }))];
    for (let round = 0; round < 20; round += 1) {
      const calls = clients.map((client, index) =>
        client.call(...read, {
          headers: index === 0 ? good : [bearer(goodToken(other, now, {}, { kid: `${round}-${index}` }))],
        }),
      );
      for (const [index, reply] of (await Promise.all(calls)).entries()) {
        if (index === 0) assert.equal(reply.status, 200);
        else assertInvalidToken(reply);
      }
      await server.clock.pass(5_000);
    }
    // 100 s have passed: at 0, 30, 60 and 90 s.
    assert.equal(server.issuer.fetches, 1 + 4);
    for (const client of clients) client.destroy();
  });

  test('two keys of one name: a token of either is valid', async () => {
    const twin = createPair('one', 'ES256');
    await using server = await serveWithTokens(keySetOf(pair, twin));
    await server.keys.start();
    await using client = await server.connect();
    for (const each of [pair, twin]) {
      assert.equal((await client.call(...read, { headers: [bearer(goodToken(each))] })).status, 200);
    }
    const stranger = createPair('one', 'ES256');
    assertInvalidToken(await client.call(...read, { headers: [bearer(goodToken(stranger))] }));
    assert.equal(server.last(), 'invalid-token signature');
    assertInvalidToken(await client.call(...read, { headers: [bearer(goodToken(pair, 0))] }));
    assert.equal(server.last(), 'invalid-token expired', 'the other key says nothing about it');
  });

  test('a token whose key is known, or that names none, fetches nothing', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    for (const kid of ['one', undefined]) {
      const token = goodToken(pair, server.clock.now(), {}, { kid });
      assert.equal((await client.call(...read, { headers: [bearer(token)] })).status, 200);
    }
    assert.equal(server.issuer.fetches, 1);
  });

  test('of the keys of one name, four are tried', async () => {
    const pairs = Array.from({ length: 5 }, () => createPair('one', 'ES256'));
    await using server = await serveWithTokens(keySetOf(...pairs));
    await server.keys.start();
    await using client = await server.connect();
    for (const [index, each] of pairs.entries()) {
      const reply = await client.call(...read, { headers: [bearer(goodToken(each))] });
      if (index < 4) assert.equal(reply.status, 200);
      else assertInvalidToken(reply);
    }
  });

  test('the fetch for an unknown key leaves no key at all: that call is 503 too', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    server.issuer.read = () => Promise.resolve('{"keys":[]}');
    assertNoKeys(await client.call(...read, { headers: [bearer(goodToken(other))] }));
    assert.equal(server.last(), 'no-keys undefined');
  });

  test('keys change again and again under load: no good call fails, and no old key is good', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    let current = pair;
    let isDone = false;
    const now = server.clock.now();
    let good = 0;
    // A token that waits to be verified is refused when its key has gone meanwhile.
    const signedWith = new Map<RawClient, typeof pair>();
    const work = async (client: RawClient) => {
      while (!isDone) {
        signedWith.set(client, current);
        const reply = await client.call(...read, {
          headers: [bearer(goodToken(current, now, { jti: good % 7 }))],
        });
        assert.equal(reply.status, 200, server.last());
        good += 1;
      }
    };
    const clients = await Promise.all(Array.from({ length: 8 }, () => server.connect()));
    const works = clients.map(work);
    for (let round = 0; round < 5; round += 1) {
      const next = createPair(`round-${round}`, 'ES256');
      const before = current;
      // As issuers do it: both, then the new one signs, then the old one is taken away. They are fetched with the first token
      // of the new one.
      server.issuer.read = () => Promise.resolve(keySetOf(before, next));
      await server.clock.pass(30_000);
      const from = good;
      await poll(() => good >= from + 100, 'calls go on');
      current = next;
      const signed = good;
      await poll(
        () => good >= signed + 100 && [...signedWith.values()].every((each) => each === current),
        'calls with the new key',
      );
      server.issuer.read = () => Promise.resolve(keySetOf(next));
      await server.clock.pass(300_000);
      await poll(() => server.keys.current.keys.length === 1, 'the old key is gone');
      await using client = await server.connect();
      assertInvalidToken(
        await client.call(...read, { headers: [bearer(goodToken(before, now, { jti: 0 }))] }),
      );
      server.clock.set(now);
    }
    isDone = true;
    await Promise.all(works);
    for (const client of clients) client.destroy();
    assert.ok(good >= 1_000, String(good));
  });
});

describe('identity for the backend [D48]', () => {
  const rows: [sub: unknown, expected: string | undefined][] = [
    ['ada', 'ada'],
    ['auth0|5f7c8ec7c33c6c004bbafe82', 'auth0|5f7c8ec7c33c6c004bbafe82'],
    ['Ada Lovelace', 'Ada Lovelace'],
    [' ada', '%20ada'],
    ['ada  ', 'ada%20%20'],
    [' ', '%20'],
    ['100%', '100%25'],
    ['%41', '%2541'],
    ['é', '%C3%A9'],
    ['日本', '%E6%97%A5%E6%9C%AC'],
    ['👩', '%F0%9F%91%A9'],
    ['a\r\nX-Admin: true', 'a%0D%0AX-Admin: true'],
    ['\0\t\x7f', '%00%09%7F'],
    ['a, b; c="d"', 'a, b; c="d"'],
    ['~!@#$^&*()_+`-={}|[]\\:";\'<>?,./', '~!@#$^&*()_+`-={}|[]\\:";\'<>?,./'],
    ['\ufeffx', '%EF%BB%BFx'],
    ['x'.repeat(3_000), 'x'.repeat(3_000)],
    ['', undefined],
    [undefined, undefined],
  ];

  test('the verified sub, percent-encoded, and nothing else under that name', async () => {
    await using server = await serveWithTokens(keySetOf(pair), { identityHeader: 'X-User' });
    await server.keys.start();
    await using client = await server.connect();
    for (const [sub, expected] of rows) {
      const headers = [
        bearer(goodToken(pair, undefined, { sub })),
        ['x-user', 'eve'],
        ['X-User', 'mallory'],
        ['x_user', 'eve'],
        ['connection', 'x-user'],
      ] as const;
      for (const [method, path, body] of [
        ['GET', '/api/work-items', undefined],
        ['PUT', '/api/work-items/5', '{}'],
        ['DELETE', '/api/work-items/5', undefined],
      ] as const) {
        await client.call(method, path, { headers, ...(body !== undefined && { body }) });
        const request = server.backend.requests.at(-1);
        assert.equal(request?.method, method);
        assert.equal(request.header('x-user'), expected, JSON.stringify(sub));
        assert.deepEqual(
          request.headers.filter(([name, value]) => /user/i.test(name) && /eve|mallory/.test(value)),
          [],
        );
        if (expected !== undefined) {
          assert.equal(decodeURIComponent(request.header('x-user') ?? ''), sub);
        }
      }
    }
    assert.equal(server.backend.requests.length, rows.length * 3);
    assert.deepEqual(server.backend.violations, []);
  });

  test('without that setting the backend is told nothing', async () => {
    await using server = await serveWithTokens(keySetOf(pair));
    await server.keys.start();
    await using client = await server.connect();
    // No hexadecimal digits alone: a traceparent is 48 of them, and may hold any short word such as `ada`.
    const sub = 'grace.hopper';
    await client.call(...read, { headers: [bearer(goodToken(pair, undefined, { sub }))] });
    assert.equal(server.backend.requests.length, 1);
    assert.equal(server.backend.requests[0]?.head.includes(sub), false);
  });
});
