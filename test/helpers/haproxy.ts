// A real HAProxy with the configuration of deploy/haproxy.cfg, or another one, in front of gateways on this machine.

import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import assert from 'node:assert/strict';
import { replaceEach } from './documents.ts';
import { findProgram, Program } from './program.ts';

/** The program, or undefined if it is not installed. */
export const haproxyProgram = findProgram('haproxy');

/** A free port below the OS's ephemeral ports, which other tests and outgoing connections get. */
export async function findFreePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + randomInt(20_000);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    await once(server.close(), 'close');
    return port;
  }
}

export interface GatewayPlace {
  readonly port: number;
  readonly adminPort: number;
}

/** Variations of deploy/haproxy.cfg. */
export interface Variations {
  /** Clients use TLS; `file` has certificate and key. */
  readonly clientTls?: { readonly port: number; readonly file: string };
  /** Clients use the PROXY protocol. */
  readonly proxyProtocol?: { readonly port: number };
  /** The gateways use TLS with certificates for gateways.example.com; `file` has their authority. */
  readonly gatewayTls?: { readonly file: string };
}

const shipped = readFileSync(join(import.meta.dirname, '../../deploy/haproxy.cfg'), 'utf8');
/** deploy/haproxy.cfg. Unless the test runs as root, the lines that set the user and the root directory are left out. */
export const shippedConfiguration =
  process.getuid?.() === 0 ? shipped : shipped.replace(/^ {2}(user|group|chroot) .*\n/gm, '');
const placesMax = 3;

/** The shipped configuration with these addresses and variations. */
export function configure(
  port: number,
  gateways: readonly GatewayPlace[],
  { clientTls, proxyProtocol, gatewayTls }: Variations = {},
): string {
  assert.ok(gateways.length <= placesMax);
  const changes: Record<string, string> = { '  bind :80\n': `  bind 127.0.0.1:${port}\n` };
  for (let index = 0; index < placesMax; index += 1) {
    const { [index]: place } = gateways;
    const server = `  server gateway-${index + 1} `;
    changes[`${server}192.0.2.${index + 1}:3000 port 9464\n`] =
      place === undefined ? '' : `${server}127.0.0.1:${place.port} port ${place.adminPort}\n`;
  }
  if (clientTls !== undefined) {
    const line = `  bind 127.0.0.1:${clientTls.port} ssl crt ${clientTls.file} `;
    changes['  #-bind :443 ssl crt /etc/haproxy/items.pem '] = line;
  }
  if (proxyProtocol !== undefined) {
    changes['  #-bind :81 accept-proxy\n'] = `  bind 127.0.0.1:${proxyProtocol.port} accept-proxy\n`;
  }
  if (gatewayTls !== undefined) {
    const line = `  default-server ssl verify required ca-file ${gatewayTls.file} `;
    changes['  #-default-server ssl verify required ca-file /etc/haproxy/authority.pem '] = line;
    changes['  #-timeout connect 5s\n'] = '  timeout connect 5s\n';
  }
  return replaceEach(shippedConfiguration, changes);
}

export class Haproxy extends Program {
  readonly port: number;
  readonly #folder: string;

  private constructor(program: string, configuration: string, port: number) {
    const folder = mkdtempSync(join(tmpdir(), 'haproxy-'));
    const file = join(folder, 'haproxy.cfg');
    writeFileSync(file, configuration);
    super([program, '-db', '-f', file]);
    this.port = port;
    this.#folder = folder;
  }

  /** Starts HAProxy with the shipped configuration; resolves when it listens. */
  static async start(program: string, gateways: readonly GatewayPlace[], variations?: Variations): Promise<Haproxy> {
    const port = await findFreePort();
    return await Haproxy.startWith(program, configure(port, gateways, variations), port);
  }

  /** Starts HAProxy with `configuration`, which must listen on `port` of 127.0.0.1. */
  static async startWith(program: string, configuration: string, port: number): Promise<Haproxy> {
    const haproxy = new Haproxy(program, configuration, port);
    await haproxy.listens(port).catch(async (error: unknown) => {
      await haproxy[Symbol.asyncDispose]();
      throw error;
    });
    return haproxy;
  }

  /** Its output so far: a line for each failed call and for each change of a gateway's state. */
  lines(): readonly string[] {
    return this.output.split('\n').filter(Boolean);
  }

  /** Stops HAProxy as a reload stops the old process: it accepts no new connections, and ends after its last one. */
  stopSoftly(): void {
    this.signal('SIGUSR1');
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
