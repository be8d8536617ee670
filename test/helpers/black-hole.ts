// A port that does not answer connection attempts, since its listen queue is full. Also a backend that becomes such a
// port: it answers one call, then stops accepting connections.

import { spawn, type ChildProcess } from 'node:child_process';
import { connect, type Socket } from 'node:net';

export interface BlackHole extends AsyncDisposable {
  readonly port: number;
}

const listener = `
  const server = require('node:net').createServer();
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    require('node:fs').writeSync(1, String(server.address().port) + '\\n');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });
`;

/** Returns undefined on a system whose listen queue has no limit. */
export async function startBlackHole(): Promise<BlackHole | undefined> {
  const { child, port, dispose } = await start(listener);
  if (await fill(port, child)) return { port, [Symbol.asyncDispose]: dispose };
  await dispose();
  return undefined;
}

export interface DyingBackend extends BlackHole {
  /** Resolves when the backend accepts no more and its listen queue is full; false if the queue has no limit. */
  readonly isFull: Promise<boolean>;
  /** Closes the backend's connection. */
  die(): void;
}

// After its answer or at the second call, it blocks until it reads a byte from stdin. Then it closes its connection.
const dyingListener = `
  const { readSync, writeSync } = require('node:fs');
  const dies = process.argv[1];
  const server = require('node:net').createServer((socket) => {
    let calls = 0;
    const wait = () => {
      writeSync(1, 'waits\\n');
      readSync(0, Buffer.alloc(1));
      socket.destroy();
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    };
    socket.on('data', () => {
      calls += 1;
      if (calls === 2) wait();
      else socket.write('HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n[]', dies === 'idle' ? wait : undefined);
    });
  });
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    writeSync(1, String(server.address().port) + '\\n');
  });
`;

/** A backend that answers one call and dies: after its answer (`idle`) or at the second call (`asked`). */
export async function startDyingBackend(dies: 'idle' | 'asked'): Promise<DyingBackend> {
  const { child, port, dispose } = await start(dyingListener, dies);
  const isFull = new Promise<boolean>((resolve) => child.stdout.once('data', () => resolve(fill(port, child))));
  const die = () => child.stdin.write('x');
  return { port, isFull, die, [Symbol.asyncDispose]: dispose };
}

async function start(program: string, ...args: string[]) {
  const child = spawn(process.execPath, ['-e', program, ...args], { stdio: ['pipe', 'pipe', 'ignore'] });
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  const dispose = async () => {
    process.off('exit', kill);
    const gone = new Promise((resolve) => child.once('exit', resolve));
    kill();
    await gone;
  };
  const port = await new Promise<number>((resolve) =>
    child.stdout.once('data', (data: Buffer) => resolve(Number(data.toString()))),
  );
  return { child, port, dispose };
}

/** Fills the listen queue of `child`; the connections close when `child` exits. False if the queue has no limit. */
async function fill(port: number, child: ChildProcess): Promise<boolean> {
  for (let attempt = 0; attempt < 64; attempt += 1) {
    const filler: Socket = connect({ port, host: '127.0.0.1' });
    child.once('exit', () => filler.destroy());
    filler.on('error', () => undefined);
    const isTaken = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => resolve(false), 250);
      filler.once('connect', () => {
        clearTimeout(timer);
        resolve(true);
      });
    });
    if (!isTaken) return true;
  }
  return false;
}
