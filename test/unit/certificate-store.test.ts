// The session ticket keys of the certificate store, and its certificates after a reload [D37].
// test/process/tls-reload.test.ts tests new files.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CertificateStore } from '../../packages/command/certificates/certificate-store.ts';
import type { TlsInForce } from '../../packages/command/certificates/certificates.ts';
import { createLogger } from '../../packages/command/log/log.ts';
import { noOpenssl, type Issued } from '../helpers/certificates.ts';
import { useCertificates } from '../helpers/suites.ts';

const day = 86_400_000;
const options = { tlsMinVersion: '1.2', tlsReloadMs: 10_000, backendServerName: '' } as const;

describe('the certificate store', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const first = folder.issue(authority, 'first');
  const second = folder.issue(authority, 'second');
  const filesOf = ({ certFile, keyFile }: Issued) => {
    const none = { variable: 'NONE', path: '' };
    const clients = {
      cert: { variable: 'TLS_CERT_FILE', path: certFile },
      key: { variable: 'TLS_KEY_FILE', path: keyFile },
      ca: none,
    };
    return { clients, backend: { cert: none, key: none, ca: none } };
  };
  const createStore = (issued: Issued) =>
    new CertificateStore(filesOf(issued), options, createLogger('silent', { write: () => undefined }));

  test('the ticket keys are replaced after a day, and not before', async (t) => {
    const from = Date.now();
    t.mock.timers.enable({ apis: ['Date'], now: from });
    const store = createStore(first);
    const { ticketKeys } = store.inForce.clients ?? {};
    for (const [ms, areSame] of [
      [86_400, true],
      [day - 1, true],
      [day, false],
    ] as const) {
      t.mock.timers.setTime(from + ms);
      await store.look();
      assert.equal(store.inForce.clients?.ticketKeys === ticketKeys, areSame, `after ${ms} ms`);
    }
  });

  test('with the same files, a reload keeps certificates and ticket keys; with others, both change', async () => {
    const store = createStore(first);
    const before = store.inForce;
    const use = (tls: TlsInForce) => Promise.resolve(tls);
    assert.equal(await store.reload(filesOf(first), { ...options, tlsReloadMs: 1 }, use), before);
    const after = await store.reload(filesOf(second), options, use);
    assert.equal(after.clients?.cert, second.cert);
    assert.notDeepEqual(after.clients.ticketKeys, before.clients?.ticketKeys);
    assert.equal(store.inForce, after);
  });

  test('if the certificates of a reload cannot be used, the certificates before stay in force', async () => {
    const store = createStore(first);
    const before = store.inForce;
    await assert.rejects(
      store.reload(filesOf({ ...second, keyFile: first.keyFile }), options, () => Promise.reject(new Error('used'))),
      /TLS_KEY_FILE/,
    );
    const fails = () => Promise.reject(new Error('not with these'));
    await assert.rejects(store.reload(filesOf(second), options, fails), /not with these/);
    assert.equal(store.inForce, before);
    assert.equal(store.status()[0]?.own?.subject, 'CN=first');
    await store.look();
    assert.equal(store.inForce, before);
  });
});
