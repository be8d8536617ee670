// Backend, issuer, collector and Redis whose certificates a private authority issued. They are used if the authority is
// known, as docs/security.md describes. Otherwise they receive no request, and the log and `check` show how to fix the
// problem. NODE_TLS_REJECT_UNAUTHORIZED=0, with which Node accepts any certificate, changes nothing [D40, D44, D47].

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setDefaultCACertificates } from 'node:tls';
import { type Issued, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { logged, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { hostNames, startGateway } from '../helpers/gateway.ts';
import { audience, createPair, goodToken, issuerName, KeyServer, keySetOf } from '../helpers/issuer.ts';
import { RedisServer, withoutRedis } from '../helpers/redis.ts';
import { runHere } from '../helpers/run-cli.ts';
import { assertNoKeys, bearer } from '../helpers/tokens.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

// Node reads the variable for every new connection, also in this process, where `check` and the library's hosts run.
const verifiesNothing = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };
Object.assign(process.env, verifiesNothing);
const warning =
  'NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect: certificates of the backend, the issuer, Redis and the collector are always verified';
const advice = (name: string) =>
  `before the start, set ${name} in the environment to a file with the certificate authority to trust`;
const path = '/api/work-items/5';
const pair = createPair('key-1', 'ES256');
const headers = [bearer(goodToken(pair))];
const backend = await useBackend('{"id":5}');

describe('servers with certificates of a private authority', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const right = folder.authority('right');
  const wrong = folder.authority('wrong');
  const certificate = folder.issue(right, 'server');
  const elsewhere = folder.issue(right, 'elsewhere', { names: ['DNS:elsewhere.example'] });
  const startRedis = (issued: Issued, ...args: string[]) =>
    RedisServer.start({ args, tls: { ...issued, caFile: right.certFile } });
  // Backend, issuer and collector in one server: it answers every request with JSON, and counts requests.
  let server: KeyServer;
  let redis: RedisServer | undefined;
  before(async () => {
    server = await KeyServer.start(keySetOf(pair), 0, certificate);
    if (withoutRedis === false) redis = await startRedis(certificate, '--requirepass', 'Tr0ub4dor');
  });
  after(async () => {
    await server[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  const tokens = (url = server.url) => ({ AUTH_ISSUER: issuerName, AUTH_AUDIENCE: audience, AUTH_JWKS_URL: url });
  const counts = (url: string) => ({ BACKEND_URL: backend.url, RATE_LIMIT: '3/1h', RATE_LIMIT_REDIS_URL: url });
  const redisUrl = (host = 'localhost', password = 'Tr0ub4dor') => `rediss://:${password}@${host}:${redis?.tlsPort}/1`;

  test('if the authority is in NODE_EXTRA_CA_CERTS, keys are fetched and Redis counts', async () => {
    await using gateway = await startCommand({
      BACKEND_URL: backend.url,
      NODE_EXTRA_CA_CERTS: right.certFile,
      WORKERS: '2',
      TRUSTED_PROXIES: '127.0.0.1',
      ...tokens(),
      // With `deny`, the gateway serves only requests that Redis has counted.
      ...(redis && { ...counts(redisUrl()), RATE_LIMIT_FALLBACK: 'deny' }),
    });
    const statuses = async (client: string) => {
      const options = { headers: [...headers, ['X-Forwarded-For', client] as const] };
      const replies = [];
      for (let count = 0; count < 4; count += 1) replies.push((await gateway.call('GET', path, options)).status);
      return replies.join();
    };
    // If Redis answers too late on a busy machine, the client is refused. The next round tries another client.
    const expected = redis === undefined ? '200,200,200,200' : '200,200,200,429';
    let round = 0;
    await poll(async () => (await statuses(`198.51.100.${(round += 1)}`)) === expected, 'three calls are counted');
    assert.equal(gateway.stderr, '');
  });

  test('if the authority is unknown, the command sends no request [D40]', async () => {
    const before = server.count;
    const { origin } = new URL(server.url);
    await using gateway = await startCommand({
      ...verifiesNothing,
      WORKERS: '2',
      ...tokens(),
      ...(redis && counts(redisUrl())),
      BACKEND_URL: origin,
      OTEL_EXPORTER_OTLP_ENDPOINT: origin,
    });
    const causeOf = async (message: string | RegExp) => String((await logged(gateway, message))['cause']);
    assert.equal((await logged(gateway, warning))['level'], 'warn');
    const untrusted = 'unable to verify the first certificate: ';
    assert.equal(
      await causeOf(/^no TLS connection to the backend/),
      `${untrusted}set BACKEND_CA_FILE to a file with the certificate authorities to trust`,
    );
    assert.equal(await causeOf('the keys of the issuer cannot be fetched'), untrusted + advice('NODE_EXTRA_CA_CERTS'));
    // Redis also sends the authority's certificate. On a busy machine a gateway may give up before any certificate arrives.
    const ofRedis =
      /^(self-signed certificate in certificate chain|unable to verify the first certificate|no connection within)/;
    if (redis) assert.match(await causeOf('Redis does not count requests'), ofRedis);
    assertNoKeys(await gateway.call('GET', path, { headers }));
    assert.match(await causeOf('trace export failed: dropping spans'), /unable to verify the first certificate/);
    assert.equal(server.count, before);
    // Node's warning that connections are insecure would be untrue, so the gateway suppresses it.
    assert.equal(gateway.stderr, '');
  });

  for (const name of hostNames) {
    test(`the library's host ${name} sends nothing to a backend or issuer of an unknown authority [D40]`, async () => {
      const before = server.count;
      await using host = await startGateway({ host: name, settings: { backendUrl: new URL(server.url).origin } });
      assertReply(await host.call('GET', path), 500, '{"error":"Failed to fetch work item"}');
      assert.match(String(host.told.ended[0]?.cause), /^unable to verify the first certificate: /);
      const keys = { authIssuer: issuerName, authAudience: [audience], authJwksUrl: server.url };
      await using guarded = await startGateway({ host: name, settings: keys });
      assertNoKeys(await guarded.call('GET', path, { headers }));
      await poll(() => guarded.told.outages.length > 0, 'the lack of keys is reported');
      assert.match(guarded.told.outages.join(), /^keys,unable to verify the first certificate: /);
      assert.equal(server.count, before);
      assert.equal(process.env['NODE_TLS_REJECT_UNAUTHORIZED'], '0', "the variable of the host's process stays");
    });
  }

  /** Runs `check` with this authority instead of Node's. Returns the matches of `line` in its output. */
  async function check(
    authority: Issued,
    environment: NodeJS.ProcessEnv,
    line: RegExp,
    exitCode: number,
  ): Promise<string> {
    setDefaultCACertificates([authority.cert]);
    // Repeated after a timeout: on a busy machine a connection can take longer than the gateway waits.
    for (let tried = 1; ; tried += 1) {
      const { code, stdout, stderr } = await runHere(['check'], { BACKEND_URL: backend.url, ...environment });
      const output = stdout + stderr;
      assert.equal(code, exitCode, output);
      assert.doesNotMatch(output, /hunter2/);
      const [, found = output] = line.exec(output) ?? [];
      if (tried === 8 || !/^no (?:connection|answer) within (?!.*did you mean)/.test(found)) return found;
    }
  }

  test(
    'check shows why Redis cannot be used: authority, name in the certificate, or no TLS',
    { skip: withoutRedis },
    async () => {
      await using misnamed = await startRedis(elsewhere);
      const untrusted = new RegExp(`^[\\w -]+: ${advice('NODE_EXTRA_CA_CERTS')}$`);
      const problem = /^rate limit: Redis at rediss?:\S+ could not count a request: (.*)$/m;
      for (const [url, authority, cause] of [
        [redisUrl('localhost', 'hunter2'), wrong, untrusted],
        [
          `rediss://localhost:${misnamed.tlsPort}`,
          right,
          /does not match certificate's altnames: .*DNS:elsewhere\.example/,
        ],
        [`rediss://localhost:${redis?.port}`, right, /^no connection within 350 ms: did you mean redis:\?$/],
        [
          `redis://localhost:${redis?.tlsPort}`,
          right,
          /^Redis closed the connection before it answered: did you mean rediss:\?$/,
        ],
      ] as const) {
        assert.match(await check(authority, counts(url), problem, 1), cause);
      }
      await check(right, counts(redisUrl('127.0.0.1')), /^rate limit: Redis at rediss:.* counted a request/m, 0);
    },
  );

  test('check shows the keys, or why they cannot be fetched: authority, name, expiry, or no TLS; then no request is sent', async () => {
    await using misnamed = await KeyServer.start(keySetOf(pair), 0, elsewhere);
    await using old = await KeyServer.start(keySetOf(pair), 0, folder.issue(right, 'expired', { days: -1 }));
    await using plain = await KeyServer.start(keySetOf(pair));
    const before = server.count;
    for (const [url, authority, cause] of [
      [server.url, wrong, new RegExp(`^[\\w -]+: ${advice('NODE_EXTRA_CA_CERTS')}$`)],
      [misnamed.url, right, /does not match certificate's altnames: .*DNS:elsewhere\.example/],
      [old.url, right, /^certificate has expired$/],
      [plain.url.replace('http:', 'https:'), right, /^the issuer does not speak TLS: did you mean http:\?$/],
    ] as const) {
      assert.match(await check(authority, tokens(url), /^keys: https:\/\/[\w.]+:\d+\/keys: (.*)$/m, 1), cause);
    }
    assert.equal(server.count + misnamed.count + old.count + plain.count, before);
    assert.equal(
      await check(right, tokens(), /^keys: (.* has 1 usable key\n {2}key-1: ES256)$/m, 0),
      `${server.url} has 1 usable key\n  key-1: ES256`,
    );
  });

  test('check warns of NODE_TLS_REJECT_UNAUTHORIZED and reports a backend of an unknown authority [D40]', async () => {
    const settings = { ...verifiesNothing, BACKEND_URL: new URL(server.url).origin };
    const cause = await check(wrong, settings, /^backend: https:.*(unable to verify the first certificate)/m, 1);
    assert.equal(cause, 'unable to verify the first certificate');
    assert.equal(await check(wrong, settings, /^warning: (.*NODE_TLS.*)$/m, 1), warning);
  });
});
