// Hostile clients in a separate process. The parent process orders one attack at a time over IPC, and later its end. This
// process has a low priority, so that the load generator on the same core keeps its schedule.
import { connect, type Socket } from 'node:net';
import { setPriority } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { FrameClient } from '../test/helpers/http2-frames.ts';
import { attackOver, HTTP2_ATTACKS, settingsOf, type Http2AttackName } from './http2-attacks.ts';

export const ATTACKS = {
  'slow heads': 'each connection sends its head, a byte a second',
  'slow bodies': 'each connection sends its body, a byte a second',
  'slow readers': 'each connection reads a list of 4 MB at 1 KB/s',
  'idle connections': 'connections that send nothing',
  'connection flood': 'connections opened and closed as fast as possible',
  'header bombs': 'heads of 100 KB on one connection after the other',
  'requests sent ahead': 'connections with 500 requests in one write, which read the replies',
  'refusals sent ahead':
    'connections that send requests with a bad id and read the replies, both without a pause',
  'OPTIONS sent ahead': 'the same with OPTIONS',
  'one-byte chunks': 'connections that send bodies in chunks of one byte without a pause',
  aborts: 'clients that disconnect at a random moment of a call',
} as const;
/** Attacks on a gateway that requires tokens. */
export const TOKEN_ATTACKS = {
  'no token sent ahead':
    'connections that send requests without a token and read the replies, both without a pause',
  'Bearer x sent ahead': 'the same with an invalid token',
  'forged tokens sent ahead': 'the same with a token that another RS256 key signed',
} as const;
export type AttackName = keyof typeof ATTACKS | keyof typeof TOKEN_ATTACKS | Http2AttackName;
/** `forged` is a token for the attacks that need one. */
export type AttackOrder =
  { attack: AttackName; port: number; connections: number; forged?: string | undefined } | { stop: true };
/** Numbers of connections that the attack opened, and of HTTP/2 streams on them. */
export interface AttackReport {
  connections: number;
  streams: number;
}

const GET = 'GET /api/work-items/17 HTTP/1.1\r\nHost: gateway\r\n\r\n';
const REFUSED = Buffer.from('GET /api/work-items/a HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2_000));
const OPTIONS = Buffer.from('OPTIONS /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2_000));
const NO_TOKEN = withHeader('');
const BEARER_X = withHeader('Authorization: Bearer x\r\n');
const CHUNKED = 'PUT /api/work-items/17 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
const CHUNKS = Buffer.from('1\r\n1\r\n'.repeat(20_000));
let sockets = new Set<Socket>();
let opened = 0;
let streams = 0;
let isOn = false;

function open(port: number): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    opened += 1;
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('connect', () => resolve(socket));
    socket.once('close', () => {
      sockets.delete(socket);
      resolve(socket);
    });
  });
}

/** Keeps `count` connections open: replaces those that the gateway closes. */
async function keep(port: number, count: number, begin: (socket: Socket) => void): Promise<void> {
  while (isOn) {
    const missing = Math.min(100, count - sockets.size);
    await Promise.all(
      Array.from({ length: Math.max(0, missing) }, async () => {
        const socket = await open(port);
        if (!socket.destroyed) begin(socket);
      }),
    );
    await delay(missing > 0 ? 1 : 20);
  }
}

function drip(socket: Socket, start: string): void {
  socket.resume();
  socket.write(start);
  const timer = setInterval(() => {
    if (socket.writable) socket.write('1');
    else clearInterval(timer);
  }, 1_000);
}

/** Sends `bytes` repeatedly, as fast as the socket accepts them. */
function flood(socket: Socket, bytes: Buffer): void {
  const send = (): void => {
    while (socket.writable && socket.write(bytes));
  };
  socket.resume().on('drain', send);
  send();
}

async function again(count: number, act: () => Promise<void>): Promise<void> {
  await Promise.all(
    Array.from({ length: count }, async () => {
      while (isOn) await act();
    }),
  );
}

/** Attacks over one HTTP/2 connection until that connection is closed. */
async function attackOverHttp2(port: number, attack: Http2AttackName): Promise<void> {
  const index = opened;
  opened += 1;
  // The gateway may close the connection during the handshake.
  const client = await FrameClient.begin(port, settingsOf(attack)).catch(() => undefined);
  if (client === undefined) return delay(20);
  sockets.add(client.socket);
  if (isOn) {
    await attackOver(client, attack, index, (count) => {
      streams += count;
    });
  }
  client.socket.destroy();
  sockets.delete(client.socket);
}

