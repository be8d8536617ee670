// A port on which nothing ever answers, not even a connection attempt: a listener that takes no connection and
// whose queue is full.

import { spawn } from 'node:child_process';
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

/** Gives undefined on a system whose listen queue has no end: there the case cannot be made. */
export async function startBlackHole(): Promise<BlackHole | undefined> {
  const child = spawn(process.execPath, ['-e', listener], { stdio: ['ignore', 'pipe', 'ignore'] });
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  const fillers: Socket[] = [];
  const dispose = async () => {
    for (const filler of fillers) filler.destroy();
    process.off('exit', kill);
    const gone = new Promise((resolve) => child.once('exit', resolve));
    kill();
    await gone;
  };
  const port = await new Promise<number>((resolve) => {
    child.stdout.once('data', (data: Buffer) => {
      resolve(Number(data.toString()));
    });
  });
  for (let attempt = 0; attempt < 64; attempt += 1) {
    const filler = connect({ port, host: '127.0.0.1' });
    fillers.push(filler);
    filler.on('error', () => undefined);
    const isTaken = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => {
        resolve(false);
      }, 250);
      filler.once('connect', () => {
        clearTimeout(timer);
        resolve(true);
      });
    });
    if (!isTaken) return { port, [Symbol.asyncDispose]: dispose };
  }
  await dispose();
  return undefined;
}
