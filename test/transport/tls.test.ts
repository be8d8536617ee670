// TLS connections behave like plain connections: order, event-loop turns, stall timeout. They are not disturbed by
// unfinished handshakes, nor by clients that do not send TLS. D35, D36, D58.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import type { ConnectionOptions } from 'node:tls';
import { createGatewayServer, type GatewayServerOptions } from '../../packages/core/hosts/index.ts';
import { noOpenssl } from '../helpers/certificates.ts';
import { createGate, poll } from '../helpers/changes.ts';
import { assertReply, invalidId, succeeded } from '../helpers/expected.ts';
import { startGateway } from '../helpers/gateway.ts';
import { RawClient, requestBytes } from '../helpers/raw-client.ts';
import { answer, behind } from '../helpers/scripted-backend.ts';
import { TurnCounter } from './served-connections.ts';
import { useCertificates } from '../helpers/suites.ts';

const item = '{"id":5}';
const write = requestBytes('PUT', '/api/work-items/5', { body: '{}' });

describe('connections over TLS', { skip: noOpenssl }, () => {
  const folder = useCertificates();
  const authority = folder.authority('authority');
  const { cert, key } = folder.issue(authority, 'server');
  const answered = new TurnCounter();

  const serve = (options: Partial<GatewayServerOptions> = {}) =>
    startGateway({ settings: { tls: { cert, key }, ...options }, onEvent: () => answered.count() });
  const open = (port: number, options: ConnectionOptions = {}) =>
    RawClient.openSecure(port, { ca: authority.cert, servername: 'localhost', ...options });

  let gateway: Awaited<ReturnType<typeof serve>>;
  before(async () => {
    gateway = await serve();
  });
  after(() => gateway[Symbol.asyncDispose]());

  async function assertServed(): Promise<void> {
    await using client = await open(gateway.port);
    assertReply(await client.call('GET', '/api/work-items/5'), 200, item);
  }

  test('a reply and a body of many megabytes arrive complete, and pipelined requests are answered in order', async () => {
    const list = JSON.stringify('ä'.repeat(6_000_000));
    gateway.backend.answersOnce(answer(list));
    await using client = await open(gateway.port);
    assertReply(await client.call('GET', '/api/work-items'), 200, list);
    const ids = Array.from({ length: 100 }, (_, index) => `ahead-${index}`);
    const requests = ids.map((id) => requestBytes('GET', '/api/work-items/5', { headers: [['x-request-id', id]] }));
    client.send(Buffer.concat(requests));
    for (const id of ids) assert.equal((await client.reply()).header('x-request-id'), id);
    const body = JSON.stringify('x'.repeat(3_000_000));
    assertReply(await client.call('PUT', '/api/work-items/5', { body }), 200, succeeded);
  });

  test('a client that ends its side after two writes gets the reply to the first one [D21]', async () => {
    const gate = createGate();
    const { backend } = gateway;
    backend.answersOnce(behind(gate, answer('{}')));
    const before = backend.requests.length;
    await using client = await open(gateway.port);
    client.send(Buffer.concat([write, write]));
    await backend.until(() => backend.requests.length > before, 'the first write');
    client.end();
    // Meanwhile, the gateway reads the end.
    await assertServed();
    gate.open();
    assertReply(await client.reply(), 200, succeeded);
  });

  test('at most 16 pipelined requests are answered in one event-loop turn, even if each has its own TLS record [D58]', async () => {
    await using client = await open(gateway.port);
    const recordBytes = 512;
    assert.ok(client.secureSocket.setMaxSendFragment(recordBytes));
    const padded = (padding: string) => requestBytes('GET', '/api/work-items/a', { headers: [['X-Padding', padding]] });
    const bytes = padded('x'.repeat(recordBytes - padded('').length));
    answered.most = 0;
    client.send(Buffer.alloc(100 * recordBytes, bytes));
    for (let index = 0; index < 100; index += 1) assertReply(await client.reply(), 400, invalidId);
    assert.ok(answered.most > 1 && answered.most <= 16, `${answered.most} in a turn`);
  });

  test('a connection with bytes that are not TLS is closed without an HTTP reply', async () => {
    for (const bytes of [
      Buffer.from('GET /api/work-items/5 HTTP/1.1\r\nHost: localhost\r\n\r\n'),
      Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
      Buffer.alloc(70_000, 0xff),
      Buffer.from('\r\n\r\n\r\n\r\n'),
      Buffer.from('1503030002022850', 'hex'),
      // The start of a 512-byte TLS record with a ClientHello.
      Buffer.concat([Buffer.from('160301020001', 'hex'), Buffer.alloc(600, 1)]),
      Buffer.from('80800103010000'.repeat(20), 'hex'),
    ]) {
      await using client = await RawClient.open(gateway.port);
      client.send(bytes);
      await client.closed();
      assert.equal(client.unread.toString('latin1').includes('HTTP'), false);
    }
    await assertServed();
    assert.deepEqual([gateway.told.malformed, gateway.told.bugs], [[], []]);
  });

  test('a client cannot renegotiate', async () => {
    const client = spawn('openssl', ['s_client', '-tls1_2', '-connect', `127.0.0.1:${gateway.port}`]);
    let text = '';
    for (const output of [client.stdout, client.stderr])
      output.on('data', (bytes: Buffer) => (text += bytes.toString()));
    await poll(() => text.includes('Verify return code'), 'the client is connected');
    client.stdin.write('R\n');
    await poll(() => text.includes('no renegotiation'), 'the renegotiation is refused');
    client.kill();
    await assertServed();
  });

  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    test(`over ${maxVersion}, a client that must have a certificate resumes no session, so each handshake checks the certificate [D38]`, async () => {
      const client = folder.issue(authority, `client-${maxVersion}`);
      for (const clientCa of [undefined, authority.cert]) {
        await using own = await serve({ tls: { cert, key, clientCa } });
        let session: Buffer | undefined;
        const isReused: boolean[] = [];
        for (let count = 0; count < 2; count += 1) {
          const options = { cert: client.cert, key: client.key, maxVersion, ...(session && { session }) };
          await using opened = await open(own.port, options);
          // A TLS 1.2 session may come during the handshake, so it is read from the socket.
          assertReply(await opened.call('GET', '/api/work-items/5'), 200, item);
          session = opened.secureSocket.getSession();
          isReused.push(opened.secureSocket.isSessionReused());
        }
        assert.deepEqual(isReused, [false, clientCa === undefined]);
      }
    });
  }

  test('a client that reads no byte of its reply is cut off, but a slow client is not [D35]', async () => {
    await using own = await serve({ replyStallTimeoutMs: 600 });
    own.backend.answers(answer(JSON.stringify('x'.repeat(20_000_000))));
    await using slow = await open(own.port);
    await using still = await open(own.port);
    still.pause();
    for (const client of [slow, still]) client.send(requestBytes('GET', '/api/work-items'));
    // Reads about 100 KB at a time, with pauses far below the timeout.
    const timer = setInterval(() => {
      slow.pause();
      setImmediate(() => slow.resume());
    }, 50);
    try {
      await poll(() => own.told.stalled.length > 0, 'the client that reads nothing is cut off');
      assert.equal(own.told.stalled.length, 1);
      assert.equal((await slow.reply()).body.length, 20_000_002);
    } finally {
      clearInterval(timer);
    }
  });

  test('createGatewayServer and renewTls throw for invalid TLS options; renewTls then keeps the old options', async () => {
    const other = folder.issue(authority, 'other');
    const invalid = { cert, key: other.key };
    assert.throws(
      () => createGatewayServer({ backendUrl: 'http://localhost:1', tls: invalid, inFlightMax: 0, ...{ backlog: 5 } }),
      /^TypeError: Cannot create the gateway: tls cannot be used: .*; inFlightMax must be .*; backlog is unknown\.$/,
    );
    assert.throws(() => gateway.server.renewTls(invalid));
    await using old = await open(gateway.port);
    assert.equal(old.secureSocket.getPeerX509Certificate()?.subject, 'CN=server');
    gateway.server.renewTls(other);
    await using next = await open(gateway.port);
    assert.equal(next.secureSocket.getPeerX509Certificate()?.subject, 'CN=other');
    assertReply(await old.call('GET', '/api/work-items/5'), 200, item);
  });
});
