// The fleet: its hosts with their programs, and the evidence of a run.

import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { CertificateFolder, type Issued } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { replaceEach } from '../helpers/documents.ts';
import { haproxyProgram, shippedConfiguration } from '../helpers/haproxy.ts';
import { audience, createPair, goodToken, issuerName, keySetOf, type Pair } from '../helpers/issuer.ts';
import { Load, type End, type Place } from '../helpers/load.ts';
import { figureIn } from '../helpers/process-figures.ts';
import { markedShot, type MarkedShot } from './marked-load.ts';
import { RawClient } from '../helpers/raw-client.ts';
import type { Command } from '../helpers/command.ts';
import { RestartingBackend } from './restarting-backend.ts';
import {
  addressOf,
  clientAddress,
  isSeparate,
  runnerOf,
  sharedAddress,
  timeoutMs,
  withAddresses,
  type HostName,
} from './network.ts';
import type { Mark } from './picture.ts';
import { Gateway, HostProgram, startRedis, startSentinel, stepLimitMs } from './processes.ts';
import { outcomesIn, type Evidence, type Fault, type Probe } from './verdict.ts';

/** A change that breaks the fleet, to test that the verdict reports problems. */
export interface Sabotage {
  readonly environment?: NodeJS.ProcessEnv;
  /** Replacements in deploy/haproxy.cfg. */
  readonly balancer?: Readonly<Record<string, string>>;
  /** The signal that ends a gateway for its upgrade. */
  readonly upgradeSignal?: NodeJS.Signals;
}

/** The rate limit of each client. A client of the load makes half as many calls in a window. */
export const rateLimit = { count: 100, windowMs: 5_000 };
const serverName = 'gateways.example.com';
const backendPort = 5_104;
const gatewayHosts = ['gateway-1', 'gateway-2', 'gateway-3'] as const;
const root = resolve(import.meta.dirname, '../..');

/** deploy/haproxy.cfg for `count` gateways, with the optional lines for TLS and Redis. */
function configureBalancer(count: number, authorityFile: string, changes: Sabotage['balancer'] = {}): string {
  const last = '  server gateway-3 192.0.2.3:3000 port 9464\n';
  const servers = [3, 4, 5]
    .slice(0, count - 2)
    .map((number) => last.replaceAll('3 192.0.2.3', `${number} 192.0.2.${number}`));
  const [before = '', redis = ''] = shippedConfiguration.split('#-listen redis\n');
  const text = replaceEach(before, {
    '  #-default-server ssl verify required ca-file /etc/haproxy/authority.pem ': `  default-server ssl verify required ca-file ${authorityFile} `,
    '  #-timeout connect 5s\n': '  timeout connect 5s\n',
    [last]: servers.join(''),
    ...(!isSeparate && { '  bind :80\n': `  bind ${sharedAddress}:8080\n` }),
    ...changes,
  });
  return withAddresses(
    `${text}listen redis\n${redis.replaceAll('#-', '').replace('bind :', `bind ${isSeparate ? '' : sharedAddress}:`)}`,
  );
}

/** A host with HAProxy, and with keepalived if there are namespaces. */
class BalancerHost implements AsyncDisposable {
  readonly host: 'balancer-1' | 'balancer-2';
  readonly #file: string;
  readonly #programs: HostProgram[] = [];
  /** The output lines of killed HAProxy processes. */
  readonly #earlierLines: string[] = [];

  constructor(host: BalancerHost['host'], folder: string) {
    this.host = host;
    this.#file = join(folder, `${host}.cfg`);
  }

