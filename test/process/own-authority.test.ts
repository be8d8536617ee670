// Redis and an issuer whose certificates a private authority issued. NODE_EXTRA_CA_CERTS names the authority's file, as
// docs/security.md describes. With a wrong authority, the log and `check` show how to fix the problem [D44, D47].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Issued, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { runToEnd, startCommand } from '../helpers/command.ts';
import { audience, createPair, goodToken, issuerName, KeyServer, keySetOf } from '../helpers/issuer.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';
import { bearer } from '../helpers/tokens.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const path = '/api/work-items/5';
const untrusted =
  /^[\w -]+: before the start, set NODE_EXTRA_CA_CERTS in the environment to a file with the certificate authority to trust$/;

const backend = await useBackend('{"id":5}');

describe('a private authority', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const right = folder.authority('right');
  const wrong = folder.authority('wrong');
  const server = folder.issue(right, 'server');

  const check = (environment: NodeJS.ProcessEnv) => runToEnd(['check'], environment);

  // Calls `cause` again if it reports a timeout: on a busy machine a connection can take longer than the gateway waits.
  async function onTime(cause: () => Promise<string>, expected: RegExp): Promise<void> {
    let said = await cause();
    for (let tried = 1; tried < 8 && !expected.test(said) && /^no (?:connection|answer) within/.test(said); tried += 1) {
      said = await cause();
    }
    assert.match(said, expected);
  } // prettier-ignore

  describe('Redis', { skip: withoutRedis }, () => {
    let redis: RedisServer;
    before(async () => {
      const args = ['--requirepass', 'Tr0ub4dor'];
      redis = await RedisServer.start({ args, tls: { ...server, caFile: right.certFile } });
    });
    after(() => redis[Symbol.asyncDispose]());

    function environment(url: string, authority: Issued | undefined, more: NodeJS.ProcessEnv = {}) {
      return {
        BACKEND_URL: backend.url,
        RATE_LIMIT: '3/1h',
        RATE_LIMIT_REDIS_URL: url,
        TRUSTED_PROXIES: '127.0.0.1',
        ...(authority !== undefined && { NODE_EXTRA_CA_CERTS: authority.certFile }),
        ...more,
      };
    }
    const from = (client: string) => ({ headers: [['X-Forwarded-For', client]] as const });

    for (const [host, workers] of [['localhost', '2'], ['127.0.0.1', '1']] as const) {
      test(`over rediss://${host}, Redis counts the requests of two gateways, the second with WORKERS=${workers}`, async () => {
        const url = `rediss://:Tr0ub4dor@${host}:${redis.tlsPort}/1`;
        // With `deny`, the gateway serves only requests that Redis has counted.
        const deny = { RATE_LIMIT_FALLBACK: 'deny' };
        await using one = await startCommand(environment(url, right, deny));
        await using two = await startCommand(environment(url, right, { ...deny, WORKERS: workers }));
        const gateways = [one, two, one];
        // If Redis answers too late on a busy machine, the client is refused. The next round tries another client.
        let round = 0;
        await poll(async () => {
          round += 1;
          const client = from(`198.51.${host === 'localhost' ? 1 : 2}.${round}`);
          for (const gateway of gateways) {
            if ((await gateway.call('GET', path, client)).status !== 200) return false;
          }
          assert.equal((await two.call('GET', path, client)).status, 429);
          return true;
        }, 'three calls are counted');
        assert.match((await one.metrics()), /^work_item_gateway_rate_limit_redis_reachable [01]$/m);
        assert.equal(one.stderr + two.stderr, '');
      });
    } // prettier-ignore

    test('check reports why Redis cannot be used: a wrong authority, another name in the certificate, or no TLS', async () => {
      await using elsewhere = await RedisServer.start({
        tls: { ...folder.issue(right, 'elsewhere', { names: ['DNS:elsewhere.example'] }), caFile: right.certFile },
      });
      for (const [url, authority, cause] of [
        [`rediss://:hunter2@localhost:${redis.tlsPort}`, wrong, untrusted],
        [`rediss://:hunter2@localhost:${redis.tlsPort}`, undefined, untrusted],
        [`rediss://localhost:${elsewhere.tlsPort}`, right, /does not match certificate's altnames: .*DNS:elsewhere\.example/],
        [`rediss://localhost:${redis.port}`, right, /^no connection within 350 ms: did you mean redis:\?$/],
        [`redis://localhost:${redis.tlsPort}`, right, /^Redis closed the connection before it answered: did you mean rediss:\?$/],
      ] as const) {
        await onTime(async () => {
          const { code, stderr } = await check(environment(url, authority));
          assert.equal(code, 1);
          assert.doesNotMatch(stderr, /hunter2/);
          return /^rate limit: Redis at rediss?:\/\/localhost:\d+ could not count a request: (.*)$/m.exec(stderr)?.[1] ?? stderr;
        }, cause);
      }
    }); // prettier-ignore
  });

  describe('an issuer', () => {
    const pair = createPair('key-1', 'ES256');
    const headers = [bearer(goodToken(pair))];

    function environment(url: string, authority: Issued | undefined) {
      return {
        BACKEND_URL: backend.url,
        AUTH_ISSUER: issuerName,
        AUTH_AUDIENCE: audience,
        AUTH_JWKS_URL: url,
        ...(authority !== undefined && { NODE_EXTRA_CA_CERTS: authority.certFile }),
      };
    }

    test('keys are fetched over TLS, and check lists them', async () => {
      await using keys = await KeyServer.start(keySetOf(pair), 0, server);
      const settings = environment(keys.url, right);
      await using gateway = await startCommand(settings);
      await poll(async () => (await gateway.call('GET', path, { headers })).status === 200, 'the keys are fetched');
      const { code, stdout } = await check(settings);
      assert.equal(code, 0);
      assert.ok(stdout.includes(`keys: ${keys.url} has 1 usable key\n  key-1: ES256\n`), stdout);
    });

    test('check reports a wrong authority, another name in the certificate, an expired certificate or no TLS, and sends no request', async () => {
      const other = folder.issue(right, 'other', { names: ['DNS:elsewhere.example'] });
      const expired = folder.issue(right, 'expired', { days: -1 });
      await using keys = await KeyServer.start(keySetOf(pair), 0, server);
      await using elsewhere = await KeyServer.start(keySetOf(pair), 0, other);
      await using old = await KeyServer.start(keySetOf(pair), 0, expired);
      await using plain = await KeyServer.start(keySetOf(pair));
      for (const [url, authority, cause] of [
        [keys.url, wrong, untrusted],
        [keys.url, undefined, untrusted],
        [elsewhere.url, right, /does not match certificate's altnames: .*DNS:elsewhere\.example/],
        [old.url, right, /^certificate has expired$/],
        [plain.url.replace('http:', 'https:'), right, /^the issuer does not speak TLS: did you mean http:\?$/],
      ] as const) {
        const { code, stderr } = await check(environment(url, authority));
        assert.equal(code, 1);
        const line = stderr.split('\n').find((each) => each.startsWith(`keys: ${url}: `)) ?? stderr;
        assert.match(line.slice(`keys: ${url}: `.length), cause);
      }
      assert.equal(keys.count + elsewhere.count + old.count + plain.count, 0);
    });
  });
});
