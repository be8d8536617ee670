// A fleet under load, and what happens to fleets: `npm run fleet [-- --calls 100000 --rate 2000 --minutes 15 --publish]`.
// Three gateways of two workers each as built commands, behind a real HAProxy with deploy/haproxy.cfg, a real Redis for the
// rate limit, two backends. Backends and a gateway are killed, gateways upgraded one at a time, certificates replaced,
// Redis taken away, and answers to writes lost, while clients read and write. The exit code says whether the bar holds: no call lost but with what was
// killed, no write twice, the rate limit kept. The report and its picture go to test-output/; with --publish the picture
// goes to docs/images too. No part of `npm test`. Linux only: clients have addresses of 127.0.0.0/8.

import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { spawnSync } from 'node:child_process';
import { CertificateFolder, noOpenssl } from '../helpers/certificates.ts';
import { poll } from '../helpers/changes.ts';
import { findFreePort, Haproxy, haproxyProgram, type GatewayPlace } from '../helpers/haproxy.ts';
import { childrenOf, figureIn } from '../helpers/process-figures.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { redisPrograms, RedisServer, withoutRedis } from '../helpers/redis.ts';
import { RestartingBackend } from '../helpers/restarting-backend.ts';
import { startCommand, type Command } from '../helpers/targets.ts';
import { FleetClient, FleetLoad, isServed } from './calls.ts';
import { cutDoneWrites, heardMs, killWithDoneWrites } from './done-writes.ts';
import { drawPicture, type Mark, type Second } from './picture.ts';
import { judge, type Kill, type Probe, type Verdict } from './verdict.ts';

const { values } = parseArgs({
  options: {
    calls: { type: 'string', default: '100000' },
    rate: { type: 'string', default: '2000' },
    minutes: { type: 'string', default: '15' },
    publish: { type: 'boolean', default: false },
  },
});
const [callsMin, rate, minutes] = [values.calls, values.rate, values.minutes].map(Number) as [number, number, number]; // prettier-ignore
if (!(callsMin >= 1_000) || !(rate >= 100 && rate <= 20_000) || !(minutes > 0)) {
  console.error(
    'usage: npm run fleet [-- --calls N (1000 or more) --rate N (100 to 20000) --minutes N --publish]',
  );
  process.exit(1);
}
const missing = [
  haproxyProgram === undefined && 'haproxy is not installed (apt-get install haproxy)',
  withoutRedis,
  noOpenssl,
  process.platform !== 'linux' && 'clients need the addresses 127.0.0.0/8, which Linux alone has',
].filter((each) => each !== false);
if (haproxyProgram === undefined || missing.length > 0) {
  console.error(`the fleet cannot run here: ${missing.join('; ')}`);
  process.exit(1);
}

/** Of each client, in each window: twice what one makes here. */
const rateLimit = { count: 100, windowMs: 5_000 };
const clientCount = Math.ceil(rate / 10);
const askedByProbe = 4 * rateLimit.count;
const probeConnections = 8;
const probeTriesMax = 20;
/** A gateway says at most once in ten seconds that Redis was away; the rest after that. */
const lateLinesMs = 12_000;
/** As deploy/haproxy.cfg says. */
const shutdownDelayMs = 3_000;
const stepLimitMs = 60_000;
/** Between two steps, so that each can be seen. */
const restMs = 2_000;
const serverName = 'gateways.example.com';

const endsAt = performance.now() + minutes * 60_000;
const deadline = setTimeout(() => {
  console.error(
    `not done within ${minutes} minutes; the last step was: ${marks.at(-1)?.text ?? 'the start'}`,
  );
  process.exit(1);
}, minutes * 60_000);
// What was started ends with this process, but only where it ends by itself.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const marks: Mark[] = [];
const kills: Kill[] = [];
const probes: Probe[] = [];
let probesAgain = 0;
let startedAt = performance.now();

function mark(text: string): void {
  const atS = (performance.now() - startedAt) / 1_000;
  marks.push({ atS, text });
  console.log(`${atS.toFixed(1).padStart(6)} s  ${text}`);
}

