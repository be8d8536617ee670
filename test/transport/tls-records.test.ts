// TLS records that are tiny, or carry nothing: how many a turn reads, and who is closed. D58.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer } from 'node:https';
import { Socket, type AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import Fastify, { type FastifyInstance } from 'fastify';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { watchRecords } from '../../packages/core/hosts/clients/record-watch.ts';
import { anyCertificate } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startGateway } from '../helpers/gateway.ts';
import { frame, preface, settings } from '../helpers/http2-frames.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';
import { RecordClient } from '../helpers/tls-records.ts';

const put = (length: number): Buffer =>
  Buffer.from(`PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`);
const unknownFrame = (length: number): Buffer => frame(0xbb, 0, 0, Buffer.alloc(length - 9));

async function startNode() {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const handler = createNodeHandler({ backendUrl: backend.url });
  const server = createServer(anyCertificate(), handler).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.close();
    server.closeAllConnections();
    await handler.close();
    await backend.stop();
  };
  return { port, [Symbol.asyncDispose]: close };
}

const hosts = [
  { name: 'HTTP/1.1', protocol: 'http/1.1', start: () => startGateway({ host: 'http2' }), create: put },
  { name: 'HTTP/2', protocol: 'h2', start: () => startGateway({ host: 'http2' }), create: () => Buffer.concat([preface, settings()]) },
  { name: 'a server of node:https', protocol: 'http/1.1', start: startNode, create: put },
  {
    name: 'a Fastify server',
    protocol: 'http/1.1',
    start: () => startGateway({ host: 'plugin', app: Fastify({ https: anyCertificate() }) as unknown as FastifyInstance }),
    create: put,
  },
] as const; // prettier-ignore

/** Opens a client. Returns it with the server's TCP socket of its connection. */
async function open(t: TestContext, port: number, protocol: string) {
  const accepted: Socket[] = [];
  const onSocket = (message: unknown): void => void accepted.push((message as { socket: Socket }).socket);
  subscribe('net.server.socket', onSocket);
  t.after(() => unsubscribe('net.server.socket', onSocket));
  const client = await RecordClient.open(port, { rejectUnauthorized: false, ALPNProtocols: [protocol] });
  const carrier = accepted.find(({ localPort }) => localPort === port);
  assert.ok(carrier);
  return { client, carrier };
}

// Before the tests with real sockets, because they share one timer.
describe('the watch of records', () => {
  /** A TLS socket that receives `records` records of `payload` bytes each in every half second, or in each `nth`. */
  function receive(t: TestContext, records: number, payload: number, periods = 20, nth = 1) {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const carrier = { bytesRead: 5_000 };
    const socket = { _parent: carrier, bytesRead: 100, destroyed: false, destroy: () => (socket.destroyed = true) };
    watchRecords(socket as unknown as Socket);
    watchRecords(socket as unknown as Socket);
    let passed = 0;
    for (; passed < periods && !socket.destroyed; passed += 1) {
      const received = passed % nth === 0 ? records : 0;
      carrier.bytesRead += received * (22 + payload);
      socket.bytesRead += received * payload;
      t.mock.timers.tick(500);
    }
    socket.destroyed = true;
    t.mock.timers.tick(500);
    return passed;
  }

  for (const [records, payload, periods] of [
    // Closed after a second.
    [800, 1, 3],
    [800, 0, 3],
    [10_000, 3, 3],
    // Never closed: keys typed by people and programs, small frames of HTTP/2, requests.
    [500, 1, 20],
    [10_000, 9, 20],
    [100_000, 40, 20],
    [10, 16_384, 20],
  ] as const) {
    test(`${records * 2} records of ${payload} bytes a second: ${periods === 3 ? 'closed after a second' : 'never closed'} [D58]`, (t) => {
      assert.equal(receive(t, records, payload), periods);
    });
  }

  test('a burst of tiny records in less than a second is no reason to close [D58]', (t) => {
    assert.equal(receive(t, 20_000, 1, 2), 2);
  });

  for (const [nth, periods] of [[2, 7], [3, 10], [10, 40]] as const) {
    const seconds = nth / 2;
    const isClosed = nth < 9;
    test(`bursts of KeyUpdates every ${seconds} s: ${isClosed ? 'closed at the fourth' : 'never closed'} [D58]`, (t) => {
      assert.equal(receive(t, 10_000, 0, 40, nth), periods);
    });
  } // prettier-ignore

  test('plain sockets are not watched', () => {
    watchRecords(new Socket());
  });
});

describe('records of one byte', () => {
  // More than twice the bytes that one turn may read.
  const count = 6_000;

  for (const { name, protocol, start, create } of hosts) {
    test(`${name} reads the carrier once in a turn [D58]`, async (t) => {
      await using server = await start();
      const { client, carrier } = await open(t, server.port, protocol);
      t.after(() => client.destroy());
      let text = '';
      client.secureSocket.on('data', (bytes: Buffer) => (text += bytes.toString('latin1')));
      const isHttp2 = protocol === 'h2';
      const body = isHttp2
        ? Buffer.concat([unknownFrame(count / 2), unknownFrame(count / 2)])
        : Buffer.from(`${' '.repeat(count - 2)}{}`);
      const bytes = Buffer.concat([client.data(create(count)), client.singles(body)]);
      const total = carrier.bytesRead + bytes.length;
      let most = 0;
      let before = carrier.bytesRead;
      const sample = (): void => {
        most = Math.max(most, carrier.bytesRead - before);
        before = carrier.bytesRead;
        if (!carrier.destroyed && before < total) setImmediate(sample);
      };
      sample();
      client.socket.write(bytes);
      await poll(() => carrier.bytesRead >= total, 'all bytes are read');
      if (!isHttp2) await poll(() => text.startsWith('HTTP/1.1 200'), 'the reply');
      assert.ok(most <= 65_536, `${most} bytes in a turn`);
    });
  }
});

describe('a connection that sends only KeyUpdates', { concurrency: true }, () => {
  for (const { name, protocol, start, create } of hosts) {
    test(`is closed by ${name} [D58]`, async (t) => {
      await using server = await start();
      const { client, carrier } = await open(t, server.port, protocol);
      t.after(() => client.destroy());
      const rest = protocol === 'h2' ? unknownFrame(16_000).subarray(0, 9) : Buffer.alloc(0);
      client.socket.write(client.data(Buffer.concat([create(9_000_000), rest])));
      const sendMore = setInterval(() => client.socket.write(client.keyUpdates(800)), 200);
      t.after(() => clearInterval(sendMore));
      await poll(() => carrier.destroyed, 'the connection is closed');
    });
  }
});
