// TLS connections behave like plain connections: order, event-loop turns, stall timeout. They are not disturbed by
// unfinished handshakes, nor by clients that do not send TLS. D35, D36, D58.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { describe, test } from 'node:test';
import type { ConnectionOptions } from 'node:tls';
import { createGatewayServer, type GatewayServerOptions } from '../../packages/core/hosts/index.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { assertReply, invalidId, succeeded } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer } from '../helpers/scripted-backend.ts';
import { turn, TurnCounter } from './served-connections.ts';
import { useCertificates } from '../helpers/suites.ts';

const item = '{"id":5}';
// The start of a 512-byte TLS record with a ClientHello.
const helloStart = Buffer.from('160301020001', 'hex');

describe('connections over TLS', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const issued = folder.issue(authority, 'server');

  const tls = () => ({ cert: issued.cert, key: issued.key });
  const serve = async (options: Partial<GatewayServerOptions> = {}) =>
    await startGateway({ settings: { tls: tls(), ...options } });
  const open = async (port: number, options: ConnectionOptions = {}) =>
    await RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost', ...options });

  test('a reply and a body of many megabytes arrive complete, and pipelined requests are answered in order', async () => {
    await using gateway = await serve();
    const list = JSON.stringify('ä'.repeat(6_000_000));
    gateway.backend.answers(answer(list));
    await using client = await open(gateway.port);
    const reply = await client.call('GET', '/api/work-items');
    assert.ok(reply.body.equals(Buffer.from(list)));
    gateway.backend.answers(answer(item));
    const ids = Array.from({ length: 100 }, (_, index) => `ahead-${index}`);
    client.send(
      Buffer.concat(ids.map((id) => requestBytes('GET', '/api/work-items/5', { headers: [['x-request-id', id]] }))),
    );
    for (const id of ids) {
      assert.equal((await client.reply()).header('x-request-id'), id);
    }
    const body = 'x'.repeat(3_000_000);
    assertReply(await client.call('PUT', '/api/work-items/5', { body: JSON.stringify(body) }), 200, succeeded);
  });

  test('at most 16 pipelined requests are answered in one event-loop turn, even if each has its own TLS record [D58]', async () => {
    const turns = new TurnCounter();
    await using server = await startGateway({ settings: { tls: tls() }, onEvent: () => turns.count() });
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
    assert.ok(turns.most <= 16, `${turns.most} in a turn`);
  });

  test('a connection with bytes that are not TLS is closed without an HTTP reply', async () => {
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

  test('a client cannot renegotiate', async () => {
    await using gateway = await serve();
    const client = spawn('openssl', ['s_client', '-tls1_2', '-connect', `127.0.0.1:${gateway.port}`], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let text = '';
    client.stdout.on('data', (bytes: Buffer) => (text += bytes.toString()));
    client.stderr.on('data', (bytes: Buffer) => (text += bytes.toString()));
    await poll(() => text.includes('Verify return code'), 'the client is connected');
    client.stdin.write('R\n');
    await poll(() => text.includes('no renegotiation'), 'the renegotiation is refused');
    client.kill();
    await using good = await open(gateway.port);
    assertReply(await good.call('GET', '/api/work-items/5'), 200, item);
  });

  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    test(`over ${maxVersion}, a client that must have a certificate resumes no session, so each handshake checks the certificate [D38]`, async () => {
      const client = folder.issue(authority, `client-${maxVersion}`);
      for (const clientCa of [undefined, authority.cert]) {
        await using gateway = await serve({ tls: { ...tls(), clientCa } });
        let session: Buffer | undefined;
        const connect = async () => {
          const options = { cert: client.cert, key: client.key, maxVersion, ...(session && { session }) };
          const opened = await open(gateway.port, options);
          // A TLS 1.2 session may come during the handshake, so it is read from the socket.
          assertReply(await opened.call('GET', '/api/work-items/5'), 200, item);
          session = opened.secureSocket.getSession();
          return opened;
        };
        await using first = await connect();
        await using next = await connect();
        assert.equal(first.secureSocket.isSessionReused(), false);
        assert.equal(next.secureSocket.isSessionReused(), clientCa === undefined);
      }
    });
  }

  test('a client that reads no byte of its reply is cut off, but a slow client is not [D35]', async () => {
    await using gateway = await serve({ replyStallTimeoutMs: 600 });
    gateway.backend.answers(answer(JSON.stringify('x'.repeat(20_000_000))));
    await using slow = await open(gateway.port);
    await using still = await open(gateway.port);
    still.pause();
    for (const client of [slow, still]) client.send(requestBytes('GET', '/api/work-items'));
    // Reads about 100 KB at a time, with pauses far below the timeout.
    const timer = setInterval(() => {
      slow.pause();
      setImmediate(() => slow.resume());
    }, 50);
    try {
      await poll(() => gateway.told.stalled.length > 0, 'the client that reads nothing is cut off');
      assert.equal(gateway.told.stalled.length, 1);
      assert.equal((await slow.reply()).body.length, 20_000_002);
    } finally {
      clearInterval(timer);
    }
  });

  test('createGatewayServer and renewTls throw for invalid TLS options; renewTls then keeps the old options', async () => {
    const other = folder.issue(authority, 'other');
    assert.throws(
      () =>
        createGatewayServer({
          backendUrl: 'http://localhost:1',
          tls: { ...tls(), key: other.key },
          inFlightMax: 0,
          ...{ backlog: 5 },
        }),
      /^TypeError: Cannot create the gateway: tls cannot be used: .*; inFlightMax must be .*; backlog is unknown\.$/,
    );
    await using gateway = await serve();
    assert.throws(() => gateway.server.renewTls({ cert: issued.cert, key: other.key }));
    await using before = await open(gateway.port);
    assert.equal(before.secureSocket.getPeerX509Certificate()?.subject, 'CN=server');
    gateway.server.renewTls({ cert: other.cert, key: other.key });
    await using next = await open(gateway.port);
    assert.equal(next.secureSocket.getPeerX509Certificate()?.subject, 'CN=other');
    assertReply(await before.call('GET', '/api/work-items/5'), 200, item);
  });
});
