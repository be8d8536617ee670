// Clients over TLS: workers, settings, client certificates, `check` and a scan by sslscan. D36, D38.
// test/transport/tls.test.ts tests the connections.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { noOpenssl } from '../helpers/certificates.ts';
import { type Command, logged, startCommand } from '../helpers/command.ts';
import { assertReply } from '../helpers/expected.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { useBackend, useCertificates } from '../helpers/suites.ts';

const path = '/api/work-items/7';
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
  const trust = { ca: authority.cert, servername: 'localhost' };
  const environment = { BACKEND_URL: backend.url, TLS_CERT_FILE: server.certFile, TLS_KEY_FILE: server.keyFile };
  const strict = { ...environment, HOST: '::', LOG_LEVEL: 'debug', TLS_MIN_VERSION: '1.3' };
  const gateways: Command[] = [];
  const gateway = (index: number) => gateways[index] ?? assert.fail('not started');
  before(async () => {
    gateways.push(await startCommand({ ...environment, WORKERS: '2', HOST: 'localhost' }));
    gateways.push(await startCommand(strict));
  });
  after(async () => {
    for (const each of gateways) await each[Symbol.asyncDispose]();
  });

  test('replies are the same as over plain HTTP, and any worker can resume a session [D36]', async () => {
    const { port } = gateway(0);
    assert.equal((await logged(gateway(0), 'ready'))['url'], `https://localhost:${port}`);
    let session: Buffer | undefined;
    for (const host of ['127.0.0.1', '::1']) {
      await using client = await RawClient.openSecure(port, { ...trust, host });
      const given = once(client.secureSocket, 'session');
      for (let round = 0; round < 3; round += 1) assertReply(await client.call('GET', path), 200, item);
      [session] = (await given) as [Buffer];
    }
    for (let round = 0; round < 4; round += 1) {
      await using next = await RawClient.openSecure(port, { ...trust, session });
      assert.equal(next.secureSocket.isSessionReused(), true);
      assertReply(await next.call('GET', path), 200, item);
    }
  });

  test('a request without TLS gets no reply, and the line of a failed handshake on :: has an IPv4 address [D36, D52]', async () => {
    await using plain = await gateway(1).connect();
    plain.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await plain.closed();
    assert.equal(plain.bytesReceived, 0);
    assert.equal((await logged(gateway(1), 'TLS handshake with a client failed'))['client'], '127.0.0.1');
  });

  for (const [index, versions] of [['tls 1.2', 'tls 1.3'], ['tls 1.3']].entries()) {
    const title = `sslscan finds ${versions.join(' and ')}, strong ciphers, and no renegotiation or compression [D36]`;
    test(title, { skip: noScan }, async () => {
      const args = ['--no-colour', '--xml=-', `127.0.0.1:${gateway(index).port}`];
      const { stdout } = await promisify(execFile)('sslscan', args, { timeout: 60_000 });
      const enabled = elements(stdout, 'protocol').filter((each) => each['enabled'] === '1');
      assert.deepEqual(enabled.map(({ type, version }) => `${type} ${version}`), versions); // prettier-ignore
      const ciphers = elements(stdout, 'cipher');
      assert.ok(ciphers.length >= 3, stdout);
      for (const { cipher = '', bits, strength = '' } of ciphers) {
        assert.match(cipher, /^(?:TLS_|ECDHE-)/, 'forward secrecy');
        assert.ok(Number(bits) >= 128, cipher);
        assert.match(strength, /^(?:strong|acceptable)$/, cipher);
      }
      for (const { supported } of elements(stdout, 'compression')) assert.equal(supported, '0');
      assert.deepEqual(elements(stdout, 'renegotiation').map(({ supported }) => supported), ['0']); // prettier-ignore
      for (const each of elements(stdout, 'heartbleed')) assert.equal(each['vulnerable'], '0');
    });
  }

  test('incomplete TLS settings and unusable files are problems at the start, reported together [D41]', async () => {
    const other = folder.issue(authority, 'other');
    const none = folder.file('none.pem');
    const empty = folder.write('empty.pem', 'nothing\n');
    const plain = 'without them clients use plain http';
    for (const [settings, ...problems] of [
      [
        { TLS_CERT_FILE: none, BACKEND_URL: 'http://localhost:1', BACKEND_CA_FILE: authority.certFile, BACKEND_SERVER_NAME: '127.0.0.1' },
        'BACKEND_SERVER_NAME is "127.0.0.1", but must be a host name, without http:// or port',
        'TLS_CERT_FILE and TLS_KEY_FILE belong together: TLS_KEY_FILE is missing',
        'BACKEND_CA_FILE needs an https address in BACKEND_URL',
        'BACKEND_SERVER_NAME needs an https address in BACKEND_URL',
        `TLS_CERT_FILE ("${none}") cannot be read (ENOENT)`,
      ],
      [
        { TLS_CLIENT_CA_FILE: authority.certFile, TLS_MIN_VERSION: '1.2', TLS_RELOAD_MS: '5', HTTP2: 'true' },
        ...['TLS_CLIENT_CA_FILE', 'TLS_MIN_VERSION', 'HTTP2'].map((name) => `${name} needs TLS_CERT_FILE and TLS_KEY_FILE: ${plain}`),
      ],
      [
        { TLS_CERT_FILE: server.certFile, TLS_KEY_FILE: other.keyFile, TLS_CLIENT_CA_FILE: none, BACKEND_URL: 'https://localhost:1', BACKEND_CA_FILE: empty },
        `TLS_CLIENT_CA_FILE ("${none}") cannot be read (ENOENT)`,
        `TLS_KEY_FILE ("${other.keyFile}") has a key that does not match the certificate in TLS_CERT_FILE ("${server.certFile}")`,
        `BACKEND_CA_FILE ("${empty}") has no certificate in PEM format`,
      ],
    ] as [NodeJS.ProcessEnv, ...string[]][]) {
      const { code, stderr } = await runHere(['serve'], settings);
      assert.equal(code, 1);
      const lines = problems.map((problem) => `error: ${problem}\n`);
      assert.equal(stderr.replace(/Nothing was started.*\n/, ''), lines.join(''));
    }
  }); // prettier-ignore

  test('check shows the certificates, the days until they expire, and their problems', async () => {
    const plain = folder.issue(authority, 'plain', { names: ['DNS:items.example.com', 'IP:10.0.0.1'], days: 2 });
    const expired = folder.issue(authority, 'expired-server', { days: -1 });
    const check = (chain: string, keyFile: string) =>
      runHere(['check'], {
        BACKEND_URL: backend.url,
        TLS_CERT_FILE: folder.write('chain.pem', chain),
        TLS_KEY_FILE: keyFile,
        TLS_CLIENT_CA_FILE: authority.certFile,
      });
    const good = await check(plain.cert + authority.cert, plain.keyFile);
    assert.equal(good.code, 0, good.output);
    const expected = `TLS for clients: key and certificate match
  CN=plain for DNS:items.example.com, IP Address:10.0.0.1: valid until DATE, 1 day left
  issued by CN=authority
  chain: CN=authority: valid until DATE, 29 days left
  renew this certificate soon
  clients need a certificate issued by CN=authority (valid until DATE, 29 days left)
`;
    assert.ok(good.stdout.replace(/\d{4}-\d\d-\d\d/g, 'DATE').includes(expected), good.output);
    const bad = await check(expired.cert + plain.cert, expired.keyFile);
    assert.equal(bad.code, 1);
    assert.match(bad.stderr, /^error: the certificate in TLS_CERT_FILE .* expired on \d{4}-\d\d-\d\d$/m);
    assert.match(bad.stderr, /^error: the certificates in TLS_CERT_FILE are not a chain/m);
  });
});
