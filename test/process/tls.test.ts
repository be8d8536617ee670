// Clients over TLS: workers, settings, client certificates, `check` and a scan by sslscan. D36, D38.
// test/transport/tls.test.ts tests the connections.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { logged, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const item = '{"id":7,"weight":1.0000000000000000001}';
const noScan = spawnSync('sslscan', ['--version']).error === undefined ? false : 'sslscan is not installed';

/** The attributes of each element with this name. */
function elements(xml: string, name: string): Record<string, string>[] {
  return [...xml.matchAll(new RegExp(`<${name} (.*?)/?>`, 'g'))].map(([, text = '']) =>
    Object.fromEntries([...text.matchAll(/([a-z-]+)="([^"]*)"/g)].map(([, key = '', value = '']) => [key, value])),
  );
}

const backend = await useBackend(item);

describe('clients over TLS', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const server = folder.issue(authority, 'server');
  const trust = () => ({ ca: authority.cert, servername: 'localhost' });
  const environment = () => ({
    BACKEND_URL: backend.url,
    TLS_CERT_FILE: server.certFile,
    TLS_KEY_FILE: server.keyFile,
  });

  test('replies are the same as over plain HTTP, any worker can resume a session, and a request without TLS gets no reply [D36]', async () => {
    await using gateway = await startCommand({ ...environment(), WORKERS: '2', HOST: 'localhost' });
    const ready = await logged(gateway, 'ready');
    assert.equal(ready['url'], `https://localhost:${gateway.port}`);
    let session: Buffer | undefined;
    for (const host of ['127.0.0.1', '::1']) {
      await using client = await RawClient.openSecure(gateway.port, { ...trust(), host });
      client.secureSocket.on('session', (next: Buffer) => (session = next));
      for (let round = 0; round < 3; round += 1) {
        assertReply(await client.call('GET', '/api/work-items/7'), 200, item);
      }
    }
    await poll(() => session !== undefined, 'the client receives a session');
    for (let round = 0; round < 4; round += 1) {
      await using next = await RawClient.openSecure(gateway.port, { ...trust(), session });
      assert.equal(next.secureSocket.isSessionReused(), true);
      assertReply(await next.call('GET', '/api/work-items/7'), 200, item);
    }
    await using plain = await gateway.connect();
    plain.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await plain.closed();
    assert.equal(plain.bytesReceived, 0);
  });

  test('the log line of a failed handshake on :: has the IPv4 address of an IPv4 client [D52]', async () => {
    await using gateway = await startCommand({ ...environment(), HOST: '::', LOG_LEVEL: 'debug' });
    await using plain = await gateway.connect();
    plain.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    const line = await logged(gateway, 'TLS handshake with a client failed');
    assert.equal(line['client'], '127.0.0.1');
  });

  for (const [settings, versions] of [
    [{}, ['tls 1.2', 'tls 1.3']],
    [{ TLS_MIN_VERSION: '1.3' }, ['tls 1.3']],
  ] as const) {
    test(
      `sslscan finds ${versions.join(' and ')}, strong ciphers, and no renegotiation or compression [D36]`,
      { skip: noScan },
      async () => {
        await using gateway = await startCommand({ ...environment(), ...settings });
        const args = ['--no-colour', '--xml=-', `127.0.0.1:${gateway.port}`];
        const { stdout } = await promisify(execFile)('sslscan', args, { timeout: 60_000 });
        const enabled = elements(stdout, 'protocol').filter((each) => each['enabled'] === '1');
        const found = enabled.map(({ type, version }) => `${type} ${version}`);
        assert.deepEqual(found, versions);
        const ciphers = elements(stdout, 'cipher');
        assert.ok(ciphers.length >= 3, stdout);
        for (const { cipher = '', bits, strength = '' } of ciphers) {
          assert.match(cipher, /^(?:TLS_|ECDHE-)/, 'forward secrecy');
          assert.ok(Number(bits) >= 128, cipher);
          assert.match(strength, /^(?:strong|acceptable)$/, cipher);
        }
        for (const name of ['renegotiation', 'compression']) {
          for (const { supported } of elements(stdout, name)) assert.equal(supported, '0', name);
        }
        assert.equal(elements(stdout, 'renegotiation').length, 1, stdout);
        for (const each of elements(stdout, 'heartbleed')) assert.equal(each['vulnerable'], '0');
        assert.equal(gateway.stderr, '');
      },
    );
  }

  /** The problems that `serve` prints at the start, without the line "Nothing was started". */
  async function problemsOf(settings: NodeJS.ProcessEnv): Promise<string> {
    const { code, stderr } = await runHere(['serve'], settings);
    assert.equal(code, 1);
    return stderr.replace(/Nothing was started.*\n/, '');
  }

  test('incomplete TLS settings and unreadable files are problems at the start, reported together [D41]', async () => {
    const none = folder.file('none.pem');
    assert.equal(
      await problemsOf({
        TLS_CERT_FILE: none,
        BACKEND_URL: 'http://localhost:1',
        BACKEND_CA_FILE: authority.certFile,
        BACKEND_SERVER_NAME: '127.0.0.1',
      }),
      `error: BACKEND_SERVER_NAME is "127.0.0.1", but must be a host name, without http:// or port
error: TLS_CERT_FILE and TLS_KEY_FILE belong together: TLS_KEY_FILE is missing
error: BACKEND_CA_FILE needs an https address in BACKEND_URL
error: BACKEND_SERVER_NAME needs an https address in BACKEND_URL
error: TLS_CERT_FILE ("${none}") cannot be read (ENOENT)
`,
    );
    assert.equal(
      await problemsOf({
        TLS_CLIENT_CA_FILE: authority.certFile,
        TLS_MIN_VERSION: '1.2',
        TLS_RELOAD_MS: '5',
        HTTP2: 'true',
      }),
      `error: TLS_CLIENT_CA_FILE needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients use plain http
error: TLS_MIN_VERSION needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients use plain http
error: HTTP2 needs TLS_CERT_FILE and TLS_KEY_FILE: without them clients use plain http
`,
    );
  });

  test('unusable files are problems at the start, reported together', async () => {
    const other = folder.issue(authority, 'other');
    const none = folder.file('none.pem');
    const empty = folder.write('empty.pem', 'nothing\n');
    assert.equal(
      await problemsOf({
        TLS_CERT_FILE: server.certFile,
        TLS_KEY_FILE: other.keyFile,
        TLS_CLIENT_CA_FILE: none,
        BACKEND_URL: 'https://localhost:1',
        BACKEND_CA_FILE: empty,
      }),
      `error: TLS_CLIENT_CA_FILE ("${none}") cannot be read (ENOENT)
error: TLS_KEY_FILE ("${other.keyFile}") has a key that does not match the certificate in TLS_CERT_FILE ("${server.certFile}")
error: BACKEND_CA_FILE ("${empty}") has no certificate in PEM format
`,
    );
  });

  test('check shows the certificates, the days until they expire, and their problems', async () => {
    const plain = folder.issue(authority, 'plain', { names: ['DNS:items.example.com', 'IP:10.0.0.1'], days: 2 });
    const full = folder.write('full-chain.pem', plain.cert + authority.cert);
    const good = await runHere(['check'], {
      TLS_CERT_FILE: full,
      TLS_KEY_FILE: plain.keyFile,
      TLS_CLIENT_CA_FILE: authority.certFile,
      BACKEND_URL: backend.url,
    });
    assert.equal(good.code, 0, good.output);
    assert.ok(
      good.stdout.replace(/\d{4}-\d\d-\d\d/g, 'DATE').includes(
        `TLS for clients: key and certificate match
  CN=plain for DNS:items.example.com, IP Address:10.0.0.1: valid until DATE, 1 day left
  issued by CN=authority
  chain: CN=authority: valid until DATE, 29 days left
  renew this certificate soon
  clients need a certificate issued by CN=authority (valid until DATE, 29 days left)
`,
      ),
      good.output,
    );
    const expired = folder.issue(authority, 'expired-server', { days: -1 });
    const chain = folder.write('wrong-chain.pem', expired.cert + plain.cert);
    const bad = await runHere(['check'], {
      TLS_CERT_FILE: chain,
      TLS_KEY_FILE: expired.keyFile,
      BACKEND_URL: backend.url,
    });
    assert.equal(bad.code, 1);
    assert.match(bad.stderr, /^error: the certificate in TLS_CERT_FILE .* expired on \d{4}-\d\d-\d\d$/m);
    assert.match(bad.stderr, /^error: the certificates in TLS_CERT_FILE are not a chain/m);
  });
});
