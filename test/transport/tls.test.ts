// What a connection over TLS has in common with any other: it counts once, is bounded in time, is served in turn and is
// drained [D26, D33, D35, D36, D58]. And what strangers can do before the handshake has ended.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import type { Connection } from '../../packages/core/http1/connection.ts';
import { ServerConnection } from '../../packages/core/http1/server-connection.ts';
import { ClientServer, type SecureOptions } from '../../packages/core/http1/server.ts';
import { createGatewayServer, type GatewayServerOptions } from '../../packages/core/hosts/index.ts';
import { CertificateFolder, noOpenssl, type Issued } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, badRequest, invalidId, succeeded } from '../helpers/expected.ts';
import { serveInProcess } from '../helpers/in-process.ts';
import { closed, RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { turn, TurnCounter } from '../helpers/served-connections.ts';

const item = '{"id":5}';
// The beginning of a ClientHello of 512 bytes.
const helloStart = Buffer.from('160301020001', 'hex');

describe('connections over TLS', { skip: noOpenssl }, () => {
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

  const tls = () => ({ cert: issued.cert, key: issued.key });
  const serve = async (options: Partial<GatewayServerOptions> = {}) =>
    await serveInProcess({ tls: tls(), ...options });
  const open = async (port: number, options: ConnectionOptions = {}) =>
    await RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost', ...options });

  /** A server of connections alone, that counts what it is told; `handler` never gets a request. */
  async function listen(
    limits: Partial<ConstructorParameters<typeof ClientServer>[0]>,
    secure: SecureOptions,
  ) {
    const failures: string[] = [];
    const server = new ClientServer(
      {
        requestHeadBytesMax: 16_384,
        requestBytesMax: 1_000_000,
        requestHeadersTimeoutMs: 10_000,
        requestTimeoutMs: 30_000,
        replyStallTimeoutMs: 30_000,
        idleTimeoutMs: 72_000,
        connectionsMax: 100,
        ...limits,
      },
      {
        accept: () => assert.fail('a request'),
        refuse: () => assert.fail('a request'),
        onFault: (error) => {
          throw error;
        },
      },
      secure,
    );
    let shed = 0;
    server.onShed = () => (shed += 1);
    server.onHandshakeFailure = (error) => failures.push(error.message);
    server.listener.listen(0, '127.0.0.1');
    await once(server.listener, 'listening');
    const address = server.listener.address();
    assert.ok(typeof address === 'object' && address !== null);
    return {
      server,
      failures,
      port: address.port,
      shed: () => shed,
      [Symbol.dispose]: () => {
        server.listener.close();
        server.closeAll();
      },
    };
  }

  test('a reply of many megabytes, and requests that are sent ahead, come whole and in order', async () => {
    await using gateway = await serve();
    const list = JSON.stringify('ä'.repeat(6_000_000));
    gateway.backend.answers(answer(list));
    await using client = await open(gateway.port);
    const reply = await client.call('GET', '/api/work-items');
    assert.ok(reply.body.equals(Buffer.from(list)));
    gateway.backend.answers(answer(item));
    const ids = Array.from({ length: 100 }, (_, index) => `ahead-${index}`);
    client.send(
      Buffer.concat(
        ids.map((id) => requestBytes('GET', '/api/work-items/5', { headers: [['x-request-id', id]] })),
      ),
    );
    for (const id of ids) {
      assert.equal((await client.reply()).header('x-request-id'), id);
    }
    const body = 'x'.repeat(3_000_000);
    assertReply(
      await client.call('PUT', '/api/work-items/5', { body: JSON.stringify(body) }),
      200,
      succeeded,
    );
  });

  test('of requests that each come in a record of their own 16 are answered in a turn [D58]', async () => {
    const turns = new TurnCounter();
    await using server = await serveInProcess({ tls: tls() }, () => {
      turns.count();
    });
    await using client = await open(server.port);
    const recordBytes = 512;
    assert.ok(client.secureSocket.setMaxSendFragment(recordBytes));
    const empty = requestBytes('GET', '/api/work-items/a', { headers: [['X-Padding', '']] });
    const padding = 'x'.repeat(recordBytes - empty.length);
    const bytes = requestBytes('GET', '/api/work-items/a', { headers: [['X-Padding', padding]] });
    const count = 100;
    client.send(Buffer.concat(Array.from({ length: count }, () => bytes)));
    for (let index = 0; index < count; index += 1) assertReply(await client.reply(), 400, invalidId);
    await turn();
    assert.ok(Math.max(...turns.perTurn) <= 16, `${turns.perTurn.join()} in a turn`);
  });

  test('a connection counts once, from when it is taken', async () => {
    using listening = await listen({}, { tls: tls() });
    const raw = connect(listening.port, '127.0.0.1');
    await poll(() => listening.server.size === 1, 'one that has sent nothing counts');
    const secure = connectTls({
      port: listening.port,
      host: '127.0.0.1',
      ca: authority.cert,
      servername: 'localhost',
    });
    await once(secure, 'secureConnect');
    assert.equal(listening.server.size, 2);
    await poll(
      () => [...listening.server].some((each) => each instanceof ServerConnection),
      'the server has ended the handshake too',
    );
    assert.equal(listening.server.size, 2);
    secure.destroy();
    raw.destroy();
    await poll(() => listening.server.size === 0, 'both are forgotten');
    assert.deepEqual(listening.failures, ['the connection was closed before TLS was set up']);
  });

  test('connections that do not end their handshake make room for one that does', async () => {
    using listening = await listen({ connectionsMax: 20 }, { tls: tls() });
    const silent = Array.from({ length: 20 }, () =>
      connect(listening.port, '127.0.0.1').on('error', () => undefined),
    );
    await poll(() => listening.server.size === 20, 'it is full');
    await poll(async () => {
      const secure = connectTls({
        port: listening.port,
        host: '127.0.0.1',
        ca: authority.cert,
        servername: 'localhost',
      });
      const isSecure = await new Promise<boolean>((resolve) => {
        secure
          .on('secureConnect', () => {
            resolve(true);
          })
          .on('error', () => {
            resolve(false);
          });
        secure.on('close', () => {
          resolve(false);
        });
      });
      secure.destroy();
      return isSecure;
    }, 'a good client comes in');
    assert.ok(listening.shed() > 0);
    assert.deepEqual(listening.failures, [], 'to make room is no failure');
    for (const socket of silent) socket.destroy();
  });

  for (const [what, speak] of [
    ['says nothing', () => undefined],
    ['begins and says no more', (socket: Socket) => socket.write(helloStart)],
    [
      'says a byte now and then',
      (socket: Socket) => {
        socket.write(helloStart);
        const timer = setInterval(() => socket.write('\0'), 20);
        socket.on('close', () => {
          clearInterval(timer);
        });
      },
    ],
  ] as const) {
    test(`a client that ${what} is closed without a reply, as the time for its handshake is over [D36]`, async () => {
      using listening = await listen({ requestHeadersTimeoutMs: 400 }, { tls: tls() });
      const socket = connect(listening.port, '127.0.0.1').on('error', () => undefined);
      const bytes: Buffer[] = [];
      socket.on('data', (piece: Buffer) => bytes.push(piece));
      await once(socket, 'connect');
      const from = performance.now();
      speak(socket);
      // A byte that meets the close is answered with a reset, which is an end like any other.
      await closed(socket);
      const took = performance.now() - from;
      assert.ok(took >= 350 && took < 1_400, `${took} ms`);
      assert.equal(Buffer.concat(bytes).toString('latin1').includes('HTTP'), false);
      assert.equal(listening.server.size, 0);
      assert.equal(listening.failures.length, 1);
    });
  }

  test('bytes that are no TLS are closed without an answer in HTTP, whatever they are', async () => {
    await using gateway = await serve();
    const hello = Buffer.concat([helloStart, Buffer.alloc(600, 1)]);
    for (const bytes of [
      Buffer.from('GET /api/work-items/5 HTTP/1.1\r\nHost: localhost\r\n\r\n'),
      Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
      Buffer.alloc(70_000, 0xff),
      Buffer.from('\r\n\r\n\r\n\r\n'),
      Buffer.from('1503030002022850', 'hex'),
      hello,
      Buffer.from('80800103010000'.repeat(20), 'hex'),
    ]) {
      await using client = await RawClient.open(gateway.port);
      client.send(bytes);
      await client.closed();
      assert.equal(client.unread.toString('latin1').includes('HTTP'), false);
    }
    await using good = await open(gateway.port);
    assertReply(await good.call('GET', '/api/work-items/5'), 200, item);
    assert.equal(gateway.backend.requests.length, 1);
    assert.deepEqual([gateway.told.malformed, gateway.told.bugs], [[], []]);
  });

  test('2,000 connections that never end their handshake keep no good client waiting, and go in time', async () => {
    await using gateway = await serve({ requestHeadersTimeoutMs: 5_000 });
    const sockets = Array.from({ length: 2_000 }, (_, index) => {
      const socket = connect(gateway.port, '127.0.0.1').on('error', () => undefined);
      if (index % 2 === 0) socket.write(helloStart);
      return socket;
    });
    const allClosed = Promise.all(sockets.map(closed));
    await Promise.all(
      sockets.map(async (socket) => {
        if (socket.connecting) await once(socket, 'connect');
      }),
    );
    await using good = await open(gateway.port);
    assertReply(await good.call('GET', '/api/work-items/5'), 200, item);
    assert.ok(
      sockets.every(({ destroyed }) => !destroyed),
      'served while all of them are there',
    );
    await allClosed;
    assertReply(await good.call('GET', '/api/work-items/5'), 200, item);
  });

  test('a client cannot have keys exchanged anew', async () => {
    await using gateway = await serve();
    const client = spawn('openssl', ['s_client', '-tls1_2', '-connect', `127.0.0.1:${gateway.port}`], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let text = '';
    client.stdout.on('data', (bytes: Buffer) => (text += bytes.toString()));
    client.stderr.on('data', (bytes: Buffer) => (text += bytes.toString()));
    await poll(() => text.includes('Verify return code'), 'it is connected');
    client.stdin.write('R\n');
    await poll(() => text.includes('no renegotiation'), 'it is refused');
    client.kill();
    await using good = await open(gateway.port);
    assertReply(await good.call('GET', '/api/work-items/5'), 200, item);
  });

  test('a client that takes no byte of its reply is cut in time, one that takes some is not [D35]', async () => {
    await using gateway = await serve({ replyStallTimeoutMs: 600 });
    gateway.backend.answers(answer(JSON.stringify('x'.repeat(20_000_000))));
    await using slow = await open(gateway.port);
    await using still = await open(gateway.port);
    still.pause();
    for (const client of [slow, still]) client.send(requestBytes('GET', '/api/work-items'));
    // Some 100 KB at a time, with pauses far below the limit.
    const timer = setInterval(() => {
      slow.pause();
      setImmediate(() => {
        slow.resume();
      });
    }, 50);
    try {
      await poll(() => gateway.told.stalled.length > 0, 'the one that takes nothing is cut');
      assert.equal(gateway.told.stalled.length, 1);
      assert.equal((await slow.reply()).body.length, 20_000_002);
    } finally {
      clearInterval(timer);
    }
  });

  test('a request in flight has its reply while it drains, and the connection is closed behind it [D33]', async () => {
    const gateway = await serve();
    const gate = createGate();
    gateway.backend.answersOnce(behind(gate, answer(item)));
    await using client = await open(gateway.port);
    await using idle = await open(gateway.port);
    await using raw = await RawClient.open(gateway.port);
    const reply = client.call('GET', '/api/work-items/5');
    await gateway.backend.until(() => gateway.backend.requests.length === 1, 'the call is at the backend');
    const isClosed = gateway[Symbol.asyncDispose]();
    assert.equal(await idle.closed(), 'end');
    assert.equal(await raw.closed(), 'end');
    gate.open();
    const last = await reply;
    assert.deepEqual([last.status, last.header('connection')], [200, 'close']);
    assert.equal(await client.closed(), 'end');
    await isClosed;
  });

  test('a request that a client cuts off by ending its side gets its 400, and the read before it its reply [D21, D27]', async () => {
    await using gateway = await serve();
    const gate = createGate();
    gateway.backend.answersOnce(behind(gate, answer(item)));
    await using client = await open(gateway.port);
    client.send(requestBytes('GET', '/api/work-items/5'));
    await gateway.backend.until(() => gateway.backend.requests.length === 1, 'the call is at the backend');
    client.send('GET /api/work-items/6 HTTP/1.1\r\nHo');
    client.end();
    await using other = await open(gateway.port);
    assert.equal((await other.call('GET', '/api/work-items/nonsense')).status, 400);
    gate.open();
    assertReply(await client.reply(), 200, item);
    assertReply(await client.reply(), 400, badRequest);
    await client.closed();
  });

  test('clients with another protocol of ALPN are served by whoever is named for it', async () => {
    const served: (string | false | null)[] = [];
    using listening = await listen(
      {},
      {
        tls: tls(),
        protocols: {
          h2: (socket) => {
            const connection: Connection = {
              socket,
              restsSince: () => 0,
              isQuiet: () => true,
              checkTime: () => undefined,
            };
            served.push('alpnProtocol' in socket ? String(socket.alpnProtocol) : null);
            socket.on('data', (bytes) => socket.end(bytes));
            return connection;
          },
        },
      },
    );
    const options = { port: listening.port, host: '127.0.0.1', ca: authority.cert, servername: 'localhost' };
    const known = connectTls({ ...options, ALPNProtocols: ['http/1.1', 'h2'] });
    await once(known, 'secureConnect');
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
      const other = connectTls({ ...options, ...(offered && { ALPNProtocols: [...offered] }) });
      await once(other, 'secureConnect');
      assert.equal(other.alpnProtocol, chosen);
      other.destroy();
    }
    const strange = connectTls({ ...options, ALPNProtocols: ['spdy/3'] });
    await assert.rejects(once(strange, 'secureConnect'));
    assert.deepEqual(served, ['h2']);
    await poll(() => listening.server.size === 0, 'all are forgotten');
  });

  test('options of TLS that cannot be are said when the server is made, and new ones leave the old in force', async () => {
    const other = folder.issue(authority, 'other');
    const make = (given: object) => () =>
      createGatewayServer({ backendUrl: 'http://localhost:1', tls: given as ReturnType<typeof tls> });
    assert.throws(make({ cert: issued.cert }), /tls must be an object with cert and key/);
    assert.throws(make({ ...tls(), minVersion: '1.1' }), /minVersion/);
    assert.throws(make({ ...tls(), key: other.key }), /tls cannot be used/);
    // Each with all the others, in one message.
    assert.throws(
      () =>
        createGatewayServer({
          backendUrl: 'http://localhost:1',
          tls: { ...tls(), key: other.key },
          inFlightMax: 0,
          ...{ backlog: 5 },
        }),
      /^TypeError: The gateway cannot be made: tls cannot be used: .*; inFlightMax must be .*; there is no backlog\.$/,
    );
    await using gateway = await serve();
    assert.throws(() => {
      gateway.server.renewTls({ cert: issued.cert, key: other.key });
    });
    await using before = await open(gateway.port);
    assert.equal(before.secureSocket.getPeerX509Certificate()?.subject, 'CN=server');
    gateway.server.renewTls({ cert: other.cert, key: other.key });
    await using next = await open(gateway.port);
    assert.equal(next.secureSocket.getPeerX509Certificate()?.subject, 'CN=other');
    assertReply(await before.call('GET', '/api/work-items/5'), 200, item);
  });
});
