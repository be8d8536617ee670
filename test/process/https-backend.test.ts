// A backend over TLS: unchanged bytes on persistent connections, no call to an untrusted backend, and a backend that requires
// a certificate of the gateway [D40]. test/transport/open-socket.test.ts tests the connections.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type ServerOptions } from 'node:https';
import { createServer as createTcpServer, type AddressInfo, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { logged, runToEnd, startCommand } from '../helpers/command.ts';
import { assertReply, succeeded } from '../helpers/expected.ts';
import { RawClient, request } from '../helpers/raw-client.ts';
import { runHere } from '../helpers/run-cli.ts';
import { startUnseen } from './unseen.ts';
import { useCertificates } from '../helpers/suites.ts';

// Self-signed for localhost and 127.0.0.1, valid until 2126.
const certificatePath = fileURLToPath(new URL('../vectors/tls/backend-certificate.pem', import.meta.url));
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url));

const item = '{"id":7,"weight":1.0000000000000000001}';
const failed = '{"error":"Failed to fetch work item"}';
const list = Buffer.from(JSON.stringify('ä'.repeat(2_000_000)));

// The name in this certificate has an escape sequence, a line break and a character that reverses the text direction.
const oddCertificatePath = fileURLToPath(new URL('../vectors/tls/odd-name-certificate.pem', import.meta.url));
const oddKey = readFileSync(new URL('../vectors/tls/odd-name-key.pem', import.meta.url));

