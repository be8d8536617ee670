// NODE_TLS_REJECT_UNAUTHORIZED=0, by which Node accepts any certificate, changes nothing for the gateway: no server of
// an authority that is not trusted gets a request [D40].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CertificateFolder, noOpenssl, type Issued } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply } from '../helpers/expected.ts';
import { hostNames, serveHost } from '../helpers/guarded-hosts.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';
import { runCommand, startCommand } from '../helpers/targets.ts';
import { assertNoKeys, bearer } from '../helpers/tokens.ts';

// Node reads it at each connection, in this process too: here the hosts of a library are.
process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
const environment = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };
const warning =
  'NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect: certificates of the backend, the issuer, Redis and the collector are always verified';
const unverified = /^unable to verify the first certificate: /;
// Redis sends the authority's certificate too. On a busy machine a gateway may give up before any of them comes.
const unverifiedRedis =
  /^(self-signed certificate in certificate chain: |unable to verify the first certificate: |no connection within )/;
const path = '/api/work-items/5';
const pair = createPair('key-1', 'ES256');
const headers = [bearer(goodToken(pair))];

describe('NODE_TLS_REJECT_UNAUTHORIZED=0', { skip: noOpenssl }, () => {
  let folder: CertificateFolder;
  let certificate: Issued;
  let authority: Issued;
  // A backend, an issuer and a collector alike: it answers every request with JSON, and counts.
  let server: KeyServer;
  let origin: string;
  before(async () => {
    folder = new CertificateFolder();
    authority = folder.authority('unknown');
    certificate = folder.issue(authority, 'server');
    server = await KeyServer.start(keySetOf(pair), 0, certificate);
    origin = new URL(server.url).origin;
  });
  after(async () => {
    folder[Symbol.dispose]();
    await server[Symbol.asyncDispose]();
  });

  const tokens = () => ({ authIssuer: issuerName, authAudience: [audience], authJwksUrl: server.url });

  for (const name of hostNames) {
    test(`the ${name} of the library calls no backend and takes no keys over a TLS that is not verified [D40]`, async () => {
      await using host = await serveHost(name, { backendUrl: origin });
      assertReply(await host.call('GET', path), 500, '{"error":"Failed to fetch work item"}');
      assert.match(String(host.told.ended[0]?.cause), unverified);
      await using guarded = await serveHost(name, tokens());
      assertNoKeys(await guarded.call('GET', path, { headers }));
      await poll(() => guarded.outages.length > 0, 'it is said that there are no keys');
      assert.match(guarded.outages.join(), /^keys,unable to verify the first certificate: /);
      assert.equal(server.count, 0);
      assert.equal(process.env['NODE_TLS_REJECT_UNAUTHORIZED'], '0', 'it is the host’s');
    });

    test(
      `the ${name} of the library asks no Redis over a TLS that is not verified [D40]`,
      {
        skip: withoutRedis,
      },
      async () => {
        await using redis = await startRedis();
        const rateLimitRedisUrl = `rediss://localhost:${redis.tlsPort}`;
        await using host = await serveHost(name, { rateLimit: '1/1h', rateLimitRedisUrl });
        await poll(async () => {
          await host.call('GET', path);
          return host.outages.length > 0;
        }, 'it is said that Redis does not count');
        assert.equal(host.outages[0]?.[0], 'redis');
        assert.match(String(host.outages[0][1]), unverifiedRedis);
      },
    );
  }

  for (const workers of ['1', '2']) {
    test(`WORKERS=${workers}: backend and collector get nothing, and a line at the start says so [D40]`, async () => {
      await using gateway = await startCommand({
        ...environment,
        WORKERS: workers,
        BACKEND_URL: origin,
        OTEL_EXPORTER_OTLP_ENDPOINT: origin,
      });
      await gateway.log(({ level, msg }) => level === 'warn' && msg === warning, 'the line at the start');
      assertReply(await gateway.call('GET', path), 500, '{"error":"Failed to fetch work item"}');
      const failed = await gateway.log(({ msg }) => msg === 'backend call failed', 'the failure');
      assert.match(String(failed['cause']), unverified);
      const lost = await gateway.log(
        ({ msg }) => msg === 'the collector does not take traces: they are dropped',
        'the loss of traces',
      );
      assert.match(String(lost['cause']), /unable to verify the first certificate/);
      assert.equal(server.count, 0);
      // Node's own warning says that connections are not safe. These are.
      assert.equal(gateway.stderr, '');
    });

    test(`WORKERS=${workers}: no keys come from an issuer that is not verified [D40]`, async () => {
      await using gateway = await startCommand({
        ...environment,
        WORKERS: workers,
        AUTH_ISSUER: issuerName,
        AUTH_AUDIENCE: audience,
        AUTH_JWKS_URL: server.url,
      });
      const line = await gateway.log(
        ({ msg }) => msg === 'the keys of the issuer cannot be fetched',
        'the failure',
      );
      assert.match(String(line['cause']), unverified);
      assertNoKeys(await gateway.call('GET', path, { headers }));
      assert.equal(server.count, 0);
    });

    test(
      `WORKERS=${workers}: a Redis that is not verified counts nothing [D40]`,
      {
        skip: withoutRedis,
      },
      async () => {
        await using redis = await startRedis();
        await using gateway = await startCommand({
          ...environment,
          WORKERS: workers,
          RATE_LIMIT: '1/1h',
          RATE_LIMIT_REDIS_URL: `rediss://localhost:${redis.tlsPort}`,
        });
        const line = await gateway.log(({ msg }) => msg === 'Redis does not count requests', 'the failure');
        assert.match(String(line['cause']), unverifiedRedis);
      },
    );
  }

  test('check says so, and finds the backend and the issuer unusable [D40]', async () => {
    await using command = runCommand(['check'], {
      ...environment,
      BACKEND_URL: origin,
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: server.url,
    });
    assert.equal(await command.exitCode(), 1);
    assert.ok(command.stdout.includes(`warning: ${warning}\n`), command.stdout);
    assert.match(command.stderr, /^backend: https:.*unable to verify the first certificate/m);
    assert.match(command.stderr, /^keys: https:.*unable to verify the first certificate/m);
    assert.equal(server.count, 0);
    assert.doesNotMatch(command.stderr, /NODE_TLS_REJECT_UNAUTHORIZED/);
  });

  async function startRedis(): Promise<RedisServer> {
    return await RedisServer.start({ tls: { ...certificate, caFile: authority.certFile } });
  }
});
