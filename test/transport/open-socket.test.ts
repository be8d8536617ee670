// Sockets to the backend: their address and port, the TLS server name, authorities, client certificate and sessions,
// and `tapSockets`. D30, D37, D40.

import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { createServer as createTlsServer, TLSSocket } from 'node:tls';
import { createOpenSocket, tapSockets, type ClientTls } from '../../packages/core/hosts/dialing/open-socket.ts';
import type { OpenSocket } from '../../packages/core/http1/backend-connection.ts';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { findFreePort } from '../helpers/haproxy.ts';

// A self-signed certificate for localhost and 127.0.0.1.
const cert = readFileSync(new URL('../vectors/tls/backend-certificate.pem', import.meta.url), 'utf8');
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url), 'utf8');
const trusted: ClientTls = { ca: cert };
const dayMs = 86_400_000;

async function listen(t: TestContext, server: Server, host = '127.0.0.1', port = 0): Promise<number> {
  server.on('connection', (socket: Socket) => {
    socket.on('error', () => undefined);
    t.after(() => socket.destroy());
  });
  await once(server.listen(port, host), 'listening');
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** The port of a server without TLS that sends `hello` on each connection. */
function listenPlain(t: TestContext, host?: string, port?: number): Promise<number> {
  return listen(t, createServer((socket) => socket.write('hello')), host, port); // prettier-ignore
}

/**
 * Starts a TLS server that sends `hello` on each connection. `seen`: what each client has sent, with the fingerprint of its
 * certificate.
 */
async function listenTls(t: TestContext, own = { key, cert }) {
  const seen: { name: unknown; protocol: unknown; isResumed: boolean; fingerprint: string | undefined }[] = [];
  const options = { ...own, requestCert: true, rejectUnauthorized: false, ALPNProtocols: ['h2', 'http/1.1'] };
  const server = createTlsServer(options, (socket) => {
    seen.push({
      name: (socket as TLSSocket & { servername: string | false }).servername,
      protocol: socket.alpnProtocol,
      isResumed: socket.isSessionReused(),
      fingerprint: socket.getPeerX509Certificate()?.fingerprint256,
    });
    socket.on('error', () => undefined).write('hello');
  }).on('tlsClientError', () => undefined);
  const port = await listen(t, server);
  const open = (tls: () => ClientTls, host = 'localhost') => createOpenSocket(new URL(`https://${host}:${port}`), tls);
  return { seen, isResumed: () => seen.map(({ isResumed }) => isResumed), open };
}

/** Opens a socket, and records its events. */
function start(t: TestContext, open: OpenSocket) {
  const result = { arrived: 0, isOpen: false, hasSession: false, error: undefined as Error | undefined };
  const dial = open({
    onOpen: (socket) => {
      result.isOpen = true;
      socket.on('error', () => undefined).once('session', () => (result.hasSession = true));
      t.after(() => socket.destroy());
    },
    onFailed: (error) => (result.error = error),
    onBytes: (bytes) => (result.arrived += bytes.length),
  });
  t.after(() => dial.close());
  return result;
}

/** Opens a socket. Waits for a session only if `isNew`, because after a resumed handshake a server may send none. */
async function connect(t: TestContext, open: OpenSocket, isNew = false): Promise<void> {
  const result = start(t, open);
  await poll(() => result.arrived === 5 && (result.hasSession || !isNew), 'bytes, and a session');
  assert.ok(result.isOpen);
}

/** Opens a socket that must fail with these properties of an error. */
async function assertFails(t: TestContext, open: OpenSocket, expected: object): Promise<void> {
  const result = start(t, open);
  await poll(() => result.error !== undefined, 'an error');
  assert.equal(result.isOpen, false);
  for (const [name, value] of Object.entries(expected)) assert.equal(Reflect.get(result.error ?? {}, name), value);
}

describe('without TLS', () => {
  for (const [host, name] of [
    ['127.0.0.1', '127.0.0.1'],
    ['127.0.0.1', 'localhost'],
    ['::1', 'localhost'],
    ['::1', '[::1]'],
  ] as const) {
    test(`a server on ${host} is reached as ${name} [D30]`, async (t) => {
      // A port for this test alone: otherwise another test could listen on it at the other address of localhost.
      const port = await listenPlain(t, host, await findFreePort());
      await connect(t, createOpenSocket(new URL(`http://${name}:${port}`)));
    });
  }

  for (const [what, url, expected] of [
    // A label of 64 bytes is too long for a name. The OS refuses it without a query.
    ['a name other than localhost is resolved by the OS', `http://${'x'.repeat(64)}.invalid`, { syscall: 'getaddrinfo' }],
    ['the default port is 80', 'http://127.9.8.7', { port: 80 }],
    ['the default port with TLS is 443', 'https://127.9.8.7', { port: 443 }],
  ] as const) {
    test(what, (t) => assertFails(t, createOpenSocket(new URL(url)), expected));
  } // prettier-ignore

  test('a tap gets bytes before onBytes is called', async (t) => {
    const order: unknown[] = [];
    const url = new URL(`http://127.0.0.1:${await listenPlain(t)}`);
    const open = tapSockets(createOpenSocket(url), (tapped) => {
      order.push(tapped);
      return (bytes) => order.push(`tapped ${bytes.toString('latin1')}`);
    });
    open({
      onOpen: (opened) => {
        t.after(() => opened.destroy());
        order.push(opened);
      },
      onFailed: (error) => order.push(error),
      onBytes: (bytes) => order.push(`arrived ${bytes.length}`),
    });
    await poll(() => order.length === 4, 'bytes');
    assert.equal(order[0], order[1]);
    assert.deepEqual(order.slice(2), ['tapped hello', 'arrived 5']);
  });
});

describe('over TLS', () => {
  const fingerprint = new X509Certificate(cert).fingerprint256;
  for (const [host, tls, name, sent] of [
    ['localhost', trusted, 'localhost', undefined],
    // IP addresses are not sent as server names.
    ['127.0.0.1', trusted, false, undefined],
    ['127.0.0.1', { ...trusted, serverName: 'localhost' }, 'localhost', undefined],
    // A server name has no dot at its end [RFC 6066, 3].
    ['localhost.', trusted, 'localhost', undefined],
    ['127.0.0.1', { ...trusted, serverName: 'localhost.' }, 'localhost', undefined],
    ['localhost', { ...trusted, cert, key }, 'localhost', fingerprint],
  ] as const) {
    test(`to ${host} with ${Object.keys(tls).join()}: the server name sent is ${name}, the protocol HTTP/1.1, and the client certificate ${sent} [D40]`, async (t) => {
      const { seen, open } = await listenTls(t);
      await connect(t, open(() => tls, host)); // prettier-ignore
      assert.deepEqual(seen, [{ name, protocol: 'http/1.1', isResumed: false, fingerprint: sent }]);
    });
  }

  test('a server whose certificate is untrusted or has another name is refused [D40]', async (t) => {
    const { open } = await listenTls(t);
    const other = { ...trusted, serverName: 'other.example' };
    await assertFails(t, open(() => ({})), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' }); // prettier-ignore
    await assertFails(t, open(() => other), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' }); // prettier-ignore
  });

  test('no session is resumed after a certificate of its chain has expired [D40]', { skip: noOpenssl }, async (t) => {
    using folder = new CertificateFolder();
    const root = folder.authority('root');
    // The server's own certificate is valid for longer than that of its issuer.
    const issuer = folder.issue(root, 'issuer', { isAuthority: true, days: 20 });
    const own = folder.issue(issuer, 'server', { days: 25 });
    const { isResumed, ...server } = await listenTls(t, { key: own.key, cert: own.cert + issuer.cert });
    const ca = { ca: root.cert };
    const open = server.open(() => ca);
    const now = Date.now();
    // OpenSSL uses the real time, in which all certificates stay valid.
    for (const days of [0, 0, 19.9, 20.1, 20.1]) {
      t.mock.timers.enable({ apis: ['Date'], now: now + days * dayMs });
      await connect(t, open, days === 20.1 || isResumed().length === 0);
      t.mock.timers.reset();
    }
    assert.deepEqual(isResumed(), [false, true, true, false, false]);
  });

  test('no session is resumed if its connection shows no certificates [D40]', async (t) => {
    const { isResumed, ...server } = await listenTls(t);
    const open = server.open(() => trusted);
    // The first call checks the certificate.
    const original = Object.getOwnPropertyDescriptor(TLSSocket.prototype, 'getPeerCertificate')?.value as () => unknown;
    const { mock } = t.mock.method(TLSSocket.prototype, 'getPeerCertificate', () => null);
    mock.mockImplementationOnce(original as () => null);
    await connect(t, open, true);
    mock.restore();
    await connect(t, open, true);
    assert.deepEqual(isResumed(), [false, false]);
  });

  test('a session is resumed with the same TLS options, but not with new options [D37]', async (t) => {
    const { isResumed, ...server } = await listenTls(t);
    let tls: ClientTls = trusted;
    const open = server.open(() => tls);
    await connect(t, open, true);
    await connect(t, open);
    tls = { ...trusted };
    await connect(t, open, true);
    await connect(t, open);
    assert.deepEqual(isResumed(), [false, true, false, true]);
    // The options are read for each connection. The new options trust no private authority.
    tls = {};
    await assertFails(t, open, { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
  });
});