/** A gateway's place in the fleet, and the processes that were there. */
class Gateway implements AsyncDisposable {
  readonly name: string;
  readonly place: GatewayPlace;
  readonly commands: Command[] = [];
  readonly #environment: NodeJS.ProcessEnv;

  constructor(name: string, place: GatewayPlace, environment: NodeJS.ProcessEnv) {
    this.name = name;
    this.place = place;
    this.#environment = environment;
  }

  get command(): Command {
    const last = this.commands.at(-1);
    if (last === undefined) throw new Error(`${this.name} was never started`);
    return last;
  }

  async start(): Promise<void> {
    const { port, adminPort } = this.place;
    this.commands.push(
      await startCommand(
        { ...this.#environment, PORT: String(port), ADMIN_PORT: String(adminPort) },
        {},
        stepLimitMs,
      ),
    );
  }

  /** Resolves when it has served some. */
  async isGivenCalls(): Promise<void> {
    await poll(() => this.#hasServed(), `${this.name} is given calls`, stepLimitMs);
  }

  async upgrade(): Promise<void> {
    this.command.signal('SIGTERM');
    const code = await this.command.exitCode(shutdownDelayMs + 30_000);
    if (code !== 0) throw new Error(`${this.name} ended with ${code}, not 0:\n${this.command.output}`);
    await this.start();
    await this.isGivenCalls();
  }

  /** The primary process and its workers, as a machine or a container that goes. */
  async kill(): Promise<void> {
    const { pid } = this.command.process;
    const from = performance.now();
    const workers = childrenOf(pid) ?? [];
    for (const each of [pid, ...workers]) {
      if (each !== undefined) process.kill(each, 'SIGKILL');
    }
    await this.command.exited;
    kills.push({ what: 'gateway', from, to: performance.now() + heardMs });
  }

  /** Whether Redis counts for it, as all of its workers say. */
  async hasRedis(): Promise<boolean> {
    return figureIn(await this.command.metrics(), 'work_item_gateway_rate_limit_redis_reachable') === 1;
  }

  async #hasServed(): Promise<boolean> {
    const text = await this.command.metrics();
    return /^work_item_gateway_requests_total\{operation="create",status="201"\} [1-9]/m.test(text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.commands.map((command) => command[Symbol.asyncDispose]()));
  }
}

async function killBackend(backend: RestartingBackend): Promise<void> {
  const from = performance.now();
  await backend.end('SIGKILL');
  kills.push({ what: 'backend', from, to: performance.now() + heardMs });
  await new Promise((done) => setTimeout(done, 500));
  await backend.start();
}

/** How often a gateway has said that Redis does not count for it. */
function countLossesOfRedis(gateways: readonly Gateway[]): number {
  return gateways
    .flatMap(({ commands }) => commands)
    .reduce(
      (sum, { logs }) => sum + logs.filter(({ msg }) => msg === 'Redis does not count requests').length,
      0,
    );
}

let probeCount = 0;

/** A client that is new asks for four times its limit at once. */
async function probe(
  port: number,
  gateways: readonly Gateway[],
  when: string,
  limit: number,
  isWithRedis = true,
): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    probeCount += 1;
    const number = probeCount;
    const lossesBefore = countLossesOfRedis(gateways);
    // One that lost it a moment ago still counts by itself.
    if (isWithRedis) await poll(() => haveRedis(gateways, 'every'), 'Redis counts for all', stepLimitMs);
    const from = performance.now();
    const ends = await Promise.all(
      Array.from({ length: probeConnections }, async (_, connection) => {
        const client = new FleetClient(port, `127.0.200.${number}`);
        const own: string[] = [];
        for (let made = 0; made < askedByProbe / probeConnections; made += 1) {
          own.push(String((await client.call(0, `probe-${number}-${connection}-${made}`)).end));
        }
        client.close();
        return own;
      }),
    );
    const tookMs = performance.now() - from;
    const all = ends.flat();
    const served = all.filter((end) => end === '200').length;
    // What a gateway lost for a moment may be in its log later.
    if (served > limit) await new Promise((done) => setTimeout(done, lateLinesMs));
    // Where it took longer than a window, or a gateway could not ask Redis meanwhile, it says nothing of the limit.
    const isSound = tookMs < rateLimit.windowMs && countLossesOfRedis(gateways) === lossesBefore;
    if (isSound || tries === probeTriesMax) {
      const refused = all.filter((end) => end === '429').length;
      probes.push({ when: isSound ? when : `${when}, on a machine that is too busy to tell`, asked: all.length, served, refused, limit }); // prettier-ignore
      mark(`rate limit, ${when}: ${served} of ${all.length} requests served, ${limit} allowed`);
      return;
    }
    probesAgain += 1;
  }
}

