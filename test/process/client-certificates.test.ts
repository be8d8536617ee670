// A backend that requires a certificate of the gateway [D40]. test/transport/open-socket.test.ts tests the connections.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { CertificateFolder, noOpenssl, type Issued } from '../helpers/certificates.ts';
import { assertReply } from '../helpers/expected.ts';
import { runHere } from '../helpers/run-cli.ts';
import { startCommand } from '../helpers/targets.ts';

const item = '{"id":7}';
const failed = '{"error":"Failed to fetch work item"}';

describe('a backend that requires a client certificate', { skip: noOpenssl }, () => {
  let folder: CertificateFolder;
  let authority: Issued;
  let ours: Issued;
  let stranger: Issued;
  let server: Server;
  const subjects: (string | undefined)[] = [];
  const environment = () => ({
    BACKEND_URL: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    BACKEND_CA_FILE: authority.certFile,
    BACKEND_SERVER_NAME: 'items.internal',
  });

  before(async () => {
    folder = new CertificateFolder();
    authority = folder.authority('authority');
    ours = folder.issue(authority, 'gateway');
    stranger = folder.issue(folder.authority('others'), 'stranger');
    const { cert, key } = folder.issue(authority, 'backend', { names: ['DNS:items.internal'] });
    server = createServer(
      { cert, key, ca: authority.cert, requestCert: true, rejectUnauthorized: true },
      (_, outgoing) => outgoing.end(item),
    );
    server.on('secureConnection', (socket) => {
      subjects.push(socket.getPeerX509Certificate()?.subject);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
    folder[Symbol.dispose]();
  });

  test('the backend receives the certificate of BACKEND_CERT_FILE from every worker [D40]', async () => {
    for (const workers of ['1', '2']) {
      subjects.length = 0;
      await using gateway = await startCommand({
        ...environment(),
        BACKEND_CERT_FILE: ours.certFile,
        BACKEND_KEY_FILE: ours.keyFile,
        WORKERS: workers,
      });
      for (let round = 0; round < 4; round += 1) {
        assertReply(await gateway.call('GET', '/api/work-items/7'), 200, item);
      }
      assert.deepEqual([...new Set(subjects)], ['CN=gateway']);
      assert.equal((await gateway.admin('/readyz')).status, 200);
    }
  });

  for (const [what, certificate, cause] of [
    ['no certificate', () => ({}), /^TLS failed: .*certificate required, SSL alert number 116$/],
    [
      'a certificate of another authority',
      () => ({ BACKEND_CERT_FILE: stranger.certFile, BACKEND_KEY_FILE: stranger.keyFile }),
      // Node's server closes without an alert.
      /^the connection was closed before the answer was complete$/,
    ],
  ] as const) {
    test(`a backend that receives ${what}: unreachable, with the cause in the log, and check exits 1 [D40]`, async () => {
      subjects.length = 0;
      await using gateway = await startCommand({ ...environment(), ...certificate() });
      assertReply(await gateway.call('GET', '/api/work-items/7'), 500, failed);
      const line = await gateway.log(({ msg }) => msg === 'backend call failed', 'a line about the failure');
      assert.equal(line['outcome'], 'unreachable');
      assert.match(String(line['cause']), cause);
      const check = await runHere(['check'], { ...environment(), ...certificate() });
      assert.equal(check.code, 1, check.output);
      assert.deepEqual(subjects, []);
    });
  }

  test('the backend must have a certificate for BACKEND_SERVER_NAME or, if that is not set, for its address [D40]', async () => {
    for (const [name, cause] of [
      ['', /IP: 127\.0\.0\.1 is not in the cert's list/],
      ['other.internal', /other\.internal\. is not in the cert's altnames/],
    ] as const) {
      await using gateway = await startCommand({
        ...environment(),
        BACKEND_SERVER_NAME: name,
        BACKEND_CERT_FILE: ours.certFile,
        BACKEND_KEY_FILE: ours.keyFile,
      });
      assertReply(await gateway.call('GET', '/api/work-items/7'), 500, failed);
      const line = await gateway.log(({ msg }) => msg === 'backend call failed', 'a line about the failure');
      assert.match(String(line['cause']), cause);
    }
  });
});