  async start(configuration: string): Promise<void> {
    writeFileSync(this.#file, configuration);
    const haproxy = await HostProgram.start(
      this.host,
      [haproxyProgram ?? '', '-W', '-db', '-f', this.#file],
      /Loading success|New worker/,
    );
    this.#programs.push(haproxy);
    if (!isSeparate) return;
    const pidFiles = ['-p', '-r', '-c'].flatMap((flag) => [flag, `${this.#file}${flag}`]);
    const keepalived = await HostProgram.start(
      this.host,
      ['keepalived', '-n', '-l', '-D', ...pidFiles, '-f', join(root, 'deploy/keepalived.conf')],
      /Entering (BACKUP|MASTER) STATE/,
    );
    this.#programs.push(keepalived);
  }

  /** Loads another configuration without closing a connection. */
  reload(configuration: string): void {
    writeFileSync(this.#file, configuration);
    this.#programs[0]?.process.kill('SIGUSR2');
  }

  /** True if this balancer has the shared address. */
  get isActive(): boolean {
    const states = [...(this.#programs.at(-1)?.output ?? '').matchAll(/Entering (BACKUP|MASTER|FAULT) STATE/g)];
    return states.at(-1)?.[1] === 'MASTER';
  }

  async kill(): Promise<void> {
    for (const program of this.#programs) program.signal('SIGKILL');
    this.#earlierLines.push(...this.lines().slice(this.#earlierLines.length));
    for (const program of this.#programs.splice(0)) await program[Symbol.asyncDispose]();
  }

  /** The output lines of all this host's HAProxy processes. */
  lines(): string[] {
    return [...this.#earlierLines, ...(this.#programs[0]?.output ?? '').split('\n').filter(Boolean)];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

export class Fleet implements AsyncDisposable {
  readonly gateways: Gateway[] = [];
  readonly balancers: BalancerHost[] = [];
  readonly backends: RestartingBackend[] = [];
  readonly redis = new Map<'redis-1' | 'redis-2', HostProgram>();
  readonly peers: Partial<Record<'issuer' | 'collector', HostProgram>> = {};
  readonly marks: Mark[] = [];
  readonly faults: Fault[] = [];
  readonly probes: Probe[] = [];
  readonly sabotage: Sabotage;
  startedAt = performance.now();
  readonly #stack = new AsyncDisposableStack();
  readonly #started: Gateway[] = [];
  readonly #folder = new CertificateFolder();
  readonly #configurations = mkdtempSync(join(tmpdir(), 'fleet-'));
  readonly #authority: Issued;
  #keys: Pair = createPair('key-1', 'ES256');
  #token = goodToken(this.#keys);
  #certificates = 0;
  #environment: NodeJS.ProcessEnv = {};
  #probes = 0;

  private constructor(sabotage: Sabotage) {
    this.sabotage = sabotage;
    this.#authority = this.#folder.authority('authority');
  }

  /** `before`: the folder of the version that the gateways run at first. */
  static async start(sabotage: Sabotage, before?: string): Promise<Fleet> {
    const fleet = new Fleet(sabotage);
    await fleet.#start(before).catch(async (error: unknown) => {
      await fleet[Symbol.asyncDispose]();
      throw error;
    });
    return fleet;
  }

  readonly balancer: Place = { host: sharedAddress, port: isSeparate ? 80 : 8_080 };
  readonly token = (): string => this.#token;

  async #start(before: string | undefined): Promise<void> {
    const stack = this.#stack;
    this.#putCertificate();
    this.#folder.write('keys.json', keySetOf(this.#keys));
    await this.startPeer('issuer');
    await this.startPeer('collector');
    for (const [index, host] of (['backend-1', 'backend-2'] as const).entries()) {
      const [execPath, ...execArgv] = [...runnerOf(host), process.execPath];
      // Without namespaces the two backends share an address, and the OS distributes connections.
      const address = addressOf(isSeparate ? host : 'backend-1');
      this.backends[index] = stack.use(
        await RestartingBackend.start({ port: backendPort, address, execPath, execArgv }),
      );
    }
    this.redis.set('redis-1', await startRedis('redis-1'));
    this.redis.set('redis-2', await startRedis('redis-2', 'redis-1'));
    for (const host of gatewayHosts) stack.use(await startSentinel(host, this.#configurations));
    for (const host of isSeparate ? (['balancer-1', 'balancer-2'] as const) : (['balancer-1'] as const)) {
      const balancer = stack.use(new BalancerHost(host, this.#configurations));
      await balancer.start(configureBalancer(3, this.#authority.certFile, this.sabotage.balancer));
      this.balancers.push(balancer);
    }
    if (isSeparate)
      await poll(() => this.balancers.some(({ isActive }) => isActive), 'a balancer has the address', stepLimitMs);

    this.#environment = {
      BACKEND_URL: `http://${isSeparate ? 'backends.example.com' : addressOf('backend-1')}:${backendPort}`,
      BACKEND_CONNECT_TIMEOUT_MS: '1000',
      BACKEND_TIMEOUT_MS: '1500',
      WORKERS: '2',
      TLS_CERT_FILE: this.#folder.file('in-force.pem'),
      TLS_KEY_FILE: this.#folder.file('in-force-key.pem'),
      TLS_RELOAD_MS: '500',
      TRUSTED_PROXIES: isSeparate ? [addressOf('balancer-1'), addressOf('balancer-2')].join() : '127.0.0.1',
      RATE_LIMIT: `${rateLimit.count}/${rateLimit.windowMs / 1_000}s`,
      RATE_LIMIT_REDIS_URL: `redis://${sharedAddress}:6379`,
      AUTH_ISSUER: issuerName,
      AUTH_AUDIENCE: audience,
      AUTH_ALGORITHMS: 'ES256',
      AUTH_JWKS_URL: `https://${isSeparate ? 'issuer.example.com' : addressOf('issuer')}:8443/keys`,
      AUTH_JWKS_REFRESH_MS: '1000',
      NODE_EXTRA_CA_CERTS: this.#authority.certFile,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://${addressOf('collector')}:4318`,
      LOG_LEVEL: 'warn',
      ...this.sabotage.environment,
    };
    for (const host of gatewayHosts) await this.addGateway(host, before);
    await this.haveRedis('every');
  }

  async addGateway(host: HostName, before?: string): Promise<void> {
    const gateway = this.#stack.use(new Gateway(host, this.#environment));
    await gateway.start(before);
    this.gateways.push(gateway);
    this.#started.push(gateway);
  }

  /** The configuration of HAProxy for the gateways of the fleet. */
  configuration(): string {
    return configureBalancer(this.gateways.length, this.#authority.certFile, this.sabotage.balancer);
  }

  async startPeer(kind: 'issuer' | 'collector'): Promise<void> {
    const script = join(import.meta.dirname, 'peers.ts');
    const command = [process.execPath, script, kind, addressOf(kind), kind === 'issuer' ? '8443' : '4318'];
    if (kind === 'issuer') {
      const names = ['DNS:issuer.example.com', `IP:${addressOf('issuer')}`];
      const { certFile, keyFile } = this.#folder.issue(this.#authority, 'issuer', { names });
      command.push(certFile, keyFile, this.#folder.file('keys.json'));
    }
    this.peers[kind] = this.#stack.use(await HostProgram.start(kind, command, /ready/));
  }

  /** The number of requests that a peer has had since its start. */
  requests(kind: 'issuer' | 'collector'): number {
    return [...(this.peers[kind]?.output ?? '').matchAll(/keys|traces/g)].length;
  }

  #putCertificate(): number {
    this.#certificates += 1;
    const issued = this.#folder.issue(this.#authority, `certificate-${this.#certificates}`, {
      names: [`DNS:${serverName}`],
    });
    renameSync(this.#folder.write('next.pem', issued.cert), this.#folder.file('in-force.pem'));
    renameSync(this.#folder.write('next.pem', issued.key), this.#folder.file('in-force-key.pem'));
    return this.#certificates;
  }

  /** Replaces the certificate of all gateways; resolves when all gateways show the new certificate. */
  async replaceCertificate(): Promise<void> {
    const subject = `CN=certificate-${this.#putCertificate()}`;
    for (const { host } of this.gateways) {
      const shows = async (): Promise<boolean> => {
        const options = { host: addressOf(host), ca: this.#authority.cert, servername: serverName };
        await using client = await RawClient.openSecure(3_000, options);
        return client.secureSocket.getPeerX509Certificate()?.subject === subject;
      };
      await poll(shows, `${host} shows the new certificate`, stepLimitMs);
    }
  }

  /** As docs/security.md says: publishes a new key with the old key, signs with the new key, then removes the old key. */
  async rotateKeys(): Promise<void> {
    const next = createPair(`key-${Number(this.#keys.kid?.slice(4)) + 1}`, 'ES256');
    const fetched = async (): Promise<void> => {
      // Each worker fetches the keys once a second. After two fetches for each worker, all workers have the new keys.
      const workers = this.gateways.length * 2;
      const before = this.requests('issuer');
      await poll(() => this.requests('issuer') >= before + 2 * workers, 'the keys are fetched', stepLimitMs);
    };
    this.#folder.write('keys.json', keySetOf(this.#keys, next));
    await fetched();
    this.#token = goodToken(next);
    this.#keys = next;
    this.#folder.write('keys.json', keySetOf(next));
    await fetched();
  }

  mark(text: string): void {
    const atS = (performance.now() - this.startedAt) / 1_000;
    this.marks.push({ atS, text });
    console.log(`${atS.toFixed(1).padStart(6)} s  ${text}`);
  }

  /** Marks a fault. It may lose calls in flight, and calls that are sent up to `limitMs` later. */
  fault(what: Fault['what'], name: string, limitMs: number): void {
    this.mark(name);
    this.faults.push({ what, name, from: performance.now(), limitMs });
  }

  /** Resolves when all workers of every gateway count in Redis, or when no gateway counts there. */
  async haveRedis(how: 'none' | 'every'): Promise<void> {
    const expected = how === 'every' ? 1 : 0;
    const isSo = (text: string) => figureIn(text, 'work_item_gateway_rate_limit_redis_reachable') === expected;
    await Promise.all(this.gateways.map((gateway) => gateway.shows(isSo, `counts in Redis: ${how}`)));
  }

  /** Tests the rate limit: a new client sends four times as many requests as its limit, as fast as it can. */
  async probe(when: string, limit = rateLimit.count): Promise<void> {
    const asked = 4 * rateLimit.count;
    for (let tries = 1; ; tries += 1) {
      this.#probes += 1;
      const number = this.#probes;
      const losses = this.#redisLosses();
      const from = performance.now();
      const ends: End[] = [];
      const shots = Array.from({ length: asked }, (_, made) =>
        markedShot(0, `probe-${number}-${made}`, { token: this.#token }),
      );
      const load = new Load<MarkedShot>({
        place: { ...this.balancer, localAddress: clientAddress(20_000 + number) },
        connections: 8,
        timeoutMs,
        nextShot: () => shots.pop(),
        onEnd: ({ end }) => ends.push(end),
      });
      await load.ended();
      load.close();
      const tookMs = performance.now() - from;
      const [served = 0, refused = 0] = [200, 429].map((end) => ends.filter((each) => each === end).length);
      // Waits for late log lines: a gateway logs at most once in ten seconds that Redis did not answer in time.
      if (served > limit) await new Promise((done) => setTimeout(done, 12_000));
      // Repeats the probe if it took longer than a window or a gateway counted alone: such a probe does not test the limit.
      if ((tookMs > rateLimit.windowMs || this.#redisLosses() > losses) && tries < 5) continue;
      this.probes.push({ when, asked, served, refused, limit });
      this.mark(`rate limit, ${when}: ${served} of ${asked} served (limit ${limit})`);
      return;
    }
  }

  get #commands(): Command[] {
    return this.#started.flatMap(({ commands }) => commands);
  }

  /** The number of logged outages of Redis. */
  #redisLosses(): number {
    const lines = this.#commands.flatMap(({ logs }) => logs);
    return lines.filter(({ msg }) => msg === 'Redis does not count requests').length;
  }

  evidence(): Omit<Evidence, 'calls' | 'isComplete'> {
    const records = this.backends.map((backend) => backend.readRecord());
    return { records, faults: this.faults, outcomes: outcomesIn(this.#commands), probes: this.probes };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
    for (const program of this.redis.values()) await program[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
    rmSync(this.#configurations, { recursive: true, force: true });
  }
}
