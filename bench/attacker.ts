// Hostile clients in a separate process. Over IPC, the parent process starts one attack at a time, and later ends it. This
// process has a low priority, so that the load generator on the same core keeps its schedule.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setPriority } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { FrameClient } from '../test/helpers/http2-frames.ts';
import { HTTP2_ATTACKS, type Http2Attack } from './http2-attacks.ts';

/** `forged` is the token that the attack `pipelined forged tokens` sends. */
export type AttackOrder = { attack: string; port: number; forged: string } | { stop: true };

/** The numbers of connections and of HTTP/2 streams that the attack has opened. */
export interface AttackReport {
  connections: number;
  streams: number;
}

interface Attack {
  /** The gateway to attack. */
  door: 'plain' | 'tokens' | 'TLS';
  run: (port: number, forged: string) => Promise<void>;
}

const GET = 'GET /api/work-items/17 HTTP/1.1\r\nHost: gateway\r\n\r\n';
const CHUNKED = 'PUT /api/work-items/17 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
const CHUNKS = Buffer.from('1\r\n1\r\n'.repeat(20_000));
const sockets = new Set<Socket>();
let opened = 0;
let streams = 0;
let isOn = false;

async function open(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' });
  opened += 1;
  sockets.add(socket);
  socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => undefined);
  return socket;
}

/** Keeps `count` connections open: replaces those that the gateway closes. */
function keeping(count: number, begin: (socket: Socket, forged: string) => void): Attack['run'] {
  return async (port, forged) => {
    while (isOn) {
      const missing = Math.min(100, count - sockets.size);
      await Promise.all(
        Array.from({ length: Math.max(0, missing) }, async () => {
          const socket = await open(port);
          if (!socket.destroyed) begin(socket, forged);
        }),
      );
      await delay(missing > 0 ? 1 : 20);
    }
  };
}

/** Repeats `act` in `count` parallel loops. */
function repeating(count: number, act: (port: number) => Promise<void>): Attack['run'] {
  const repeat = async (port: number): Promise<void> => {
    while (isOn) await act(port);
  };
  return async (port) => {
    await Promise.all(Array.from({ length: count }, () => repeat(port)));
  };
}

/** Sends `start`, then a byte a second. */
const dripping = (start: string) => (socket: Socket): void => {
  socket.resume().write(start);
  const timer = setInterval(() => {
    if (socket.writable) socket.write('1');
    else clearInterval(timer);
  }, 1_000);
}; // prettier-ignore

/** Sends `bytes` repeatedly, as fast as the socket accepts them, and reads the replies. */
function flood(socket: Socket, bytes: Buffer): void {
  const send = (): void => {
    while (socket.writable && socket.write(bytes));
  };
  socket.resume().on('drain', send);
  send();
}

/** Many requests, each with the header line `line`. */
function many(start: string, line = ''): Buffer {
  return Buffer.from(`${start} HTTP/1.1\r\nHost: x\r\n${line}\r\n`.repeat(1_000));
}

const flooding = (bytes: Buffer): Attack['run'] => keeping(100, (socket) => flood(socket, bytes));

async function closed(socket: Socket): Promise<void> {
  if (!socket.destroyed) await once(socket, 'close').catch(() => undefined);
}

function leave(socket: Socket): void {
  if (opened % 2 === 0) socket.destroy();
  else socket.resetAndDestroy();
}

/** Attacks over one HTTP/2 connection until that connection is closed. */
const overHttp2 = ({ settings, run }: Http2Attack) => async (port: number): Promise<void> => {
  const index = opened;
  opened += 1;
  // The gateway may close the connection during the handshake.
  const client = await FrameClient.begin(port, settings ?? []).catch(() => undefined);
  if (client === undefined) return delay(20);
  sockets.add(client.socket);
  // Discards all frames received.
  client.onFrame = () => undefined;
  if (isOn) await run(client, (count) => (streams += count), index);
  client.socket.destroy();
  sockets.delete(client.socket);
}; // prettier-ignore