async function startBackend(tls: ServerOptions = { key, cert: readFileSync(certificatePath) }) {
  const calls: string[] = [];
  const sockets = new Set<unknown>();
  const subjects: (string | undefined)[] = [];
  const server = createServer(tls, (incoming, outgoing) => {
    sockets.add(incoming.socket);
    const pieces: Buffer[] = [];
    incoming.on('data', (piece: Buffer) => pieces.push(piece));
    incoming.on('end', () => {
      calls.push(`${incoming.method ?? ''} ${incoming.url ?? ''} ${Buffer.concat(pieces).toString()}`);
      if (incoming.method !== 'GET') {
        outgoing.writeHead(204).end();
        return;
      }
      // Sends the list in many chunks, as ASP.NET does, and the item in one chunk.
      outgoing.writeHead(200, { 'content-type': 'application/json' });
      if (incoming.url === '/api/WorkItem') {
        for (let from = 0; from < list.length; from += 30_000) outgoing.write(list.subarray(from, from + 30_000));
        outgoing.end();
      } else {
        outgoing.end(item);
      }
    });
  });
  server.on('secureConnection', (socket) => subjects.push(socket.getPeerX509Certificate()?.subject));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    calls,
    subjects,
    sockets,
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

test('the bytes of a backend over TLS pass unchanged, on one persistent connection', async () => {
  await using backend = await startBackend();
  await using gateway = await startCommand({ BACKEND_URL: backend.url, NODE_EXTRA_CA_CERTS: certificatePath });
  await using client = await RawClient.open(gateway.port);
  for (let round = 0; round < 3; round += 1) {
    assertReply(await client.call('GET', '/api/work-items/7'), 200, item);
    const reply = await client.call('GET', '/api/work-items');
    assert.equal(reply.status, 200);
    assert.ok(reply.body.equals(list));
    const put = await client.call('PUT', '/api/work-items/7', { body: item });
    assertReply(put, 200, succeeded);
  }
  assert.deepEqual(backend.calls.slice(-3), [
    'GET /api/WorkItem/7 ',
    'GET /api/WorkItem ',
    `PUT /api/WorkItem/7 ${item}`,
  ]);
  assert.equal(backend.sockets.size, 1);
});

test('a backend whose certificate is not trusted receives no call', async () => {
  await using backend = await startBackend();
  await using gateway = await startCommand({ BACKEND_URL: backend.url });
  const reply = await request(gateway.port, 'GET', '/api/work-items/7');
  assertReply(reply, 500, failed);
  assert.deepEqual(backend.calls, []);
  const line = await logged(gateway, 'backend call failed');
  const advice = 'set BACKEND_CA_FILE to a file with the certificate authorities to trust';
  assert.equal(line['cause'], `self-signed certificate: ${advice}`);
});

/** Replaces the alert's old name, from the OpenSSL of Node 22, with the newer name. */
const withNewName = (cause: unknown) => String(cause).replace('sslv3 alert', 'ssl/tls alert');

for (const [what, onBytes, cause] of [
  [
    'answers in plain HTTP',
    (socket: Socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
    'the backend does not speak TLS: did you mean http:?',
  ],
  [
    'closes the connection',
    (socket: Socket) => socket.end(),
    'the backend closed the connection during the TLS handshake: did you mean http:?',
  ],
  [
    'answers with a TLS alert',
    (socket: Socket) => socket.end(Buffer.from([0x15, 3, 3, 0, 2, 2, 40])),
    'TLS failed: ssl/tls alert handshake failure, SSL alert number 40',
  ],
] as const) {
  test(`if the server at an https BACKEND_URL ${what}, the log, check and /readyz report the cause`, async () => {
    let connections = 0;
    const server = createTcpServer((socket) => {
      connections += 1;
      socket.once('data', () => onBytes(socket)).on('error', () => undefined);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    try {
      await using gateway = await startCommand({ BACKEND_URL: url });
      assert.equal((await request(gateway.port, 'GET', '/api/work-items/7')).status, 500);
      // /readyz reports the result of a call for half a second, and probes the backend after that.
      const from = performance.now();
      let looks = 0;
      await poll(async () => {
        const { backend } = JSON.parse((await gateway.admin('/readyz')).text) as {
          backend: { reachable: boolean; cause?: string };
        };
        assert.deepEqual([backend.reachable, withNewName(backend.cause)], [false, cause]);
        looks = connections - 1;
        return looks >= 2 && performance.now() - from > 1_000;
      }, 'the backend was probed twice');
      const line = await logged(gateway, 'backend call failed');
      assert.equal(withNewName(line['cause']), cause);
      const check = await runHere(['check'], { BACKEND_URL: url });
      assert.equal(check.code, 1);
      assert.ok(check.stderr.includes(`: no answer: ${cause}\n`), check.stderr);
    } finally {
      server.close();
    }
  });
}

test('names in a certificate are escaped in JSON and pretty logs, and by check', async () => {
  await using backend = await startBackend({ key: oddKey, cert: readFileSync(oddCertificatePath) });
  const environment = { BACKEND_URL: backend.url, NODE_EXTRA_CA_CERTS: oddCertificatePath };
  const shown = String.raw`evil\u001b[2J\u001b[31m\u000a[12:00:00.000] INFO: fake\u009b\u202e`;
  const control = /[\p{Cc}\u2028\u2029\p{Bidi_Control}]/u;

  await using gateway = await startCommand(environment);
  assert.equal((await request(gateway.port, 'GET', '/api/work-items/7')).status, 500);
  const line = await logged(gateway, 'backend call failed');
  assert.ok(String(line['cause']).includes('evil\u001b[2J\u001b[31m\n[12:00:00.000] INFO: fake\u009b\u202e'));
  assert.doesNotMatch(gateway.stdout.replaceAll('\n', ''), control);

  await using pretty = await startUnseen({ ...environment, LOG_FORMAT: 'pretty' });
  assert.equal((await request(pretty.port, 'GET', '/api/work-items/7')).status, 500);
  await poll(() => pretty.stdout.includes('unreachable'), 'a line about the failure');
  assert.ok(pretty.stdout.includes(shown), pretty.stdout);
  assert.doesNotMatch(pretty.stdout.replaceAll('\n', ''), control);

  const check = await runToEnd(['check'], environment);
  assert.equal(check.code, 1);
  assert.ok(check.stderr.includes(shown), check.stderr);
});

describe('a backend that requires a client certificate', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const ours = folder.issue(authority, 'gateway');
  const stranger = folder.issue(folder.authority('others'), 'stranger');
  let backend: Awaited<ReturnType<typeof startBackend>>;
  const environment = () => ({
    BACKEND_URL: backend.url.replace('localhost', '127.0.0.1'),
    BACKEND_CA_FILE: authority.certFile,
    BACKEND_SERVER_NAME: 'items.internal',
  });

  before(async () => {
    const own = folder.issue(authority, 'backend', { names: ['DNS:items.internal'] });
    const ca = authority.cert;
    backend = await startBackend({ cert: own.cert, key: own.key, ca, requestCert: true, rejectUnauthorized: true });
  });
  after(() => backend[Symbol.asyncDispose]());

  test('the backend receives the certificate in BACKEND_CERT_FILE from every worker [D40]', async () => {
    for (const workers of ['1', '2']) {
      backend.subjects.length = 0;
      await using gateway = await startCommand({
        ...environment(),
        BACKEND_CERT_FILE: ours.certFile,
        BACKEND_KEY_FILE: ours.keyFile,
        WORKERS: workers,
      });
      for (let round = 0; round < 4; round += 1) {
        assertReply(await gateway.call('GET', '/api/work-items/7'), 200, item);
      }
      assert.deepEqual([...new Set(backend.subjects)], ['CN=gateway']);
      assert.equal((await gateway.admin('/readyz')).status, 200);
    }
  });

  for (const [what, certificate, cause] of [
    ['no certificate', () => ({}), /^TLS failed: .*certificate required, SSL alert number 116$/],
    [
      'a certificate of another authority',
      () => ({ BACKEND_CERT_FILE: stranger.certFile, BACKEND_KEY_FILE: stranger.keyFile }),
      // Node's server closes the connection without an alert.
      /^the connection was closed before the answer was complete$/,
    ],
  ] as const) {
    test(`a backend that receives ${what} is unreachable, the log has the cause, and check exits 1 [D40]`, async () => {
      backend.subjects.length = 0;
      await using gateway = await startCommand({ ...environment(), ...certificate() });
      assertReply(await gateway.call('GET', '/api/work-items/7'), 500, failed);
      const line = await logged(gateway, 'backend call failed');
      assert.equal(line['outcome'], 'unreachable');
      assert.match(String(line['cause']), cause);
      const check = await runHere(['check'], { ...environment(), ...certificate() });
      assert.equal(check.code, 1, check.output);
      assert.deepEqual(backend.subjects, []);
    });
  }
});
