// TLS records that are tiny, or carry nothing: how many a turn reads, and who is closed. D58.

import assert from 'node:assert/strict';
import { createCipheriv, createHmac } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer } from 'node:https';
import { connect as connectTcp, Socket, type AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import { connect as connectTls } from 'node:tls';
import Fastify, { type FastifyInstance } from 'fastify';
import { createNodeHandler } from '../../packages/core/hosts/node/node.ts';
import { watchRecords } from '../../packages/core/hosts/clients/record-watch.ts';
import { anyCertificate } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { startGateway } from '../helpers/gateway.ts';
import { frame, preface, settings } from '../helpers/http2-frames.ts';
import { answer, ScriptedBackend } from '../helpers/scripted-backend.ts';

// The types of a record's content [RFC 8446, B.1].
const handshake = 22;
const applicationData = 23;
// A KeyUpdate that asks for no KeyUpdate in return [RFC 8446, 4.6.3].
const keyUpdate = Buffer.of(24, 0, 0, 1, 0);

// HKDF-Expand-Label [RFC 8446, 7.1] without context, for one block of SHA-256.
function expand(secret: Buffer, label: string, length: number): Buffer {
  const info = Buffer.concat([Buffer.of(0, length, label.length + 6), Buffer.from(`tls13 ${label}`), Buffer.of(0)]);
  return createHmac('sha256', secret).update(info).update(Buffer.of(1)).digest().subarray(0, length);
}

/** Writes single TLS 1.3 records [RFC 8446, 5], which Node's API cannot. */
class Records {
  #secret: Buffer;
  #sequence = 0n;

  constructor(secret: Buffer) {
    this.#secret = secret;
  }

  /** Returns a record with these bytes. */
  data(bytes: Uint8Array, type = applicationData): Buffer {
    const head = Buffer.of(applicationData, 3, 3, 0, 0);
    head.writeUInt16BE(bytes.length + 17, 3);
    const nonce = expand(this.#secret, 'iv', 12);
    nonce.writeBigUInt64BE(nonce.readBigUInt64BE(4) ^ this.#sequence, 4);
    this.#sequence += 1n;
    const cipher = createCipheriv('aes-128-gcm', expand(this.#secret, 'key', 16), nonce).setAAD(head);
    const sealed = [cipher.update(bytes), cipher.update(Buffer.of(type)), cipher.final()];
    return Buffer.concat([head, ...sealed, cipher.getAuthTag()]);
  }

  /** Returns a record of one byte for each of `bytes`. */
  singles(bytes: Uint8Array): Buffer {
    return Buffer.concat(Array.from(bytes, (byte) => this.data(Buffer.of(byte))));
  }

  /** Returns `count` records with a KeyUpdate each. */
  keyUpdates(count: number): Buffer {
    const records = Array.from({ length: count }, () => {
      const record = this.data(keyUpdate, handshake);
      this.#secret = expand(this.#secret, 'traffic upd', 32);
      this.#sequence = 0n;
      return record;
    });
    return Buffer.concat(records);
  }
}

/** Opens a client. Returns its socket, a maker of its records, and the server's TCP socket of its connection. */
async function open(t: TestContext, port: number, protocol: string) {
  const accepted: Socket[] = [];
  const onSocket = (message: unknown): void => void accepted.push((message as { socket: Socket }).socket);
  subscribe('net.server.socket', onSocket);
  t.after(() => unsubscribe('net.server.socket', onSocket));
  const socket = connectTcp(port, '127.0.0.1').on('error', () => undefined);
  const options = { ALPNProtocols: [protocol], minVersion: 'TLSv1.3', ciphers: 'TLS_AES_128_GCM_SHA256' } as const;
  const client = connectTls({ socket, rejectUnauthorized: false, ...options }).on('error', () => undefined);
  t.after(() => client.destroy());
  let secret: Buffer | undefined;
  client.on('keylog', (line: Buffer) => {
    const [label, , value] = line.toString().trim().split(' ');
    if (label === 'CLIENT_TRAFFIC_SECRET_0') secret = Buffer.from(value ?? '', 'hex');
  });
  await once(client, 'secureConnect');
  // The client has its keys now, and sends the last message of the handshake afterwards.
  await new Promise((resolve) => setImmediate(resolve));
  const carrier = accepted.find(({ localPort, remotePort }) => localPort === port && remotePort === socket.localPort);
  assert.ok(secret !== undefined && carrier !== undefined);
  return { client, socket, records: new Records(secret), carrier };
}

// Before the tests with real sockets, because they share one timer.
describe('the watch of records', () => {
  // A TLS socket receives `records` records of `payload` bytes each in every half second, or in each `nth`.
  for (const [what, records, payload, nth, periods] of [
    ['1,600 records of 1 byte a second: closed after a second', 800, 1, 1, 3],
    ['1,600 empty records a second: closed after a second', 800, 0, 1, 3],
    ['20,000 records of 3 bytes a second: closed after a second', 10_000, 3, 1, 3],
    ['keys typed by people and programs: never closed', 500, 1, 1, 40],
    ['small frames of HTTP/2: never closed', 10_000, 9, 1, 40],
    ['requests: never closed', 100_000, 40, 1, 40],
    ['large records: never closed', 10, 16_384, 1, 40],
    ['bursts of KeyUpdates every second: closed at the fourth', 10_000, 0, 2, 7],
    ['bursts of KeyUpdates every 1.5 s: closed at the fourth', 10_000, 0, 3, 10],
    ['bursts of KeyUpdates every 5 s: never closed', 10_000, 0, 10, 40],
  ] as const) {
    test(`${what} [D58]`, (t) => {
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const carrier = { bytesRead: 5_000 };
      const socket = { _parent: carrier, bytesRead: 100, destroyed: false, destroy: () => (socket.destroyed = true) };
      watchRecords(socket as unknown as Socket);
      watchRecords(socket as unknown as Socket);
      let passed = 0;
      for (; passed < 40 && !socket.destroyed; passed += 1) {
        const received = passed % nth === 0 ? records : 0;
        carrier.bytesRead += received * (22 + payload);
        socket.bytesRead += received * payload;
        t.mock.timers.tick(500);
      }
      socket.destroyed = true;
      t.mock.timers.tick(500);
      assert.equal(passed, periods);
    });
  }

  test('plain sockets are not watched', () => {
    watchRecords(new Socket());
  });
});

async function startNode() {
  const backend = await ScriptedBackend.start();
  backend.answers(answer('{"id":5}'));
  const handler = createNodeHandler({ backendUrl: backend.url });
  const server = createServer(anyCertificate(), handler).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async () => {
    server.close();
    server.closeAllConnections();
    await handler.close();
    await backend.stop();
  };
  return { port: (server.address() as AddressInfo).port, [Symbol.asyncDispose]: close };
}

describe('a connection that sends records of one byte, or only KeyUpdates', { concurrency: true }, () => {
  const put = (length: number) =>
    Buffer.from(`PUT /api/work-items/5 HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`);
  const unknownFrame = (length: number) => frame(0xbb, 0, 0, Buffer.alloc(length));
  const create = () => Fastify({ https: anyCertificate() }) as unknown as FastifyInstance;
  // More than twice the bytes that one turn may read.
  const count = 6_000;
  for (const [name, start] of [
    ['HTTP/1.1', () => startGateway({ host: 'http2' })],
    ['HTTP/2', () => startGateway({ host: 'http2' })],
    ['a server of node:https', startNode],
    ['a Fastify server', () => startGateway({ host: 'plugin', app: create() })],
  ] as const) {
    const isHttp2 = name === 'HTTP/2';
    const protocol = isHttp2 ? 'h2' : 'http/1.1';
    test(`${name} reads the carrier once in a turn, and closes a connection that sends only KeyUpdates [D58]`, async (t) => {
      await using server = await start();
      const slow = await open(t, server.port, protocol);
      let text = '';
      slow.client.on('data', (bytes: Buffer) => (text += bytes.toString('latin1')));
      const head = isHttp2 ? Buffer.concat([preface, settings()]) : put(count);
      const body = isHttp2 ? unknownFrame(count - 9) : Buffer.from(`${' '.repeat(count - 2)}{}`);
      const bytes = Buffer.concat([slow.records.data(head), slow.records.singles(body)]);
      const total = slow.carrier.bytesRead + bytes.length;
      let most = 0;
      let before = slow.carrier.bytesRead;
      const sample = (): void => {
        most = Math.max(most, slow.carrier.bytesRead - before);
        before = slow.carrier.bytesRead;
        if (!slow.carrier.destroyed && before < total) setImmediate(sample);
      };
      sample();
      slow.socket.write(bytes);
      await poll(() => slow.carrier.bytesRead >= total, 'all bytes are read');
      if (!isHttp2) await poll(() => text.startsWith('HTTP/1.1 200'), 'the reply');
      assert.ok(most <= 65_536, `${most} bytes in a turn`);

      const { socket, records, carrier } = await open(t, server.port, protocol);
      const started = isHttp2 ? Buffer.concat([head, unknownFrame(16_000).subarray(0, 9)]) : put(9_000_000);
      socket.write(records.data(started));
      const sendMore = setInterval(() => socket.write(records.keyUpdates(800)), 200);
      t.after(() => clearInterval(sendMore));
      await poll(() => carrier.destroyed, 'the connection is closed');
    });
  }
});
