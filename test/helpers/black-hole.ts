// A port that does not answer connection attempts, since its listen queue is full.

import { connect } from 'node:net';
import { Program } from './program.ts';

const prelude = `
  const { readSync, writeSync } = require('node:fs');
  const block = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  const server = require('node:net').createServer();
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    writeSync(1, 'port ' + server.address().port + '\\n');
  });
`;

/** A process whose `server` has a listen queue of one connection. After `block`, the process accepts no connection. */
export class BlockingListener extends Program {
  port = 0;

  /** `script` runs after `server` has been created. */
  static async start(script: string): Promise<BlockingListener> {
    const command = [process.execPath, '-e', prelude + script];
    const listener = new BlockingListener(command, { stdio: ['pipe', 'pipe', 'ignore'] });
    const [, port] = await listener.prints(/^port (\d+)$/m);
    listener.port = Number(port);
    return listener;
  }

  /** Fills the listen queue of the blocked process. Returns false if the queue has no limit. */
  async fill(): Promise<boolean> {
    for (let attempt = 0; attempt < 64; attempt += 1) {
      const filler = connect(this.port, '127.0.0.1').on('error', () => undefined);
      void this.exited.then(() => filler.destroy());
      const isTaken = await new Promise<boolean>((resolve) => {
        // After a long turn of the event loop, a connection that has been accepted is seen first.
        const timer = setTimeout(setImmediate, 250, resolve, false);
        filler.once('connect', () => {
          clearTimeout(timer);
          resolve(true);
        });
      });
      if (!isTaken) return true;
    }
    return false;
  }
}

/** Blocks a listener and fills its queue. Returns undefined on a system whose listen queue has no limit. */
export async function startBlackHole(): Promise<BlockingListener | undefined> {
  const listener = await BlockingListener.start("server.once('listening', block);");
  if (await listener.fill()) return listener;
  await listener[Symbol.asyncDispose]();
  return undefined;
}
