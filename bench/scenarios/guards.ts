// The cost per call of each guard, of TLS and HTTP/2, and of a log line: the CPU time of the built command with and without the
// feature. The call is a GET of one item over 64 keep-alive connections. For TLS and HTTP/2, h2load (Debian: nghttp2-client) makes
// the calls. For Redis (Debian: redis-server), 100 clients make 10,000 calls a second.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { RedisServer, withoutRedis } from '../../test/helpers/redis.ts';
import { WARMUP, type Bench, type Scenario } from '../bench.ts';
import { hasProgram } from '../contenders.ts';
import { Certificate, makeTokens } from '../doors.ts';
import { processorMs } from '../processes.ts';
import type { GuardRow } from '../results.ts';
import { pin, type Running } from '../running.ts';
import { existing, formatUs, median } from '../tables.ts';
import { ITEM_WORKLOAD } from '../workloads.ts';

const REDIS_RATE = 10_000;
const CLIENTS = 100;
// h2load makes this number of calls per ms of the measured time: about the throughput of one core.
const H2LOAD_RATE = 12;

interface Variant {
  readonly name: string;
  /** Settings that the plain variant does not have. */
  readonly settings: Record<string, string>;
  /** Header lines. Each request has one of these lines, in turn. */
  readonly headers?: readonly string[];
  /** Calls per second; default: as many as possible. */
  readonly rate?: number;
  /** The log goes to a pipe with a reader, as in a container. */
  readonly isLogRead?: true;
  /** Arguments of h2load, which then replaces our load generator. */
  readonly h2load?: readonly string[];
  readonly ca?: string;
  /** The name of the variant to compare with. The goal is at most `moreUsMax` µs more, or at most `factorMax` times the cost. */
  readonly comparedWith?: string;
  readonly moreUsMax?: number;
  readonly factorMax?: number;
}

