// Keys and traces go through the proxy that Node itself uses: NODE_USE_ENV_PROXY, HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
// Calls to the backend do not [D44, D49].

import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { runToEnd, startCommand, versionsOfCommand } from '../helpers/command.ts';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, KeyServer } from '../helpers/issuer.ts';
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
  const certificate = folder.issue(authority, 'server', {
    names: ['DNS:issuer.test', 'DNS:collector.test', 'DNS:localhost'],
  });
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
  const environment = (more: Record<string, string>) => ({
    BACKEND_URL: backend.url,
    AUTH_ISSUER: issuerName,
    AUTH_AUDIENCE: audience,
    AUTH_JWKS_URL: `https://issuer.test:${keys.port}/keys`,
    ...more,
  });
  const credentials = `Basic ${Buffer.from('ada:hunter2').toString('base64')}`;

  describe('that Node uses', { skip: !canProxy && `Node ${versionsOfCommand.node} cannot use a proxy` }, () => {
    for (const workers of ['1', '2']) {
      test(`keys are fetched through it, and calls to the backend are not sent to it, with ${workers} processes`, async () => {
        await using proxy = await ConnectProxy.start();
        await using gateway = await startCommand(environment({ ...proxied(proxy), WORKERS: workers }));
        assert.equal((await gateway.call('GET', path, { headers })).status, 200);
        assert.deepEqual([...new Set(proxy.requests)], [`CONNECT issuer.test:${keys.port}`]);
        assert.deepEqual([...new Set(proxy.credentials)], [credentials]);
        assert.equal(backend.requests.length, 1);
        await poll(() => proxy.open === 0, 'the connections to the proxy are closed');
        assert.doesNotMatch(gateway.output, /hunter2|no effect/);
      });
    }

    test('calls to a backend with TLS, and requests of the command health, are not sent to it', async () => {
      await using proxy = await ConnectProxy.start();
      await using server = await KeyServer.start('{"id":5}', 0, certificate);
      const { origin } = new URL(server.url);
      await using gateway = await startCommand({ ...proxied(proxy), BACKEND_URL: origin });
      assert.equal((await gateway.call('GET', path)).status, 200);
      const health = await runToEnd(['health'], { ...proxied(proxy), ADMIN_PORT: String(gateway.adminPort) });
      assert.equal(health.code, 0, health.stderr);
      assert.deepEqual(proxy.requests, []);
    });

    test('traces are exported through it, over TLS or not', async () => {
      await using proxy = await ConnectProxy.start();
      const before = keys.count;
      const open = { ...proxied(proxy), BACKEND_URL: backend.url };
      {
        await using gateway = await startCommand({
          ...open,
          OTEL_EXPORTER_OTLP_ENDPOINT: `https://collector.test:${keys.port}`,
        });
        assert.equal((await gateway.call('GET', path)).status, 200);
        await poll(() => keys.count > before, 'the spans arrive');
        assert.deepEqual(proxy.requests, [`CONNECT collector.test:${keys.port}`]);
      }
      await using collector = await Collector.start();
      await using gateway = await startCommand({ ...open, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
      assert.equal((await gateway.call('GET', path)).status, 200);
      await poll(() => collector.spans.length === 2, 'the spans arrive');
      assert.deepEqual(proxy.requests.slice(1), [`POST ${collector.url}/v1/traces`]);
    });

    test('NO_PROXY excepts hosts; keys without TLS are fetched directly', async () => {
      await using proxy = await ConnectProxy.start();
      await using plain = await KeyServer.start(keySetOf(pair));
      for (const [url, noProxy] of [
        [`https://localhost:${keys.port}/keys`, 'localhost'],
        [plain.url, ''],
      ] as const) {
        const more = { ...proxied(proxy), AUTH_JWKS_URL: url, NO_PROXY: noProxy };
        await using gateway = await startCommand(environment(more));
        assert.equal((await gateway.call('GET', path, { headers })).status, 200, url);
      }
      assert.deepEqual(proxy.requests, []);
    });

    test("the issuer's certificate is verified, even with NODE_TLS_REJECT_UNAUTHORIZED=0, and check says why keys cannot be fetched", async () => {
      await using proxy = await ConnectProxy.start();
      const before = keys.count;
      const other = `https://other.test:${keys.port}/keys`;
      for (const [code, said, more] of [
        [0, /has 1 usable key\n/, {}],
        [1, /unable to verify the first certificate/, { NODE_TLS_REJECT_UNAUTHORIZED: '0', NODE_EXTRA_CA_CERTS: '' }],
        [1, /does not match certificate's altnames/, { AUTH_JWKS_URL: other }],
        [1, /connect ECONNREFUSED 127\.0\.0\.1:1/, { HTTPS_PROXY: 'http://127.0.0.1:1' }],
      ] as const) {
        const ended = await runToEnd(['check'], environment({ ...proxied(proxy), ...more }));
        assert.equal(ended.code, code, ended.stderr);
        assert.match(ended.stdout + ended.stderr, said);
      }
      assert.equal(keys.count, before + 1, 'the issuer gets one request');
      assert.equal(proxy.requests.length, 3);
    });

    const answers: [title: string, answer: (socket: Socket) => void, cause: RegExp][] = [
      [
        'refuses',
        (socket) => socket.end('HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n'),
        /issuer\.test:\d+ via http:\/\/127\.0\.0\.1:\d+\/?: HTTP\/1\.1 407 Proxy Authentication Required/,
      ],
      ['closes the connection', (socket) => socket.end(), /proxy tunnel ended unexpectedly/],
      ['does not answer', () => undefined, /no complete answer within 5000 ms/],
      [
        'opens a tunnel to a server that does not answer',
        (socket) => socket.write('HTTP/1.1 200 OK\r\n\r\n'),
        /no complete answer within 5000 ms/,
      ],
    ];
    for (const [title, answer, cause] of answers) {
      test(`if it ${title}, the log has the cause, no connection stays open, and the gateway still stops`, async () => {
        await using proxy = await ConnectProxy.start();
        proxy.answer = answer;
        await using gateway = await startCommand(environment(proxied(proxy)));
        const line = await gateway.log(({ cause: text }) => cause.test(String(text)), 'the cause');
        assert.equal(line['level'], 'error');
        assertNoKeys(await gateway.call('GET', path, { headers }));
        assert.doesNotMatch(gateway.output, /hunter2/);
        await poll(() => proxy.open <= 1, 'only the connection of the current attempt is open');
        gateway.signal('SIGTERM');
        assert.equal((await gateway.exited).code, 0);
      });
    }
  });

  test('without NODE_USE_ENV_PROXY, or with a Node that cannot use a proxy, a warning says so', async () => {
    await using proxy = await ConnectProxy.start();
    const advice =
      /^warning: HTTPS_PROXY has no effect: to fetch keys and export traces through this proxy, set NODE_USE_ENV_PROXY=1 in the environment$/m;
    const refusal =
      /^warning: HTTPS_PROXY has no effect: Node [\d.]+ cannot use a proxy\. Use Node 22\.21, 24\.5 or later, or AUTH_JWKS_FILE$/m;
    const direct = { ...proxied(proxy), AUTH_JWKS_URL: `https://localhost:${keys.port}/keys` };
    for (const [given, warning] of [
      ['', advice],
      ['true', advice],
      ...(canProxy ? [] : [['1', refusal] as const]),
    ] as const) {
      const { code, stdout, stderr } = await runToEnd(['check'], environment({ ...direct, NODE_USE_ENV_PROXY: given }));
      assert.equal(code, 0, stderr);
      assert.match(stdout, warning);
      assert.doesNotMatch(stdout + stderr, /hunter2/);
    }
    assert.deepEqual(proxy.requests, []);
    // Without keys and traces over TLS, the variable has no meaning for the gateway.
    const open = await runToEnd(['check'], { BACKEND_URL: backend.url, HTTPS_PROXY: direct.HTTPS_PROXY });
    assert.doesNotMatch(open.stdout, /HTTPS_PROXY/);
  });
});
