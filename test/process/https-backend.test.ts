// A backend over TLS: unchanged bytes on a persistent connection, a certificate of the gateway, and servers that do not
// speak TLS [D40]. own-authority.test.ts has untrusted backends, test/transport/open-socket.test.ts the connections.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { createServer as createTcpServer, type AddressInfo, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startCommand } from '../helpers/command.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
import { runHere } from '../helpers/run-cli.ts';
import { useCertificates } from '../helpers/suites.ts';

const path = '/api/work-items/7';
const item = '{"id":7,"weight":1.0000000000000000001}';
const list = Buffer.from(JSON.stringify('ä'.repeat(2_000_000)));

describe('a backend that requires a client certificate', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const ours = folder.issue(authority, 'gateway');
  const stranger = folder.issue(folder.authority('others'), 'stranger');
  const own = folder.issue(authority, 'backend', { names: ['DNS:items.internal'] });
  const calls: string[] = [];
  const subjects: (string | undefined)[] = [];
  const tls = { ...own, ca: authority.cert, requestCert: true, rejectUnauthorized: true };
  const server = createServer(tls, (incoming, outgoing) => {
    void buffer(incoming).then((body) => {
      calls.push(`${incoming.method} ${incoming.url} ${body.toString()}`);
      if (incoming.method !== 'GET') {
        outgoing.writeHead(204).end();
        return;
      }
      outgoing.writeHead(200, { 'content-type': 'application/json' });
      if (incoming.url !== '/api/WorkItem') {
        outgoing.end(item);
        return;
      }
      // The list comes in many chunks, as ASP.NET sends it.
      for (let from = 0; from < list.length; from += 30_000) outgoing.write(list.subarray(from, from + 30_000));
      outgoing.end();
    });
  });
  server.on('secureConnection', (socket) => subjects.push(socket.getPeerX509Certificate()?.subject));
  before(() => once(server.listen(0, '127.0.0.1'), 'listening'));
  after(() => server.close().closeAllConnections());
  const environment = () => ({
    BACKEND_URL: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    BACKEND_CA_FILE: authority.certFile,
    BACKEND_SERVER_NAME: 'items.internal',
  });

  test('receives the certificate in BACKEND_CERT_FILE from every worker; bytes pass unchanged on one connection [D40]', async () => {
    const certificate = { BACKEND_CERT_FILE: ours.certFile, BACKEND_KEY_FILE: ours.keyFile };
    await using gateway = await startCommand({ ...environment(), ...certificate, WORKERS: '2' });
    for (let round = 0; round < 4; round += 1) assertReply(await gateway.call('GET', path), 200, item);
    await using client = await gateway.connect();
    assertReply(await client.call('GET', path), 200, item);
    const connections = subjects.length;
    for (let round = 0; round < 3; round += 1) {
      const reply = await client.call('GET', '/api/work-items');
      assert.ok(reply.status === 200 && reply.body.equals(list));
      assertReply(await client.call('PUT', path, { body: item }), 200, succeeded);
    }
    assert.deepEqual(calls.slice(-2), ['GET /api/WorkItem ', `PUT /api/WorkItem/7 ${item}`]);
    assert.equal(subjects.length, connections);
    assert.deepEqual([...new Set(subjects)], ['CN=gateway']);
    assert.equal((await gateway.admin('/readyz')).status, 200);
  });

  test('is unreachable without a certificate or with one of another authority, and check shows the cause [D40]', async () => {
    const before = calls.length;
    for (const [certificate, cause] of [
      [{}, /TLS failed: .*certificate required, SSL alert number 116$/m],
      // Node's server closes the connection without an alert.
      [
        { BACKEND_CERT_FILE: stranger.certFile, BACKEND_KEY_FILE: stranger.keyFile },
        /the connection was closed before the answer was complete$/m,
      ],
    ] as const) {
      const { code, stderr } = await runHere(['check'], { ...environment(), ...certificate });
      assert.equal(code, 1);
      assert.match(stderr, cause);
    }
    assert.equal(calls.length, before);
  });
});

test('if the server at an https BACKEND_URL does not speak TLS, the log, check and /readyz report the cause', async () => {
  let connections = 0;
  let onBytes: (socket: Socket) => void;
  await using server = createTcpServer((socket) => {
    connections += 1;
    socket.once('data', () => onBytes(socket)).on('error', () => undefined);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await using gateway = await startCommand({ BACKEND_URL: url });
  /** Replaces the alert's old name, from the OpenSSL of Node 22, with the newer name. */
  const withNewName = (cause: unknown) => String(cause).replace('sslv3 alert', 'ssl/tls alert');
  for (const [answer, cause] of [
    ['HTTP/1.1 400 Bad Request\r\n\r\n', 'the backend does not speak TLS: did you mean http:?'],
    ['', 'the backend closed the connection during the TLS handshake: did you mean http:?'],
    [Buffer.from([0x15, 3, 3, 0, 2, 2, 40]), 'TLS failed: ssl/tls alert handshake failure, SSL alert number 40'],
  ] as const) {
    onBytes = (socket) => socket.end(answer);
    assert.equal((await gateway.call('GET', path)).status, 500);
    await gateway.log((line) => line['status'] === 500 && withNewName(line['cause']) === cause, `a line with ${cause}`);
    // /readyz reports the result of a call for half a second, and probes the backend after that.
    const from = connections;
    await poll(async () => {
      const { backend } = JSON.parse((await gateway.admin('/readyz')).text) as {
        backend: { reachable: boolean; cause?: string };
      };
      return connections > from + 1 && !backend.reachable && withNewName(backend.cause) === cause;
    }, `/readyz reports after two probes: ${cause}`);
    const check = await runHere(['check'], { BACKEND_URL: url });
    assert.equal(check.code, 1);
    assert.ok(withNewName(check.stderr).includes(`: ${cause}\n`), check.stderr);
  }
});

test('names in a certificate are escaped by check', async () => {
  // The name in this certificate has an escape sequence, a line break and a character that reverses the text direction.
  const certificatePath = fileURLToPath(new URL('../vectors/tls/odd-name-certificate.pem', import.meta.url));
  const key = readFileSync(new URL('../vectors/tls/odd-name-key.pem', import.meta.url));
  await using server = createServer({ key, cert: readFileSync(certificatePath) }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const settings = { BACKEND_URL: `https://localhost:${port}`, BACKEND_CA_FILE: certificatePath };
  const { code, stderr } = await runHere(['check'], settings);
  assert.equal(code, 1);
  const shown = String.raw`evil\u001b[2J\u001b[31m\u000a[12:00:00.000] INFO: fake\u009b\u202e`;
  assert.ok(stderr.includes(shown), stderr);
  assert.doesNotMatch(stderr.replaceAll('\n', ''), /[\p{Cc}\u2028\u2029\p{Bidi_Control}]/u);
});
