// TLS handshakes of clients: time limit, connection limit, reasons of failures, client certificates, session
// resumption, and ALPN. D26, D33, D35, D36, D37, D38.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';

import { BorrowedBytes } from '../../packages/core/http1/borrowed-bytes.ts';
import type { ServerLimits } from '../../packages/core/http1/connection.ts';
import type { ServerTls } from '../../packages/core/hosts/clients/handshake.ts';
import { ClientConnection } from '../../packages/core/http1/client-connection.ts';
import { ClientListener, type SecureOptions } from '../../packages/core/hosts/clients/client-listener.ts';
import { createReplyHead } from '../../packages/core/http1/writer.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { closed, RawClient } from '../helpers/raw-client.ts';
import { noLimits, stopClock, turns } from './served-connections.ts';
import { useCertificates } from '../helpers/suites.ts';

// The start of a 512-byte TLS record with a ClientHello.
const helloStart = Buffer.from('160301020001', 'hex');

describe('TLS handshakes', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const issued = folder.issue(authority, 'server');

  const tls = (options: Partial<ServerTls> = {}): ServerTls => ({ cert: issued.cert, key: issued.key, ...options });

  /** A server for tests that send no valid request. It answers a malformed request with 400. */
  async function listen(t: TestContext, secure: SecureOptions = { tls: tls() }, limits: Partial<ServerLimits> = {}) {
    const failures: string[] = [];
    const server = new ClientListener(
      { ...noLimits, ...limits },
      {
        accept: () => assert.fail('a request'),
        refuse: () => ({
          head: createReplyHead(400, []),
          added: [],
          requestId: 'none',
          body: BorrowedBytes.ofConstant(Buffer.from('no')),
          closes: true,
          drains: false,
        }),
        onFault: (error) => {
          throw error;
        },
      },
      secure,
    );
    let shed = 0;
    server.onShed = () => (shed += 1);
    server.onHandshakeFailure = (error, address) => failures.push(`${address}: ${error.message}`);
    await once(server.listener.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.listener.address() as AddressInfo;
    t.after(() => {
      server.listener.close();
      server.closeAll();
    });
    const start = (options: ConnectionOptions = {}) => {
      const client = connectTls({ port, host: '127.0.0.1', ca: authority.cert, servername: 'localhost', ...options });
      t.after(() => client.destroy());
      return client.on('error', () => undefined);
    };
    return {
      server,
      port,
      failures,
      shed: () => shed,
      /** Waits until the server, too, has completed a handshake. */
      secured: () =>
        poll(() => [...server].some((each) => each instanceof ClientConnection), 'the handshake has ended'),
      /** A client that starts a handshake, which may fail. */
      start,
      /** A client that has completed its handshake. */
      secure: async (options: ConnectionOptions = {}) => {
        const client = start(options);
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
    const { server, raw, secure, secured, failures } = await listen(t);
    const silent = await raw();
    await poll(() => server.size === 1, 'a silent connection is counted');
    const client = await secure();
    assert.equal(server.size, 2);
    await secured();
    assert.equal(server.size, 2);
    client.destroy();
    silent.destroy();
    await poll(() => server.size === 0, 'no connection is counted');
    assert.deepEqual(failures, ['127.0.0.1: the connection was closed during the TLS handshake']);
  });

  test('at the connection limit, a connection without a finished handshake is closed to make room for a new one, and this is not reported as a failure [D26]', async (t) => {
    const clock = stopClock(t);
    const { server, raw, secure, failures, shed } = await listen(t, undefined, { connectionsMax: 20 });
    for (let count = 0; count < 20; count += 1) await raw();
    await poll(() => server.size === 20, 'the limit is reached');
    clock.now += 1_000;
    await secure();
    assert.equal(shed(), 1);
    assert.deepEqual(failures, []);
  });

  for (const [what, first, next] of [
    ['sends nothing', '', ''],
    ['sends half a ClientHello', helloStart, ''],
    ['sends byte by byte', helloStart, '\0'],
  ] as const) {
    test(`a client that ${what} is disconnected without a reply after the handshake timeout [D36]`, async (t) => {
      const clock = stopClock(t);
      const { server, raw, failures } = await listen(t);
      const client = await raw();
      await poll(() => server.size === 1, 'the client is accepted');
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
      await poll(() => server.size === 0, 'no connection is counted');
      assert.deepEqual(failures, ['127.0.0.1: the TLS handshake timed out']);
    });
  }

  test('a connection counts as idle and quiet from the start of its handshake [D26, D33]', async (t) => {
    const clock = stopClock(t);
    const { server, raw } = await listen(t);
    await raw();
    await poll(() => server.size === 1, 'the client is accepted');
    const [handshake] = server;
    assert.ok(handshake);
    const from = clock.now;
    assert.equal(handshake.idleMs(from + 700), 700);
    assert.deepEqual([handshake.isQuiet(0, from), handshake.isQuiet(1, from)], [true, false]);
    clock.now = from + 1_000;
    for (const [quietMs, since] of [
      [1_000, 0],
      [300, clock.now - 300],
    ] as const) {
      assert.deepEqual([handshake.isQuiet(quietMs, since), handshake.isQuiet(quietMs + 1, since)], [true, false]);
    }
  });

  test('a failed handshake is reported once, with its reason and the client address, and its connection is closed [D36]', async (t) => {
    const { server, raw, start, failures } = await listen(t, { tls: tls({ minVersion: '1.3' }) });
    const cut = /^127\.0\.0\.1: the connection was closed during the TLS handshake$/;
    for (const [what, begin, reason] of [
      ['the client leaves', async () => (await raw()).destroy(), cut],
      ['a FIN at once', async () => (await raw()).end(), cut],
      ['a FIN within the ClientHello', async () => (await raw()).end(helloStart), cut],
      [
        'a reset',
        async () => {
          const socket = await raw();
          socket.write(helloStart);
          await poll(() => server.size === 1, 'the client is accepted');
          socket.resetAndDestroy();
        },
        /^127\.0\.0\.1: (?:the connection was closed during the TLS handshake|.*ECONNRESET)/,
      ],
      [
        'an HTTP request',
        async () => {
          const socket = await raw();
          socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
          await closed(socket.on('end', () => socket.end()));
        },
        /^127\.0\.0\.1: .*http request/,
      ],
      [
        'an old TLS version',
        async () => {
          await closed(start({ maxVersion: 'TLSv1.2' }));
        },
        /^127\.0\.0\.1: .*unsupported protocol/,
      ],
    ] as const) {
      failures.length = 0;
      await begin();
      await poll(() => failures.length > 0 && server.size === 0, `${what}: the failure`);
      assert.equal(failures.length, 1, what);
      assert.match(failures[0] ?? '', reason);
    }
  });

  test('if a client authority is configured, a client needs a certificate from it [D38]', async (t) => {
    const { server, secured, start, failures } = await listen(t, { tls: tls({ clientCa: authority.cert }) });
    const strangers = folder.authority('strangers');
    const strange = folder.issue(strangers, 'strange');
    const known = folder.issue(authority, 'known');
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
    start({ cert: known.cert, key: known.key });
    await secured();
    assert.deepEqual(failures, []);
    const open = await listen(t);
    await open.secure();
    await open.secured();
  });

  test('servers with the same ticket keys resume a session, servers with other keys do not [D37]', async (t) => {
    const ticketKeys = Buffer.alloc(48, 1);
    const first = await listen(t, { tls: tls({ ticketKeys }) });
    const second = await listen(t, { tls: tls({ ticketKeys }) });
    const other = await listen(t);
    const client = first.start();
    const [session] = (await once(client, 'session')) as [Buffer];
    assert.equal(client.isSessionReused(), false);
    const isReused = async ({ secure }: typeof first) => (await secure({ session })).isSessionReused();
    assert.deepEqual([await isReused(first), await isReused(second), await isReused(other)], [true, true, false]);
    second.server.renewTls(tls({ ticketKeys }));
    assert.equal(await isReused(second), true);
    second.server.renewTls(tls());
    assert.equal(await isReused(second), false);
  });

  test('over TLS, a request cut off by close_notify is 400 [D27]', async (t) => {
    const { server, port, failures } = await listen(t);
    const client = await RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost' });
    t.after(() => client.destroy());
    client.send('GET / HT');
    client.end();
    const reply = await client.reply();
    assert.deepEqual([reply.status, reply.header('connection')], [400, 'close']);
    assert.equal(await client.closed(), 'end');
    await poll(() => server.size === 0, 'no connection is counted');
    assert.deepEqual(failures, []);
  });

  test('ALPN chooses the protocol that serves the connection [D39]', async (t) => {
    const served: string[] = [];
    const { server, secure, start } = await listen(t, {
      tls: tls(),
      protocols: {
        h2: (socket) => {
          served.push('alpnProtocol' in socket ? String(socket.alpnProtocol) : 'none');
          socket.on('data', (bytes) => socket.end(bytes));
          return { socket, idleMs: () => 0, isQuiet: () => true, checkTime: () => undefined };
        },
      },
    });
    const known = await secure({ ALPNProtocols: ['http/1.1', 'h2'] });
    assert.equal(known.alpnProtocol, 'h2');
    known.write('hello');
    const [bytes] = (await once(known, 'data')) as [Buffer];
    assert.equal(bytes.toString(), 'hello');
    known.end();
    for (const [offered, chosen] of [
      [['http/1.1'], 'http/1.1'],
      [['http/1.0'], 'http/1.0'],
      [undefined, false],
    ] as const) {
      const other = await secure(offered && { ALPNProtocols: [...offered] });
      assert.equal(other.alpnProtocol, chosen);
      other.destroy();
    }
    const unknown = start({ ALPNProtocols: ['spdy/3'] });
    await assert.rejects(once(unknown, 'secureConnect'));
    assert.deepEqual(served, ['h2']);
    await poll(() => server.size === 0, 'no connection is counted');
  });

  test('a drain repeatedly calls announceEnd of a connection with another protocol, until the connection closes [D33]', async (t) => {
    let announced = 0;
    const { server, secure } = await listen(t, {
      tls: tls(),
      protocols: {
        own: (socket) => ({
          socket: socket.resume(),
          idleMs: () => 0,
          isQuiet: () => false,
          checkTime: () => undefined,
          announceEnd: () => {
            announced += 1;
            if (announced === 3) socket.end();
          },
        }),
      },
    });
    assert.equal(server.scheme, 'https');
    const client = await secure({ ALPNProtocols: ['own'] });
    const isClosed = closed(client.resume());
    await poll(() => [...server].some((each) => 'announceEnd' in each), 'the connection is served');
    await server.drain(new AbortController().signal, () => true);
    await isClosed;
    assert.ok(announced >= 3);
    assert.equal(server.size, 0);
  });
});
