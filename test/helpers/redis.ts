// A real Redis or Valkey server on a free port.

import { once } from 'node:events';
import { connect } from 'node:net';
import { findFreePort } from './haproxy.ts';
import { findProgram, Program } from './program.ts';

/** The installed servers; tests use the first. */
export const redisPrograms = ['valkey-server', 'redis-server'].flatMap((name) => {
  const program = findProgram(name);
  return program === undefined ? [] : [{ name, program }];
});

export const withoutRedis =
  redisPrograms.length === 0 && 'no redis-server and no valkey-server is installed (apt-get install redis-server)';

export interface RedisOptions {
  /** Arguments of its command line. */
  readonly args?: readonly string[];
  /** Default: the first installed server. */
  readonly program?: string;
  /** Also listen with TLS, on another port. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string; readonly caFile: string };
}

// The start is repeated with other ports, because another process may take a free port first.
const portsTriedMax = 5;

export class RedisServer implements AsyncDisposable {
  readonly port: number;
  readonly tlsPort: number;
  readonly #options: RedisOptions;
  #server: Program | undefined;

  private constructor(port: number, tlsPort: number, options: RedisOptions) {
    this.port = port;
    this.tlsPort = tlsPort;
    this.#options = options;
  }

  static async start(options: RedisOptions = {}): Promise<RedisServer> {
    for (let tried = 1; ; tried += 1) {
      const server = new RedisServer(await findFreePort(), await findFreePort(), options);
      try {
        await server.restart();
        return server;
      } catch (error) {
        if (tried === portsTriedMax || !String(error).includes('Address already in use')) throw error;
      }
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Starts or restarts the server on the same ports; resolves when it accepts connections. */
  async restart(): Promise<void> {
    await this.kill();
    const { args = [], program = redisPrograms[0]?.program ?? '', tls } = this.#options;
    this.#server = new Program([
      ...[program, '--port', String(this.port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'],
      ...(tls === undefined ? [] : [
        ...['--tls-port', String(this.tlsPort), '--tls-auth-clients', 'no'],
        ...['--tls-cert-file', tls.certFile, '--tls-key-file', tls.keyFile, '--tls-ca-cert-file', tls.caFile],
      ]),
      ...args,
    ]); // prettier-ignore
    // Waits for the server's own line, because an answer on the port could come from another server.
    await this.#server.prints(/Ready to accept connections/);
  }

  /** The first piece of the server's answer to an inline command; undefined if nothing listens. */
  async send(command: string): Promise<string | undefined> {
    const closed = new AbortController();
    const socket = connect(this.port, '127.0.0.1').once('close', () => closed.abort());
    try {
      await once(socket, 'connect');
      socket.write(`${command}\r\n`);
      const [data] = (await once(socket, 'data', closed)) as [Buffer];
      return data.toString();
    } catch {
      return undefined;
    } finally {
      socket.destroy();
    }
  }

  signal(name: NodeJS.Signals): void {
    this.#server?.signal(name);
  }

  async kill(): Promise<void> {
    await this.#server?.[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
