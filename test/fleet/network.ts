// The hosts of the fleet. As root on Linux, each host is a network namespace with its own address and can be cut off; a
// bridge joins the hosts. Elsewhere all hosts are addresses of the loopback interface.

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The last byte of each host's address; the network is that of deploy/haproxy.cfg. */
const hostBytes = {
  'gateway-1': 1,
  'gateway-2': 2,
  'gateway-3': 3,
  'gateway-4': 4,
  'gateway-5': 5,
  'balancer-1': 11,
  'balancer-2': 12,
  'redis-1': 21,
  'redis-2': 22,
  'backend-1': 31,
  'backend-2': 32,
  issuer: 41,
  collector: 42,
} as const;

export type HostName = keyof typeof hostBytes;
export const hostNames = Object.keys(hostBytes) as HostName[];

/** The packets that a cut drops: those to a host, from it, or both. */
export type Direction = 'in' | 'out' | 'both';

const networkPrefix = '192.0.2.';
const loopbackPrefix = '127.0.10.';
/** The addresses of the load's clients, one for each client: the range for benchmarks [RFC 2544]. */
const clientRange = '198.18.0.0/15';
const variable = 'FLEET_NAMESPACES';
/** The signals that end a run. */
export const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The reason why hosts cannot be namespaces here; undefined if they can. */
export function withoutNamespaces(): string | undefined {
  if (process.platform !== 'linux') return 'only Linux has network namespaces';
  if (process.getuid?.() !== 0) return 'only root can create network namespaces';
  const missing = ['ip', 'nft', 'keepalived'].filter((name) => spawnSync(name, ['-V']).error !== undefined);
  if (missing.length > 0) return `not installed: ${missing.join(', ')} (apt-get install iproute2 nftables keepalived)`;
  return undefined;
}

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/**
 * Runs this program again in a namespace for the clients, and creates a namespace for each host. Afterwards
 * removes the namespaces and the processes in them. Returns the program's exit code.
 */
export async function runInNamespaces(names: Readonly<Record<string, readonly HostName[]>>): Promise<number> {
  removeLeftovers();
  const prefix = `fleet${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), `${prefix}-`));
  const clients = `${prefix}-clients`;
  const created: string[] = [];
  const add = (namespace: string): void => {
    ip('netns', 'add', namespace);
    created.push(namespace);
    ip('-n', namespace, 'link', 'set', 'lo', 'up');
  };
  try {
    add(clients);
    ip('-n', clients, 'link', 'add', 'hosts', 'type', 'bridge');
    ip('-n', clients, 'address', 'add', `${networkPrefix}254/24`, 'dev', 'hosts');
    ip('-n', clients, 'link', 'set', 'hosts', 'up');
    ip('-n', clients, 'route', 'add', 'local', clientRange, 'dev', 'lo');
    const known = Object.entries(names).flatMap(([name, of]) =>
      of.map((host) => `${networkPrefix}${hostBytes[host]} ${name}\n`),
    );
    for (const host of hostNames) {
      const namespace = `${prefix}-${host}`;
      add(namespace);
      // An interface's name has at most 15 characters, so the namespace's name would be too long.
      const port = `p${hostBytes[host]}`;
      ip('link', 'add', port, 'netns', clients, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
      ip('-n', clients, 'link', 'set', port, 'master', 'hosts', 'up');
      ip('-n', namespace, 'address', 'add', `${networkPrefix}${hostBytes[host]}/24`, 'dev', 'eth0');
      ip('-n', namespace, 'link', 'set', 'eth0', 'up');
      ip('-n', namespace, 'route', 'add', clientRange, 'via', `${networkPrefix}254`);
      // `ip netns exec` mounts the namespace's file `hosts` over /etc/hosts.
      mkdirSync(`/etc/netns/${namespace}`, { recursive: true });
      writeFileSync(`/etc/netns/${namespace}/hosts`, `127.0.0.1 localhost\n${known.join('')}`);
    }
    const child = spawn('ip', ['netns', 'exec', clients, process.execPath, ...process.argv.slice(1)], {
      stdio: 'inherit',
      env: { ...process.env, [variable]: prefix, TMPDIR: folder },
    });
    // The signal ends the child, and then the namespaces are removed.
    for (const signal of stopSignals) process.on(signal, () => child.kill(signal));
    const [status] = (await once(child, 'exit')) as [number | null];
    return status ?? 1;
  } finally {
    for (const namespace of created) remove(namespace);
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Removes a namespace and kills the processes in it. */
function remove(namespace: string): void {
  const { stdout } = spawnSync('ip', ['netns', 'pids', namespace], { encoding: 'utf8' });
  for (const pid of stdout.split('\n').filter(Boolean)) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // The process has ended.
    }
  }
  spawnSync('ip', ['netns', 'delete', namespace]);
  rmSync(`/etc/netns/${namespace}`, { recursive: true, force: true });
}

/** Removes the namespaces of runs that were killed before they could remove them. */
function removeLeftovers(): void {
  const { stdout } = spawnSync('ip', ['netns', 'list'], { encoding: 'utf8' });
  for (const [namespace, pid = ''] of stdout.matchAll(/^fleet(\d+)-[a-z0-9-]+/gm)) {
    if (!existsSync(`/proc/${pid}`)) remove(namespace);
  }
}

const prefix = process.env[variable];
/** True if hosts can be cut off. */
export const isSeparate = prefix !== undefined;

export function addressOf(host: HostName): string {
  return `${isSeparate ? networkPrefix : loopbackPrefix}${hostBytes[host]}`;
}

/** The address that the balancers share, or the address of the only balancer. */
export const sharedAddress = isSeparate ? `${networkPrefix}10` : addressOf('balancer-1');

/** The time after which a client gives up. */
export const timeoutMs = 10_000;

/** The address of client number `index`. */
export function clientAddress(index: number): string {
  const [high, low] = [1 + Math.floor(index / 250), 1 + (index % 250)];
  return isSeparate ? `198.18.${high}.${low}` : `127.1.${high}.${low}`;
}

/** Replaces the addresses `192.0.2.*` of a configuration by the addresses of this network. */
export function withAddresses(text: string): string {
  return isSeparate ? text : text.replaceAll(networkPrefix, loopbackPrefix);
}

/** The start of a command line that runs a program on this host. */
export function runnerOf(host: HostName): readonly string[] {
  return isSeparate ? ['ip', 'netns', 'exec', `${prefix}-${host}`] : [];
}

function inHost(host: HostName, ...args: string[]): void {
  const [program = '', ...first] = [...runnerOf(host), ...args];
  execFileSync(program, first, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** Drops the host's packets until `heal`. Neither side is notified. */
export function cutOff(host: HostName, direction: Direction): void {
  const chain = (hook: string): string => `chain ${hook} { type filter hook ${hook} priority 0; policy drop; };`;
  const chains = [direction !== 'out' && chain('input'), direction !== 'in' && chain('output')].filter(Boolean);
  inHost(host, 'nft', `table inet cut { ${chains.join(' ')} }`);
}

export function heal(host: HostName): void {
  inHost(host, 'nft', 'delete table inet cut');
}

/** Removes the shared address from a host, because a killed keepalived leaves the address there. */
export function forgetSharedAddress(host: HostName): void {
  spawnSync('ip', ['-n', `${prefix ?? ''}-${host}`, 'address', 'delete', `${sharedAddress}/32`, 'dev', 'eth0']);
}