const plain: Record<string, Attack['run']> = {
  'slow heads': keeping(1_000, dripping('GET /api/work-items HTTP/1.1\r\nHost: x\r\nX: ')),
  'slow bodies': keeping(2_000, dripping('PUT /api/work-items/17 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"')),
  // Reads a list of 4 MB at 1 KB/s.
  'slow readers': keeping(25, (socket) => {
    socket.pause().write('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
    const timer = setInterval(() => {
      if (socket.destroyed) clearInterval(timer);
      else socket.read(100);
    }, 100);
  }),
  'idle connections': keeping(5_000, (socket) => void socket.resume()),
  'connection flood': repeating(20, async (port) => { leave(await open(port)); }),
  'header bombs': repeating(4, async (port) => {
    const socket = await open(port);
    socket.resume().end(`GET /api/work-items HTTP/1.1\r\nHost: x\r\n${'a: 1\r\n'.repeat(20_000)}\r\n`);
    await closed(socket);
  }),
  'pipelined requests': repeating(2, async (port) => {
    const socket = await open(port);
    socket.write(GET.repeat(500));
    let replies = 0;
    socket.on('data', (data: Buffer) => {
      replies += data.toString('latin1').split('HTTP/1.1 200').length - 1;
      if (replies >= 499) socket.destroy();
    });
    await closed(socket);
  }),
  'pipelined refusals': flooding(many('GET /api/work-items/a')),
  'pipelined OPTIONS': flooding(many('OPTIONS /api/work-items')),
  'one-byte chunks': keeping(100, (socket) => {
    socket.write(CHUNKED);
    flood(socket, CHUNKS);
  }),
  aborts: repeating(20, async (port) => {
    const socket = await open(port);
    socket.write(GET.slice(0, 1 + Math.floor(Math.random() * GET.length * 2)));
    await delay(Math.random() * 4);
    leave(socket);
  }),
}; // prettier-ignore

const withTokens: Record<string, Attack['run']> = {
  'pipelined requests without a token': flooding(many('GET /api/work-items')),
  'pipelined malformed tokens': flooding(many('GET /api/work-items', 'Authorization: Bearer x\r\n')),
  'pipelined forged tokens': keeping(100, (socket, forged) =>
    flood(socket, many('GET /api/work-items', `Authorization: Bearer ${forged}\r\n`)),
  ),
};

const withDoor = (door: Attack['door'], attacks: Record<string, Attack['run']>): [string, Attack][] =>
  Object.entries(attacks).map(([name, run]) => [name, { door, run }]);

export const ATTACKS: Readonly<Record<string, Attack>> = Object.fromEntries([
  ...withDoor('plain', plain),
  ...withDoor('tokens', withTokens),
  ...Object.entries(HTTP2_ATTACKS).map(([name, attack]): [string, Attack] => [
    name,
    { door: 'TLS', run: repeating(attack.connections ?? 100, overHttp2(attack)) },
  ]),
]);

let running: Promise<void> | undefined;

async function stop(): Promise<void> {
  isOn = false;
  for (const socket of sockets) socket.destroy();
  await running;
  // The attack may have opened more sockets while it was ending.
  for (const socket of sockets) socket.destroy();
  sockets.clear();
}

async function obey(order: AttackOrder): Promise<void> {
  if ('stop' in order) {
    await stop();
  } else {
    [opened, streams, isOn] = [0, 0, true];
    running = ATTACKS[order.attack]?.run(order.port, order.forged);
  }
  process.send?.({ connections: opened, streams } satisfies AttackReport);
}

if (import.meta.main) {
  process.on('message', (order: AttackOrder) => void obey(order));
  process.on('disconnect', () => process.exit());
  setPriority(10);
  process.send?.({ connections: 0, streams: 0 } satisfies AttackReport);
}