/** Returns the bytes of many requests, each with the header line `line`. */
function withHeader(line: string): Buffer {
  return Buffer.from(`GET /api/work-items HTTP/1.1\r\nHost:\r\n${line}\r\n`.repeat(1_000));
}

function run({
  attack,
  port,
  connections,
  forged = '',
}: Exclude<AttackOrder, { stop: true }>): Promise<void> {
  if (isHttp2(attack)) return again(connections, () => attackOverHttp2(port, attack));
  switch (attack) {
    case 'slow heads':
      return keep(port, connections, (socket) =>
        drip(socket, 'GET /api/work-items HTTP/1.1\r\nHost: x\r\nX: '),
      );
    case 'slow bodies':
      return keep(port, connections, (socket) =>
        drip(socket, 'PUT /api/work-items/17 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"'),
      );
    case 'slow readers':
      return keep(port, connections, (socket) => {
        socket.pause();
        socket.write('GET /api/work-items HTTP/1.1\r\nHost: x\r\n\r\n');
        const timer = setInterval(() => {
          if (socket.destroyed) clearInterval(timer);
          else socket.read(100);
        }, 100);
      });
    case 'idle connections':
      return keep(port, connections, (socket) => void socket.resume());
    case 'connection flood':
      return again(20, async () => {
        const socket = await open(port);
        if (opened % 2 === 0) socket.destroy();
        else socket.resetAndDestroy();
      });
    case 'header bombs':
      return again(4, async () => {
        const socket = await open(port);
        socket.resume();
        socket.end(`GET /api/work-items HTTP/1.1\r\nHost: x\r\n${'a: 1\r\n'.repeat(20_000)}\r\n`);
        await new Promise((resolve) => (socket.destroyed ? resolve(0) : socket.once('close', resolve)));
      });
    case 'requests sent ahead':
      return again(2, async () => {
        const socket = await open(port);
        socket.write(GET.repeat(500));
        let replies = 0;
        socket.on('data', (data: Buffer) => {
          replies += data.toString('latin1').split('HTTP/1.1 200').length - 1;
          if (replies >= 499) socket.destroy();
        });
        await new Promise((resolve) => (socket.destroyed ? resolve(0) : socket.once('close', resolve)));
      });
    case 'refusals sent ahead':
      return keep(port, connections, (socket) => flood(socket, REFUSED));
    case 'OPTIONS sent ahead':
      return keep(port, connections, (socket) => flood(socket, OPTIONS));
    case 'no token sent ahead':
      return keep(port, connections, (socket) => flood(socket, NO_TOKEN));
    case 'Bearer x sent ahead':
      return keep(port, connections, (socket) => flood(socket, BEARER_X));
    case 'forged tokens sent ahead': {
      const requests = withHeader(`Authorization: Bearer ${forged}\r\n`);
      return keep(port, connections, (socket) => flood(socket, requests));
    }
    case 'one-byte chunks':
      return keep(port, connections, (socket) => {
        socket.write(CHUNKED);
        flood(socket, CHUNKS);
      });
    case 'aborts':
      return again(20, async () => {
        const socket = await open(port);
        socket.write(GET.slice(0, 1 + Math.floor(Math.random() * GET.length * 2)));
        await delay(Math.random() * 4);
        if (opened % 2 === 0) socket.destroy();
        else socket.resetAndDestroy();
      });
  }
}

function isHttp2(attack: AttackName): attack is Http2AttackName {
  return attack in HTTP2_ATTACKS;
}

let running: Promise<void> | undefined;

async function stop(): Promise<void> {
  isOn = false;
  await Promise.all([running, ...[...sockets].map((socket) => socket.destroy())]);
  // These sockets were opened meanwhile.
  for (const socket of sockets) socket.destroy();
  sockets = new Set();
  process.send?.({ connections: opened, streams } satisfies AttackReport);
  opened = 0;
  streams = 0;
}

process.on('message', (order: AttackOrder) => {
  if ('stop' in order) {
    void stop();
  } else {
    isOn = true;
    running = run(order);
  }
});
if (process.send) {
  process.on('disconnect', () => process.exit(0));
  setPriority(10);
  process.send({ connections: 0, streams: 0 } satisfies AttackReport);
}
