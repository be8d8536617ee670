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

/** The data that the server records about a client's TLS connection. */
interface Seen {
  readonly name: string | undefined;
  readonly protocol: string | undefined;
  readonly isResumed: boolean;
  /** The fingerprint of the client's certificate. */
  readonly fingerprint: string | undefined;
}

async function listen(t: TestContext, server: Server, host = '127.0.0.1', port = 0): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => undefined)));
  await once(server.listen(port, host), 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Starts a TLS server that sends `hello` on each connection, and records its clients. */
async function listenTls(t: TestContext, own = { key, cert }): Promise<{ port: number; seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createTlsServer(
    { ...own, requestCert: true, rejectUnauthorized: false, ALPNProtocols: ['h2', 'http/1.1'] },
    (socket) => {
      const name = (socket as TLSSocket & { servername: string | false }).servername;
      seen.push({
        name: name === false ? undefined : name,
        protocol: socket.alpnProtocol === false ? undefined : (socket.alpnProtocol ?? undefined),
        isResumed: socket.isSessionReused(),
        fingerprint: socket.getPeerX509Certificate()?.fingerprint256,
      });
      socket.on('error', () => undefined).write('hello');
    },
  ).on('tlsClientError', () => undefined);
  return { port: await listen(t, server), seen };
}

/** Opens a socket, and records its events. */
function start(t: TestContext, open: OpenSocket) {
  const result = {
    arrived: 0,
    isConnected: false,
    hasSession: false,
    error: undefined as NodeJS.ErrnoException | undefined,
  };
  const dial = open({
    onOpen: (socket) => {
      result.isConnected = true;
      socket.on('error', () => undefined).once('session', () => (result.hasSession = true));
      t.after(() => socket.destroy());
    },
    onFailed: (error) => (result.error = error),
    onBytes: (bytes) => (result.arrived += bytes.length),
  });
  t.after(() => dial.close());
  return result;
}

/** Opens a TLS socket. Waits for a session only if `isNew`, because after a resumed handshake a server may send none. */
async function connect(t: TestContext, open: OpenSocket, isNew: boolean): Promise<void> {
  const result = start(t, open);
  await poll(() => result.arrived === 5 && (result.hasSession || !isNew), 'bytes, and a session');
}

/** Opens a socket that must fail, and returns the error. */
async function failure(t: TestContext, open: OpenSocket) {
  const result = start(t, open);
  await poll(() => result.error !== undefined, 'an error');
  assert.equal(result.isConnected, false);
  return result.error as NodeJS.ErrnoException & { port?: number };
}

describe('without TLS', () => {
  for (const [host, name] of [
    ['127.0.0.1', '127.0.0.1'],
    ['127.0.0.1', 'localhost'],
    ['::1', 'localhost'],
    ['::1', '[::1]'],
  ] as const) {
    test(`a server on ${host} is reached as ${name} [D30]`, async (t) => {
      const port = await listen(
        t,
        createServer((socket) => socket.write('hello')),
        host,
        // A port for this test alone: otherwise another test could listen on it at the other address of localhost.
        await findFreePort(),
      );
      const result = start(t, createOpenSocket(new URL(`http://${name}:${port}`)));
      await poll(() => result.arrived === 5, 'bytes');
      assert.ok(result.isConnected);
    });
  }

  test('a name other than localhost is resolved by the OS', async (t) => {
    const port = await listen(
      t,
      createServer((socket) => socket.write('hello')),
      '127.0.0.1',
    );
    // A label of 64 bytes is too long for a name. The OS refuses it without a query.
    const error = await failure(t, createOpenSocket(new URL(`http://${'x'.repeat(64)}.invalid:${port}`)));
    assert.equal(error.syscall, 'getaddrinfo');
  });

  test('the default port is 80', async (t) => {
    assert.equal((await failure(t, createOpenSocket(new URL('http://127.9.8.7')))).port, 80);
  });

  test('a tap gets bytes before onBytes is called', async (t) => {
    const port = await listen(
      t,
      createServer((socket) => socket.write('hello')),
    );
    const order: string[] = [];
    const sockets: Socket[] = [];
    const open = tapSockets(createOpenSocket(new URL(`http://127.0.0.1:${port}`)), (tapped) => {
      sockets.push(tapped);
      return (bytes) => order.push(`tapped ${bytes.toString('latin1')}`);
    });
    let socket: Socket | undefined;
    open({
      onOpen: (opened) => {
        socket = opened;
        t.after(() => opened.destroy());
        order.push('connected');
      },
      onFailed: (error) => order.push(error.message),
      onBytes: (bytes) => order.push(`arrived ${bytes.length}`),
    });
    await poll(() => order.length === 3, 'bytes');
    assert.deepEqual(order, ['connected', 'tapped hello', 'arrived 5']);
    assert.deepEqual(sockets, [socket]);
  });
});

describe('over TLS', () => {
  test('the default port is 443', async (t) => {
    assert.equal((await failure(t, createOpenSocket(new URL('https://127.9.8.7')))).port, 443);
  });

  for (const [host, tls, name] of [
    ['localhost', trusted, 'localhost'],
    // IP addresses are not sent as server names.
    ['127.0.0.1', trusted, undefined],
    ['127.0.0.1', { ...trusted, serverName: 'localhost' }, 'localhost'],
    // A server name has no dot at its end [RFC 6066, 3].
    ['localhost.', trusted, 'localhost'],
    ['127.0.0.1', { ...trusted, serverName: 'localhost.' }, 'localhost'],
  ] as const) {
    test(`TLS to ${host}: the server name sent is ${name ?? 'none'}, and the protocol offered is HTTP/1.1 [D40]`, async (t) => {
      const { port, seen } = await listenTls(t);
      const result = start(
        t,
        createOpenSocket(new URL(`https://${host}:${port}`), () => tls),
      );
      await poll(() => result.arrived === 5, 'bytes');
      assert.ok(result.isConnected);
      assert.deepEqual(seen, [{ name, protocol: 'http/1.1', isResumed: false, fingerprint: undefined }]);
    });
  }

  test('a server whose certificate is untrusted or has another name is refused [D40]', async (t) => {
    const { port } = await listenTls(t);
    const url = new URL(`https://localhost:${port}`);
    assert.equal((await failure(t, createOpenSocket(url))).code, 'DEPTH_ZERO_SELF_SIGNED_CERT');
    const other = { ...trusted, serverName: 'other.example' };
    const { code } = await failure(
      t,
      createOpenSocket(url, () => other),
    );
    assert.equal(code, 'ERR_TLS_CERT_ALTNAME_INVALID');
  });

  test('the configured client certificate is sent to the server [D40]', async (t) => {
    const { port, seen } = await listenTls(t);
    const result = start(
      t,
      createOpenSocket(new URL(`https://localhost:${port}`), () => ({ ...trusted, cert, key })),
    );
    await poll(() => result.arrived === 5, 'bytes');
    assert.equal(seen[0]?.fingerprint, new X509Certificate(cert).fingerprint256);
  });

  test('no session is resumed after a certificate of its chain has expired [D40]', { skip: noOpenssl }, async (t) => {
    using folder = new CertificateFolder();
    const root = folder.authority('root');
    // The server's own certificate is valid for longer than that of its issuer.
    const issuer = folder.issue(root, 'issuer', { isAuthority: true, days: 20 });
    const own = folder.issue(issuer, 'server', { days: 25 });
    const { port, seen } = await listenTls(t, { key: own.key, cert: own.cert + issuer.cert });
    const open = createOpenSocket(new URL(`https://localhost:${port}`), () => ca);
    const ca = { ca: root.cert };
    const day = 86_400_000;
    const now = Date.now();
    // OpenSSL uses the real time, in which all certificates stay valid.
    for (const [days, isNew] of [
      [0, true],
      [0, false],
      [19.9, false],
      [20.1, true],
      [20.1, true],
    ] as const) {
      t.mock.timers.enable({ apis: ['Date'], now: now + days * day });
      await connect(t, open, isNew);
      assert.equal(seen.at(-1)?.isResumed, !isNew, `after ${days} days`);
      t.mock.timers.reset();
    }
  });

  test('no session is resumed if its connection shows no certificates [D40]', async (t) => {
    const { port, seen } = await listenTls(t);
    const open = createOpenSocket(new URL(`https://localhost:${port}`), () => trusted);
    // The first call checks the certificate.
    const original = Object.getOwnPropertyDescriptor(TLSSocket.prototype, 'getPeerCertificate')?.value as () => unknown;
    const { mock } = t.mock.method(TLSSocket.prototype, 'getPeerCertificate', () => null);
    mock.mockImplementationOnce(original as () => null);
    await connect(t, open, true);
    mock.restore();
    await connect(t, open, true);
    assert.deepEqual(
      seen.map(({ isResumed }) => isResumed),
      [false, false],
    );
  });

  test('a session is resumed with the same TLS options, but not with new options [D37]', async (t) => {
    const { port, seen } = await listenTls(t);
    let tls: ClientTls = trusted;
    const open = createOpenSocket(new URL(`https://localhost:${port}`), () => tls);
    await connect(t, open, true);
    await connect(t, open, false);
    tls = { ...trusted };
    await connect(t, open, true);
    await connect(t, open, false);
    assert.deepEqual(
      seen.map(({ isResumed }) => isResumed),
      [false, true, false, true],
    );
    // The options are read for each connection. The new options trust no private authority.
    tls = {};
    assert.equal((await failure(t, open)).code, 'DEPTH_ZERO_SELF_SIGNED_CERT');
  });
});
