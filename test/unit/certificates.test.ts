// The certificate store: ticket keys, and certificates after a reload [D37]; and the advice of `check` to renew one.
// test/process/tls-reload.test.ts tests new files.

import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CertificateStore } from '../../packages/command/certificates/certificate-store.ts';
import { readCertificateSet, type TlsInForce } from '../../packages/command/certificates/certificates.ts';
import { checkCertificates } from '../../packages/command/commands/check-certificates.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { useCertificates } from '../helpers/suites.ts';

const day = 86_400_000;
const none = { variable: 'NONE', path: '' };

const filesOf = (certFile: string, keyFile: string) => ({
  cert: { variable: 'TLS_CERT_FILE', path: certFile },
  key: { variable: 'TLS_KEY_FILE', path: keyFile },
  ca: none,
});

describe('the certificate store', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const first = folder.issue(authority, 'first');
  const second = folder.issue(authority, 'second');
  const options = { tlsMinVersion: '1.2', tlsReloadMs: 10_000, backendServerName: '' } as const;
  const backend = { cert: none, key: none, ca: none };
  const use = ({ certFile, keyFile } = first) => ({ clients: filesOf(certFile, keyFile), backend });
  const createStore = (files = use()) =>
    new CertificateStore(files, options, createLogger('silent', { write: () => undefined }));
  const accept = (tls: TlsInForce) => Promise.resolve(tls);
  /** Files of their own. The returned function writes the second certificate into them, with `more` after it. */
  const place = (name: string) => {
    const files = { certFile: folder.write(`${name}.pem`, first.cert), keyFile: folder.write(`${name}-key.pem`, first.key) };
    const change = (more = ''): void => {
      writeFileSync(files.keyFile, second.key);
      writeFileSync(files.certFile, second.cert + more);
    };
    return { files: use({ ...first, ...files }), change };
  }; // prettier-ignore

  test('the ticket keys are replaced after a day, and not before', async (t) => {
    const from = Date.now();
    t.mock.timers.enable({ apis: ['Date'], now: from });
    const store = createStore();
    const { ticketKeys } = store.inForce.clients ?? {};
    for (const ms of [86_400, day - 1, day]) {
      t.mock.timers.setTime(from + ms);
      await store.look();
      assert.equal(store.inForce.clients?.ticketKeys === ticketKeys, ms < day, `after ${ms} ms`);
    }
  });

  test('a reload with the same files keeps everything; with others, both change; if they are unusable, nothing changes', async () => {
    const store = createStore();
    const before = store.inForce;
    const fail = () => Promise.reject(new Error('not with these'));
    await assert.rejects(store.reload(use({ ...second, keyFile: first.keyFile }), options, fail), /TLS_KEY_FILE/);
    await assert.rejects(store.reload(use(second), options, fail), /not with these/);
    assert.equal(store.status()[0]?.own?.subject, 'CN=first');
    await store.look();
    assert.equal(await store.reload(use(), { ...options, tlsReloadMs: 1 }, accept), before);
    const after = await store.reload(use(second), options, accept);
    assert.equal(after.clients?.cert, second.cert);
    assert.notDeepEqual(after.clients.ticketKeys, before.clients?.ticketKeys);
    assert.equal(store.inForce, after);
  });

  test('a file is used when two reads in a row are equal, or after 20 further reads', async (t) => {
    for (const [changes, reads] of [
      [0, 1],
      [1, 2],
      [99, 20],
    ] as const) {
      const { files, change } = place(`written-${changes}`);
      const store = createStore(files);
      let pauses = 0;
      const mock = t.mock.method(globalThis, 'setTimeout', (goOn: () => void) => {
        pauses += 1;
        if (pauses <= changes) change('\n'.repeat(pauses));
        return setImmediate(goOn);
      });
      change();
      await store.look();
      mock.mock.restore();
      assert.deepEqual([pauses, store.status()[0]?.taken], [reads, 1]);
      assert.equal(store.inForce.clients?.cert, second.cert + '\n'.repeat(Math.min(changes, reads)));
    }
  });

  test('a check during a reload has no effect, and the next one finds the change', async () => {
    const { files, change } = place('reloaded');
    const store = createStore(files);
    const before = await store.reload(files, options, async (tls) => {
      change();
      await store.look();
      return tls;
    });
    assert.equal(store.inForce, before);
    await store.look();
    assert.equal(store.inForce.clients?.cert, second.cert);
    await store.reload(use(), options, accept);
    assert.equal(store.status()[0]?.taken, 1, 'the count goes on');
  });

  test('a reload changes the interval of the checks', async (t) => {
    const store = createStore();
    t.mock.timers.enable({ apis: ['setInterval'] });
    store.begin(() => undefined);
    await store.reload(use(), { ...options, tlsReloadMs: 1 }, accept);
    const { mock } = t.mock.method(store, 'look', () => Promise.resolve());
    t.mock.timers.tick(3);
    store.end();
    t.mock.timers.tick(3);
    assert.equal(mock.callCount(), 3);
  });
});

describe('check', () => {
  const fileOf = (name: string): string => fileURLToPath(new URL(`../vectors/tls/${name}`, import.meta.url));
  const files = filesOf(fileOf('backend-certificate.pem'), fileOf('backend-key.pem'));
  const text = readFileSync(files.cert.path);

  test('advises to renew a certificate in its last 14 days, as the alert CertificateExpiresSoon does', () => {
    const end = Date.parse(new X509Certificate(text).validTo);
    for (const [now, left, isRenewal, problems] of [
      [end - 14 * day, '14 days left', false, 0],
      [end - 14 * day + 1, '13 days left', true, 0],
      [end, '0 days left', true, 0],
      [end + 1, 'expired on 2126-10-28', false, 1],
    ] as const) {
      const check = checkCertificates('clients', files, now);
      assert.match(check.lines[1] ?? '', new RegExp(`${left}$`));
      assert.equal(check.lines.includes('  renew this certificate soon'), isRenewal);
      assert.equal(check.problems.length, problems, check.problems.join());
    }
  });

  test('if a date of a certificate is in month 13, the reported problem shows the name of its file', () => {
    for (const [tag, yearDigits] of [
      ['\x17\x0d', 2],
      ['\x18\x0f', 4],
    ] as const) {
      const der = new X509Certificate(text).raw;
      der.write('13', der.indexOf(tag, 0, 'latin1') + tag.length + yearDigits);
      const cert = `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`;
      const set = readCertificateSet(files, { cert, key: readFileSync(files.key.path, 'utf8'), ca: undefined });
      assert.ok(Array.isArray(set));
      assert.match(set.join(), /^TLS_CERT_FILE .*: certificate number 1 has a date that cannot be read$/);
    }
  });
});
