// With NODE_TLS_REJECT_UNAUTHORIZED=0, Node accepts any certificate. The gateway ignores the variable: a server
// receives no request if an untrusted authority issued its certificate [D40].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { type Command, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { hostNames, startGateway } from '../helpers/gateway.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';
import { assertNoKeys, bearer } from '../helpers/tokens.ts';
import { useCertificates } from '../helpers/suites.ts';

// Node reads the variable for every new connection. The library's hosts run in this process, so the variable is set
// here, too.
process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
const environment = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };
const warning =
  'NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect: certificates of the backend, the issuer, Redis and the collector are always verified';
const unverified = /^unable to verify the first certificate: /;
// Redis also sends the authority's certificate, so the message differs from `unverified`. On a busy machine a gateway
// may give up before any certificate arrives.
const unverifiedRedis =
  /^(self-signed certificate in certificate chain: |unable to verify the first certificate: |no connection within )/;
const path = '/api/work-items/5';
const pair = createPair('key-1', 'ES256');
const headers = [bearer(goodToken(pair))];

describe('NODE_TLS_REJECT_UNAUTHORIZED=0', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('unknown');
  const certificate = folder.issue(authority, 'server');
  // Backend, issuer and collector in one server: it answers every request with JSON, and counts requests.
  let server: KeyServer;
  let origin: string;
  before(async () => {
    server = await KeyServer.start(keySetOf(pair), 0, certificate);
    origin = new URL(server.url).origin;
  });
  after(() => server[Symbol.asyncDispose]());

  const tokens = () => ({ authIssuer: issuerName, authAudience: [audience], authJwksUrl: server.url });

  for (const name of hostNames) {
    test(`the library's host ${name} sends nothing to a backend or issuer with an unverified certificate [D40]`, async () => {
      await using host = await startGateway({ host: name, settings: { backendUrl: origin } });
      assertReply(await host.call('GET', path), 500, '{"error":"Failed to fetch work item"}');
      assert.match(String(host.told.ended[0]?.cause), unverified);
      await using guarded = await startGateway({ host: name, settings: tokens() });
      assertNoKeys(await guarded.call('GET', path, { headers }));
      await poll(() => guarded.told.outages.length > 0, 'the lack of keys is reported');
      assert.match(guarded.told.outages.join(), /^keys,unable to verify the first certificate: /);
      assert.equal(server.count, 0);
      assert.equal(process.env['NODE_TLS_REJECT_UNAUTHORIZED'], '0', "the variable of the host's process stays");
    });
  }

  test('a host rejects an unverified Redis certificate [D40]', { skip: withoutRedis }, async () => {
    await using redis = await startRedis();
    const rateLimitRedisUrl = `rediss://localhost:${redis.tlsPort}`;
    await using host = await startGateway({ host: 'server', settings: { rateLimit: '1/1h', rateLimitRedisUrl } });
    await poll(async () => {
      await host.call('GET', path);
      return host.told.outages.length > 0;
    }, 'the outage of Redis is reported');
    assert.equal(host.told.outages[0]?.[0], 'redis');
    assert.match(String(host.told.outages[0][1]), unverifiedRedis);
  });

  test('the command sends no request to a server with an unverified certificate [D40]', async () => {
    await using cleanUp = new AsyncDisposableStack();
    const redis = withoutRedis === false ? cleanUp.use(await startRedis()) : undefined;
    await using gateway = await startCommand({
      ...environment,
      WORKERS: '2',
      BACKEND_URL: origin,
      OTEL_EXPORTER_OTLP_ENDPOINT: origin,
    });
    await gateway.log(({ level, msg }) => level === 'warn' && msg === warning, 'the warning at the start');
    assertReply(await gateway.call('GET', path), 500, '{"error":"Failed to fetch work item"}');
    assert.match(await causeOf(gateway, 'backend call failed'), unverified);
    const lost = await causeOf(gateway, 'trace export failed: dropping spans');
    assert.match(lost, /unable to verify the first certificate/);
    // Node's warning that connections are insecure would be untrue, so the gateway suppresses it.
    assert.equal(gateway.stderr, '');
    await using guarded = await startCommand({
      ...environment,
      WORKERS: '2',
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: server.url,
      ...(redis && { RATE_LIMIT: '1/1h', RATE_LIMIT_REDIS_URL: `rediss://localhost:${redis.tlsPort}` }),
    });
    assert.match(await causeOf(guarded, 'the keys of the issuer cannot be fetched'), unverified);
    if (redis) assert.match(await causeOf(guarded, 'Redis does not count requests'), unverifiedRedis);
    assertNoKeys(await guarded.call('GET', path, { headers }));
    assert.equal(server.count, 0);
  });

  test('check warns of the variable and reports backend and issuer as unusable [D40]', async () => {
    const { code, stdout, stderr } = await runToEnd(['check'], {
      ...environment,
      BACKEND_URL: origin,
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_JWKS_URL: server.url,
    });
    assert.equal(code, 1);
    assert.ok(stdout.includes(`warning: ${warning}\n`), stdout);
    assert.match(stderr, /^backend: https:.*unable to verify the first certificate/m);
    assert.match(stderr, /^keys: https:.*unable to verify the first certificate/m);
    assert.equal(server.count, 0);
    assert.doesNotMatch(stderr, /NODE_TLS_REJECT_UNAUTHORIZED/);
  });

  async function causeOf(gateway: Command, message: string): Promise<string> {
    return String((await gateway.log(({ msg }) => msg === message, message))['cause']);
  }

  async function startRedis(): Promise<RedisServer> {
    return await RedisServer.start({ tls: { ...certificate, caFile: authority.certFile } });
  }
});
