// Clients that make a gateway hold memory, in every way that a client can, and the memory of the gateway's process.

import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { join } from 'node:path';
import { neededMemory } from '../../packages/command/settings/warnings.ts';
import { poll } from '../helpers/changes.ts';
import {
  flags,
  frame,
  frameTypes,
  headers,
  preface,
  requestFields,
  settingIds,
  settings,
  windowUpdate,
} from '../helpers/http2-frames.ts';
import type { Held, Protocol } from './held-gateway.ts';

/** Sends bytes that make the gateway hold memory. Afterwards the client neither reads nor sends. */
type Holding = (socket: Socket) => void;

const get = (size: number | string, field = ''): string =>
  `GET /api/work-items/${size} HTTP/1.1\r\nHost: x\r\n${field}\r\n`;
const put = (framing: string): string => `PUT /api/work-items/1 HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n`;
// The backend answers for item 0 when the clients have left.
const waiting = 0;
const writeBytes = (socket: Socket, text: string): void => {
  for (const character of text) socket.write(character);
};

/** The gateway answers a request for item N with N bytes. */
const http1: Readonly<Record<string, Holding>> = {
  nothing: () => undefined,
  'one call': (socket) => socket.write(get(10)),
  'requests ahead of a slow one': (socket) => socket.write(get(waiting) + get(10).repeat(6_000)),
  'one-byte writes ahead of a slow request': (socket) => {
    socket.write(get(waiting));
    writeBytes(socket, get(10).repeat(60));
  },
  'fixed replies unread': (socket) => socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(6_000)),
  'replies of 300 bytes unread': (socket) => socket.write(get(300).repeat(4_000)),
  'replies of 4 KB unread': (socket) => socket.write(get(4_000).repeat(600)),
  'replies of 15.5 KB unread': (socket) => socket.write(get(15_500).repeat(400)),
  'replies of 20 KB unread': (socket) => socket.write(get(20_000).repeat(300)),
  'a reply of 600 KB unread': (socket) => socket.write(get(600_000).repeat(10)),
  'half a head': (socket) => socket.write(`GET / HTTP/1.1\r\nHost: x\r\nX-A: ${'a'.repeat(16_000)}`),
  'half a head with a token': (socket) =>
    socket.write(`GET / HTTP/1.1\r\nHost: x\r\nAuthorization: ${'a'.repeat(15_000)}\r\nX-A: `),
  'a large head, a slow call': (socket) => socket.write(get(waiting, `Authorization: ${'a'.repeat(15_000)}\r\n`)),
  'half a body': (socket) => socket.write(put('Content-Length: 200000') + '1'.repeat(60_000)),
  'half a body after a large head': (socket) =>
    socket.write(`${put(`Content-Length: 200000\r\nAuthorization: ${'a'.repeat(15_000)}`)}1`),
  'the first bytes of a body, behind 60 KB of requests': (socket) =>
    socket.write(`${get(1).repeat(1_200)}${put('Content-Length: 200000')}${'1'.repeat(4_097)}`),
  'a body in one-byte chunks': (socket) => socket.write(put('Transfer-Encoding: chunked') + '1\r\n1\r\n'.repeat(5_000)),
  'a body in one-byte writes': (socket) => {
    socket.write(put('Content-Length: 200000'));
    writeBytes(socket, '1'.repeat(2_000));
  },
};

const streams = (count: number, send: (stream: number) => Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, (_, index) => send(1 + 2 * index)));
const of = (size: number | string) => requestFields('GET', `/api/work-items/${size}`);
const begin = (window = 65_535): Buffer =>
  Buffer.concat([preface, settings([[settingIds.initialWindowSize, window]]), windowUpdate(0, 2 ** 30)]);
const wide = 2 ** 30;

const http2: Readonly<Record<string, Holding>> = {
  nothing: (socket) => socket.write(begin()),
  'one call': (socket) => socket.write(Buffer.concat([begin(), headers(1, of(10))])),
  'slow calls': (socket) => socket.write(Buffer.concat([begin(), streams(20, (id) => headers(id, of(waiting)))])),
  'large heads, half bodies': (socket) => {
    const fields = requestFields('PUT', '/api/work-items/1', [['authorization', 'a'.repeat(2_000)]]);
    socket.write(Buffer.concat([begin(), streams(30, (id) => headers(id, fields, flags.endHeaders))]));
  },
  'half a head': (socket) => {
    const field: [string, string] = ['x-a', 'a'.repeat(12_000)];
    socket.write(Buffer.concat([begin(), headers(1, requestFields('GET', '/', [field]), 0)]));
  },
  'half bodies': (socket) => {
    const open = (id: number) => headers(id, requestFields('PUT', '/api/work-items/1'), flags.endHeaders);
    const data = (id: number) => frame(frameTypes.data, 0, id, Buffer.alloc(15_000, '1'));
    socket.write(Buffer.concat([begin(), streams(4, open), streams(4, data)]));
  },
  'replies without a window': (socket) =>
    socket.write(Buffer.concat([begin(0), streams(20, (id) => headers(id, of(15_500)))])),
  'fixed replies unread': (socket) =>
    socket.write(Buffer.concat([begin(wide), streams(300, (id) => headers(id, requestFields('GET', '/nope')))])),
  'replies of 4 KB unread': (socket) =>
    socket.write(Buffer.concat([begin(wide), streams(40, (id) => headers(id, of(4_000)))])),
  'replies of 15.5 KB unread': (socket) =>
    socket.write(Buffer.concat([begin(wide), streams(20, (id) => headers(id, of(15_500)))])),
  'replies of 600 KB unread': (socket) =>
    socket.write(Buffer.concat([begin(wide), streams(3, (id) => headers(id, of(600_000)))])),
};