interface Fleet {
  readonly gateways: readonly Gateway[];
  readonly backends: readonly [RestartingBackend, RestartingBackend];
  readonly redis: RedisServer;
  readonly port: number;
  readonly replaceCertificate: (index: number) => Promise<void>;
}

/** What happens to the fleet, in this order and spread evenly over the calls. */
function stepsOf({ gateways, backends, redis, port, replaceCertificate }: Fleet): (() => Promise<void>)[] {
  const [one, two, three] = gateways as [Gateway, Gateway, Gateway];
  const limit = rateLimit.count;
  const upgrade = async (gateway: Gateway): Promise<void> => {
    mark(`${gateway.name} is upgraded`);
    await gateway.upgrade();
  };
  const endBackend = async (index: 0 | 1): Promise<void> => {
    mark(`backend ${index + 1} is killed, and back after 0.5 s`);
    await killBackend(backends[index]);
  };
  return [
    () => probe(port, gateways, 'in peace', limit),
    () => endBackend(0),
    () => replaceCertificate(1),
    () => upgrade(one),
    // A backend dies while a gateway drains.
    async () => {
      const upgraded = upgrade(two);
      await endBackend(1);
      await upgraded;
    },
    () => replaceCertificate(2),
    () => upgrade(three),
    async () => {
      mark('Redis is killed');
      await redis.kill();
      await poll(async () => !(await haveRedis(gateways, 'some')), 'every gateway knows it', stepLimitMs);
      await probe(port, gateways, 'without Redis', gateways.length * limit, false);
      await redis.restart();
      await poll(() => haveRedis(gateways, 'every'), 'Redis counts for all', stepLimitMs);
      mark('Redis is back');
    },
    async () => {
      mark('gateway 2 is killed with writes that are done');
      await killWithDoneWrites(backends, clientCount / 2, () => two.kill());
      await new Promise((done) => setTimeout(done, 2_000));
      await two.start();
      await two.isGivenCalls();
      mark('gateway 2 is back');
    },
    async () => {
      mark('backends close connections with writes that are done');
      kills.push(await cutDoneWrites(backends, 10));
    },
    () => endBackend(0),
    () => replaceCertificate(3),
    () => endBackend(1),
    () => probe(port, gateways, 'at the end', limit),
  ];
}

async function haveRedis(gateways: readonly Gateway[], how: 'some' | 'every'): Promise<boolean> {
  const answers = await Promise.all(gateways.map((gateway) => gateway.hasRedis()));
  return how === 'every' ? answers.every(Boolean) : answers.some(Boolean);
}

interface Run {
  readonly load: FleetLoad;
  readonly verdict: Verdict;
  readonly tookS: number;
  readonly haproxyLines: readonly string[];
}

