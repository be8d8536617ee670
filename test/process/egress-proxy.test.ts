// Keys and traces go through the proxy that Node itself uses: NODE_USE_ENV_PROXY, HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
// Calls to the backend do not [D44, D49].

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setDefaultCACertificates } from 'node:tls';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { runToEnd, startCommand, versionsOfCommand } from '../helpers/command.ts';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
import { runHere } from '../helpers/run-cli.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';
import { assertNoKeys, bearer } from '../helpers/tokens.ts';
import { Collector } from './collector.ts';

const path = '/api/work-items/5';
const pair = createPair('key-1', 'ES256');
const headers = [bearer(goodToken(pair))];
const backend = await useBackend('{"id":5}');

// Node 22.21 and 24.5 are the first versions whose HTTP client can use a proxy.
const [major = 0, minor = 0] = versionsOfCommand.node.split('.').map(Number);
const canProxy = major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);

describe('an egress proxy', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('own');
  const names = ['DNS:issuer.test', 'DNS:collector.test', 'DNS:localhost'];
  const certificate = folder.issue(authority, 'server', { names });
  // Issuer, collector and backend in one server.
  let keys: KeyServer;
  before(async () => {
    keys = await KeyServer.start(keySetOf(pair), 0, certificate);
  });
  after(() => keys[Symbol.asyncDispose]());

  const proxied = (proxy: ConnectProxy) => ({
    NODE_USE_ENV_PROXY: '1',
    HTTPS_PROXY: `http://ada:hunter2@127.0.0.1:${proxy.port}`,
    HTTP_PROXY: `http://127.0.0.1:${proxy.port}`,
    NODE_EXTRA_CA_CERTS: authority.certFile,
  });
  // `issuer.test` has no address, so only the proxy can reach it.
  const environment = (proxy: ConnectProxy, more: Record<string, string> = {}) => ({
    BACKEND_URL: backend.url,
    AUTH_ISSUER: issuerName,
    AUTH_AUDIENCE: audience,
    AUTH_JWKS_URL: `https://issuer.test:${keys.port}/keys`,
    ...proxied(proxy),
    ...more,
  });

  describe('that Node uses', { skip: !canProxy && `Node ${versionsOfCommand.node} cannot use a proxy` }, () => {
    test('gets the requests for keys, and spans over TLS, but no calls to the backend, with or without TLS', async () => {
      await using proxy = await ConnectProxy.start();
      const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: `https://collector.test:${keys.port}`, WORKERS: '2' };
      const secure = { BACKEND_URL: `https://localhost:${keys.port}` };
      for (const more of [traces, secure]) {
        await using gateway = await startCommand(environment(proxy, more));
        const health = await runToEnd(['health'], { ...proxied(proxy), ADMIN_PORT: String(gateway.adminPort) });
        assert.equal(health.code, 0, health.stderr);
        assert.equal((await gateway.call('GET', path, { headers })).status, 200);
        if (more === traces) await poll(() => proxy.requests.some((each) => each.includes('collector')), 'the spans arrive'); // prettier-ignore
        assert.doesNotMatch(gateway.output, /hunter2|no effect/);
      }
      const expected = ['issuer', 'collector'].map((name) => `CONNECT ${name}.test:${keys.port}`);
      assert.deepEqual([...new Set(proxy.requests)], expected);
      const credentials = `Basic ${Buffer.from('ada:hunter2').toString('base64')}`;
      assert.deepEqual([...new Set(proxy.credentials)], [credentials]);
      assert.equal(backend.requests.length, 1);
      await poll(() => proxy.open === 0, 'the connections to the proxy are closed');
    });

    test('gets spans without TLS; NO_PROXY excepts hosts, and keys without TLS are fetched directly', async () => {
      await using proxy = await ConnectProxy.start();
      await using collector = await Collector.start();
      await using plain = await KeyServer.start(keySetOf(pair));
      const direct = { AUTH_JWKS_URL: `https://localhost:${keys.port}/keys`, NO_PROXY: 'localhost' };
      const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
      await using gateway = await startCommand(environment(proxy, { ...direct, ...traces }));
      assert.equal((await gateway.call('GET', path, { headers })).status, 200);
      await poll(() => collector.spans.length === 2, 'the spans arrive');
      const check = await runToEnd(['check'], environment(proxy, { AUTH_JWKS_URL: plain.url }));
      assert.equal(check.code, 0, check.stderr);
      assert.deepEqual(proxy.requests, [`POST ${collector.url}/v1/traces`]);
    });

    test("opens tunnels in which the issuer's certificate is verified, and check says why keys cannot be fetched", async () => {
      await using proxy = await ConnectProxy.start();
      const before = keys.count;
      for (const [cause, more] of [
        [/unable to verify the first certificate/, { NODE_TLS_REJECT_UNAUTHORIZED: '0', NODE_EXTRA_CA_CERTS: '' }],
        [/does not match certificate's altnames/, { AUTH_JWKS_URL: `https://other.test:${keys.port}/keys` }],
        [/connect ECONNREFUSED 127\.0\.0\.1:1/, { HTTPS_PROXY: 'http://127.0.0.1:1' }],
      ] as const) {
        const ended = await runToEnd(['check'], environment(proxy, more));
        assert.equal(ended.code, 1, ended.output);
        assert.match(ended.stderr, cause);
      }
      assert.deepEqual([keys.count, proxy.requests.length], [before, 2]);
    });

    test('can refuse, close, or be silent before or in a tunnel: the log has the cause, no connection stays open, and the gateway stops', async () => {
      const refusal = 'HTTP/1.1 407 Proxy Authentication Required';
      const rows: [cause: RegExp, answer: (socket: Socket) => void][] = [
        [
          /issuer\.test:\d+ via http:\/\/127\.0\.0\.1:\d+\/?: HTTP\/1\.1 407 Proxy Authentication Required/,
          (socket) => socket.end(`${refusal}\r\nContent-Length: 0\r\n\r\n`),
        ],
        [/proxy tunnel ended unexpectedly/, (socket) => socket.end()],
        [/no complete answer within 5000 ms/, () => undefined],
        [/no complete answer within 5000 ms/, (socket) => socket.write('HTTP/1.1 200 OK\r\n\r\n')],
      ];
      // All at the same time, because each silence lasts 5 s.
      const runs = rows.map(async ([cause, answer]) => {
        await using proxy = await ConnectProxy.start();
        proxy.answer = answer;
        await using gateway = await startCommand(environment(proxy));
        const line = await gateway.log(({ cause: text }) => cause.test(String(text)), `the cause ${String(cause)}`);
        assert.equal(line['level'], 'error');
        assertNoKeys(await gateway.call('GET', path, { headers }));
        assert.doesNotMatch(gateway.output, /hunter2/);
        await poll(() => proxy.open <= 1, 'only the connection of the current attempt is open');
        gateway.signal('SIGTERM');
        assert.equal(await gateway.exitCode(), 0);
      });
      await Promise.all(runs);
    });
  });

  test('is reported as unused without NODE_USE_ENV_PROXY, or with a Node that cannot use it, but only if TLS is used', async () => {
    await using proxy = await ConnectProxy.start();
    setDefaultCACertificates([authority.cert]);
    const advice =
      /^warning: HTTPS_PROXY has no effect: to fetch keys and export traces through this proxy, set NODE_USE_ENV_PROXY=1 in the environment$/m;
    const refusal =
      /^warning: HTTPS_PROXY has no effect: Node [\d.]+ cannot use a proxy\. Use Node 22\.21, 24\.5 or later, or AUTH_JWKS_FILE$/m;
    const direct = environment(proxy, { AUTH_JWKS_URL: `https://localhost:${keys.port}/keys` });
    for (const [given, warning] of [['', advice], ['true', advice], ...(canProxy ? [] : [['1', refusal] as const])] as const) {
      const { code, stdout, output } = await runHere(['check'], { ...direct, NODE_USE_ENV_PROXY: given });
      assert.equal(code, 0, output);
      assert.match(stdout, warning);
      assert.doesNotMatch(output, /hunter2/);
    } // prettier-ignore
    assert.deepEqual(proxy.requests, []);
    const open = await runHere(['check'], { BACKEND_URL: backend.url, HTTPS_PROXY: direct.HTTPS_PROXY });
    assert.doesNotMatch(open.stdout, /HTTPS_PROXY/);
  });
});