export const holdings: Readonly<Record<Protocol, Readonly<Record<string, Holding>>>> = {
  plain: http1,
  tls: http1,
  http2,
};

/** A gateway in its own process, a backend that answers with as many bytes as the item's id, and clients. */
export class HeldMemory implements AsyncDisposable {
  readonly #gateway: ChildProcess;
  readonly #protocol: Protocol;
  readonly #port: number;
  readonly #backend: SizedBackend;
  #sockets: Socket[] = [];

  private constructor(gateway: ChildProcess, protocol: Protocol, port: number, backend: SizedBackend) {
    this.#gateway = gateway;
    this.#protocol = protocol;
    this.#port = port;
    this.#backend = backend;
  }

  static async start(protocol: Protocol, options: object): Promise<HeldMemory> {
    const backend = new SizedBackend();
    await once(backend.server.listen(0, '127.0.0.1'), 'listening');
    const backendUrl = `http://127.0.0.1:${(backend.server.address() as AddressInfo).port}`;
    const minute = 600_000;
    const slow = { requestTimeoutMs: minute, requestHeadersTimeoutMs: minute, replyStallTimeoutMs: minute };
    const values = {
      backendUrl,
      inFlightMax: 100_000,
      backendTimeoutMs: minute,
      idleTimeoutMs: minute,
      ...slow,
      ...options,
    };
    const gateway = fork(join(import.meta.dirname, 'held-gateway.ts'), [protocol, JSON.stringify(values)], {
      execArgv: ['--expose-gc'],
    });
    const [port] = (await once(gateway, 'message')) as [number];
    return new HeldMemory(gateway, protocol, port, backend);
  }

  /** Opens `count` connections, which take turns with `kinds`. Resolves when all are open and have sent. */
  async hold(count: number, kinds: readonly Holding[]): Promise<void> {
    for (let index = 0; index < count; index += 100) {
      const opened = Array.from({ length: Math.min(100, count - index) }, () => this.#open());
      for (const [at, socket] of (await Promise.all(opened)).entries()) {
        kinds[(index + at) % kinds.length]?.(socket);
        this.#sockets.push(socket);
      }
    }
  }

  async #open(): Promise<Socket> {
    const options = { port: this.#port, host: '127.0.0.1' };
    const socket =
      this.#protocol === 'plain'
        ? connect({ ...options, noDelay: true })
        : connectTls({
            ...options,
            rejectUnauthorized: false,
            ALPNProtocols: [this.#protocol === 'tls' ? 'http/1.1' : 'h2'],
          });
    socket.setNoDelay().on('error', () => undefined);
    await once(socket, this.#protocol === 'plain' ? 'connect' : 'secureConnect');
    return socket.pause();
  }

  /** The gateway's memory once it no longer changes. */
  async settled(): Promise<Held> {
    let before = await this.measure();
    for (let same = 0; same < 3;) {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const held = await this.measure();
      const isSame =
        held.counted === before.counted &&
        held.connections === before.connections &&
        Math.abs(held.resident - before.resident) < 1_000_000;
      same = isSame ? same + 1 : 0;
      before = held;
    }
    return before;
  }

  /** Closes all clients, and ends the slow calls. Resolves when the gateway holds nothing. */
  async leave(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets = [];
    await poll(
      async () => {
        this.#backend.answerWaiting();
        const { counted, connections } = await this.measure();
        return counted === 0 && connections === 0;
      },
      'the gateway holds nothing',
      60_000,
    );
  }

  async measure(): Promise<Held> {
    this.#gateway.send('measure');
    const [held] = (await once(this.#gateway, 'message')) as [Held];
    return held;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#gateway.kill();
    await once(this.#gateway, 'exit');
    this.#backend.server.closeAllConnections();
    this.#backend.server.close();
  }
}

class SizedBackend {
  readonly server = createServer((request, response) => {
    const size = Number(request.url?.split('/').at(-1));
    if (size === waiting) {
      this.#waiting.push(response);
    } else {
      response.end('1'.repeat(size));
    }
  });
  #waiting: ServerResponse[] = [];

  answerWaiting(): void {
    for (const response of this.#waiting.splice(0)) response.end('1');
  }
}

/**
 * Holds memory on `count` connections, in every way. Asserts that the gateway's memory stays below the formula of
 * docs/operating.md, and that nothing is held after the clients have left. Returns the figures in words.
 */
export async function assertFits(protocol: Protocol, count: number): Promise<string> {
  const limits = { bufferedBytesMax: 67_108_864, connectionsMax: count };
  await using memory = await HeldMemory.start(protocol, limits);
  await memory.hold(count, Object.values(holdings[protocol]));
  const { resident, counted } = await memory.settled();
  const needed = neededMemory({ ...limits, workers: 1 }, protocol);
  const figures = `${megabytes(resident)} resident, ${megabytes(counted)} counted; the formula allows ${megabytes(needed)}`;
  assert.ok(counted > 0 && counted <= limits.bufferedBytesMax, figures);
  assert.ok(resident < needed, figures);
  await memory.leave();
  return figures;
}

export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
