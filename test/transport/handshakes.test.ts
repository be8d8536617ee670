// Handshakes of TLS: their time, whom they make room for, why one failed and whose it was, certificates of clients,
// sessions, and what is behind one [D26, D33, D35, D36, D37, D38].

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { after, before, describe, test, type TestContext } from 'node:test';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';

import type { ServerTls } from '../../packages/core/http1/handshake.ts';
import { ServerConnection } from '../../packages/core/http1/server-connection.ts';
import { ClientServer, type SecureOptions } from '../../packages/core/http1/server.ts';
import { createReplyHead } from '../../packages/core/http1/writer.ts';
import { CertificateFolder, noOpenssl, type Issued } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { closed, RawClient } from '../helpers/raw-client.ts';
import { noLimits } from '../helpers/served-connections.ts';

const helloStart = Buffer.from('160301020001', 'hex');

describe('handshakes', { skip: noOpenssl }, () => {
  let folder: CertificateFolder;
  let authority: Issued;
  let issued: Issued;
  before(() => {
    folder = new CertificateFolder();
    authority = folder.authority('authority');
    issued = folder.issue(authority, 'server');
  });
  after(() => {
    folder[Symbol.dispose]();
  });

  const tls = (options: Partial<ServerTls> = {}): ServerTls => ({
    cert: issued.cert,
    key: issued.key,
    ...options,
  });

  /** A server that refuses whatever is no request, and gets none. */
  async function listen(t: TestContext, secure: SecureOptions = { tls: tls() }) {
    const failures: string[] = [];
    const server = new ClientServer(
      noLimits,
      {
        accept: () => assert.fail('a request'),
        refuse: () => ({
          ...{
            head: createReplyHead(400, []),
            added: [],
            requestId: 'none',
            pieces: [Buffer.from('no')],
            length: 2,
          },
          ...{ closes: true, drains: false },
        }),
        onFault: (error) => {
          throw error;
        },
      },
      secure,
    );
    server.onHandshakeFailure = (error, address) => failures.push(`${address}: ${error.message}`);
    await once(server.listener.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.listener.address() as AddressInfo;
    t.after(() => {
      server.listener.close();
      server.closeAll();
    });
    const start = (options: ConnectionOptions = {}) => {
      const client = connectTls({
        ...{ port, host: '127.0.0.1', ca: authority.cert, servername: 'localhost' },
        ...options,
      });
      t.after(() => {
        client.destroy();
      });
      return client.on('error', () => undefined);
    };
    return {
      server,
      port,
      failures,
      /** A client that begins a handshake; it may fail. */
      start,
      /** A client behind its handshake. */
      secure: async (options: ConnectionOptions = {}) => {
        const client = start(options);
        await once(client, 'secureConnect');
        return client;
      },
      /** A client that has not said anything. */
      raw: async (): Promise<Socket> => {
        const client = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
        t.after(() => {
          client.destroy();
        });
        await once(client, 'connect');
        return client.resume();
      },
    };
  }

  test(
    'a handshake rests and is quiet from its beginning on, and ends with its time [D26, D33, D36]',
    { timeout: 30_000 },
    async (t) => {
      const { server, raw, failures } = await listen(t);
      const from = 5_000;
      let now = from;
      t.mock.method(performance, 'now', () => now);
      await raw();
      await poll(() => server.size === 1, 'it is taken');
      const [handshake] = server;
      assert.ok(handshake);
      assert.equal(handshake.restsSince(from + 700), 700);
      assert.deepEqual([handshake.isQuiet(0, from), handshake.isQuiet(1, from)], [true, false]);
      now = from + 1_000;
      assert.deepEqual([handshake.isQuiet(1_000, 0), handshake.isQuiet(1_001, 0)], [true, false]);
      assert.deepEqual([handshake.isQuiet(300, now - 300), handshake.isQuiet(301, now - 300)], [true, false]);
      handshake.checkTime(from + 59_999);
      assert.equal(handshake.socket.destroyed, false);
      handshake.checkTime(from + 60_000);
      assert.equal(handshake.socket.destroyed, true);
      const told = ['127.0.0.1: TLS was not set up in time'];
      assert.deepEqual(failures, told);
      await once(handshake.socket, 'close');
      assert.deepEqual([failures, server.size], [told, 0], 'its end is no other failure');
    },
  );

  test('why a handshake failed is told once, and whose it was; its connection is closed [D36]', async (t) => {
    const { server, raw, start, failures } = await listen(t, { tls: tls({ minVersion: '1.3' }) });
    const cut = /^127\.0\.0\.1: the connection was closed before TLS was set up$/;
    for (const [what, begin, reason] of [
      ['it goes', async () => (await raw()).destroy(), cut],
      ['it ends without a word', async () => (await raw()).end(), cut],
      ['it ends within its first message', async () => (await raw()).end(helloStart), cut],
      [
        'it resets',
        async () => {
          const socket = await raw();
          socket.write(helloStart);
          await poll(() => server.size === 1, 'it is taken');
          socket.resetAndDestroy();
        },
        /^127\.0\.0\.1: (?:the connection was closed before TLS was set up|.*ECONNRESET)/,
      ],
      [
        'it speaks HTTP',
        async () => {
          const socket = await raw();
          socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
          await closed(socket.on('end', () => socket.end()));
        },
        /^127\.0\.0\.1: .*http request/,
      ],
      [
        'its versions are too old',
        async () => {
          await closed(start({ maxVersion: 'TLSv1.2' }));
        },
        /^127\.0\.0\.1: .*unsupported protocol/,
      ],
    ] as const) {
      failures.length = 0;
      await begin();
      await poll(() => failures.length > 0 && server.size === 0, `${what}: it is told and forgotten`);
      assert.equal(failures.length, 1, what);
      assert.match(failures[0] ?? '', reason);
    }
  });

  test('a client needs a certificate of the authority that is asked for [D38]', async (t) => {
    const { server, start, failures } = await listen(t, { tls: tls({ clientCa: authority.cert }) });
    const strangers = folder.authority('strangers');
    const strange = folder.issue(strangers, 'strange');
    const known = folder.issue(authority, 'known');
    for (const [options, reason] of [
      [{}, /peer did not return a certificate/],
      // Node does not say why.
      [{ cert: strange.cert, key: strange.key }, /closed before TLS|certificate/],
    ] as const) {
      failures.length = 0;
      // In TLS 1.3 it is told when its own part is done.
      await closed(start(options));
      await poll(() => failures.length > 0, 'it is refused');
      assert.match(failures[0] ?? '', reason);
      assert.equal(server.size, 0);
    }
    failures.length = 0;
    start({ cert: known.cert, key: known.key });
    await poll(() => [...server].some((each) => each instanceof ServerConnection), 'it comes in');
    assert.deepEqual(failures, []);
    // Nobody needs one where none is asked for.
    const open = await listen(t);
    await open.secure();
    await poll(() => [...open.server].some((each) => each instanceof ServerConnection), 'it comes in');
  });

  test('a session is resumed where the keys of tickets are shared, and not behind new certificates with other keys [D37]', async (t) => {
    const ticketKeys = Buffer.alloc(48, 1);
    const first = await listen(t, { tls: tls({ ticketKeys }) });
    const second = await listen(t, { tls: tls({ ticketKeys }) });
    const other = await listen(t);
    const client = first.start();
    const [session] = (await once(client, 'session')) as [Buffer];
    assert.equal(client.isSessionReused(), false);
    const isReused = async ({ secure }: typeof first) => (await secure({ session })).isSessionReused();
    assert.deepEqual(
      [await isReused(first), await isReused(second), await isReused(other)],
      [true, true, false],
    );
    second.server.renewTls(tls({ ticketKeys }));
    assert.equal(await isReused(second), true);
    second.server.renewTls(tls());
    assert.equal(await isReused(second), false);
  });

  test('a client that ends its side within a request has its 400 over TLS, too [D27]', async (t) => {
    const { server, port, failures } = await listen(t);
    const client = await RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost' });
    t.after(() => {
      client.destroy();
    });
    client.send('GET / HT');
    client.end();
    const reply = await client.reply();
    assert.deepEqual([reply.status, reply.header('connection')], [400, 'close']);
    assert.equal(await client.closed(), 'end');
    await poll(() => server.size === 0, 'it is forgotten');
    assert.deepEqual(failures, []);
  });

  test('a drain has another protocol say that it ends, and leaves its connection until it has [D33]', async (t) => {
    let announced = 0;
    const { server, secure } = await listen(t, {
      tls: tls(),
      protocols: {
        own: (socket) => ({
          socket: socket.resume(),
          restsSince: () => 0,
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
    await poll(() => [...server].some((each) => 'announceEnd' in each), 'it is served');
    await server.drain(new AbortController().signal, () => true);
    await isClosed;
    assert.ok(announced >= 3);
    assert.equal(server.size, 0);
  });
});
