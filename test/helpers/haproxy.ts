// A real HAProxy with the configuration of deploy/haproxy.cfg, in front of gateways on this machine.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import assert from 'node:assert/strict';
import { poll } from './changes.ts';
import { RawClient } from './raw-client.ts';

// Debian puts servers where a user's PATH may not reach.
const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/local/sbin', '/usr/sbin'];

/** The program, or undefined where it is not installed. */
export const haproxyProgram = folders
  .map((folder) => join(folder, 'haproxy'))
  .find((program) => existsSync(program));

/** A port that nobody listens on just now. */
export async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export interface GatewayPlace {
  readonly port: number;
  readonly adminPort: number;
}

/** The shipped configuration with these addresses in place of its own, and nothing else changed. */
function configure(port: number, gateways: readonly [GatewayPlace, GatewayPlace]): string {
  let text = readFileSync(join(import.meta.dirname, '../../deploy/haproxy.cfg'), 'utf8');
  const changes: [string, string][] = [
    ['bind :80\n', `bind 127.0.0.1:${port}\n`],
    ...gateways.map(({ port: gatewayPort, adminPort }, index): [string, string] => [
      `192.0.2.${index + 1}:3000 port 9464\n`,
      `127.0.0.1:${gatewayPort} port ${adminPort}\n`,
    ]),
  ];
  for (const [from, to] of changes) {
    assert.ok(text.includes(from), `deploy/haproxy.cfg has ${from}`);
    text = text.replace(from, to);
  }
  return text;
}

export class Haproxy implements AsyncDisposable {
  readonly port: number;
  readonly #stop: () => Promise<void>;

  private constructor(port: number, stop: () => Promise<void>) {
    this.port = port;
    this.#stop = stop;
  }

  /** Starts it and resolves when it listens. */
  static async start(program: string, gateways: readonly [GatewayPlace, GatewayPlace]): Promise<Haproxy> {
    const port = await findFreePort();
    const folder = mkdtempSync(join(tmpdir(), 'haproxy-'));
    const file = join(folder, 'haproxy.cfg');
    writeFileSync(file, configure(port, gateways));
    const child = spawn(program, ['-db', '-f', file], { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data: Buffer) => (output += data.toString('utf8')));
    }
    const exited = once(child, 'exit');
    const stop = async (): Promise<void> => {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL');
        await exited;
      }
      rmSync(folder, { recursive: true, force: true });
    };
    try {
      await poll(async () => {
        assert.equal(child.exitCode, null, `haproxy ended:\n${output}`);
        return RawClient.open(port).then(
          (client) => {
            client.destroy();
            return true;
          },
          () => false,
        );
      }, 'haproxy listens');
    } catch (error) {
      await stop();
      throw error;
    }
    return new Haproxy(port, stop);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
  }
}