async function run(program: string): Promise<Run> {
  using folder = new CertificateFolder();
  await using stack = new AsyncDisposableStack();
  const authority = folder.authority('authority');
  const certificates = Array.from({ length: 4 }, (_, index) =>
    folder.issue(authority, `certificate-${index}`, { names: [`DNS:${serverName}`] }),
  );
  const files = { cert: folder.file('in-force.pem'), key: folder.file('in-force-key.pem') };
  const put = (index: number): void => {
    const issued = certificates[index];
    if (issued === undefined) throw new Error(`there is no certificate ${index}`);
    renameSync(folder.write('next.pem', issued.cert), files.cert);
    renameSync(folder.write('next.pem', issued.key), files.key);
  };
  put(0);

  const redis = stack.use(await RedisServer.start());
  const first = stack.use(await RestartingBackend.start());
  const second = stack.use(await RestartingBackend.start({ port: first.port }));
  const environment = {
    BACKEND_URL: first.url,
    WORKERS: '2',
    TLS_CERT_FILE: files.cert,
    TLS_KEY_FILE: files.key,
    TLS_RELOAD_MS: '500',
    TRUSTED_PROXIES: '127.0.0.1',
    RATE_LIMIT: `${rateLimit.count}/${rateLimit.windowMs / 1_000}s`,
    RATE_LIMIT_REDIS_URL: redis.url,
    SHUTDOWN_DELAY_MS: String(shutdownDelayMs),
    LOG_LEVEL: 'warn',
  };
  const gateways: Gateway[] = [];
  for (const name of ['gateway 1', 'gateway 2', 'gateway 3']) {
    const place = { port: await findFreePort(), adminPort: await findFreePort() };
    const gateway = stack.use(new Gateway(name, place, environment));
    await gateway.start();
    gateways.push(gateway);
  }
  const places = gateways.map(({ place }) => place);
  const haproxy = stack.use(
    await Haproxy.start(program, places, { gatewayTls: { file: authority.certFile } }),
  );
  const shows = async ({ place }: Gateway, index: number): Promise<boolean> => {
    await using client = await RawClient.openSecure(place.port, {
      ca: authority.cert,
      servername: serverName,
    });
    return client.secureSocket.getPeerX509Certificate()?.subject === `CN=certificate-${index}`;
  };
  const replaceCertificate = async (index: number): Promise<void> => {
    mark('certificates are replaced');
    put(index);
    for (const gateway of gateways) {
      await poll(() => shows(gateway, index), `${gateway.name} shows the new one`, stepLimitMs);
    }
  };

  startedAt = performance.now();
  const load = new FleetLoad({
    port: haproxy.port,
    clients: clientCount,
    periodMs: (clientCount * 1_000) / rate,
  });
  try {
    for (const gateway of gateways) await gateway.isGivenCalls();
    const backends = [first, second] as const;
    const steps = stepsOf({ gateways, backends, redis, port: haproxy.port, replaceCertificate });
    for (const [index, step] of steps.entries()) {
      const due = (callsMin * index) / steps.length;
      await poll(() => load.calls.length >= due, 'calls are made', endsAt - performance.now());
      await step();
      await new Promise((done) => setTimeout(done, restMs));
    }
    await poll(() => load.calls.length >= callsMin, 'all calls are made', endsAt - performance.now());
  } finally {
    await load.stop();
  }
  const tookS = (performance.now() - startedAt) / 1_000;
  const outcomes = new Map(
    gateways
      .flatMap(({ commands }) => commands)
      .flatMap(({ logs }) => logs)
      .map(({ requestId, outcome }) => [String(requestId), String(outcome)]),
  );
  const records = [first.readRecord(), second.readRecord()];
  const verdict = judge({ calls: load.calls, records, kills, outcomes, probes });
  return { load, verdict, tookS, haproxyLines: haproxy.lines() };
}

