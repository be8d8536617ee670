// A real HAProxy with the configuration of deploy/haproxy.cfg, or another one, in front of gateways on this machine.

import { spawn, type ChildProcess } from 'node:child_process';
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

/** Variations of deploy/haproxy.cfg, each with the file or the port that it needs. */
export interface Variations {
  /** Clients come over TLS: the port, and a file with certificate and key. */
  readonly clientTls?: { readonly port: number; readonly file: string };
  /** Clients come by the PROXY protocol: the port. */
  readonly proxyProtocol?: { readonly port: number };
  /** The gateways speak TLS: a file with the authority of their certificates, for gateways.example.com. */
  readonly gatewayTls?: { readonly file: string };
}

export const shippedConfiguration = readFileSync(
  join(import.meta.dirname, '../../deploy/haproxy.cfg'),
  'utf8',
);
const placesMax = 3;

/** The shipped configuration with these addresses and variations in place of its own, and nothing else changed. */
export function configure(
  port: number,
  gateways: readonly GatewayPlace[],
  variations: Variations = {},
): string {
  assert.ok(gateways.length <= placesMax);
  const { clientTls, proxyProtocol, gatewayTls } = variations;
  const changes: [string, string][] = [
    ['  bind :80\n', `  bind 127.0.0.1:${port}\n`],
    ...Array.from({ length: placesMax }, (_, index): [string, string] => {
      const place = gateways[index];
      const server = `  server gateway-${index + 1} `;
      return [
        `${server}192.0.2.${index + 1}:3000 port 9464\n`,
        place === undefined ? '' : `${server}127.0.0.1:${place.port} port ${place.adminPort}\n`,
      ];
    }),
  ];
  if (clientTls !== undefined) {
    changes.push([
      '  #-bind :443 ssl crt /etc/haproxy/items.pem ',
      `  bind 127.0.0.1:${clientTls.port} ssl crt ${clientTls.file} `,
    ]);
  }
  if (proxyProtocol !== undefined) {
    changes.push(['  #-bind :81 accept-proxy\n', `  bind 127.0.0.1:${proxyProtocol.port} accept-proxy\n`]);
  }
  if (gatewayTls !== undefined) {
    changes.push(
      [
        '  #-default-server ssl verify required ca-file /etc/haproxy/authority.pem ',
        `  default-server ssl verify required ca-file ${gatewayTls.file} `,
      ],
      ['  #-timeout connect 5s\n', '  timeout connect 5s\n'],
    );
  }
  return changes.reduce((text, [from, to]) => {
    assert.equal(text.split(from).length, 2, `deploy/haproxy.cfg has ${from} once`);
    return text.replace(from, to);
  }, shippedConfiguration);
}

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export class Haproxy implements AsyncDisposable {
  readonly port: number;
  /** What it has said so far: a line for each call that failed, and what it thinks of the gateways. */
  readonly lines: () => readonly string[];
  readonly #stop: () => Promise<void>;

  private constructor(port: number, lines: () => readonly string[], stop: () => Promise<void>) {
    this.port = port;
    this.lines = lines;
    this.#stop = stop;
  }

  /** Starts it with the shipped configuration and resolves when it listens. */
  static async start(
    program: string,
    gateways: readonly GatewayPlace[],
    variations: Variations = {},
  ): Promise<Haproxy> {
    const port = await findFreePort();
    return await Haproxy.startWith(program, configure(port, gateways, variations), port);
  }

  /** The same with `configuration`, which listens on `port` of 127.0.0.1. */
  static async startWith(program: string, configuration: string, port: number): Promise<Haproxy> {
    const folder = mkdtempSync(join(tmpdir(), 'haproxy-'));
    const file = join(folder, 'haproxy.cfg');
    writeFileSync(file, configuration);
    const child = spawn(program, ['-db', '-f', file], { stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(child);
    child.once('exit', () => running.delete(child));
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
    return new Haproxy(port, () => output.split('\n').filter(Boolean), stop);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
  }
}
