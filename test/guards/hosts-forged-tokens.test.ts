// The forged tokens in each host that has tokens as options: the same table, the same bytes as from the command, and nothing
// reaches the backend [D41, D43, D50].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { assertReply, operation, operations } from '../helpers/expected.ts';
import { ec, forgedTokens, rsa, seconds } from '../helpers/forged-tokens.ts';
import { hostNames, serveHost, type GuardedHost } from '../helpers/guarded-hosts.ts';
import { audience, goodToken, issuerName, KeyServer, keySetOf } from '../helpers/issuer.ts';
import { oddTargets } from '../helpers/odd-targets.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { assertInvalidToken, bearer } from '../helpers/tokens.ts';

for (const name of hostNames) {
  describe(name, () => {
    let keys: KeyServer;
    let host: GuardedHost;
    let client: RawClient;
    before(async () => {
      keys = await KeyServer.start(keySetOf(rsa, ec));
      host = await serveHost(name, {
        authIssuer: issuerName,
        authAudience: [audience],
        authJwksUrl: keys.url,
        // Time passes here: what is not valid yet for half a minute stays so.
        authClockSkewMs: 0,
      });
      client = await host.connect();
    });
    after(async () => {
      await client[Symbol.asyncDispose]();
      await host[Symbol.asyncDispose]();
      await keys[Symbol.asyncDispose]();
    });

    for (const [index, [what, cause, make]] of forgedTokens.entries()) {
      test(`${what}: ${cause}`, async () => {
        const { method, path, options } = operations[index % operations.length] ?? operation(1);
        const headers = [bearer(make(Date.now()))];
        assertInvalidToken(await client.call(method, path, { ...options, headers }));
        const told = host.told.ended.at(-1);
        assert.equal(told?.outcome, 'invalid-token');
        assert.match(
          String(told.cause),
          cause === 'cut' ? /^(?:malformed|signature)$/ : new RegExp(`^${cause}$`),
        );
        assert.equal(host.told.ended.length, index + 1);
        assert.equal(host.backend.requests.length, 0);
      });
    }

    test('nothing reaches the backend without a token, whatever its target, method or encoding', async () => {
      const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'get', 'TRACE', 'QUERY', 'OPTIONS'];
      const statuses = new Set<number>();
      for (const [index, target] of oddTargets().entries()) {
        const method = methods[index % methods.length] ?? 'GET';
        await using connection = await host.connect();
        connection.send(
          `${method} ${target} HTTP/1.1\r\nHost: x\r\nX-Forwarded-User: ada\r\nX-Http-Method-Override: GET\r\nX-Original-Url: /api/work-items\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`,
        );
        statuses.add((await connection.reply({ hasBody: method !== 'HEAD' })).status);
      }
      assert.equal(host.backend.requests.length, 0);
      assert.ok(statuses.has(401) && !statuses.has(200) && !statuses.has(201), String([...statuses]));
    });

    test('what is right, next to all of these, is served', async () => {
      const now = Date.now();
      const good = [
        goodToken(rsa, now),
        goodToken(ec, now),
        goodToken(rsa, now, { aud: ['others', audience] }),
        goodToken(rsa, now, { exp: seconds(now, 600) + 0.5 }),
        goodToken(rsa, now, { sub: undefined }),
      ];
      for (const token of good) {
        const reply = await client.call('GET', '/api/work-items/5', { headers: [bearer(token)] });
        assertReply(reply, 200, '{"id":5}');
      }
      assert.equal(host.backend.requests.length, good.length);
    });
  });
}
