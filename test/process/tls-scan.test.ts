// The TLS of the built command, scanned by sslscan: versions, ciphers, renegotiation, compression. D36.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { noOpenssl } from '../helpers/certificates.ts';
import { anyCertificate } from '../helpers/http2-client.ts';
import { startCommand } from '../helpers/targets.ts';

const run = promisify(execFile);
const noScan = spawnSync('sslscan', ['--version']).error === undefined ? false : 'sslscan is not installed';

/** The attributes of each element with this name. */
function elements(xml: string, name: string): Record<string, string>[] {
  return [...xml.matchAll(new RegExp(`<${name} (.*?)/?>`, 'g'))].map(([, text = '']) =>
    Object.fromEntries(
      [...text.matchAll(/([a-z-]+)="([^"]*)"/g)].map(([, key = '', value = '']) => [key, value]),
    ),
  );
}

describe('TLS scanned by sslscan', { skip: noOpenssl === false ? noScan : noOpenssl }, () => {
  for (const [environment, versions] of [
    [{}, ['tls 1.2', 'tls 1.3']],
    [{ TLS_MIN_VERSION: '1.3' }, ['tls 1.3']],
  ] as const) {
    test(`${versions.join(' and ')}, strong ciphers, no renegotiation or compression [D36]`, async () => {
      const { certFile, keyFile } = anyCertificate();
      await using gateway = await startCommand({
        BACKEND_URL: 'http://127.0.0.1:1',
        TLS_CERT_FILE: certFile,
        TLS_KEY_FILE: keyFile,
        ...environment,
      });
      const args = ['--no-colour', '--xml=-', `127.0.0.1:${gateway.port}`];
      const { stdout } = await run('sslscan', args, { timeout: 60_000 });
      const enabled = elements(stdout, 'protocol').filter((each) => each['enabled'] === '1');
      assert.deepEqual(
        enabled.map(({ type, version }) => `${type} ${version}`),
        versions,
      );
      const ciphers = elements(stdout, 'cipher');
      assert.ok(ciphers.length >= 3, stdout);
      for (const { cipher = '', bits, strength = '' } of ciphers) {
        assert.match(cipher, /^(?:TLS_|ECDHE-)/, 'forward secrecy');
        assert.ok(Number(bits) >= 128, cipher);
        assert.match(strength, /^(?:strong|acceptable)$/, cipher);
      }
      for (const name of ['renegotiation', 'compression'])
        assert.ok(
          elements(stdout, name).every(({ supported }) => supported === '0'),
          name,
        );
      assert.equal(elements(stdout, 'renegotiation').length, 1, stdout);
      for (const each of elements(stdout, 'heartbleed')) assert.equal(each['vulnerable'], '0');
      assert.equal(gateway.stderr, '');
    });
  }
});
