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

// The backend answers for item 0 when the clients have left.
const waiting = 0;
const get = (size: number, field = ''): string => `GET /api/work-items/${size} HTTP/1.1\r\nHost: x\r\n${field}\r\n`;
const put = (framing: string): string => `PUT /api/work-items/1 HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n`;
const large = (size: number): string => `Authorization: ${'a'.repeat(size)}`;
const writes =
  (...bytes: readonly (string | Uint8Array)[]): Holding =>
  (socket) => {
    for (const each of bytes) socket.write(each);
  };

/** The gateway answers a request for item N with N bytes. */
const http1: Readonly<Record<string, Holding>> = {
  nothing: writes(),
  'one call': writes(get(10)),
  'requests ahead of a slow one': writes(get(waiting) + get(10).repeat(6_000)),
  'one-byte writes ahead of a slow request': writes(get(waiting), ...get(10).repeat(60).split('')),
  'fixed replies unread': writes('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(6_000)),
  'replies of 300 bytes unread': writes(get(300).repeat(4_000)),
  'replies of 15.5 KB unread': writes(get(15_500).repeat(400)),
  'replies of 20 KB unread': writes(get(20_000).repeat(300)),
  'a reply of 600 KB unread': writes(get(600_000).repeat(10)),
  'half a head': writes(`GET / HTTP/1.1\r\nHost: x\r\nX-A: ${'a'.repeat(16_000)}`),
  'half a head with a token': writes(`GET / HTTP/1.1\r\nHost: x\r\n${large(15_000)}\r\nX-A: `),
  'a large head, a slow call': writes(get(waiting, `${large(15_000)}\r\n`)),
  'half a body': writes(put('Content-Length: 200000') + '1'.repeat(60_000)),
  'half a body after a large head': writes(`${put(`Content-Length: 200000\r\n${large(15_000)}`)}1`),
  'the first bytes of a body, behind 60 KB of requests': writes(
    `${get(1).repeat(1_200)}${put('Content-Length: 200000')}${'1'.repeat(4_097)}`,
  ),
  'a body in one-byte chunks': writes(put('Transfer-Encoding: chunked') + '1\r\n1\r\n'.repeat(5_000)),
  'a body in one-byte writes': writes(put('Content-Length: 200000'), ...Array<string>(2_000).fill('1')),
};

const wide = 2 ** 30;
/** A connection with these frames; streams may be sent `window` bytes. */
const frames = (sent: readonly Buffer[], window = wide): Holding =>
  writes(Buffer.concat([preface, settings([[settingIds.initialWindowSize, window]]), windowUpdate(0, wide), ...sent]));
const streams = (count: number, send: (stream: number) => Buffer): Buffer[] =>
  Array.from({ length: count }, (_, index) => send(1 + 2 * index));
const of = (size: number) => requestFields('GET', `/api/work-items/${size}`);
const update = (size: number) => requestFields('PUT', '/api/work-items/1', [['authorization', 'a'.repeat(size)]]);
const calls = (count: number, size: number): Buffer[] => streams(count, (id) => headers(id, of(size)));
const opened = (count: number, size: number): Buffer[] =>
  streams(count, (id) => headers(id, update(size), flags.endHeaders));

const http2: Readonly<Record<string, Holding>> = {
  nothing: frames([]),
  'one call': frames(calls(1, 10)),
  'slow calls': frames(calls(20, waiting)),
  'large heads, half bodies': frames(opened(30, 2_000)),
  'half a head': frames([headers(1, requestFields('GET', '/', [['x-a', 'a'.repeat(12_000)]]), 0)]),
  'half bodies': frames([
    ...opened(4, 1),
    ...streams(4, (id) => frame(frameTypes.data, 0, id, Buffer.alloc(15_000, '1'))),
  ]),
  'replies without a window': frames(calls(20, 15_500), 0),
  'fixed replies unread': frames(streams(300, (id) => headers(id, requestFields('GET', '/nope')))),
  'replies of 4 KB unread': frames(calls(40, 4_000)),
  'replies of 15.5 KB unread': frames(calls(20, 15_500)),
  'replies of 600 KB unread': frames(calls(3, 600_000)),
};

export const holdings: Readonly<Record<Protocol, Readonly<Record<string, Holding>>>> = {
  plain: http1,
  tls: http1,
  http2,
};

/** A gateway in its own process, a backend that answers with as many bytes as the item's id, and clients. */
export class HeldMemory implements AsyncDisposable {
  readonly #gateway: ChildProcess;
  readonly #connect: () => Socket;
  readonly #openEvent: string;
  readonly #backend: SizedBackend;
  #sockets: Socket[] = [];

  private constructor(gateway: ChildProcess, protocol: Protocol, port: number, backend: SizedBackend) {
    this.#gateway = gateway;
    this.#backend = backend;
    const address = { port, host: '127.0.0.1', noDelay: true };
    const secure = { rejectUnauthorized: false, ALPNProtocols: [protocol === 'tls' ? 'http/1.1' : 'h2'] };
    this.#connect = protocol === 'plain' ? () => connect(address) : () => connectTls({ ...address, ...secure });
    this.#openEvent = protocol === 'plain' ? 'connect' : 'secureConnect';
  }

  static async start(protocol: Protocol, options: object): Promise<HeldMemory> {
    const backend = new SizedBackend();
    await once(backend.server.listen(0, '127.0.0.1'), 'listening');
    const backendUrl = `http://127.0.0.1:${(backend.server.address() as AddressInfo).port}`;
    const names = ['backend', 'idle', 'request', 'requestHeaders', 'replyStall'];
    const timeouts = Object.fromEntries(names.map((name) => [`${name}TimeoutMs`, 600_000]));
    const values = { backendUrl, inFlightMax: 100_000, ...timeouts, ...options };
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
    const socket = this.#connect().on('error', () => undefined);
    await once(socket, this.#openEvent);
    return socket.setNoDelay().pause();
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
    for (const socket of this.#sockets.splice(0)) socket.destroy();
    const holdsNothing = async () => {
      this.#backend.answerWaiting();
      const { counted, connections } = await this.measure();
      return counted === 0 && connections === 0;
    };
    await poll(holdsNothing, 'the gateway holds nothing', 60_000);
  }

  async measure(): Promise<Held> {
    this.#gateway.send('measure');
    return ((await once(this.#gateway, 'message')) as [Held])[0];
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
  readonly #waiting: ServerResponse[] = [];
  readonly server = createServer((request, response) => {
    const size = Number(request.url?.split('/').at(-1));
    if (size === waiting) this.#waiting.push(response);
    else response.end('1'.repeat(size));
  });

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
