// How a socket to the backend is opened: which address and port, TLS with which name, authorities, certificate and session,
// and who sees what arrives on it. D30, D37, D40.

import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { createOpenSocket, tapSockets, type ClientTls } from '../../packages/core/http1/client-connection.ts';
import { poll } from '../helpers/changes.ts';

// For localhost and 127.0.0.1, signed by itself.
const cert = readFileSync(new URL('../vectors/tls/backend-certificate.pem', import.meta.url), 'utf8');
const key = readFileSync(new URL('../vectors/tls/backend-key.pem', import.meta.url), 'utf8');
const trusted: ClientTls = { ca: cert };

/** What a server saw of a client. */
interface Seen {
  readonly name: string | undefined;
  readonly protocol: string | undefined;
  readonly isResumed: boolean;
  /** Of the client's certificate. */
  readonly fingerprint: string | undefined;
}

async function listen(t: TestContext, server: Server, host = '127.0.0.1'): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket.on('error', () => undefined));
  });
  await once(server.listen(0, host), 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Says `hello` on each connection. */
async function listenTls(t: TestContext): Promise<{ port: number; seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createTlsServer(
    { key, cert, requestCert: true, rejectUnauthorized: false, ALPNProtocols: ['h2', 'http/1.1'] },
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

/** Opens a socket, and tells what came of it. */
function start(t: TestContext, open: ReturnType<typeof createOpenSocket>) {
  const result = { arrived: 0, isConnected: false, error: undefined as NodeJS.ErrnoException | undefined };
  const socket = open(
    (length) => (result.arrived += length),
    () => (result.isConnected = true),
  ).on('error', (error) => (result.error = error));
  t.after(() => socket.destroy());
  return { socket, result };
}

/** The error with which a socket does not open. */
async function failure(t: TestContext, open: ReturnType<typeof createOpenSocket>) {
  const { result } = start(t, open);
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
    test(`a server on ${host} is found as ${name} [D30]`, async (t) => {
      const port = await listen(
        t,
        createServer((socket) => socket.write('hello')),
        host,
      );
      const { result } = start(t, createOpenSocket(new URL(`http://${name}:${port}`)));
      await poll(() => result.arrived === 5, 'bytes');
      assert.ok(result.isConnected);
    });
  }

  test('a name that is not localhost is looked up as the system does it', async (t) => {
    const port = await listen(
      t,
      createServer((socket) => socket.write('hello')),
      '127.0.0.1',
    );
    // Too long for a name: the system says so without asking anybody.
    const error = await failure(t, createOpenSocket(new URL(`http://${'x'.repeat(64)}.invalid:${port}`)));
    assert.equal(error.syscall, 'getaddrinfo');
  });

  test('without a port it is 80', async (t) => {
    assert.equal((await failure(t, createOpenSocket(new URL('http://127.9.8.7')))).port, 80);
  });

  test('whoever looks on gets the bytes before they are told of', async (t) => {
    const port = await listen(
      t,
      createServer((socket) => socket.write('hello')),
    );
    const order: string[] = [];
    const sockets: Socket[] = [];
    const open = tapSockets(createOpenSocket(new URL(`http://127.0.0.1:${port}`)), (tapped) => {
      sockets.push(tapped);
      return (bytes) => order.push(`looks on at ${bytes.toString('latin1')}`);
    });
    const socket = open(
      (length) => order.push(`told of ${length}`),
      () => order.push('connected'),
    );
    t.after(() => socket.destroy());
    await poll(() => order.length === 3, 'bytes');
    assert.deepEqual(order, ['connected', 'looks on at hello', 'told of 5']);
    assert.deepEqual(sockets, [socket]);
  });
});

describe('over TLS', () => {
  test('without a port it is 443', async (t) => {
    assert.equal((await failure(t, createOpenSocket(new URL('https://127.9.8.7')))).port, 443);
  });

  for (const [host, tls, name] of [
    ['localhost', trusted, 'localhost'],
    // An address is no name.
    ['127.0.0.1', trusted, undefined],
    ['127.0.0.1', { ...trusted, serverName: 'localhost' }, 'localhost'],
  ] as const) {
    test(`the server of ${host} is asked for ${name ?? 'no name'}, and for HTTP/1.1 alone [D40]`, async (t) => {
      const { port, seen } = await listenTls(t);
      const { result } = start(
        t,
        createOpenSocket(new URL(`https://${host}:${port}`), () => tls),
      );
      await poll(() => result.arrived === 5, 'bytes');
      assert.ok(result.isConnected);
      assert.deepEqual(seen, [{ name, protocol: 'http/1.1', isResumed: false, fingerprint: undefined }]);
    });
  }

  test('a server that nobody vouches for, or with another name, is not talked to [D40]', async (t) => {
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

  test('the server is shown the certificate that it is to be shown [D40]', async (t) => {
    const { port, seen } = await listenTls(t);
    const { result } = start(
      t,
      createOpenSocket(new URL(`https://localhost:${port}`), () => ({ ...trusted, cert, key })),
    );
    await poll(() => result.arrived === 5, 'bytes');
    assert.equal(seen[0]?.fingerprint, new X509Certificate(cert).fingerprint256);
  });

  test('a session is taken up again, but not with other authorities or certificates than it began with [D37]', async (t) => {
    const { port, seen } = await listenTls(t);
    let tls: ClientTls = trusted;
    const open = createOpenSocket(new URL(`https://localhost:${port}`), () => tls);
    // A server gives a session where there was none, and need not give another.
    const connect = async (isNew: boolean) => {
      const { socket, result } = start(t, open);
      let hasSession = false;
      socket.once('session', () => (hasSession = true));
      await poll(() => result.arrived === 5 && (hasSession || !isNew), 'bytes, and a session');
    };
    await connect(true);
    await connect(false);
    tls = { ...trusted };
    await connect(true);
    await connect(false);
    assert.deepEqual(
      seen.map(({ isResumed }) => isResumed),
      [false, true, false, true],
    );
    // What is in force is asked for each time: this one trusts nobody.
    tls = {};
    assert.equal((await failure(t, open)).code, 'DEPTH_ZERO_SELF_SIGNED_CERT');
  });
});
