// TLS handshakes of clients: time limit, connection limit, reasons of failures, client certificates, session
// resumption, and ALPN. D26, D33, D35, D36, D37, D38.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import type { ConnectionFactory, ServerLimits } from '../../packages/core/http1/connection.ts';
import type { ServerTls } from '../../packages/core/hosts/clients/handshake.ts';
import { ClientConnection } from '../../packages/core/http1/client-connection.ts';
import { ClientListener } from '../../packages/core/hosts/clients/client-listener.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { closed, RawClient } from '../helpers/raw-client.ts';
import { useCertificates } from '../helpers/suites.ts';
import { assertLastReply, createHandler, noLimits, stopClock, turns } from './served-connections.ts';

// The start of a 512-byte TLS record with a ClientHello.
const helloStart = Buffer.from('160301020001', 'hex');
const cut = /^127\.0\.0\.1: the connection was closed during the TLS handshake$/;

describe('TLS handshakes', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const { cert, key } = folder.issue(authority, 'server');

  interface Options extends Partial<ServerTls>, Partial<ServerLimits> {
    readonly protocols?: Record<string, ConnectionFactory>;
  }

  async function listen(t: TestContext, { protocols = {}, ...options }: Options = {}) {
    const failures: string[] = [];
    const secure = { tls: { cert, key, ...options }, protocols };
    const server = new ClientListener({ ...noLimits, ...options }, createHandler({}).handler, secure);
    server.onHandshakeFailure = (error, address) => failures.push(`${address}: ${error.message}`);
    await once(server.listener.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.listener.address() as AddressInfo;
    t.after(() => {
      server.listener.close();
      server.closeAll();
    });
    /** A client that starts a handshake, which may fail. */
    const start = (more: ConnectionOptions = {}) => {
      const client = connectTls({ port, host: '127.0.0.1', ca: authority.cert, servername: 'localhost', ...more });
      t.after(() => client.destroy());
      return client.on('error', () => undefined);
    };
    return {
      server,
      port,
      failures,
      start,
      count: (size: number) => poll(() => server.size === size, `${size} connections are counted`),
      /** Waits until the server, too, has completed a handshake. */
      secured: () =>
        poll(() => [...server].some((each) => each instanceof ClientConnection), 'the handshake has ended'),
      /** A client that has completed its handshake. */
      secure: async (more: ConnectionOptions = {}) => {
        const client = start(more);
        await once(client, 'secureConnect');
        return client;
      },
      /** A client that has sent nothing. */
      raw: async (): Promise<Socket> => {
        const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
        t.after(() => client.destroy());
        await once(client, 'connect');
        return client.resume();
      },
    };
  }

  test('a connection is counted once, from its acceptance to its close [D26]', async (t) => {
    const { server, raw, secure, secured, count, failures } = await listen(t);
    const silent = await raw();
    await count(1);
    const client = await secure();
    assert.equal(server.size, 2);
    await secured();
    assert.equal(server.size, 2);
    client.destroy();
    silent.destroy();
    await count(0);
    assert.equal(failures.length, 1);
  });

  test('at the connection limit, a connection without a finished handshake is closed to make room for a new one, and this is not reported as a failure [D26]', async (t) => {
    const clock = stopClock(t);
    const { server, raw, secure, failures, count } = await listen(t, { connectionsMax: 20 });
    let shed = 0;
    server.onShed = () => (shed += 1);
    for (let opened = 0; opened < 20; opened += 1) await raw();
    await count(20);
    clock.now += 1_000;
    await secure();
    assert.deepEqual([shed, failures], [1, []]);
  });

  for (const [what, first, next] of [
    ['sends nothing', '', ''],
    ['sends half a ClientHello, byte by byte', helloStart, '\0'],
  ] as const) {
    test(`a client that ${what} is disconnected without a reply after the handshake timeout [D36]`, async (t) => {
      const clock = stopClock(t);
      const { server, raw, failures, count } = await listen(t);
      const client = await raw();
      await count(1);
      const [handshake] = server;
      assert.ok(handshake);
      const from = clock.now;
      const bytes: Buffer[] = [];
      client.on('data', (piece: Buffer) => bytes.push(piece));
      client.write(first);
      clock.now += 59_000;
      client.write(next);
      await turns(20);
      handshake.checkTime(from + 59_999);
      assert.equal(handshake.socket.destroyed, false);
      const isClosed = closed(client.on('end', () => client.end()));
      handshake.checkTime(from + 60_000);
      assert.equal(handshake.socket.destroyed, true);
      await isClosed;
      assert.equal(Buffer.concat(bytes).includes('HTTP'), false);
      await count(0);
      assert.deepEqual(failures, ['127.0.0.1: the TLS handshake timed out']);
    });
  }

  test('a connection counts as idle and quiet from the start of its handshake [D26, D33]', async (t) => {
    const clock = stopClock(t);
    const { server, raw, count } = await listen(t);
    await raw();
    await count(1);
    const [handshake] = server;
    assert.ok(handshake);
    clock.now += 1_000;
    assert.equal(handshake.idleMs(clock.now), 1_000);
    const from = clock.now - 300;
    const isQuiet = ([[1_000, 0], [1_001, 0], [300, from], [301, from]] as const).map(([ms, since]) => handshake.isQuiet(ms, since)); // prettier-ignore
    assert.deepEqual(isQuiet, [true, false, true, false]);
  });

  type Listening = Awaited<ReturnType<typeof listen>>;
  for (const [what, begin, reason] of [
    ['the client leaves', async ({ raw }) => (await raw()).destroy(), cut],
    ['a FIN at once', async ({ raw }) => (await raw()).end(), cut],
    ['a FIN within the ClientHello', async ({ raw }) => (await raw()).end(helloStart), cut],
    ['a reset', async ({ raw, count }) => {
      const socket = await raw();
      socket.write(helloStart);
      await count(1);
      socket.resetAndDestroy();
    }, /^127\.0\.0\.1: (?:the connection was closed during the TLS handshake|.*ECONNRESET)/],
    ['an HTTP request', async ({ raw }) => {
      const socket = await raw();
      socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
      await closed(socket.on('end', () => socket.end()));
    }, /^127\.0\.0\.1: .*http request/],
    ['an old TLS version', ({ start }) => closed(start({ maxVersion: 'TLSv1.2' })), /^127\.0\.0\.1: .*unsupported protocol/],
  ] as [string, (listening: Listening) => Promise<unknown>, RegExp][]) {
    test(`a handshake that fails by ${what} is reported once, with its reason and the client address, and its connection is closed [D36]`, async (t) => {
      const listening = await listen(t, { minVersion: '1.3' });
      await begin(listening);
      await poll(() => listening.failures.length > 0 && listening.server.size === 0, 'the failure');
      assert.equal(listening.failures.length, 1);
      assert.match(listening.failures[0] ?? '', reason);
    });
  } // prettier-ignore

  test('if a client authority is configured, a client needs a certificate from it [D38]', async (t) => {
    const { server, secured, start, failures } = await listen(t, { clientCa: authority.cert });
    const strange = folder.issue(folder.authority('strangers'), 'strange');
    for (const [options, reason] of [
      [{}, /peer did not return a certificate/],
      // Node reports no reason here.
      [{ cert: strange.cert, key: strange.key }, /closed during the TLS handshake|certificate/],
    ] as const) {
      failures.length = 0;
      // Waits for the close, because a TLS 1.3 client learns of the refusal only after its own part of the handshake.
      await closed(start(options));
      await poll(() => failures.length > 0, 'the client is refused');
      assert.match(failures[0] ?? '', reason);
      assert.equal(server.size, 0);
    }
    failures.length = 0;
    const known = folder.issue(authority, 'known');
    start({ cert: known.cert, key: known.key });
    await secured();
    assert.deepEqual(failures, []);
  });

  test('servers with the same ticket keys resume a session, servers with other keys do not [D37]', async (t) => {
    const ticketKeys = Buffer.alloc(48, 1);
    const first = await listen(t, { ticketKeys });
    // Node's own choice of a name for sessions depends on the command line.
    t.mock.property(process, 'argv', [...process.argv, '--other']);
    const [second, other] = [await listen(t, { ticketKeys }), await listen(t)];
    const client = first.start();
    const [session] = (await once(client, 'session')) as [Buffer];
    const isReused = async ({ secure }: Listening) => (await secure({ session })).isSessionReused();
    assert.equal(client.isSessionReused(), false);
    assert.deepEqual([await isReused(first), await isReused(second), await isReused(other)], [true, true, false]);
    second.server.renewTls({ cert, key, ticketKeys });
    assert.equal(await isReused(second), true);
    second.server.renewTls({ cert, key });
    assert.equal(await isReused(second), false);
  });

  test('over TLS, a request cut off by close_notify is 400 [D27]', async (t) => {
    const { port, failures, count } = await listen(t);
    const client = await RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost' });
    t.after(() => client.destroy());
    client.send('GET / HT');
    client.end();
    await assertLastReply(client, 400);
    await count(0);
    assert.deepEqual(failures, []);
  });

  test('ALPN chooses the protocol that serves the connection [D39]', async (t) => {
    const h2: ConnectionFactory = (socket) => {
      socket.on('data', (bytes) => socket.end(bytes));
      return { socket, idleMs: () => 0, isQuiet: () => true, checkTime: () => undefined };
    };
    const { secure, start, count } = await listen(t, { protocols: { h2 } });
    for (const [offered, chosen] of [
      [['http/1.1', 'h2'], 'h2'],
      [['http/1.1'], 'http/1.1'],
      [['http/1.0'], 'http/1.0'],
      [undefined, false],
    ] as const) {
      const client = await secure(offered && { ALPNProtocols: [...offered] });
      assert.equal(client.alpnProtocol, chosen);
      client.end('hello\r\n\r\n');
      const [bytes] = (await once(client, 'data')) as [Buffer];
      assert.equal(bytes.toString().split(' ')[0], chosen === 'h2' ? 'hello\r\n\r\n' : 'HTTP/1.1');
    }
    await assert.rejects(once(start({ ALPNProtocols: ['spdy/3'] }), 'secureConnect'));
    await count(0);
  });

  test('a drain repeatedly calls announceEnd of a connection with another protocol, until the connection closes [D33]', async (t) => {
    let announced = 0;
    const own: ConnectionFactory = (socket) => ({
      socket: socket.resume(),
      idleMs: () => 0,
      isQuiet: () => false,
      checkTime: () => undefined,
      announceEnd: () => {
        announced += 1;
        if (announced === 3) socket.end();
      },
    });
    const { server, secure } = await listen(t, { protocols: { own } });
    assert.equal(server.scheme, 'https');
    const isClosed = closed((await secure({ ALPNProtocols: ['own'] })).resume());
    await poll(() => [...server].some((each) => 'announceEnd' in each), 'the connection is served');
    await server.drain(new AbortController().signal, () => true);
    await isClosed;
    assert.ok(announced >= 3);
  });
});