/** How often HAProxy says what of calls that failed, by gateway: its log has them alone. */
function countFailures(lines: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const line of lines) {
    // What follows the name: five times, the status, bytes, two cookies and how the session ended.
    const [, server, status, state] =
      /gateways\/(\S+) [-+\d/]+ (-?\d+) \d+ \S+ \S+ (\S{4}) /.exec(line) ?? [];
    if (server === undefined) continue;
    const name = `${server} ${status ?? ''} ${state ?? ''}`;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

function versionOf(program: string, pattern: RegExp): string {
  const { stdout } = spawnSync(program, ['-v'], { encoding: 'utf8' });
  return pattern.exec(stdout)?.[1] ?? 'unknown';
}

function secondsOf({ calls }: FleetLoad, tookS: number): Second[] {
  // The last one is not whole.
  const seconds = Array.from({ length: Math.max(1, Math.floor(tookS)) }, () => ({ served: 0, lost: 0 }));
  for (const call of calls) {
    const second = seconds[Math.floor((call.endedAt - startedAt) / 1_000)];
    if (second !== undefined) second[isServed(call) ? 'served' : 'lost'] += 1;
  }
  return seconds;
}

const loadBefore = loadavg()[0] ?? 0;
console.log(
  `three gateways behind HAProxy: at least ${callsMin} calls, ${rate} a second where the machine can`,
);
const { load, verdict, tookS, haproxyLines } = await run(haproxyProgram);
clearTimeout(deadline);

const machine = {
  date: new Date().toISOString().slice(0, 10),
  processor: cpus()[0]?.model ?? 'unknown',
  processors: cpus().length,
  loadBefore: Math.round(loadBefore * 100) / 100,
  node: process.version,
  haproxy: versionOf(haproxyProgram, /version (\d+\.\d+)/),
  redis: versionOf(redisPrograms[0]?.program ?? '', /v=(\S+)/),
};
const seconds = secondsOf(load, tookS);
const { lostOtherwise, writesTwice, writesInvented, problems, ...figures } = verdict;
const report = {
  machine,
  tookS: Math.round(tookS * 10) / 10,
  ...figures,
  lostOtherwise: lostOtherwise.length,
  writesTwice: writesTwice.length,
  writesInvented: writesInvented.length,
  probesAgain,
  haproxyFailures: countFailures(haproxyLines),
  // Which gateways it gave up, and why: a machine without processor time looks like gateways that are frozen.
  haproxyDowns: haproxyLines.filter((line) => /^Server .* is DOWN/.test(line)),
  problems,
  // The first of them, to look at.
  examples: {
    lostOtherwise: lostOtherwise.slice(0, 20),
    writesTwice: writesTwice.slice(0, 20),
    writesInvented: writesInvented.slice(0, 20),
  },
  marks,
  seconds,
};
const output = resolve(import.meta.dirname, '../../test-output');
mkdirSync(output, { recursive: true });
writeFileSync(join(output, 'fleet.json'), `${JSON.stringify(report, undefined, 2)}\n`);
const picture = drawPicture({
  title: `Three gateways behind HAProxy: ${verdict.calls.toLocaleString('en')} calls, calls a second over time`,
  note: `${machine.date} · ${machine.processors} cores for everything, ${machine.processor} · Node ${machine.node.slice(1)} · red: ${verdict.lostWithGateway} calls lost with the killed gateway, ${verdict.lostWithBackend} with killed backends, ${lostOtherwise.length} otherwise`,
  seconds,
  marks,
});
writeFileSync(join(output, 'fleet.svg'), picture);
if (values.publish) {
  writeFileSync(resolve(import.meta.dirname, '../../docs/images/fleet.svg'), picture);
}

console.log(`
calls                              ${verdict.calls} in ${report.tookS} s, ${verdict.served} served
lost with the gateway that was killed  ${verdict.lostWithGateway}
lost with backends that were killed    ${verdict.lostWithBackend}
  of both, writes that had been done   ${verdict.lostButDone}
lost otherwise                         ${lostOtherwise.length}
writes done twice                      ${writesTwice.length}
reads sent to a backend again          ${verdict.readsAgain}
report: test-output/fleet.json, test-output/fleet.svg`);
for (const call of report.examples.lostOtherwise) console.error('lost:', JSON.stringify(call));
for (const problem of problems) console.error(`does not hold: ${problem}`);
console.log(problems.length === 0 ? 'The bar holds.' : 'The bar does not hold.');
process.exitCode = problems.length === 0 ? 0 : 1;
