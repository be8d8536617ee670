// A real Redis or Valkey on a free port, which a test can stop, kill and start again.

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { poll } from './changes.ts';
import { findFreePort } from './haproxy.ts';

const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/local/bin', '/usr/bin'];

/** The servers that are installed; none of them: `apt-get install redis-server`. */
export const redisPrograms = ['redis-server', 'valkey-server'].flatMap((name) => {
  const program = folders.map((folder) => join(folder, name)).find((each) => existsSync(each));
  return program === undefined ? [] : [{ name, program }];
});

export const withoutRedis =
  redisPrograms.length === 0 &&
  'no redis-server and no valkey-server is installed (apt-get install redis-server)';

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export class RedisServer implements AsyncDisposable {
  readonly port: number;
  readonly #program: string;
  readonly #options: readonly string[];
  #process: ChildProcess | undefined;

  private constructor(program: string, port: number, options: readonly string[]) {
    this.#program = program;
    this.port = port;
    this.#options = options;
  }

  static async start(
    options: readonly string[] = [],
    program = redisPrograms[0]?.program ?? '',
  ): Promise<RedisServer> {
    const server = new RedisServer(program, await findFreePort(), options);
    await server.restart();
    return server;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  async restart(): Promise<void> {
    await this.kill();
    const child = spawn(
      this.#program,
      ['--port', String(this.port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', ...this.#options],
      { stdio: 'ignore' },
    ); // prettier-ignore
    this.#process = child;
    running.add(child);
    child.once('exit', () => running.delete(child));
    await poll(async () => (await this.send('PING')) !== undefined, 'the server answers');
  }

  /** What it answers to one inline command; undefined where nobody listens. */
  async send(command: string): Promise<string | undefined> {
    const socket = connect(this.port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      socket.write(`${command}\r\n`);
      const [data] = (await once(socket, 'data')) as [Buffer];
      return data.toString();
    } catch {
      return undefined;
    } finally {
      socket.destroy();
    }
  }

  signal(name: NodeJS.Signals): void {
    this.#process?.kill(name);
  }

  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child?.exitCode === null && child.signalCode === null) {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