/** Starts a collector that accepts everything. */
async function startCollector(): Promise<string> {
  const server = createServer((incoming, response) => incoming.resume().on('end', () => response.end())).listen(
    0,
    '127.0.0.1',
  );
  await once(server, 'listening');
  server.unref();
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function makeVariants(folder: string, certificate: Certificate | undefined, redisUrl: string | undefined) {
  const { tokens, settings: tokenSettings } = makeTokens(folder, 64);
  const headers = Array.from({ length: CLIENTS }, (_, index) => `X-Forwarded-For: 203.0.113.${index + 1}`);
  const byProxy = { TRUSTED_PROXIES: '127.0.0.1' };
  const limited = { ...byProxy, RATE_LIMIT: '1000000/1s' };
  const traced = {
    OTEL_EXPORTER_OTLP_ENDPOINT: await startCollector(),
    OTEL_TRACES_SAMPLER: 'traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0.01',
  };
  const bearers = tokens.map((token) => `Authorization: Bearer ${token}`);
  const cors = { CORS_ORIGINS: 'https://app.example' };
  const h1 = ['--h1', '-c', '64'];
  const h2 = ['-c', '2', '-m', '32'];
  const tls = certificate && { settings: certificate.settings, ca: certificate.ca };
  const http2 = certificate && { ...tls, settings: { ...certificate.settings, HTTP2: 'true' } };
  const paced = `behind a proxy, ${REDIS_RATE.toLocaleString('en')}/s`;
  const inRedis = redisUrl === undefined ? undefined : { ...limited, RATE_LIMIT_REDIS_URL: redisUrl };
  const variants: (Variant | undefined)[] = [
    { name: 'plain', settings: {} },
    { name: 'remembered token', settings: tokenSettings, headers: bearers, comparedWith: 'plain', moreUsMax: 4 },
    { name: 'CORS', settings: cors, headers: ['Origin: https://app.example'], comparedWith: 'plain', moreUsMax: 1 },
    { name: 'a log line a call', settings: { LOG_LEVEL: 'info' }, isLogRead: true, comparedWith: 'plain', factorMax: 1.1 },
    { name: 'traces, 1 %', settings: traced, comparedWith: 'plain', moreUsMax: 1 },
    { name: 'behind a proxy', settings: byProxy, headers },
    { name: 'rate limit', settings: limited, headers, comparedWith: 'behind a proxy', moreUsMax: 2 },
    { name: paced, settings: byProxy, headers, rate: REDIS_RATE },
    inRedis && { name: 'rate limit in Redis, 10,000/s', settings: inRedis, headers, rate: REDIS_RATE, comparedWith: paced, moreUsMax: 20 },
    tls && { name: 'plain, h2load', settings: {}, h2load: h1 },
    tls && { name: 'TLS, HTTP/1.1', ...tls, h2load: h1, comparedWith: 'plain, h2load', factorMax: 1.7 },
    tls && { name: 'TLS, HTTP/2, 32 streams', ...tls, ...http2, h2load: h2, comparedWith: 'TLS, HTTP/1.1', factorMax: 1.6 },
  ]; // prettier-ignore
  return variants.filter((one) => one !== undefined);
}

/** Opens a pipe whose reader, on the other core, discards everything. */
function openReadPipe(folder: string): number {
  const path = join(folder, 'log');
  execFileSync('mkfifo', [path]);
  spawn(...pin(1, 'dd', [`if=${path}`, 'of=/dev/null', 'bs=64k']), { stdio: 'ignore' });
  // `openSync` blocks until the reader has opened the pipe. The reader ends when the gateway and this process close the pipe.
  return openSync(path, 'w');
}

/** Returns the CPU time per call in microseconds. */
async function measureWithH2load({ port, pid, ca }: Running, seconds: number, args: readonly string[]) {
  const url = `${ca === undefined ? 'http' : 'https'}://127.0.0.1:${port}/api/work-items/17`;
  const calls = String(Math.round(H2LOAD_RATE * seconds * 1_000));
  const before = processorMs(pid);
  const child = spawn(...pin(1, 'h2load', [...args, '-n', calls, url]), { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  child.stdout.on('data', (data: Buffer) => (text += data.toString()));
  await once(child, 'close');
  const [, succeeded = '0'] = /(\d+) succeeded/.exec(text) ?? [];
  if (succeeded === '0' || !text.includes(' 0 failed') || !text.includes(' 0 5xx')) throw new Error(`h2load: ${text}`);
  return ((processorMs(pid) - before) * 1_000) / Number(succeeded);
}

/** Compares a variant with its `comparedWith`. The row has the median of all rounds' differences or of their ratios. */
function compare({ name, moreUsMax, factorMax }: Variant, own: readonly number[], other: readonly number[]) {
  const row: GuardRow = { name };
  const goal = factorMax ?? moreUsMax;
  if (goal === undefined) return row;
  row.goal = goal;
  if (factorMax === undefined) row.moreUs = median(own.map((us, round) => us - (other[round] ?? NaN)));
  else row.factor = median(own.map((us, round) => us / (other[round] ?? NaN)));
  return row;
}

async function measureAll(bench: Bench, variants: readonly Variant[]) {
  const running = new Map<Variant, Running>();
  for (const variant of variants) {
    const stdout = variant.isLogRead ? openReadPipe(bench.folder) : undefined;
    running.set(variant, await bench.start('gateway', { env: variant.settings, ca: variant.ca, stdout }));
  }
  const measure = async (variant: Variant, isFirst: boolean): Promise<number> => {
    const one = existing(running.get(variant));
    if (variant.h2load !== undefined) return measureWithH2load(one, bench.seconds, variant.h2load);
    const { rate = 0, headers = [''] } = variant;
    const load = { one, workload: ITEM_WORKLOAD, rate, headers, connections: rate === 0 ? 64 : CLIENTS };
    return (await bench.load(load, isFirst ? WARMUP : undefined)).us;
  };
  for (const variant of variants) await measure(variant, true);
  return bench.takeTurns(
    variants,
    (variant) => measure(variant, false),
    (us) => `${us.toFixed(1)} µs`,
  );
}

export const scenario: Scenario = {
  title: 'cost of guards, TLS, HTTP/2, logs and traces',
  rounds: 5,
  seconds: 1,
  minutes: 2,
  run: async (bench) => {
    for (const program of ['openssl', 'h2load', 'redis-server'].filter((name) => !hasProgram(name)))
      bench.note(`skipped the cases that need ${program}, which is not installed`);
    await using redis = withoutRedis ? undefined : await RedisServer.start();
    using certificate = hasProgram('openssl') && hasProgram('h2load') ? new Certificate() : undefined;
    const all = await makeVariants(bench.folder, certificate, redis?.url);
    const { only } = bench.flags;
    const variants = bench.choose(all, ({ name }) =>
      all.some((one) => one.comparedWith === name && only.includes(one.name)),
    );
    const results = await measureAll(bench, variants);
    const rows = [...results].map(([variant, costs]): GuardRow => {
      const other = variants.find(({ name }) => name === variant.comparedWith);
      const row = compare(variant, costs, (other && results.get(other)) ?? []);
      return { ...row, us: median(costs), ...(other && { comparedWith: other.name }) };
    });
    bench.print(
      'Reads of an item',
      ['', 'µs a call', 'more, median of the rounds', 'goal', 'other work, cores'],
      rows.map(({ name, us, comparedWith, moreUs, factor, goal }) => {
        const more =
          factor === undefined
            ? moreUs && `${moreUs.toFixed(1)} µs over ${comparedWith ?? ''}`
            : `× ${factor.toFixed(2)} of ${comparedWith ?? ''}`;
        const value = Number((factor ?? moreUs ?? NaN).toFixed(factor === undefined ? 1 : 2));
        if (goal !== undefined && value > goal) bench.miss(`${name}: ${value} instead of ${goal}`);
        return [name, formatUs(us), more, goal, bench.noise(name)];
      }),
    );
    return { guards: { ...bench.section, rows } };
  },
};
